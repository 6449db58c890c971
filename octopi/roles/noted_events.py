"""The newest events of a cluster that one node decided or saw, and their counts, for operators.

They are kept in memory only, and begin anew with each start of the node.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection
from typing import Final

import attrs

from octopi.environment import Clock
from octopi.identifiers import BrokerId, Epoch, Incarnation, PartitionId
from octopi.limits import EVENTS_KEPT_COUNT, TEXT_BYTES_MAX
from octopi.transport.failures import cut
from octopi.wire.messages import ClusterEvent, PartitionRecord, TopicOptions, TopicRecord

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
    "handed_over",
    "hot_topic",
)


class NotedEvents:
    """The newest events, numbered from 1."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: deque[ClusterEvent] = deque(maxlen=EVENTS_KEPT_COUNT)
        self._last = 0
        self.counts: Counter[str] = Counter()
        """The number of events of each kind since the node was started."""

    def after(self, number: int) -> list[ClusterEvent]:
        """The kept events with numbers greater than *number*, oldest first."""
        return [event for event in self._events if event.number > number]

    # --- brokers -----------------------------------------------------------------------------

    def joined(self, broker: BrokerId, incarnation: Incarnation, address: str) -> None:
        """A broker joined."""
        text = f"broker {broker} joined, incarnation {incarnation}, at {address}"
        self.note("broker_joined", text, broker=broker)

    def left(self, broker: BrokerId, why: str = "") -> None:
        """A broker is there no more."""
        self.note("broker_left", f"broker {broker} left{why and f': {why}'}", broker=broker)

    def removed(self, broker: BrokerId) -> None:
        """A broker was removed for good."""
        self.note("broker_removed", f"broker {broker} was removed", broker=broker)

    # --- partitions --------------------------------------------------------------------------

    def announced(self, partition: PartitionId, epoch: Epoch) -> None:
        """An election began."""
        text = f"partition {partition}: epoch {epoch} was announced"
        self.note("epoch_announced", text, partition=partition, epoch=epoch)

    def leader_decided(self, record: PartitionRecord) -> None:
        """A leader was appointed."""
        text = (
            f"partition {record.partition}: broker {record.leader} leads in epoch {record.epoch}, "
            f"in sync: {_numbers(record.in_sync)}"
        )
        self.note("leader", text, record=record)

    def in_sync_changed(self, record: PartitionRecord) -> None:
        """Other replicas are in sync."""
        text = f"partition {record.partition}: in sync: {_numbers(record.in_sync)}"
        self.note("in_sync", text, record=record)

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
        self.note("recovered", cut(text, TEXT_BYTES_MAX), record=record)

    # --- topics ------------------------------------------------------------------------------

    def topic_created(self, topic: str) -> None:
        """A topic was created."""
        self.note("topic_created", f"topic {topic} was created", topic=topic)

    def topic_altered(self, topic: str, changes: str) -> None:
        """Options of a topic were changed: *changes*, see `changed_options`."""
        self.note("topic_altered", f"topic {topic} was altered: {changes}", topic=topic)

    def topic_deleted(self, topic: str) -> None:
        """A topic was deleted."""
        self.note("topic_deleted", f"topic {topic} was deleted", topic=topic)

    def note(
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
        """Keep an event of that *kind*, one of `KINDS`."""
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


def changed_generation(before: TopicRecord, after: TopicRecord) -> str:
    """What *after* says of the generation that is under way, or was, if *before* says otherwise."""
    if before.generations == after.generations:
        return ""
    newest = after.generations[-1]
    state = newest.state.replace("_", " ")
    return f"generation {newest.number} on partitions {newest.partitions} is {state}"


def _numbers(brokers: Collection[BrokerId]) -> str:
    return ", ".join(map(str, brokers))
