"""Leaders that are chosen although acknowledged records may be lost.

If all in-sync replicas have lost what was in their memories, the best of them leads, and the
partition record says so (`octopi.model.PartitionRecord.recovered_epoch`).  The only replica of a
partition leads again with what it has.  If the in-sync replicas are gone or damaged, an operator
orders that the best of the remaining replicas leads, or, if none remains, that the partition begins
again empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from octopi.coordination.in_sync_changes import newest_set
from octopi.coordination.journal_entries import PartitionDecided
from octopi.identifiers import NO_EPOCH, BrokerId, Epoch, Incarnation, PartitionId
from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.kernel.host import LOSE_POWER
from octopi.simulation.kernel.world import Event
from octopi.tracing import steps
from octopi.wire.messages import PartitionRecord

ORDERED: Final = "order"
"""The name of the event in which an operator orders that the best of the remaining replicas leads a
partition.  Its facts are ``partition``, the number of the partition, and, if no replica remains,
``empty_on``, the broker on which the partition begins again empty."""


@attrs.frozen
class Accepted:
    """What a replica reported when it accepted an epoch."""

    incarnation: Incarnation
    log_epoch: Epoch
    """The newest epoch in which it led or agreed with the leader."""
    ends: Mapping[str, int]
    """Topic id -> the end of the sound part of the log."""
    known_ends: Mapping[str, int]
    """Topic id -> the highest end that the log is known to have, or to have had."""
    damaged: frozenset[str]
    """The ids of the topics whose logs lack records that were on the device."""

    @classmethod
    def of(cls, step: steps.E7Counted) -> Accepted:
        """The acceptance that the register counted in *step*."""
        logs = step.ends
        return cls(
            step.incarnation,
            step.log_epoch,
            {one["topic_id"]: one["end"] for one in logs},
            {one["topic_id"]: max(one["end"], one["held_end"]) for one in logs},
            frozenset(one["topic_id"] for one in logs if not one["sound"]),
        )


class Recoveries:
    """Finds the decisions by which such leaders begin, among the events of *cluster*'s world."""

    kinds: Final = frozenset(
        {LOSE_POWER, steps.E7Counted.text, steps.E8Decided.text, steps.J5Admitted.text}
    )

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._seen: dict[int, int] = {}
        """Partition -> the epoch of the last decision that was found."""
        self._lost_power: set[tuple[str, int]] = set()
        """Host and partition of replicas that lost power and have no other replica beside them."""
        self._accepted: dict[PartitionId, tuple[Epoch, dict[BrokerId, Accepted]]] = {}
        """Partition -> the epoch that was accepted last, and what each broker reported with it."""

    def accepted(self, record: PartitionRecord) -> dict[BrokerId, Accepted]:
        """What the brokers reported that accepted the epoch of *record*, each in the incarnation
        that the register knows."""
        epoch, accepted = self._accepted.get(record.partition, (NO_EPOCH, {}))
        if epoch != record.epoch:
            return {}
        lives = self._cluster.decided.incarnation_to_be
        return {broker: one for broker, one in accepted.items() if one.incarnation == lives(broker)}

    def found(self, event: Event) -> Iterator[PartitionRecord]:
        """The decisions of *event* by which leaders begin with what they have, as partition
        records."""
        step = event.about
        if isinstance(step, steps.E7Counted):
            known, accepted = self._accepted.get(step.partition, (NO_EPOCH, {}))
            accepted = accepted if known == step.epoch else {}
            accepted[step.broker] = Accepted.of(step)
            self._accepted[step.partition] = step.epoch, accepted
            return
        if event.what == LOSE_POWER:
            broker = self._cluster.broker_of(event.host)
            for record in self._cluster.decided.state.partitions.values():
                if record.replicas == [broker]:
                    self._lost_power.add((event.host, record.partition))
            return
        assert isinstance(step, steps.E8Decided | steps.J5Admitted)
        for entry in step.entries:
            if not isinstance(entry, PartitionDecided):
                continue
            record = entry.record
            key = self._cluster.host_of(record.leader), record.partition
            is_only = len(record.replicas) == 1 and key in self._lost_power
            is_new = self._seen.get(record.partition, 0) < record.epoch
            if is_new and (is_only or record.recovered_epoch == record.epoch):
                self._seen[record.partition] = record.epoch
                self._lost_power.discard(key)
                yield record


def better_than(leader: BrokerId, ends: Mapping[BrokerId, Sequence[int]]) -> str:
    """A description of the broker that lacks less than *leader*; empty if there is none, or if
    *leader* is not among *ends*.  *ends*: broker -> the ends of its logs, always in the same order.

    Logs are compared one by one, as docs/protocol.md says: the best broker is behind in the fewest
    logs; among equals it lacks the fewest bytes of what any of the brokers has.
    """
    if leader not in ends:
        return ""
    furthest = [max(column) for column in zip(*ends.values(), strict=True)]
    lacks: dict[int, tuple[int, int]] = {}
    for broker, held in ends.items():
        missing = [most - end for most, end in zip(furthest, held, strict=True)]
        lacks[broker] = sum(size > 0 for size in missing), sum(missing)
    best = min(lacks, key=lambda one: (lacks[one], one))
    if lacks[best] == lacks[leader]:
        return ""
    return (
        f"broker {leader} leads: it is behind in {lacks[leader][0]} logs, by {lacks[leader][1]} "
        f"bytes, and broker {best} in {lacks[best][0]}, by {lacks[best][1]}"
    )


def best_by_order(
    record: PartitionRecord, accepted: Mapping[BrokerId, Accepted], topics: Sequence[str]
) -> tuple[set[BrokerId], dict[BrokerId, list[int]]]:
    """The brokers among *accepted* that may lead by an operator's order, and the ends of their logs
    of *topics*, which are topic ids.  *record*: the decision that the order replaces.

    The order of preference is that of docs/protocol.md: first the brokers whose logs lack nothing
    that was on the device, then those that were in sync last, then those that agreed with a leader
    last.
    """
    pool = {one for one in accepted if one in record.replicas}
    pool = {one for one in pool if not accepted[one].damaged} or pool
    for known in (newest_set(record), {*record.in_sync, *record.lost}):
        pool = pool & known or pool
    newest = max((accepted[one].log_epoch for one in pool), default=0)
    pool = {one for one in pool if accepted[one].log_epoch == newest}
    return pool, {one: [accepted[one].ends.get(topic, 0) for topic in topics] for one in pool}
