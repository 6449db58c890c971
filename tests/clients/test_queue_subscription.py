"""A member of a queue with several logs, whose leaders and coordinator the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.subscribing import dealt_log, queue_subscription
from octopi.clients.subscribing.dealt_log import QueueReading
from octopi.clients.subscribing.membership import MembershipOptions
from octopi.clients.subscribing.queue_subscription import QueueSubscription
from octopi.errors import ClosedError, OctopiError, UnknownSubscriptionError
from octopi.identifiers import (
    NO_CLAIM,
    Offset,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TimestampMs,
    TopicId,
    TopicName,
)
from octopi.model import SubscriptionOptions
from octopi.wire import messages as m
from tests.clients.test_dealt_log import REQUEST, Link, records
from tests.kit.world import VirtualClock

LOGS = [PartitionId(0), PartitionId(1)]
TOPIC, SID = TopicName("orders"), SubscriptionId("0" * 16)
NAME = SubscriptionName("billing")


class Group:
    """In place of a `Membership`."""

    refusal: OctopiError | None = None

    def __init__(self, *arguments: object) -> None:
        self.session = SimpleNamespace(member="w1")
        self.error: OctopiError | None = None
        self.ended = trio.Event()
        self.has_left = False

    async def run(
        self, *, task_status: trio.TaskStatus[OctopiError | None] = trio.TASK_STATUS_IGNORED
    ) -> OctopiError | None:
        task_status.started(self.refusal)
        if self.refusal is None:
            await self.ended.wait()
        return self.refusal or self.error

    async def leave(self) -> None:
        self.has_left = True
        await trio.lowlevel.checkpoint()


class Cast:
    def __init__(self, queue: QueueSubscription) -> None:
        self.queue = queue
        self.group = cast("Group", queue._membership)
        self.links = {log._partition: cast("Link", log._link) for log in queue._logs}
        self.data = {log: records([b"%d" % (10 * log + each) for each in range(8)]) for log in LOGS}

    def attach(self) -> None:
        for link in self.links.values():
            told: Any = m.Attached(REQUEST, Offset(0), NO_CLAIM, Offset(0), None, None)
            link.take(told)

    def deal(self, log: PartitionId, first: int, last: int) -> None:
        sizes = [len(one) for one in self.data[log]]
        offsets = [Offset(sum(sizes[:each])) for each in range(first, last)]
        data = b"".join(self.data[log][first:last])
        self.links[log].take(m.Deal(REQUEST, offsets, [1] * len(offsets), data))

    def confirm_all(self) -> None:
        for link in self.links.values():
            asked = [one.acknowledge for one in link.posted if isinstance(one, m.Settle)]
            if asked:
                link.take(m.QueueSettled(REQUEST, max(asked), []))


@asynccontextmanager
async def played(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cast]:
    monkeypatch.setattr(dealt_log, "LeaderSession", Link)
    monkeypatch.setattr(queue_subscription, "Membership", Group)
    cluster = cast(
        "ClusterHandle", SimpleNamespace(environment=SimpleNamespace(clock=VirtualClock()))
    )
    definition = octopi.SubscriptionDefinition(
        SID,
        NAME,
        TOPIC,
        TopicId("1" * 16),
        LOGS,
        "shared",
        SubscriptionOptions(),
        "earliest",
        "ready",
        TimestampMs(0),
        TimestampMs(0),
    )
    reading = QueueReading(TOPIC, SID, 30.0, 10, 1_000_000, None)
    membership = MembershipOptions(TOPIC, LOGS[0], SID, NAME, False, 10.0)
    async with trio.open_nursery() as nursery:
        queue = QueueSubscription(cluster, nursery, definition, reading, membership, None)
        try:
            await queue.begin()
            await trio.testing.wait_all_tasks_blocked()
            one = Cast(queue)
            one.attach()
            yield one
        finally:
            nursery.cancel_scope.cancel()


async def test_logs_hand_out_messages_in_turn(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with played(monkeypatch) as one:
        assert (one.queue.topic, one.queue.name, one.queue.member) == ("orders", "billing", "w1")
        one.deal(LOGS[0], 0, 4)
        one.deal(LOGS[1], 0, 2)
        values = [int((await anext(one.queue)).value) for _ in range(6)]
        assert sorted(values[:4]) == [0, 1, 10, 11]
        assert values[4:] == [2, 3]


async def test_several_tasks_wait_for_messages_and_each_one_gets_another(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with played(monkeypatch) as one:
        seen: list[int] = []

        async def work() -> None:
            async for message in one.queue:
                async with message:
                    seen.append(int(message.value))
                    await trio.sleep(1)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(work)
            await trio.testing.wait_all_tasks_blocked()
            one.deal(LOGS[0], 0, 3)
            one.deal(LOGS[1], 0, 3)
            await trio.sleep(0.5)
            assert len(seen) == 4
            await trio.sleep(1)
            assert sorted(seen) == [0, 1, 2, 10, 11, 12]
            nursery.cancel_scope.cancel()


async def test_batches_are_of_one_log_each(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with played(monkeypatch) as one:
        one.deal(LOGS[0], 0, 3)
        one.deal(LOGS[1], 0, 2)
        lists = []
        async for batch in one.queue.batches():
            async with batch:
                lists.append([int(each.value) for each in batch])
            if len(lists) == 2:
                break
        assert sorted(lists) == [[0, 1, 2], [10, 11]]


async def test_a_commit_waits_for_all_logs_and_counts_what_came_too_late(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with played(monkeypatch) as one:
        counts: list[int] = []

        async def commit() -> None:
            counts.append(await one.queue.commit())

        one.deal(LOGS[0], 0, 2)
        one.deal(LOGS[1], 0, 2)
        for _ in range(4):
            (await anext(one.queue)).acknowledge()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            await trio.sleep(0.5)
            for _ in range(2):  # the second log is asked when the first one is confirmed
                assert counts == []
                one.links[LOGS[1]].take(m.QueueSettled(REQUEST, 0, [Offset(0)]))
                one.confirm_all()
                await trio.testing.wait_all_tasks_blocked()
        assert counts == [2]
        await commit()
        assert (counts, one.queue.stale_count) == ([2, 0], 2)


async def test_leaving_a_queue_waits_for_confirmations_and_releases_the_rest(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with played(monkeypatch) as one:
        one.deal(LOGS[0], 0, 2)
        (await anext(one.queue)).acknowledge()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.queue.finish)
            await trio.sleep(0.5)
            assert not one.group.has_left
            one.confirm_all()
            await trio.testing.wait_all_tasks_blocked()
        assert one.group.has_left
        assert [link.farewells for link in one.links.values()] == [1, 1]
        one.queue.close()
        with pytest.raises(ClosedError):
            await anext(one.queue)


async def test_a_queue_that_was_deleted_ends_all_who_wait(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with played(monkeypatch) as one:
        errors: list[OctopiError] = []

        async def work() -> None:
            with pytest.raises(UnknownSubscriptionError) as raised:
                await anext(one.queue)
            errors.append(raised.value)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(work)
            await trio.testing.wait_all_tasks_blocked()
            one.group.error = UnknownSubscriptionError("it was deleted")
            one.group.ended.set()
        assert len(errors) == 3
        with pytest.raises(UnknownSubscriptionError):
            await one.queue.commit()


async def test_the_error_of_one_log_is_raised_when_the_others_have_no_more_messages(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with played(monkeypatch) as one:
        one.deal(LOGS[1], 0, 1)
        one.links[LOGS[0]].end(UnknownSubscriptionError("it was deleted"))
        await trio.testing.wait_all_tasks_blocked()
        assert (await anext(one.queue)).value == b"10"
        with pytest.raises(UnknownSubscriptionError):
            await anext(one.queue)


async def test_the_reason_why_joining_failed_is_raised(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Group, "refusal", UnknownSubscriptionError("there is none"))
    with pytest.raises(ExceptionGroup) as raised:
        async with played(monkeypatch):
            pass
    assert raised.group_contains(UnknownSubscriptionError)
