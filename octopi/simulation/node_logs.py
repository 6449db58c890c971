"""What simulated nodes log, by the process that logs it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Final

from octopi.simulation.kernel import driver
from octopi.simulation.kernel.host import ProcessLife

_LIBRARY: Final = "octopi"

Take = Callable[[ProcessLife | None, logging.LogRecord], None]
"""Gets a record of the log and the process that logged it; None: no simulated process did."""


def traceback_of(record: logging.LogRecord) -> str:
    """The exception of *record* with its traceback; empty: it has none.  A node that logs one has a
    fault in its code, whatever fails around it."""
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else ""


class _Handler(logging.Handler):
    def __init__(self, take: Take, level: int) -> None:
        super().__init__(level)
        self._take = take
        self._thread = get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if get_ident() != self._thread:
            return  # the run has no part in what other threads do meanwhile
        life = driver.OWNER.get()
        self._take(life if isinstance(life, ProcessLife) else None, record)


@contextmanager
def taken_logs(take: Take, *, errors_alone: bool = False) -> Iterator[None]:
    """Within the block, give *take* all that the library logs in this thread, and pass nothing on
    to the root.

    *errors_alone*: give it errors, and no record to other handlers.
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
