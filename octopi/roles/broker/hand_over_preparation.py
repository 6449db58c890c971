"""What is done before another broker leads a partition: the first part of a hand-over.

The register asks the leader to prepare before it announces the next epoch, and the leader leads
meanwhile.  What depends on who leads hangs its own part in here, such as storing what it
only keeps in memory.  Preparing is a courtesy: a leader that dies can't, so nothing may depend on
it, and it is given up after `octopi.limits.PREPARE_S`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from octopi.environment import Environment
from octopi.errors import OctopiError
from octopi.identifiers import PartitionId
from octopi.limits import PREPARE_S
from octopi.logger import get_logger
from octopi.tracing import steps

_log = get_logger(__name__)

Prepare = Callable[[PartitionId], Awaitable[None]]
"""Given the number of a partition that this broker leads; cancelled when the time is over."""


class HandOverPreparation:
    """All that a broker does before one of its leaderships changes hands."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.parts: list[Prepare] = []
        """Called side by side, for each partition."""

    async def prepare(self, partition: PartitionId) -> None:
        """Prepare for another leader of *partition*, as far as that can be done in time."""
        if (trace := self._environment.trace) is not None:
            trace(steps.E23Preparing(partition=partition))
        with self._environment.clock.timeout(PREPARE_S):
            async with trio.open_nursery() as nursery:
                for part in self.parts:
                    nursery.start_soon(self._do, part, partition)
        if trace is not None:
            trace(steps.E23Prepared(partition=partition))

    async def _do(self, part: Prepare, partition: PartitionId) -> None:
        try:
            await part(partition)
        except OctopiError as error:
            _log.warning("a hand-over is not prepared", partition=partition, why=str(error))
