"""`octopi-node tls`: make certificates for development."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.invocation import common_options
from octopi.cli.key_files import make_certificates
from octopi.cli.output import say


@click.group()
def tls() -> None:
    """Make certificates for development."""


@tls.command("dev-ca")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Host name or address of a node; repeat for more.  [default: those of this machine]",
)
@common_options
def dev_ca(directory: Path, hosts: tuple[str, ...]) -> None:
    """Make a certificate authority, and a certificate for nodes signed by it, in DIRECTORY.

    \b
    For instance:
      octopi-node tls dev-ca ./tls
      octopi-node --role register --tls-cert tls/node.pem --tls-key tls/node.key \\
        --tls-ca tls/ca.pem --data-dir ./register
      octopi-node status --server wss://127.0.0.1:7000 --tls-ca tls/ca.pem

    The authority's key is not stored, so no further certificate can be made with it.
    """
    make_certificates(directory, hosts)
    say(f"{directory}: ca.pem, node.pem and node.key", err=True)
