"""Reads and writes files with keys; other users can't read files with secret keys."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from octopi.cli.failures import CommandError, ExitCode
from octopi.errors import InvalidOptionError

if TYPE_CHECKING:
    from octopi.security.tokens import KeyRing


def read_keys(file: Path) -> KeyRing:
    """The key set in *file*.

    Raises:
      CommandError: if the file can't be read.
      InvalidOptionError: if the file is not a key set.
    """
    from octopi.security.tokens import KeyRing  # slow to import, and not every node needs it

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no text"
        raise CommandError(f"{file}: {why}", ExitCode.USAGE) from None
    try:
        return KeyRing.parse(text)
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{file}: {error}") from None


def make_certificates(directory: Path, hosts: Sequence[str]) -> None:
    """Make a certificate authority, and a certificate for nodes at *hosts* (none: this machine), as
    ``ca.pem``, ``node.pem`` and ``node.key`` in *directory*.

    Raises:
      CommandError: if one of the files exists, or the package trustme is missing.
      OSError: if a file can't be written.
    """
    try:
        import trustme
    except ImportError:
        raise CommandError(
            "making certificates needs the package trustme: pip install 'octopi-node[crypto]'"
        ) from None

    ca_file, cert_file, key_file = (directory / name for name in ("ca.pem", "node.pem", "node.key"))
    refuse_existing(ca_file, cert_file, key_file)
    authority = trustme.CA()
    certificate = authority.issue_cert(*(hosts or ("localhost", "127.0.0.1", "::1")))
    directory.mkdir(0o755, parents=True, exist_ok=True)
    chain = "".join(blob.bytes().decode() for blob in certificate.cert_chain_pems)
    write_secret(ca_file, authority.cert_pem.bytes().decode(), mode=0o644)
    write_secret(cert_file, chain, mode=0o644)
    write_secret(key_file, certificate.private_key_pem.bytes().decode())


def make_secret_key(file: Path) -> str:
    """Make a key set with one new secret key in *file*; return the name of the key.

    Raises:
      CommandError: if *file* exists.
      OSError: if it can't be written.
    """
    from octopi.operating_system import SystemRandomness
    from octopi.security.tokens import SECRET_BYTES_MIN, secret_key

    randomness = SystemRandomness()
    name = randomness.token_bytes(4).hex()
    write_secret(file, key_set(secret_key(name, randomness.token_bytes(SECRET_BYTES_MIN))))
    return name


def key_set(entry: Mapping[str, str]) -> str:
    """The text of a key set with one key."""
    return json.dumps({"keys": [entry]}, indent=2) + "\n"


def write_secret(file: Path, text: str, mode: int = 0o600) -> None:
    """Make *file* with the permissions *mode*, by default readable for its owner only.

    Raises:
      CommandError: if *file* exists.
      OSError: if *file* can't be written.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise _exists(file) from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)


def refuse_existing(*files: Path) -> None:
    """Check, before any file is written, that none of *files* exists.

    Raises:
      CommandError: if one exists.
    """
    for file in files:
        if file.exists():
            raise _exists(file)


def _exists(file: Path) -> CommandError:
    return CommandError(f"{file} exists: choose another name", ExitCode.USAGE)
