"""Has other brokers lead what this broker of a ring leads: all of it, while it is drained or
leaves, and otherwise what is more than its share."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import trio

from octopi.coordination.election import ElectionGoal
from octopi.environment import Clock
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import HAND_OVERS_MAX, STABILISE_S
from octopi.logger import get_logger
from octopi.ring.lead_sharing import LeadSharing
from octopi.ring.partition import RingPartition
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.partitions import RingPartitions

_log = get_logger(__name__)


class LeadMoves:
    """Hands leads over, some at a time, each after it was prepared.  `run` is one task of the
    broker's nursery."""

    def __init__(self, clock: Clock, partitions: RingPartitions, replicas: ReplicaManager) -> None:
        self._clock = clock
        self._partitions = partitions
        self._replicas = replicas
        self._sharing = LeadSharing()
        self._moving: set[PartitionId] = set()
        """What is being prepared."""

    async def run(self) -> None:
        """Hand over what others are to lead, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                for machine, goal in self._next():
                    if len(self._moving) < HAND_OVERS_MAX:
                        self._moving.add(machine.partition)
                        nursery.start_soon(self._hand_over, machine, goal)
                decided = self._partitions.decided
                with self._clock.timeout(STABILISE_S):
                    if self._is_unwilling:  # more of them may be due
                        await decided.wait()
                    else:
                        await trio.sleep_forever()

    def _next(self) -> Iterator[tuple[RingPartition, ElectionGoal]]:
        """What to hand over now."""
        unwilling = self._partitions.pulses.unwilling
        if self._is_unwilling:
            for machine in led_with_others(self._partitions, unwilling):
                if machine.partition not in self._moving:
                    yield machine, ElectionGoal(avoid=unwilling)
            return
        for move in self._sharing.moves(
            (one.agreed for one in self._partitions), self._willing(), self._clock.now()
        ):
            led = self._partitions.partition(move.partition)
            if led is not None and led.leads and move.partition not in self._moving:
                yield led, ElectionGoal(leader=move.leader, avoid=unwilling)

    @property
    def _is_unwilling(self) -> bool:
        return self._partitions.me.broker in self._partitions.pulses.unwilling

    def _willing(self) -> set[BrokerId]:
        """The brokers that are in sync somewhere, are there and well, and may lead."""
        pulses = self._partitions.pulses
        known = {broker for one in self._partitions for broker in one.agreed.record.in_sync}
        willing = (one for one in known - pulses.unwilling if pulses.is_there(one))
        return {one for one in willing if not pulses.is_troubled(one)}

    async def _hand_over(self, machine: RingPartition, goal: ElectionGoal) -> None:
        try:
            await self._replicas.prepare_hand_over(machine.partition)
            if machine.leads:
                _log.info("another broker is to lead", partition=machine.partition)
                self._partitions.hold(machine, goal)
        finally:
            self._moving.discard(machine.partition)


def led_with_others(
    partitions: RingPartitions, unwilling: Collection[BrokerId] = frozenset()
) -> Iterator[RingPartition]:
    """The partitions that this broker leads, and that another live replica could lead that is not
    *unwilling*."""
    others = partitions.pulses.live - {partitions.me.broker, *unwilling}
    for machine in partitions:
        if machine.leads and others.intersection(machine.agreed.record.in_sync):
            yield machine
