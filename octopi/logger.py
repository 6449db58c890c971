"""Loggers of the library: events with fields, through the standard library's logging.

A program that embeds Octopi configures them with `logging`, as with any library; by default it gets
only warnings and errors.  ``octopi-node`` renders events as columns or JSON.  The fields of an
event are in the record's ``extra``.

Events that strangers can cause are logged with `EventLogger.sparing`, so that many of them can't
fill a disk or hide other lines.
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
    """The lines about one event of one node."""

    due_at: float
    left_out_count: int = 0


_KINDS: Final[WeakKeyDictionary[MonotonicClock, dict[str, _EventLines]]] = WeakKeyDictionary()
"""The lines by clock, which stands for the node: also in a simulation each node has a clock of its
own."""


@attrs.frozen
class EventLogger:
    """Logs events: ``log.info("broker joined", broker=3)``."""

    _logger: logging.Logger

    def info(self, event: str, **fields: object) -> None:
        """Log an event of normal operation."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log that something is wrong, and is handled."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log that something is wrong that an operator has to know."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Log an event with the exception that is handled now, which is a bug of Octopi."""
        self._log(logging.ERROR, event, fields, exc_info=True)

    def sparing(self, clock: MonotonicClock) -> EventLogger:
        """A logger for events that strangers can cause: it logs each event at most once in
        `STRANGERS_LINE_INTERVAL_S` by *clock*, the node's.  The field ``left_out`` of the next line
        says how many lines were left out since the last one."""
        return SparingLogger(self._logger, clock)

    def _log(
        self, level: int, event: str, fields: Mapping[str, object], exc_info: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            extra = {**_BOUND.get({}), **fields}
            self._logger.log(level, event, extra=extra, exc_info=exc_info, stacklevel=3)


@attrs.frozen
class SparingLogger(EventLogger):
    """Logs each event at most once in `STRANGERS_LINE_INTERVAL_S`, even if its fields differ."""

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
    """Add *fields* to every event that this task, and tasks begun in it, log from now on."""
    _BOUND.set({**_BOUND.get({}), **fields})
