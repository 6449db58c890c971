"""Hand-overs of all leaderships of a broker to others, many partitions at a time.

Each partition changes its leader as after a failure, except that the old leader is live: it
prepares, and leads until it hears of the next epoch.  If the broker is about to stop, leaders also
remove it from the in-sync sets that suffice without it, so no commit waits for it once it is gone.
"""

from __future__ import annotations

import trio

from octopi.coordination.controller import Controller
from octopi.coordination.election import NO_GOAL
from octopi.environment import Environment
from octopi.errors import NotReadyError, StorageError
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import HAND_OVER_ALL_S, HAND_OVER_TIMEOUT_S, HAND_OVERS_MAX
from octopi.logger import get_logger
from octopi.roles.register.election_driver import ElectionDriver, no_other
from octopi.roles.register.member import Member
from octopi.roles.register.members import Members
from octopi.roles.register.register_tracer import RegisterTracer
from octopi.wire.messages import BrokersStopping, PartitionRecord

_log = get_logger(__name__)


class HandOvers:
    """Hands over the leaderships of brokers that stop or are drained."""

    def __init__(
        self,
        environment: Environment,
        controller: Controller,
        tracer: RegisterTracer,
        members: Members,
        election_driver: ElectionDriver,
    ) -> None:
        self._environment = environment
        self._controller = controller
        self._tracer = tracer
        self._members = members
        self._election_driver = election_driver

    # --- brokers that stop -------------------------------------------------------------

    async def broker_stops(self, member: Member) -> None:
        """A broker is about to stop.  Return once other brokers lead all partitions that they can
        lead, and the broker has left all in-sync sets that suffice without it; at the latest after
        `HAND_OVER_ALL_S`.

        Raises:
          NotReadyError, StorageError: if the register can decide nothing.
        """
        broker = member.broker
        self._controller.stopping.add(broker)
        _log.info("broker is about to stop", broker=broker, incarnation=member.incarnation)
        self._tracer.emptying(broker, member.incarnation)
        self.tell_stopping()
        with self._environment.clock.timeout(HAND_OVER_ALL_S):
            while self._led(broker) and not self._election_driver.is_finishing:
                await self._hand_over_all(broker)
            await self._election_driver.until(
                lambda: self._election_driver.is_finishing or not self._is_needed(broker),
                HAND_OVER_ALL_S,
                f"others instead of broker {broker}",
            )
        self._tracer.emptied(broker, member.incarnation)

    def starts_anew(self, broker: BrokerId) -> None:
        """*broker* joined with a new incarnation: it may get leaderships and replicas again."""
        if broker in self._controller.stopping:
            self._controller.stopping.discard(broker)
            self.tell_stopping()

    def tell_stopping(self) -> None:
        """Tell all brokers which brokers are about to stop.  Brokers that have just stopped are
        included, because leaders may notice only later that they no longer follow."""
        for member in self._members.values():
            self.tell_stopping_to(member)

    def tell_stopping_to(self, member: Member) -> None:
        """Tell one broker which brokers are about to stop."""
        member.post(BrokersStopping(sorted(self._controller.stopping)))

    def _is_needed(self, broker: BrokerId) -> bool:
        """Whether a leader is about to remove *broker* from its in-sync set."""
        return any(
            self._can_spare(record, broker)
            for record in self._controller.state.partitions.values()
            if broker in record.in_sync and self._is_staying(record.leader)
        )

    def _can_spare(self, record: PartitionRecord, broker: BrokerId) -> bool:
        """Whether enough other replicas are in sync or will be."""
        others = [one for one in record.replicas if one != broker and self._is_staying(one)]
        return len(others) >= self._controller.state.min_insync(record.partition)

    def _is_staying(self, broker: BrokerId) -> bool:
        return self._controller.is_live(broker) and broker not in self._controller.stopping

    # --- brokers that are drained -------------------------------------------------------

    async def drain(self, broker: BrokerId) -> None:
        """Have other brokers lead the partitions of *broker*; it gets no leadership until its
        restart.

        Raises:
          RefusedError: NOT_READY where no other broker could lead; then it keeps those leaderships
              and gets no others.
        """
        self._controller.draining.add(broker)
        await self._hand_over_all(broker)
        left = [one for one in self._controller.state.partitions.values() if one.leader == broker]
        if left:
            raise no_other(left[0].partition)

    # --- both ----------------------------------------------------------------------------

    def _led(self, broker: BrokerId) -> list[PartitionId]:
        """The partitions that *broker* leads and another broker could lead."""
        records = self._controller.state.partitions.values()
        return [
            one.partition
            for one in records
            if one.leader == broker and self._has_successor(one.partition, broker)
        ]

    def _has_successor(self, partition: PartitionId, broker: BrokerId) -> bool:
        """Whether *broker* leads the partition and another broker could."""
        record = self._controller.state.partitions[partition]
        avoided = self._controller.stopping
        if broker not in avoided:
            avoided = avoided | self._controller.draining
        return record.leader == broker and any(
            one != broker and one not in avoided and self._controller.is_live(one)
            for one in record.in_sync
        )

    async def _hand_over_all(self, broker: BrokerId) -> None:
        """Try once to hand over each partition that *broker* leads and another broker could lead.
        Changes of these partitions that were under way are over afterwards, too.

        Raises:
          NotReadyError, StorageError: if the register can decide nothing.
        """
        limit = trio.CapacityLimiter(HAND_OVERS_MAX)
        problems: list[NotReadyError | StorageError] = []

        async def hand_over(partition: PartitionId) -> None:
            async with limit:
                try:
                    await self._hand_over(partition, broker)
                except (NotReadyError, StorageError) as error:
                    problems.append(error)

        async with trio.open_nursery() as nursery:
            for partition in self._led(broker):
                nursery.start_soon(hand_over, partition)
        if problems:
            raise problems[0]

    async def _hand_over(self, partition: PartitionId, broker: BrokerId) -> None:
        try:
            await self._election_driver.change(
                partition, NO_GOAL, if_still=lambda: self._has_successor(partition, broker)
            )
        except NotReadyError as error:
            _log.info("not handed over now", partition=partition, why=str(error))
            await self._election_driver.until(
                lambda: not self._election_driver.is_changing(partition),
                HAND_OVER_TIMEOUT_S,
                "a new leader",
            )
