"""What a leader does before another broker leads its partition: the first part of a hand-over.

The register asks the leader to prepare before it announces the next epoch, and the leader leads
meanwhile.  Services of a leader add parts here, such as storing what they keep in memory only.
Nothing may depend on the preparation: a leader that dies can't prepare, and it is cancelled after
`octopi.limits.PREPARE_S`.
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
"""Called with the number of a partition that this broker leads; cancelled when the time is over."""


class HandOverPreparation:
    """Prepares the partitions that this broker leads for other leaders."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.parts: list[Prepare] = []
        """The parts, which run side by side for each partition."""

    async def prepare(self, partition: PartitionId) -> None:
        """Prepare *partition* for another leader, as far as that can be done in time."""
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
