"""Leaders that were chosen although acknowledged records may be lost.

When all replicas that were in sync have lost what was in their memory, the best of them leads,
and its record says so (`octopi.wire.messages.PartitionRecord.recovered_epoch`).  The only replica
of a partition leads again with what it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from octopi import steps
from octopi.membership.entries import PartitionDecided
from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.host import LOSE_POWER
from octopi.simulation.world import Event
from octopi.wire.messages import PartitionRecord


class Recoveries:
    """Finds such decisions among the events of *cluster*'s world."""

    kinds: Final = frozenset({LOSE_POWER, steps.E8_DECIDED, steps.J5_ADMITTED})

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._seen: dict[int, int] = {}
        """Partition -> the epoch that was found last."""
        self._lost_power: set[tuple[str, int]] = set()
        """Host and partition, for partitions that have no other replica."""

    def found(self, event: Event) -> Iterator[PartitionRecord]:
        """The records of *event* whose leaders lead with what they have."""
        if event.what == LOSE_POWER:
            broker = self._cluster.broker_of(event.host)
            for record in self._cluster.register_view.state.partitions.values():
                if record.replicas == [broker]:
                    self._lost_power.add((event.host, record.partition))
            return
        for entry in event.facts["entries"]:
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


def better_than(leader: int, ends: Mapping[int, Sequence[int]]) -> str:
    """Which broker lacks less than *leader*, in words; empty if none does.  *ends*: broker -> the
    ends of its logs, in one order; those of a leader that isn't there are not judged.

    Log by log, as docs/protocol.md says: who is behind in the fewest, then who lacks the fewest
    bytes of what any of them has.
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
