"""A node as the release before was, for tests: ``python -m tests.kit.older_node --role ...``.

It speaks version 1 of the protocol only.  What came later it does not know: it refuses such
messages and fields, and ends the connection, as that release does.
"""

from __future__ import annotations

import sys

from octopi.transport import handshake, requests
from octopi.wire.declarations import DECLARATIONS, MESSAGES

OLDER_VERSION = 1
AGENT = "octopi-node/0.0.9"


def older_node_command(*arguments: str) -> list[str]:
    """The command line that runs a node of the release before."""
    return [sys.executable, "-m", "tests.kit.older_node", *arguments]


def _grow_older() -> None:
    """Forget, in this process, what came after `OLDER_VERSION`."""
    for module in (handshake, requests):
        vars(module)["PROTOCOL_VERSION"] = OLDER_VERSION
    for declaration in DECLARATIONS.values():
        if declaration.since > OLDER_VERSION:
            del MESSAGES[declaration.name]
    from octopi.cli import compose, nodes

    for shown in (compose, nodes):
        vars(shown)["AGENT"] = AGENT


if __name__ == "__main__":
    _grow_older()
    from octopi_node import main

    main()
