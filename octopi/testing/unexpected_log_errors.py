"""What nodes write to their logs while a test runs.

That their peers die and their disks are full is what tests are made of, so what nodes complain of
is not shown.  But an exception with its traceback is a fault of their code, whatever fails around
them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.kernel.world import Violation, World
from octopi.simulation.node_logs import taken_logs, traceback_of


@contextmanager
def sifted(world: World, servers: frozenset[str]) -> Iterator[None]:
    """Within the block, drop what *servers* log, fail the run at exceptions, and pass on what
    clients log."""

    def take(life: ProcessLife | None, record: logging.LogRecord) -> None:
        if life is None or life.host.name not in servers:
            logging.getLogger().handle(record)
        elif not life.is_over and (trace := traceback_of(record)):
            text = f"{life.host.name} logged an exception: {record.getMessage()}\n{trace}"
            world.fail(Violation("complaint", text))

    with taken_logs(take):
        yield
