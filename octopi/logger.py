"""Loggers of the library: events with fields, through the standard library's logging.

A program that embeds Octopi decides by `logging` what becomes of them, as with any
library, and hears nothing it didn't ask for below warnings; ``octopi-node`` renders them as
columns or JSON.  The fields of an event are in the record's ``extra``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

import attrs

_BOUND: Final[ContextVar[Mapping[str, object]]] = ContextVar("_BOUND")


@attrs.frozen
class EventLogger:
    """Logs events: ``log.info("broker joined", broker=3)``."""

    _logger: logging.Logger

    def info(self, event: str, **fields: object) -> None:
        """Something went as it should."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something is not as it should be, and is dealt with."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Something is wrong that somebody has to know of."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """The exception that is handled right now is a fault of ours."""
        self._log(logging.ERROR, event, fields, exc_info=True)

    def _log(
        self, level: int, event: str, fields: Mapping[str, object], exc_info: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            extra = {**_BOUND.get({}), **fields}
            self._logger.log(level, event, extra=extra, exc_info=exc_info, stacklevel=3)


def get_logger(name: str) -> EventLogger:
    """The logger *name*."""
    return EventLogger(logging.getLogger(name))


def bind(**fields: object) -> None:
    """Add *fields* to every event that this task, and tasks begun in it, log from here on."""
    _BOUND.set({**_BOUND.get({}), **fields})
