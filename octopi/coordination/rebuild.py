"""A register whose memory is older than what brokers were told: its disk was lost, or an
old copy of it put back.

Brokers keep the newest record of every partition they were told, before they act on it.
For each partition, let R be the newest that was reported.  Whoever was the first to act on
a record newer than R is a member of R's in-sync set: the next leader is chosen among them,
and the leader that changes the set is one of them.  So when all of them have reported, and
R is still the newest, nothing newer was ever acted on, and R is the truth.  Fewer reports
are not enough.  Where nobody is in sync, the next leader is one of those that were in sync
until they lost data.  Until then nothing is decided about the partition; its leader leads on.

Epochs continue above every promise that was reported: their numbers are spent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from octopi.coordination.in_sync_changes import newest_set, without
from octopi.identifiers import NO_EPOCH, BrokerId, Epoch, PartitionId
from octopi.wire.messages import PartitionRecord, ReplicaReport, TopicRecord


@attrs.frozen
class Adoption:
    """What is known about a partition again."""

    record: PartitionRecord
    promised: Epoch
    """Epochs up to this are spent."""


class Rebuild:
    """What brokers reported since this register was started, as far as it was news.

    Changed only together with the journal: who asks what a report would lead to asks a `copy`,
    which takes the place of this when the entries are journaled.  A report whose entries could
    not be journaled has never been there, and the broker brings it again.

    Invariant: a partition is here until it is adopted.
    """

    def __init__(self) -> None:
        self.newest: dict[PartitionId, PartitionRecord] = {}
        """Per partition, a reported record that this register didn't know."""
        self.topics: dict[str, TopicRecord] = {}
        """Reported topics that lie on such partitions, by name."""
        self.holders: dict[str, frozenset[BrokerId]] = {}
        """By their ids, the brokers that reported them."""
        self._standings: dict[BrokerId, dict[PartitionId, ReplicaReport]] = {}
        self._promised: dict[PartitionId, Epoch] = {}
        """Per partition, the highest epoch that any broker promised, whatever else it lost."""

    def copy(self) -> Rebuild:
        """The same, to be changed apart from this."""
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
        """*broker* joins and tells what it was told; *known* is what the register knows."""
        self._standings[broker] = {one.partition: one for one in standings}
        for record in records:
            mine = self.newest.get(record.partition, known.get(record.partition))
            if mine is None or (mine.epoch, mine.version) < (record.epoch, record.version):
                self.newest[record.partition] = record

    def promise(self, standings: Iterable[ReplicaReport]) -> None:
        """A broker joins, with or without the data that it had, and has promised epochs."""
        for one in standings:
            if one.promised > self._promised.get(one.partition, 0):
                self._promised[one.partition] = one.promised

    def settle(self, known: Mapping[PartitionId, PartitionRecord]) -> list[Adoption]:
        """Partitions whose truth is known now, and that is newer than what is *known*; they are
        no longer kept here."""
        adoptions: list[Adoption] = []
        for partition, record in sorted(self.newest.items()):
            if not newest_set(record) <= self._standings.keys():
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
        """Every broker that some record in here names."""
        return {broker for record in self.newest.values() for broker in record.replicas}

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        for partition, record in self.newest.items():
            assert record.partition == partition
            assert self.missing(partition)
