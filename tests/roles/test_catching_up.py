"""The leader's side of followers that are far behind, on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from itertools import pairwise
from typing import cast

import attrs
import pytest
import trio
import trio.testing

from octopi.environment import Environment
from octopi.errors import ConnectionLostError, NeedsTimeError, StorageError
from octopi.limits import FOLLOW_WINDOW_BYTES, MIB
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.roles.broker.follower_connection import FollowerConnection
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.transport.connection import Connection
from octopi.transport.services import ServiceSession
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet
from tests.kit.probes import batch
from tests.roles.replica_managers import started_manager

PARTITION = 0
TOPIC = m.TopicRecord("orders", "0" * 16, [PARTITION], m.TopicOptions())


@attrs.define(eq=False)
class Follower:
    """A follower, and the connection to it as the leader sees that: it acknowledges what it
    gets after a while."""

    broker: int
    tasks: trio.Nursery
    stream: FollowerConnection = attrs.field(init=False)
    session: ServiceSession = attrs.field(init=False)
    end_reason: str | None = None
    peer: str = "a follower"
    latency_s: float = 0.01
    hangs: bool = False
    turn: trio.Lock = attrs.field(factory=trio.Lock)
    takes_turns: bool = False
    """Whether it takes one message after the other, however small, each for its latency."""
    received: list[tuple[float, int]] = attrs.field(factory=list)
    """When, and how many bytes of records."""
    end: int = 0
    acknowledged: int = 0

    def post(self, message: m.Followed | m.Replicate) -> None:
        if self.end_reason is not None:
            raise ConnectionLostError(self.end_reason)
        if isinstance(message, m.Replicate) and message.records:
            assert message.offset == self.end
            self.received.append((trio.current_time(), len(message.records)))
            self.end += len(message.records)
            if not self.hangs:
                self.tasks.start_soon(self._acknowledge, self.end)

    async def _acknowledge(self, end: int) -> None:
        async with self.turn if self.takes_turns else nullcontext():
            await trio.sleep(self.latency_s)
        self.acknowledge(end)

    def acknowledge(self, end: int) -> None:
        self.acknowledged = end
        self.session.handle(m.Acknowledge(PARTITION, 1, self.broker, 1, 1, TOPIC.topic_id, end))

    async def close(self, code: int, reason: str) -> None:
        self.lose(f"{code} {reason}")

    async def drained(self) -> None:
        await trio.lowlevel.checkpoint()

    def follow(self) -> None:
        self.session.handle(m.Follow(PARTITION, 1, self.broker, 1, 1, TOPIC.topic_id, [], 0))

    def pauses_since(self, began: float) -> list[float]:
        """How long it waited for each message (s)."""
        at = [began, *(one for one, _ in self.received)]
        return [later - earlier for earlier, later in pairwise(at)]

    def lose(self, reason: str = "it broke") -> None:
        """The connection ends."""
        self.end_reason = reason
        self.session.closed()


@attrs.define
class Leader:
    """A broker that leads a partition; broker 2 is in sync with it, broker 3 is not."""

    environment: Environment
    logs: ReplicaManager
    log: LocalLog
    tasks: trio.Nursery
    answers: list[CommitReceipt | Refusal] = attrs.field(factory=list)
    count: int = 0

    async def follower(self, broker: int) -> Follower:
        follower = Follower(broker, await self.tasks.start(_own_nursery))
        follower.stream = FollowerConnection(
            self.environment, self.logs, cast(Connection, follower), follower.tasks
        )
        follower.session = ServiceSession("leader", [follower.stream])
        return follower

    async def produce(self, count: int, size_bytes: int = MIB) -> None:
        """Append so many records with values of that size."""
        replica = self.logs.replica(PARTITION)
        assert replica is not None
        for _ in range(count):
            replica.produce(self.log, batch(self.count, b"x" * size_bytes), self.answers.append)
            self.count += 1
        await replica.settled()


async def _own_nursery(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    async with trio.open_nursery() as nursery:
        task_status.started(nursery)
        await trio.sleep_forever()


@asynccontextmanager
async def leader(options: m.TopicOptions | None = None) -> AsyncIterator[Leader]:
    environment = Environment(SystemClock(), MemoryNet(), MemoryDisk(), SystemRandomness())
    async with trio.open_nursery() as tasks:
        logs = await started_manager(environment, tasks)
        record = m.PartitionRecord(PARTITION, 1, 0, 1, 1, [1, 2, 3], [1, 2])
        await logs.install_partitions([record], [])
        await logs.install_topics([attrs.evolve(TOPIC, options=options or TOPIC.options)])
        yield Leader(environment, logs, logs.store.find("orders", PARTITION), tasks)
        tasks.cancel_scope.cancel()


async def test_a_follower_far_behind_is_sent_everything_in_runs_with_rests_between(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        await here.produce(64)
        late = await here.follower(3)
        late.latency_s = 0.1
        began = trio.current_time()
        late.follow()
        for _ in range(250):
            await here.produce(1, size_bytes=100)
            await trio.sleep(0.02)
        await trio.sleep(late.latency_s)
        assert late.end == here.log.end
        pauses = late.pauses_since(began)
        assert pauses[0] >= 0.1
        assert sum(pause > late.latency_s + 0.09 for pause in pauses) >= 2


async def test_a_follower_far_behind_is_sent_everything_in_one_go_while_nobody_produces(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        await here.produce(64)
        late = await here.follower(3)
        late.latency_s = 0.1
        began = trio.current_time()
        late.follow()
        await trio.sleep(5)
        assert late.end == here.log.end
        pauses = late.pauses_since(began)
        assert pauses[0] >= 0.1  # it is not known yet that nobody produces
        assert max(pauses[1:]) < late.latency_s + 0.02


async def test_an_in_sync_follower_never_rests(autojump_clock: trio.testing.MockClock) -> None:
    async with leader() as here:
        in_sync, late = await here.follower(2), await here.follower(3)
        in_sync.follow()
        await here.produce(64)
        await trio.sleep(1)
        late.follow()
        await trio.sleep(0.05)
        await here.produce(64)
        # More than what usually is on its way.
        assert here.log.end - in_sync.end > 4 * FOLLOW_WINDOW_BYTES
        await trio.sleep(0.1)
        assert in_sync.end == here.log.end
        assert not late.received
        assert len(here.answers) == 128
        assert all(isinstance(one, CommitReceipt) for one in here.answers)


async def test_a_follower_that_lags_little_is_sent_the_rest_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        await here.produce(4)
        late = await here.follower(3)
        late.follow()
        await trio.sleep(late.latency_s)
        assert late.end == here.log.end


async def test_a_follower_that_hangs_is_sent_no_more_than_a_window_and_goes_on_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        await here.produce(64)
        late = await here.follower(3)
        late.hangs = True
        late.follow()
        await trio.sleep(10)
        assert 0 < late.end <= FOLLOW_WINDOW_BYTES + MIB
        late.hangs = False
        late.acknowledge(late.end)
        await trio.sleep(2)
        assert late.end == here.log.end


async def test_a_follower_as_slow_as_producers_are_fast_catches_up_with_many_small_messages(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        slow = await here.follower(3)
        slow.takes_turns = True
        slow.follow()
        async with slow.turn:  # it is busy with something else
            for _ in range(200):
                await here.produce(1, size_bytes=100)
                await trio.sleep(slow.latency_s)
        for _ in range(50):
            await here.produce(1, size_bytes=100)
            await trio.sleep(slow.latency_s)
        bytes_of_one = here.log.end // 250
        assert here.log.end - slow.acknowledged <= 16 * bytes_of_one


async def test_a_follower_that_retention_overtook_is_asked_to_follow_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    async with leader(m.TopicOptions(retention_bytes=1, segment_bytes=100_000)) as here:
        in_sync, hung = await here.follower(2), await here.follower(3)
        in_sync.follow()
        hung.hangs = True
        hung.follow()
        for _ in range(10):
            await here.produce(1, size_bytes=60_000)
            await trio.sleep(0.1)
        await here.log.flush()
        await here.log.apply_retention()
        assert hung.end < here.log.start
        hung.acknowledge(hung.end)
        await trio.sleep(0.1)
        assert hung.end_reason == "1013 retention removed what comes next: follow again"
        assert not caplog.records


async def test_a_follower_keeps_its_stream_when_a_log_is_deleted(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What it acknowledges late made the leader read a log that was closed."""
    caplog.set_level("WARNING")
    async with leader() as here:
        in_sync, slow = await here.follower(2), await here.follower(3)
        in_sync.follow()
        slow.hangs = True
        slow.follow()
        await here.produce(2 * FOLLOW_WINDOW_BYTES // MIB)
        await trio.sleep(5)
        assert 0 < slow.end < here.log.end
        await here.logs.remove_topics([m.RemovedTopic("orders", TOPIC.topic_id)])
        slow.acknowledge(slow.end)
        await trio.sleep(0.1)
        assert slow.end_reason is None
        assert slow.stream.lacking_bytes == 0
        assert not caplog.records


async def test_a_log_may_be_deleted_while_its_leader_looks_for_the_next_records(
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level("WARNING")

    def needs_time(_log: LocalLog, _offset: int, _bytes_max: int) -> bytes:
        raise NeedsTimeError("the index has to be made")

    async def prove(log: LocalLog, _offset: int) -> None:
        await here.logs.remove_topics([m.RemovedTopic("orders", log.topic_id)])
        raise StorageError("the log is closed")

    async with leader() as here:
        in_sync, slow = await here.follower(2), await here.follower(3)
        in_sync.follow()
        await here.produce(1)
        await trio.sleep(0.1)
        monkeypatch.setattr(LocalLog, "read_uncommitted", needs_time)
        monkeypatch.setattr(LocalLog, "prove", prove)
        slow.follow()
        await trio.sleep(0.1)
        assert slow.end_reason is None
        assert not caplog.records


@pytest.mark.parametrize("is_noticed", [False, True])
async def test_a_broken_follower_stream_leaves_nothing_to_its_successor(
    autojump_clock: trio.testing.MockClock, is_noticed: bool
) -> None:
    async with leader() as here:
        await here.produce(64)
        for _ in range(3):
            late = await here.follower(3)
            late.hangs = True
            late.follow()
            await trio.sleep(0.09)
            assert not late.received  # the first thing is a rest
            await trio.sleep(0.3)
            assert late.received
            late.lose()
            if is_noticed:  # by its sender, before that is cancelled
                here.log.wake()
                await trio.sleep(0.01)
            late.tasks.cancel_scope.cancel()
            await trio.sleep(0.01)
