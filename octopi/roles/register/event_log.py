"""The newest decisions and observations of the register, for operators."""

from __future__ import annotations

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.journal_entries import (
    BrokerRegistered,
    BrokerRemoved,
    Entry,
    EpochAnnounced,
    HandedOver,
    HandOverAnnounced,
    PartitionDecided,
    RegisterStarted,
    RelaySetDecided,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from octopi.identifiers import PartitionId
from octopi.roles.noted_events import NotedEvents, changed_generation, changed_options
from octopi.wire.messages import PartitionRecord


class EventLog(NotedEvents):
    """What follows from the entries of the register's journal, and what the register saw."""

    def decided(self, entry: Entry, before: ClusterState) -> None:
        """The register decided *entry*, on top of the state *before*."""
        match entry:
            case RegisterStarted(life):
                self.note("register_started", f"the register's generation {life.generation} began")
            case BrokerRegistered(broker, incarnation, _, address):
                self.joined(broker, incarnation, address)
            case BrokerRemoved(broker):
                self.removed(broker)
            case EpochAnnounced(partition, epoch):
                self.announced(partition, epoch)
            case PartitionDecided(record):
                self._partition_decided(record, before.partitions.get(record.partition))
            case TopicCreated(record):
                self.topic_created(record.topic)
            case TopicAltered(record):
                former = before.topic(record.topic)
                if former is None or not (changes := changed_generation(former, record)):
                    options = record.options if former is None else former.options
                    changes = changed_options(options, record.options)
                self.topic_altered(record.topic, changes)
            case RelaySetDecided(relays):
                members = ", ".join(map(str, relays.members))
                state = "are in force" if relays.in_force else "were ordered"
                text = f"relay partition {relays.partition}: the members {members} {state}"
                self.note("relay_set", text)
            case HandOverAnnounced():
                self.note("hand_over_announced", "the register is about to hand the cluster over")
            case HandedOver():
                self.note("handed_over", "the register handed the cluster over to its brokers")
            case TopicDeleted(topic):
                self.topic_deleted(topic)

    def hot_topic(self, partition: PartitionId, topic: str, load: float) -> None:
        """A partition is too much for one broker; *topic* is most of it, if it has traffic."""
        text = f"partition {partition} is too much for one broker: load {load:.2f}"
        if topic:
            text += f", most of it topic {topic}; a topic with more partitions spreads its load"
        self.note("hot_topic", text, partition=partition, topic=topic)

    def _partition_decided(self, record: PartitionRecord, before: PartitionRecord | None) -> None:
        if before is None or before.epoch < record.epoch:
            self.leader_decided(record)
        else:
            self.in_sync_changed(record)
