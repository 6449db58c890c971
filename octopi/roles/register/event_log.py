"""The newest decisions and observations of the register, and their counts, for operators.

The events are kept in memory only and begin anew with each start of the register.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

import attrs

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.journal_entries import (
    BrokerRegistered,
    BrokerRemoved,
    Entry,
    EpochAnnounced,
    HandedOver,
    PartitionDecided,
    RegisterStarted,
    RelaySetDecided,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from octopi.environment import Clock
from octopi.identifiers import BrokerId, Epoch, PartitionId
from octopi.limits import EVENTS_KEPT_COUNT, TEXT_BYTES_MAX
from octopi.transport.failures import cut
from octopi.wire.messages import ClusterEvent, PartitionRecord, TopicOptions

KINDS: Final = (
    "register_started",
    "broker_joined",
    "broker_left",
    "broker_removed",
    "epoch_announced",
    "leader",
    "in_sync",
    "recovered",
    "topic_created",
    "topic_altered",
    "topic_deleted",
    "relay_set",
)


class EventLog:
    """The newest events, numbered from 1."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: deque[ClusterEvent] = deque(maxlen=EVENTS_KEPT_COUNT)
        self._last = 0
        self.counts: Counter[str] = Counter()
        """The number of events of each kind since the register was started."""

    def after(self, number: int) -> list[ClusterEvent]:
        """The kept events with numbers greater than *number*, oldest first."""
        return [event for event in self._events if event.number > number]

    def decided(self, entry: Entry, before: ClusterState) -> None:
        """The register decided *entry*, on top of the state *before*."""
        match entry:
            case RegisterStarted(life):
                self._note("register_started", f"the register's generation {life.generation} began")
            case BrokerRegistered(broker, incarnation, _, address):
                text = f"broker {broker} joined, incarnation {incarnation}, at {address}"
                self._note("broker_joined", text, broker=broker)
            case BrokerRemoved(broker):
                self._note("broker_removed", f"broker {broker} was removed", broker=broker)
            case EpochAnnounced(partition, epoch):
                text = f"partition {partition}: epoch {epoch} was announced"
                self._note("epoch_announced", text, partition=partition, epoch=epoch)
            case PartitionDecided(record):
                self._partition_decided(record, before.partitions.get(record.partition))
            case TopicCreated(record):
                self._note("topic_created", f"topic {record.topic} was created", topic=record.topic)
            case TopicAltered(record):
                former = before.topic(record.topic)
                changes = "" if former is None else changed_options(former.options, record.options)
                text = f"topic {record.topic} was altered: {changes}"
                self._note("topic_altered", text, topic=record.topic)
            case RelaySetDecided(relays):
                members = ", ".join(map(str, relays.members))
                state = "are in force" if relays.in_force else "were ordered"
                text = f"relay partition {relays.partition}: the members {members} {state}"
                self._note("relay_set", text)
            case HandedOver():
                self._note("handed_over", "the register handed the cluster over to its brokers")
            case TopicDeleted(topic):
                self._note("topic_deleted", f"topic {topic} was deleted", topic=topic)

    def left(self, broker: BrokerId) -> None:
        """A broker's connection ended."""
        self._note("broker_left", f"broker {broker} left", broker=broker)

    def recovered(
        self, record: PartitionRecord, losses: list[str], *, ordered: bool = False
    ) -> None:
        """A leader was chosen although acknowledged records may be lost; *losses*: the topics and
        offsets of known losses."""
        text = (
            f"partition {record.partition}: broker {record.leader} leads in epoch {record.epoch} "
        )
        text += (
            "by an operator's order: messages that were acknowledged may be lost; "
            if ordered
            else "after all replicas in sync had lost data: messages that were acknowledged within "
            "the last flush interval before that may be lost; "
        )
        text += f"known to be lost: {'; '.join(losses)}" if losses else "none is known to be"
        self._note("recovered", cut(text, TEXT_BYTES_MAX), record=record)

    def _partition_decided(self, record: PartitionRecord, before: PartitionRecord | None) -> None:
        in_sync = ", ".join(map(str, record.in_sync))
        if before is None or before.epoch < record.epoch:
            text = f"partition {record.partition}: broker {record.leader} leads in epoch "
            text += f"{record.epoch}, in sync: {in_sync}"
            self._note("leader", text, record=record)
        else:
            self._note(
                "in_sync", f"partition {record.partition}: in sync: {in_sync}", record=record
            )

    def _note(
        self,
        kind: str,
        text: str,
        *,
        record: PartitionRecord | None = None,
        partition: PartitionId | None = None,
        epoch: Epoch | None = None,
        broker: BrokerId | None = None,
        topic: str = "",
    ) -> None:
        if record is not None:
            partition, epoch, broker = record.partition, record.epoch, record.leader
        self._last += 1
        self.counts[kind] += 1
        self._events.append(
            ClusterEvent(
                number=self._last,
                at_ms=self._clock.wall_ms(),
                kind=kind,
                partition=partition,
                broker=broker,
                topic=topic,
                epoch=epoch,
                in_sync=[] if record is None else list(record.in_sync),
                text=text,
            )
        )


def changed_options(before: TopicOptions, after: TopicOptions) -> str:
    """The options that differ, with their values in *after*."""
    known = attrs.asdict(before)
    changes = {name: value for name, value in attrs.asdict(after).items() if value != known[name]}
    return ", ".join(
        f"{name} {'default' if value is None else value}" for name, value in changes.items()
    )
