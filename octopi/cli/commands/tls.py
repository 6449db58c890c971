"""`octopi-node tls`: make certificates for development."""

from __future__ import annotations

from pathlib import Path

import click

from octopi.cli.failures import CommandError
from octopi.cli.invocation import common_options
from octopi.cli.key_files import refuse_existing, write_secret
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
    try:
        import trustme
    except ImportError:
        raise CommandError(
            "making certificates needs the package trustme: pip install 'octopi-node[crypto]'"
        ) from None

    files = [directory / name for name in ("ca.pem", "node.pem", "node.key")]
    refuse_existing(*files)
    authority = trustme.CA()
    certificate = authority.issue_cert(*(hosts or ("localhost", "127.0.0.1", "::1")))
    directory.mkdir(0o755, parents=True, exist_ok=True)
    chain = "".join(blob.bytes().decode() for blob in certificate.cert_chain_pems)
    ca_file, cert_file, key_file = files
    write_secret(ca_file, authority.cert_pem.bytes().decode(), mode=0o644)
    write_secret(cert_file, chain, mode=0o644)
    write_secret(key_file, certificate.private_key_pem.bytes().decode())
    say(f"{directory}: ca.pem, node.pem and node.key", err=True)
