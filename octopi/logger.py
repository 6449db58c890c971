"""Loggers of the library: events with fields, through the standard library's logging.

A program that embeds Octopi decides by `logging` what becomes of them, as with any
library, and hears nothing it didn't ask for below warnings; ``octopi-node`` renders them as
columns or JSON.  The fields of an event are in the record's ``extra``.

Lines that strangers cause by what they send are written by `EventLogger.sparing`, so that a
crowd of them can't fill a disk or hide other lines.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import attrs

from octopi.limits import STRANGERS_LINE_INTERVAL_S

_BOUND: Final[ContextVar[Mapping[str, object]]] = ContextVar("_BOUND")


class MonotonicClock(Protocol):
    """The part of `octopi.environment.Clock` that is needed here."""

    def now(self) -> float:
        """Seconds."""


@attrs.define
class _EventLines:
    """Lines about one event of one node."""

    due_at: float
    left_out_count: int = 0


_KINDS: Final[WeakKeyDictionary[MonotonicClock, dict[str, _EventLines]]] = WeakKeyDictionary()
"""By the node's clock: each node has one of its own, in a simulation, too."""


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
        """Something is wrong that an operator has to know of."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """The exception that is handled right now is a fault of ours."""
        self._log(logging.ERROR, event, fields, exc_info=True)

    def sparing(self, clock: MonotonicClock) -> EventLogger:
        """For what strangers cause: a logger of which each event is heard at most once in
        `STRANGERS_LINE_INTERVAL_S` by *clock*, the node's.  The next line of an event has
        ``left_out``, how many there would have been since the last one."""
        return SparingLogger(self._logger, clock)

    def _log(
        self, level: int, event: str, fields: Mapping[str, object], exc_info: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            extra = {**_BOUND.get({}), **fields}
            self._logger.log(level, event, extra=extra, exc_info=exc_info, stacklevel=3)


@attrs.frozen
class SparingLogger(EventLogger):
    """Logs an event seldom, whatever its fields are."""

    _clock: MonotonicClock

    def _log(
        self, level: int, event: str, fields: Mapping[str, object], exc_info: bool = False
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        now = self._clock.now()
        kinds = _KINDS.setdefault(self._clock, {})
        kind = kinds.get(event)
        if kind is not None and now < kind.due_at:
            kind.left_out_count += 1
            return
        kinds[event] = _EventLines(now + STRANGERS_LINE_INTERVAL_S)
        left_out = {"left_out": kind.left_out_count} if kind and kind.left_out_count else {}
        extra = {**_BOUND.get({}), **fields, **left_out}
        self._logger.log(level, event, extra=extra, exc_info=exc_info, stacklevel=3)


def get_logger(name: str) -> EventLogger:
    """The logger *name*."""
    return EventLogger(logging.getLogger(name))


def bind(**fields: object) -> None:
    """Add *fields* to every event that this task, and tasks begun in it, log from here on."""
    _BOUND.set({**_BOUND.get({}), **fields})
