"""Has the replica groups of partitions that this broker leads follow the ring."""

from __future__ import annotations

from octopi.coordination.election import ElectionGoal
from octopi.environment import Clock
from octopi.identifiers import BrokerId
from octopi.limits import (
    BOOK_COUNT,
    MOVES_AT_ONCE_MAX,
    REPLACE_ACCEPTOR_S,
    REPLACE_REPLICA_S,
    SETTLE_S,
    STABILISE_S,
)
from octopi.logger import get_logger
from octopi.ring.address_book import BookEntry
from octopi.ring.chord import Chord
from octopi.ring.cluster_record import ClusterRecord, PartitionKind
from octopi.ring.group_steps import RingBrokers, TakeAcceptors, next_step
from octopi.roles.broker.ring.partitions import RingPartitions
from octopi.roles.broker.ring.routes import KnowsBrokers
from octopi.wire.ring import RingNode

_log = get_logger(__name__)


class GroupFollowing:
    """Takes the steps.  `run` is one task of the broker's nursery."""

    def __init__(self, clock: Clock, known: KnowsBrokers, partitions: RingPartitions) -> None:
        self._clock = clock
        self._known = known
        self._partitions = partitions
        self._seen: tuple[frozenset[RingNode], tuple[BrokerId, ...]] = (frozenset(), ())
        """The other brokers that are not silent, and those that are drained."""
        self._seen_since = clock.now()

    async def run(self) -> None:
        """Take steps until cancelled."""
        while True:
            await self._clock.sleep_until(self._clock.now() + STABILISE_S)
            chord, record = self._known.chord, self._known.record
            if chord is None or record is None or record.is_frozen:
                continue
            # In a larger ring each broker knows others of it, and they would disagree.
            if len(chord.book) < BOOK_COUNT:
                self._follow(chord, record)

    def _follow(self, chord: Chord, record: ClusterRecord) -> None:
        now = self._clock.now()
        entries = list(chord.book)
        leaving = set(record.leaving)
        seen = frozenset(one.node for one in entries if not one.is_silent)
        ordered = {*leaving, *record.gone}  # they need no time in which they may come back
        settled = frozenset(one for one in seen if one.broker not in ordered)
        before = frozenset(one for one in self._seen[0] if one.broker not in ordered)
        if (settled, record.drained) != (before, self._seen[1]):
            self._seen_since = now
        self._seen = settled, record.drained
        if now - self._seen_since < SETTLE_S:
            return
        deciding = (chord.me, *_there(entries, now - REPLACE_ACCEPTOR_S))
        with_replicas = (chord.me, *_there(entries, now - REPLACE_REPLICA_S))
        ring = RingBrokers(
            tuple(one for one in deciding if one.broker not in leaving),
            tuple(one for one in with_replicas if one.broker not in leaving),
        )
        live = self._partitions.pulses.live
        moving = 0
        for machine in self._partitions:
            if not machine.leads or moving == MOVES_AT_ONCE_MAX:
                continue
            if self._partitions.hosted.awaits_topics(machine.partition):
                continue
            agreed = machine.agreed
            growth = record.growth_of(PartitionKind.LOG, machine.partition)
            assert growth is not None
            behind = set(agreed.record.replicas).difference(agreed.record.in_sync)
            if behind - self._silent(entries) - leaving:
                moving += 1  # one that has joined catches up, or one that was away
                continue
            # Pulses come only from the group; of the others it is known whether they answer.
            others = {one.broker for one in seen} - machine.brokers
            step = next_step(
                machine.value, agreed, growth.replicas, ring, live | others, record.drained
            )
            if step is None:
                continue
            moving += 1
            _log.info("the group of a partition moves", partition=machine.partition, step=str(step))
            if isinstance(step, TakeAcceptors):
                self._partitions.move(machine, step.acceptors)
            else:
                replicas = list(step.replicas)
                leader = machine.me.broker if machine.me.broker in replicas else None
                self._partitions.hold(machine, ElectionGoal(leader=leader, replicas=replicas))

    @staticmethod
    def _silent(entries: list[BookEntry]) -> set[BrokerId]:
        return {one.node.broker for one in entries if one.is_silent}


def _there(entries: list[BookEntry], since: float) -> list[RingNode]:
    """The brokers that are not silent, or were heard since then."""
    return [one.node for one in entries if not one.is_silent or one.heard_at >= since]
