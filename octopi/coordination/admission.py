"""What a register learns from a broker that asks to join, before it admits the broker."""

from __future__ import annotations

from collections.abc import Container, Iterator

import attrs

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.journal_entries import (
    ClusterFormed,
    Entry,
    EpochAnnounced,
    OlderTopicFound,
    PartitionDecided,
    TopicAltered,
    TopicCreated,
)
from octopi.coordination.rebuild import Rebuild
from octopi.identifiers import NO_EPOCH, BrokerId, Epoch, Incarnation, PartitionId
from octopi.wire.messages import PartitionRecord, RemovedTopic, ReplicaReport, TopicRecord


@attrs.frozen
class Admission:
    """The decision to admit a broker, which may join as soon as the entries are durable."""

    broker: BrokerId
    incarnation: Incarnation
    entries: list[Entry]
    conflicts: list[str]
    """Conflicts between the broker's report and the register's state, as messages for the log."""
    rebuild: Rebuild
    """What brokers have reported, including this one."""
    learned: list[PartitionId]
    """Partitions whose records the entries adopt from the reports of brokers."""
    is_back: bool
    """Whether this incarnation of the broker was live already, so only its connection is new."""
    unserved: list[TopicRecord] = attrs.field(factory=list)
    """Topics that the broker holds and the register doesn't serve."""
    proofs: list[str] = attrs.field(factory=list)
    """Decisions of this register that its journal lacks, as texts: the journal is an older copy."""

    def held_elsewhere(self) -> Iterator[tuple[BrokerId, RemovedTopic]]:
        """Deleted topics that, by the entries, other brokers hold, each with its holder.  The
        joining broker is told of those that it holds itself by `Admissions.sync`."""
        for entry in self.entries:
            if isinstance(entry, OlderTopicFound) and entry.broker != self.broker:
                yield entry.broker, RemovedTopic(entry.topic, entry.topic_id)


@attrs.frozen
class UnreportedAdoption:
    """The decision to go on with the newest record of a partition that brokers have reported,
    although others that could know a newer one have not."""

    entries: list[Entry]
    rebuild: Rebuild
    """What brokers have reported, without that partition."""
    topics: list[TopicRecord]
    """The topics that are known by that."""


def adopt_unreported(
    state: ClusterState, rebuild: Rebuild, partition: PartitionId
) -> UnreportedAdoption:
    """Go on with the newest record of *partition*; *rebuild* is not changed."""
    rebuild, entries = rebuild.copy(), list[Entry]()
    partitions, _, _ = adopt(state, rebuild, [], entries, accepted=(partition,))
    take_over_topics(state, rebuild, BrokerId(0), [], partitions, entries, [])
    topics = [one.record for one in entries if isinstance(one, TopicCreated)]
    return UnreportedAdoption(entries, rebuild, topics)


def adopt(
    state: ClusterState,
    rebuild: Rebuild,
    standings: list[ReplicaReport],
    entries: list[Entry],
    accepted: Container[PartitionId] = (),
) -> tuple[dict[PartitionId, PartitionRecord], dict[PartitionId, Epoch], list[PartitionId]]:
    """Add to *entries* the records that *rebuild* can settle, or that are *accepted*.  Return the
    resulting partitions, their highest spent epochs, and the partitions that were adopted."""
    partitions = dict(state.partitions)
    spent = {partition: state.announced_epoch(partition) for partition in partitions}
    promised = {one.partition: one.promised for one in standings}
    adoptions = rebuild.settle(state.partitions, accepted)
    for adoption in adoptions:
        record = attrs.evolve(adoption.record, seal="")
        partitions[record.partition] = record
        spent[record.partition] = max(spent.get(record.partition, NO_EPOCH), record.epoch)
        promised[record.partition] = adoption.promised
        entries.append(PartitionDecided(record))
    for partition, epoch in promised.items():
        # A promised epoch that is unknown here may have been decided by a register that is gone,
        # and its decision may still reach a broker, so continue above it.
        if partition in rebuild.newest:
            continue  # its leader keeps leading until its newest record is known
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
    to *unserved* those that are kept although another topic of the same name is in use.  Return the
    conflicts, including these topics.  Of the options of one topic, the newest count.

    The record of a topic may say that an earlier topic of the same name was deleted before it was
    created.  Then a broker that reports the earlier topic removes it.  Otherwise it is unknown
    which of the two is in use, and both are kept.  Both are also kept if the deleted topic is in
    use again, because no broker reported the later one in time: the deleted topic may hold messages
    that were acknowledged since.
    """
    waiting: dict[str, TopicRecord] = rebuild.topics
    altered: dict[str, TopicRecord] = {}
    conflicts: list[str] = []
    for topic in topics:
        if topic.topic_id in state.removals:
            continue
        in_use = state.topic(topic.topic)
        known = in_use or waiting.setdefault(topic.topic, topic)
        if known.topic_id == topic.topic_id:
            known = altered.get(topic.topic, known)
            if topic.alteration > known.alteration:
                # The broker that was told of the topic before was away when its options changed.
                newer = attrs.evolve(
                    known,
                    partitions=topic.partitions,
                    options=topic.options,
                    generation=topic.generation,
                    version=topic.version,
                    generations=topic.generations,
                )
                if in_use is not None and not all(p in partitions for p in newer.log_partitions):
                    conflicts.append(
                        f"topic {topic.topic} has grown to partitions that are not known here"
                    )
                    continue
                (waiting if in_use is None else altered)[topic.topic] = newer
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
    entries += map(TopicAltered, altered.values())
    ids = {one.topic_id for one in state.topics_after("", state.topic_count)} if waiting else set()
    for topic in list(waiting.values()):
        if not all(one in partitions for one in topic.log_partitions):
            continue
        del waiting[topic.topic]
        rebuild.holders.pop(topic.topic_id, None)
        if topic.topic_id in ids:
            conflicts.append(f"topic {topic.topic} has the id {topic.topic_id} of another topic")
            continue
        ids.add(topic.topic_id)
        entries.append(TopicCreated(attrs.evolve(topic, seal="")))
    return conflicts
