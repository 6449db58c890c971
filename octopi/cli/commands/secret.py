"""`octopi-node secret`: make the join secret that register and brokers of a cluster share."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.invocation import common_options
from octopi.cli.output import say


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@common_options
def secret(file: Path) -> None:
    """Make a join secret in FILE, or add another one to it.

    A register makes the first join secret itself (`join-secret` in its data directory).  Use this
    command to replace it without stopping nodes: nodes accept each other while they have one secret
    in common, and read their files again for each connection.

    \b
      octopi-node secret register/join-secret    # 1. add a second one
      # 2. copy the file to all brokers
      # 3. remove the first one from the files of all nodes

    The secret itself is not printed.
    """
    from octopi.cli.secret_files import add_secret
    from octopi.limits import JOIN_SECRET_BYTES
    from octopi.operating_system import SystemRandomness

    count = add_secret(file, SystemRandomness().token_bytes(JOIN_SECRET_BYTES))
    if count == 1:
        say(f"{file}: made a join secret", err=True)
    else:
        say(f"{file}: {count} join secrets; copy the file to all nodes, then remove the oldest one")
