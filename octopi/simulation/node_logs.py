"""Collects what simulated nodes log, with the process that logs it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Final

from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.kernel.owners import OWNER

_LIBRARY: Final = "octopi"

Take = Callable[[ProcessLife | None, logging.LogRecord], None]
"""Gets a log record and the process that logged it; None if no simulated process did."""


def traceback_of(record: logging.LogRecord) -> str:
    """The exception of *record* with its traceback; empty if it has none.  A node that logs an
    exception has a fault in its code, whatever fails around it."""
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else ""


class _Handler(logging.Handler):
    def __init__(self, take: Take, level: int) -> None:
        super().__init__(level)
        self._take = take
        self._thread = get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if get_ident() != self._thread:
            return  # other threads aren't part of the run
        life = OWNER.get()
        self._take(life if isinstance(life, ProcessLife) else None, record)


@contextmanager
def taken_logs(take: Take, *, errors_alone: bool = False) -> Iterator[None]:
    """Within the block, pass to *take* all that the library logs in this thread, and nothing to the
    root logger.

    *errors_alone*: pass only errors to *take*, and nothing to other handlers.
    """
    logger = logging.getLogger(_LIBRARY)
    saved = logger.level, logger.propagate, logger.handlers
    logger.propagate = False
    if errors_alone:
        logger.setLevel(logging.ERROR)
        logger.handlers = [_Handler(take, logging.ERROR)]
    else:
        logger.handlers = [_Handler(take, logging.NOTSET), *logger.handlers]
    try:
        yield
    finally:
        level, logger.propagate, logger.handlers = saved
        logger.setLevel(level)
