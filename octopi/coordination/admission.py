"""What a register learns from a broker that asks to join, before anything of it counts."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.journal_entries import (
    ClusterFormed,
    Entry,
    EpochAnnounced,
    OlderTopicFound,
    PartitionDecided,
    TopicCreated,
)
from octopi.coordination.rebuild import Rebuild
from octopi.identifiers import NO_EPOCH, BrokerId, Epoch, Incarnation, PartitionId
from octopi.wire.messages import PartitionRecord, RemovedTopic, ReplicaReport, TopicRecord


@attrs.frozen
class Admission:
    """A broker may join, as soon as the entries are durable."""

    broker: BrokerId
    incarnation: Incarnation
    entries: list[Entry]
    conflicts: list[str]
    """What the broker holds and the cluster does not know as its own, in words."""
    rebuild: Rebuild
    """What is known from reports, this broker's with them."""
    learned: list[PartitionId]
    """Partitions that the entries make known again, by what brokers reported."""
    is_back: bool
    """Whether this life of it was live all the time: only its connection is a new one."""
    unserved: list[TopicRecord] = attrs.field(factory=list)
    """Topics that the broker holds and the register doesn't serve."""
    proofs: list[str] = attrs.field(factory=list)
    """Decisions of this register that its journal lacks, in words: it is an older copy."""

    def held_elsewhere(self) -> Iterator[tuple[BrokerId, RemovedTopic]]:
        """Deleted topics of which the entries tell that other brokers hold them, with those; what
        this broker holds itself it hears of from `Admissions.sync`."""
        for entry in self.entries:
            if isinstance(entry, OlderTopicFound) and entry.broker != self.broker:
                yield entry.broker, RemovedTopic(entry.topic, entry.topic_id)


def adopt(
    state: ClusterState, rebuild: Rebuild, standings: list[ReplicaReport], entries: list[Entry]
) -> tuple[dict[PartitionId, PartitionRecord], dict[PartitionId, Epoch], list[PartitionId]]:
    """Add to *entries* what is known again by *rebuild*; return the partitions and their highest
    spent epochs as they are then, and which of them were adopted."""
    partitions = dict(state.partitions)
    spent = {partition: state.announced_epoch(partition) for partition in partitions}
    promised = {one.partition: one.promised for one in standings}
    adoptions = rebuild.settle(state.partitions)
    for adoption in adoptions:
        record = attrs.evolve(adoption.record, seal="")
        partitions[record.partition] = record
        spent[record.partition] = max(spent.get(record.partition, NO_EPOCH), record.epoch)
        promised[record.partition] = adoption.promised
        entries.append(PartitionDecided(record))
    for partition, epoch in promised.items():
        # An epoch that was promised and isn't known here may have been decided by a register
        # that is gone, and some broker may still hear of it: go above.
        if partition in rebuild.newest:
            continue  # until its newest record is known its leader leads on
        if partition in partitions and epoch > spent[partition]:
            spent[partition] = Epoch(epoch + 1)
            entries.append(EpochAnnounced(partition, Epoch(epoch + 1)))
    last = max([*partitions, *rebuild.newest], default=-1)
    if last >= state.partition_count:
        entries.append(ClusterFormed(state.cluster, last + 1))
    return partitions, spent, [adoption.record.partition for adoption in adoptions]


def take_over_topics(
    state: ClusterState,
    rebuild: Rebuild,
    broker: BrokerId,
    topics: list[TopicRecord],
    partitions: dict[PartitionId, PartitionRecord],
    entries: list[Entry],
    unserved: list[TopicRecord],
) -> list[str]:
    """Add to *entries* those *topics* that *broker* reports and whose *partitions* are known, and
    to *unserved* those that are kept although another one of their name is in use; return
    conflicts, these among them.

    Of two topics of one name, one may say that it was made when the other had been deleted.  Then
    who reports that other one has it removed.  Otherwise nothing tells which of them is in use:
    both are kept.  Likewise if the deleted one is in use again, as nobody told of the other one
    in time: it may hold messages that were acknowledged since.
    """
    waiting: dict[str, TopicRecord] = rebuild.topics
    conflicts: list[str] = []
    for topic in topics:
        if topic.topic_id in state.removals:
            continue
        in_use = state.topic(topic.topic)
        known = in_use or waiting.setdefault(topic.topic, topic)
        if known.topic_id == topic.topic_id:
            if in_use is None:
                rebuild.holders[topic.topic_id] = rebuild.holders.get(
                    topic.topic_id, frozenset()
                ) | {broker}
        elif topic.topic_id in known.replaces:
            entries.append(OlderTopicFound(topic.topic, topic.topic_id, broker))
        elif in_use is None and known.topic_id in topic.replaces:
            waiting[topic.topic] = topic
            holders = rebuild.holders.pop(known.topic_id, frozenset())
            rebuild.holders[topic.topic_id] = frozenset({broker})
            entries += (
                OlderTopicFound(known.topic, known.topic_id, one) for one in sorted(holders)
            )
        else:
            unserved.append(topic)
            conflicts.append(
                f"topic {topic.topic} exists here as {known.topic_id}, the broker holds "
                f"records of {topic.topic_id}: they are kept, but not served"
            )
    ids = {one.topic_id for one in state.topics_after("", state.topic_count)} if waiting else set()
    for topic in list(waiting.values()):
        if not all(one in partitions for one in topic.partitions):
            continue
        del waiting[topic.topic]
        rebuild.holders.pop(topic.topic_id, None)
        if topic.topic_id in ids:
            conflicts.append(f"topic {topic.topic} has the id {topic.topic_id} of another topic")
            continue
        ids.add(topic.topic_id)
        entries.append(TopicCreated(attrs.evolve(topic, seal="")))
    return conflicts
