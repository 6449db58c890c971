"""`octopi-node secret`: the secret that registers and brokers of a cluster share."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.invocation import common_options
from octopi.cli.output import say


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@common_options
def secret(file: Path) -> None:
    """Make a join secret in FILE, or add one to those that are in it.

    A register makes the first one by itself (`join-secret` in its data directory).  This is for
    exchanging it, while all nodes go on: nodes that have one secret in common believe each other,
    and they read their files again for each connection.

    \b
      octopi-node secret register/join-secret    # 1. a second one
      # 2. copy the file to all brokers
      # 3. remove the first one from the files of all nodes

    The secret itself is not shown.
    """
    from octopi.cli.secret_files import add_secret
    from octopi.limits import JOIN_SECRET_BYTES
    from octopi.operating_system import SystemRandomness

    count = add_secret(file, SystemRandomness().token_bytes(JOIN_SECRET_BYTES))
    if count == 1:
        say(f"{file}: a join secret", err=True)
    else:
        say(f"{file}: {count} join secrets; copy the file to all nodes, then remove the oldest one")
