"""Files with keys: read, and made such that no other user can read the secret ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from octopi.cli.failures import CommandError, ExitCode
from octopi.errors import InvalidOptionError

if TYPE_CHECKING:
    from octopi.security.tokens import KeyRing


def read_keys(file: Path) -> KeyRing:
    """The key set in *file*.

    Raises:
      CommandError: if it can't be read.
      InvalidOptionError: if it is no key set.
    """
    from octopi.security.tokens import KeyRing  # dear to import, and not every node needs it

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no text"
        raise CommandError(f"{file}: {why}", ExitCode.USAGE) from None
    try:
        return KeyRing.parse(text)
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{file}: {error}") from None


def write_secret(file: Path, text: str, mode: int = 0o600) -> None:
    """Make *file*, which is not to be read by others unless *mode* says so.

    Raises:
      CommandError: if it exists.
      OSError: if it can't be made.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise _exists(file) from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)


def refuse_existing(*files: Path) -> None:
    """Make sure, before any file is written, that all of them can be.

    Raises:
      CommandError: if one exists.
    """
    for file in files:
        if file.exists():
            raise _exists(file)


def _exists(file: Path) -> CommandError:
    return CommandError(f"{file} exists: choose another name", ExitCode.USAGE)
