"""Reads and writes files with keys; other users can't read files with secret keys."""

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
