"""This broker's part in handing the cluster over to registers (`octopi.ring.ending`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Final

from octopi.environment import Clock
from octopi.errors import NotReadyError
from octopi.identifiers import BrokerId
from octopi.limits import ENDING_PATIENCE_S, REPLICA_TICK_S, STABILISE_S
from octopi.logger import get_logger
from octopi.ring.ending import Ending, EndingStage
from octopi.ring.partition import RingPartition
from octopi.ring.partition_requests import EndingKind, EndingStep
from octopi.roles.broker.ring.cluster_keeper import ClusterKeeper
from octopi.roles.broker.ring.partitions import RingPartitions
from octopi.roles.broker.ring.topics.keeper import RingTopics

_log = get_logger(__name__)

_READ_AT_ONCE_MAX: Final = 64
"""Values that are read at once."""


class RingEnding:
    """Does what each stage asks of this broker, and states that it is done.  `run` is one task of
    the broker's nursery."""

    def __init__(
        self, clock: Clock, keeper: ClusterKeeper, partitions: RingPartitions, topics: RingTopics
    ) -> None:
        self._clock = clock
        self._keeper = keeper
        self._partitions = partitions
        self._topics = topics
        self._me: BrokerId = partitions.me.broker
        self._stage: tuple[int, EndingStage] | None = None
        self._since = inf
        """Since when `_stage` is the present one."""
        self._read_at = inf
        """When values are read anew."""

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            record = self._keeper.record
            if record is not None and record.ending is not None:
                try:
                    await self._go_on(record.ending)
                except NotReadyError as error:
                    _log.sparing(self._clock).info("handing over goes on later", why=str(error))
            await self._clock.sleep_until(self._clock.now() + REPLICA_TICK_S)

    async def _go_on(self, ending: Ending) -> None:
        """Raises NotReadyError if no majority of the acceptors of the record answers."""
        attempt, stage = ending.attempt, ending.stage
        if self._stage != (attempt, stage):
            self._stage, self._since = (attempt, stage), self._clock.now()
            self._read_at = self._since + STABILISE_S
            _log.info("handing over to registers", stage=stage.value, attempt=attempt)
        match stage:
            case EndingStage.RESTING:
                self._rest(attempt)
                is_done = self._are_all(lambda one: one.agreed.ending == attempt)
            case EndingStage.CLOSING:
                self._close(attempt, ending.brokers)
                closed = self._are_all(
                    lambda one: one.agreed.is_closed and one.agreed.ending == attempt
                )
                is_done = closed and await self._have_ended(attempt)
            case EndingStage.GIVEN_UP:
                self._reopen(attempt)
                return
            case EndingStage.ENDED:
                return
        if is_done and self._me in ending.missing:
            await self._keeper.change(lambda one: one.with_statement(self._me, attempt, stage))
        elif self._clock.now() - self._since > ENDING_PATIENCE_S:
            _log.warning("handing over is given up", waits_for=list(ending.missing))
            await self._keeper.change(lambda one: one.without_ending(attempt))

    def _are_all(self, is_so: Callable[[RingPartition], bool]) -> bool:
        """Whether that is so of all partitions; some are read anew of which it is not known.

        All, not only its own: a broker that was just started does not know yet which these are.
        """
        unknown = [one for one in self._partitions if not is_so(one)]
        now = self._clock.now()
        if now >= self._read_at:  # leaders are given time to change them, and to tell that
            self._read_at = now + STABILISE_S
            for one in unknown[:_READ_AT_ONCE_MAX]:
                if not one.leads:
                    self._partitions.read(one)
        return not unknown

    async def _have_ended(self, attempt: int) -> bool:
        """Whether this broker has all that was decided about the partitions of which it has a
        replica, which are closed."""
        ended = [await self._partitions.has_ended(one, attempt) for one in list(self._own())]
        return all(ended)

    def _own(self) -> Iterator[RingPartition]:
        """The partitions of which this broker has a replica."""
        return (one for one in self._partitions if self._me in one.agreed.record.replicas)

    def _rest(self, attempt: int) -> None:
        self._reopen(attempt - 1)
        for one in self._own():
            if one.agreed.ending < attempt and not one.agreed.is_closed:
                epoch = self._topics.is_at_rest(one.partition)
                if one.leads and epoch is not None:
                    self._partitions.end(one, EndingStep(EndingKind.REST, attempt, epoch))

    def _close(self, attempt: int, brokers: tuple[BrokerId, ...]) -> None:
        for one in self._own():
            if one.leads and one.agreed.ending == attempt and not one.agreed.is_closed:
                self._partitions.end(one, EndingStep(EndingKind.CLOSE, attempt, brokers=brokers))

    def _reopen(self, attempt: int) -> None:
        for one in self._own():
            if one.agreed.is_closed and one.agreed.ending <= attempt:
                self._partitions.end(one, EndingStep(EndingKind.REOPEN, attempt))
