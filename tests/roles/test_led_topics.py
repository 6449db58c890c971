"""The leader of a partition keeps subscriptions of topics whose logs come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import NotLeaderError, OctopiError
from octopi.identifiers import (
    Claim,
    Epoch,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TopicId,
    TopicName,
)
from octopi.metrics.subscription_counts import SubscriptionCounts
from octopi.model import SubscriptionMode, TopicOptions
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.replication.effects import Answer
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.subscriptions.led_partition import LedPartition
from octopi.subscriptions.effects import Effect, Session
from octopi.subscriptions.entries import MarkEntry, mark_key, to_map
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet
from tests.roles.state_logs import SharedStates

PARTITION = PartitionId(0)
STRICT = TopicId("1" * 16)
PLAIN = TopicId("2" * 16)
EPOCH = Epoch(1)


@attrs.define
class SteadyLeadership:
    """A leadership that does not end, of a partition with the logs that a test gives it."""

    logs: dict[TopicId, Any] = attrs.field(factory=dict)
    removed: set[TopicId] = attrs.field(factory=set)
    partition: PartitionId = PARTITION
    epoch: Epoch = EPOCH
    is_over: bool = False

    def log(self, topic_id: TopicId) -> LocalLog | None:
        return self.logs.get(topic_id)

    def log_named(self, topic: TopicName) -> LocalLog | None:
        return None

    def is_removed(self, topic_id: TopicId) -> bool:
        return topic_id in self.removed

    def produce(self, log: LocalLog, records: bytes, done: Answer) -> None:
        raise NotImplementedError

    def redirect(self) -> NotLeaderError:
        return NotLeaderError("")

    def make(self, topic_id: TopicId, min_insync: int = 1) -> None:
        """Have a log of a topic that asks for so many replicas."""
        topic = SimpleNamespace(options=TopicOptions(min_insync=min_insync))
        empty = SimpleNamespace(
            topic=topic,
            start=Offset(0),
            end=Offset(0),
            highwater=Offset(0),
            state=SimpleNamespace(),
            add_waker=lambda wake: None,
            remove_waker=lambda wake: None,
            anchor_before=lambda offset: "",
        )
        self.logs[topic_id] = cast(LocalLog, empty)


@asynccontextmanager
async def leading(
    leadership: SteadyLeadership, states: SharedStates
) -> AsyncIterator[LedPartition]:
    environment = Environment(SystemClock(), MemoryNet(), MemoryDisk(), SystemRandomness())
    async with trio.open_nursery() as tasks:
        led = LedPartition(
            environment, leadership, states, count(1).__next__, SubscriptionCounts(), tasks
        )
        await led.begin()
        yield led
        led.end()


def stored(*topic_ids: TopicId, mode: str = SubscriptionMode.EXCLUSIVE) -> SharedStates:
    """What is stored of a partition with a mark in the log of each of these topics."""
    states = SharedStates()
    entries = states.entries[PARTITION] = {}
    for number, topic_id in enumerate(topic_ids):
        mark = MarkEntry(SubscriptionName("billing"), f"topic-{number}", Offset(0), mode=mode)
        entries[mark_key(SubscriptionId(f"{number:016x}"), topic_id)] = to_map(mark)
    return states


class SilentOwner:
    """A request whose answers nobody reads."""

    def tell(self, effect: Effect) -> None:
        pass

    def end(self, session: Session, error: OctopiError) -> None:
        pass


async def test_a_member_of_a_queue_may_go_when_the_leadership_has_just_ended() -> None:
    leadership, states = SteadyLeadership(), stored(PLAIN, mode=SubscriptionMode.SHARED)
    leadership.make(PLAIN)
    sid = SubscriptionId("0" * 16)
    async with leading(leadership, states) as led:
        session = led.ask(
            SilentOwner(),
            lambda machine, session, now: machine.attach(
                session, sid, MemberId("m"), Claim(0), now, (1, 1)
            ),
        )
        leadership.is_over = True
        led.close(session)
        assert led.has_ended


async def test_a_topic_whose_log_comes_later_counts_then() -> None:
    leadership, states = SteadyLeadership(), stored(STRICT)
    states.required[PARTITION] = 3  # an earlier leadership, for a topic that is gone
    async with leading(leadership, states) as led:
        led.look(0.0)
        assert states.required == {PARTITION: 1}
        leadership.make(STRICT, min_insync=2)
        led.look(0.0)
        assert states.required == {PARTITION: 2}


async def test_what_a_topic_asked_for_counts_no_more_when_it_is_gone() -> None:
    leadership, states = SteadyLeadership(), stored(STRICT, PLAIN)
    leadership.make(STRICT, min_insync=2)
    leadership.make(PLAIN)
    async with leading(leadership, states) as led:
        assert states.required == {PARTITION: 2}
        del leadership.logs[STRICT]
        led.look(0.0)
        assert states.required == {PARTITION: 1}
        assert [one.topic_id for one in led.machine.all_marks()] == [PLAIN]


async def test_what_is_kept_of_a_topic_without_a_log_goes_when_the_topic_is_known_to_be_gone() -> (
    None
):
    leadership, states = SteadyLeadership(), stored(STRICT, PLAIN)
    leadership.make(PLAIN)
    async with leading(leadership, states) as led:
        led.look(0.0)
        assert len(states.entries[PARTITION]) == 2, "its log may only be late"
        leadership.removed.add(STRICT)
        led.look(0.0)
        assert [one.topic_id for one in led.machine.all_marks()] == [PLAIN]
        assert len(states.entries[PARTITION]) == 1
