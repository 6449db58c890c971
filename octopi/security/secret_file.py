"""A file of join secrets, read for each connection, so a secret is replaced without a restart."""

from __future__ import annotations

from collections.abc import Callable

from octopi.environment import Clock
from octopi.errors import InvalidOptionError
from octopi.logger import get_logger
from octopi.security.join_secret import JoinSecrets

_log = get_logger(__name__)


class SecretFile:
    """A `SecretSource`.  While the file can't be read, its last content applies."""

    def __init__(self, path: str, read: Callable[[], bytes], clock: Clock, missing: str) -> None:
        """*read* gives the content of the file at *path*, or raises OSError or
        InvalidOptionError; *missing* says what to do where it is not there."""
        self._path = path
        self._read = read
        self._clock = clock
        self._last = JoinSecrets((), f"{path} is not there: {missing}")

    def load(self) -> JoinSecrets:
        """The secrets in the file; none, if it is not there.

        Raises:
          InvalidOptionError: if it can't be read, or has none.
        """
        try:
            text = self._read().decode("ascii", "replace")
        except FileNotFoundError:
            return self._last
        except OSError as error:
            raise InvalidOptionError(f"{self._path}: {error.strerror}") from None
        self._last = JoinSecrets.parse(text, self._path)
        return self._last

    def __call__(self) -> JoinSecrets:
        try:
            return self.load()
        except InvalidOptionError as error:
            if not self._last.keys:
                return JoinSecrets((), str(error))
            lines = _log.sparing(self._clock)
            lines.error("join secret unreadable, the last one counts", why=str(error))
            return self._last
