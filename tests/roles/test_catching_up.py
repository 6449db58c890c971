"""The leader's side of followers that are far behind, on virtual time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from octopi.errors import NeedsTimeError, StorageError
from octopi.limits import FOLLOW_WINDOW_BYTES, MIB
from octopi.replication.effects import CommitReceipt
from octopi.roles.broker.local_log import LocalLog
from octopi.wire import messages as m
from tests.roles.followers import TOPIC, leader


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
