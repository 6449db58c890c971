"""What nodes write to their logs while a test runs.

That their peers die and their disks are full is what tests are made of, so nobody is shown
what nodes complain of.  But an exception with its traceback is a fault of their code, whatever
fails around them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from octopi.simulation.kernel.driver import OWNER
from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.kernel.world import Violation, World

_LIBRARY: Final = "octopi"


class _ErrorFilter(logging.Handler):
    """Passes on what clients say."""

    def __init__(self, world: World, servers: frozenset[str]) -> None:
        super().__init__()
        self._world = world
        self._servers = servers

    def emit(self, record: logging.LogRecord) -> None:
        life = OWNER.get()
        if not isinstance(life, ProcessLife) or life.host.name not in self._servers:
            logging.getLogger().handle(record)
        elif record.exc_info and not life.is_over:
            trace = logging.Formatter().formatException(record.exc_info)
            text = f"{life.host.name} logged an exception: {record.getMessage()}\n{trace}"
            self._world.fail(Violation("complaint", text))


@contextmanager
def sifted(world: World, servers: frozenset[str]) -> Iterator[None]:
    """Within the block, let nobody hear what *servers* log, and fail the run at exceptions."""
    logger = logging.getLogger(_LIBRARY)
    saved = logger.propagate, logger.handlers
    logger.propagate, logger.handlers = False, [_ErrorFilter(world, servers), *logger.handlers]
    try:
        yield
    finally:
        logger.propagate, logger.handlers = saved
