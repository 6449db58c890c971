"""Reads a token from a file.  Tokens never stand on a command line, which other users can see."""

from __future__ import annotations

from pathlib import Path

from octopi.cli.failures import CommandError, ExitCode
from octopi.logger import get_logger

_log = get_logger(__name__)


class TokenFile:
    """A file with a token.  It is read for each use, so replacing it needs no restart."""

    def __init__(self, path: str) -> None:
        """Read *path*.

        Raises:
          CommandError: if there is no token in it.
        """
        self._path = Path(path)
        try:
            self._last = self._read()
        except OSError as error:
            raise CommandError(
                f"{path}: {error.strerror}; make a token with `octopi-node token create`",
                ExitCode.USAGE,
            ) from None
        if not self._last:
            raise CommandError(
                f"{path} is empty; make a token with `octopi-node token create`", ExitCode.USAGE
            )

    def __call__(self) -> str:
        try:
            self._last = self._read() or self._last
        except OSError as error:
            _log.error("token_file_unreadable", path=str(self._path), why=error.strerror)
        return self._last

    def _read(self) -> str:
        return self._path.read_text(encoding="ascii", errors="replace").strip()
