"""How a register learns its decisions again after its disk was lost or replaced by an older copy.

A broker stores the newest record of a partition that it was sent before it acts on the record.  For
each partition, let R be the newest record that was reported.  The first broker that acted on a
record newer than R is a member of R's in-sync set: the next leader is chosen from that set, and the
leader that changes the set is in it.  So once all members have reported and R is still the newest
record, no broker ever acted on a newer one, and the register adopts R.  Fewer reports are not
enough.  If R's in-sync set is empty, the next leader is chosen from the replicas that were in sync
until they lost data, so these must have reported.  Until then the register decides nothing about
the partition, and its leader keeps leading.  New epochs are above every promise that was reported,
because those numbers are spent.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import attrs

from octopi.coordination.in_sync_changes import newest_set, without
from octopi.identifiers import NO_EPOCH, BrokerId, Epoch, PartitionId
from octopi.wire.messages import PartitionRecord, ReplicaReport, TopicRecord


@attrs.frozen
class Adoption:
    """What the register has learned again about a partition."""

    record: PartitionRecord
    promised: Epoch
    """Epochs up to this are spent."""


class Rebuild:
    """Reports of brokers since this register was started that told it something new.

    Changed only together with the journal: a caller applies a report to a `copy`, which replaces
    this object once the entries are in the journal.  If the entries could not be journaled, the
    copy is dropped, and the broker sends its report again.

    Invariant: a partition is in `newest` until its record is adopted.
    """

    def __init__(self) -> None:
        self.newest: dict[PartitionId, PartitionRecord] = {}
        """Per partition, a reported record that this register didn't know."""
        self.topics: dict[str, TopicRecord] = {}
        """Reported topics that lie on such partitions, by name."""
        self.holders: dict[str, frozenset[BrokerId]] = {}
        """Per topic id, the brokers that reported the topic."""
        self._standings: dict[BrokerId, dict[PartitionId, ReplicaReport]] = {}
        self._promised: dict[PartitionId, Epoch] = {}
        """Per partition, the highest epoch that any broker promised, including brokers that lost
        data."""

    def copy(self) -> Rebuild:
        """An independent copy."""
        copy = Rebuild()
        copy.newest = dict(self.newest)
        copy.topics = dict(self.topics)
        copy.holders = dict(self.holders)
        copy._standings = dict(self._standings)
        copy._promised = dict(self._promised)
        return copy

    def report(
        self,
        broker: BrokerId,
        records: Iterable[PartitionRecord],
        standings: Iterable[ReplicaReport],
        known: Mapping[PartitionId, PartitionRecord],
    ) -> None:
        """*broker* joins and reports the records that it was sent; *known* are the register's
        own."""
        self._standings[broker] = {one.partition: one for one in standings}
        for record in records:
            mine = self.newest.get(record.partition, known.get(record.partition))
            if mine is None or (mine.epoch, mine.version) < (record.epoch, record.version):
                self.newest[record.partition] = record

    def promise(self, standings: Iterable[ReplicaReport]) -> None:
        """A broker joins, with or without the data that it had, and reports the epochs it
        promised."""
        for one in standings:
            if one.promised > self._promised.get(one.partition, 0):
                self._promised[one.partition] = one.promised

    def settle(
        self,
        known: Mapping[PartitionId, PartitionRecord],
        accepted: Container[PartitionId] = (),
    ) -> list[Adoption]:
        """Remove and return the partitions whose newest record is certain now and newer than the
        *known* one, or that are *accepted*: an operator says that brokers which have not reported
        are lost for good."""
        adoptions: list[Adoption] = []
        for partition, record in sorted(self.newest.items()):
            if partition not in accepted and not newest_set(record) <= self._standings.keys():
                continue
            del self.newest[partition]
            mine = known.get(partition)
            if mine is not None and (mine.epoch, mine.version) >= (record.epoch, record.version):
                continue
            promised = max(record.epoch, self._promised.get(partition, NO_EPOCH))
            for broker, standings in self._standings.items():
                standing = standings.get(partition)
                if standing is None:
                    continue
                if not standing.intact and broker in record.in_sync and record.replicas != [broker]:
                    record = without(record, broker)
            adoptions.append(Adoption(record, promised))
        return adoptions

    def missing(self, partition: PartitionId) -> set[BrokerId]:
        """Brokers that have to report before *partition* can be decided on."""
        record = self.newest.get(partition)
        if record is None:
            return set()
        return newest_set(record) - self._standings.keys()

    def away(self) -> list[BrokerId]:
        """Brokers that have to report before everything is known."""
        return sorted(set().union(*(self.missing(partition) for partition in self.newest)))

    def mentioned_brokers(self) -> set[BrokerId]:
        """Every broker that a record not adopted yet names."""
        return {broker for record in self.newest.values() for broker in record.replicas}

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        for partition, record in self.newest.items():
            assert record.partition == partition
            assert self.missing(partition)
