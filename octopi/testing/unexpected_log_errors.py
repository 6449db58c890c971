"""Filters the logs of nodes while a test runs.

Tests make nodes die and disks fill up on purpose, so the warnings and errors of nodes are not
shown.  But an exception with its traceback is a fault of a node's code, whatever fails around it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.kernel.world import Violation, World
from octopi.simulation.node_logs import taken_logs, traceback_of

OnLine: TypeAlias = Callable[[ProcessLife | None, logging.LogRecord], object]
"""Called with a log record, and the process that logged it."""


@contextmanager
def sifted(world: World, servers: frozenset[str], on_line: OnLine) -> Iterator[None]:
    """Within the block, drop the logs of *servers* except exceptions, which fail the run, and pass
    on the logs of clients.  *on_line* gets all of them first."""

    def take(life: ProcessLife | None, record: logging.LogRecord) -> None:
        on_line(life, record)
        if life is None or life.host.name not in servers:
            logging.getLogger().handle(record)
        elif not life.is_over and (trace := traceback_of(record)):
            text = f"{life.host.name} logged an exception: {record.getMessage()}\n{trace}"
            world.fail(Violation("complaint", text))

    with taken_logs(take):
        yield
