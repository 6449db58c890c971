"""When a leader sends records and highwater marks to followers, on virtual time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from octopi.errors import ConnectionLostError, StorageError
from octopi.limits import HIGHWATER_PAUSE_S
from octopi.replication.effects import CommitReceipt
from octopi.roles.broker.local_log import LocalLog
from octopi.wire import messages as m
from tests.kit.probes import batch
from tests.roles.followers import PARTITION, TOPIC, Follower, Leader, leader

SOON_S = 0.0001
"""The way there and back of a follower nearby."""


async def following(here: Leader, broker: int) -> Follower:
    """A follower nearby, which has all of the log."""
    follower = await here.follower(broker)
    follower.latency_s = SOON_S
    follower.follow()
    await trio.sleep(0.1)
    assert follower.acknowledged == here.log.end
    follower.messages.clear()
    return follower


def append(here: Leader) -> None:
    """Append a record, and let nobody else have a turn."""
    replica = here.logs.replica(PARTITION)
    assert replica is not None
    replica.produce(here.log, batch(here.count, b"value"), here.answers.append)
    here.count += 1


# --- records -----------------------------------------------------------------------------


async def test_a_follower_in_sync_is_sent_records_in_the_call_that_appends_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        await here.produce(1)  # this makes the epoch durable
        in_sync, late = await following(here, 2), await following(here, 3)
        append(here)
        assert in_sync.end == here.log.end
        assert late.end < here.log.end
        await trio.sleep(SOON_S)
        assert late.end == here.log.end


async def test_a_follower_that_takes_messages_slowly_is_sent_records_by_a_task(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        await here.produce(1)
        in_sync = await following(here, 2)
        in_sync.is_prompt = False
        append(here)
        assert in_sync.end < here.log.end
        await trio.sleep(SOON_S)
        assert in_sync.end == here.log.end


async def test_a_follower_in_sync_is_sent_no_more_than_a_window_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        await here.produce(1)
        in_sync = await following(here, 2)
        for _ in range(5):
            append(here)
        assert len(in_sync.messages) == 2
        await trio.sleep(0.01)
        records = [one.records for _, one in in_sync.messages if isinstance(one, m.Replicate)]
        assert [len(one) // len(records[0]) for one in records if one] == [1, 1, 3]


async def test_a_follower_hears_that_it_follows_before_it_is_sent_records(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        await here.produce(1)
        in_sync = await here.follower(2)
        in_sync.follow()
        await trio.sleep(0.01)
        kinds = [type(one) for _, one in in_sync.messages[:2]]
        assert kinds == [m.Followed, m.Replicate]


async def test_a_follower_whose_connection_breaks_in_that_call_costs_the_producer_nothing(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(follower: Follower, message: object) -> None:
        raise ConnectionLostError("it broke")

    async with leader() as here:
        await here.produce(1)
        in_sync = await following(here, 2)
        monkeypatch.setattr(Follower, "post", breaks)
        append(here)
        in_sync.lose()
        await trio.sleep(1)
        assert in_sync.end < here.log.end
        assert all(isinstance(one, CommitReceipt) for one in here.answers)


async def test_a_log_that_can_not_be_read_in_that_call_ends_the_stream_with_a_reason(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_log: LocalLog, _offset: int, _bytes_max: int) -> bytes:
        raise StorageError("a bad block")

    async with leader() as here:
        await here.produce(1)
        in_sync = await following(here, 2)
        monkeypatch.setattr(LocalLog, "read_uncommitted", unreadable)
        append(here)
        await trio.sleep(0.1)
        assert in_sync.end_reason == "1011 the leader can't read its log"


async def test_a_follower_forgets_a_deleted_log_at_the_next_look(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        await here.produce(1)
        in_sync = await following(here, 2)
        append(here)
        await here.logs.remove_topics([m.RemovedTopic("orders", TOPIC.topic_id)])
        await trio.sleep(1)
        assert in_sync.end_reason is None
        assert in_sync.stream.lacking_bytes == 0


# --- highwater marks ---------------------------------------------------------------------


async def test_the_highwater_mark_goes_with_the_next_records(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        await here.produce(1)
        in_sync = await following(here, 2)
        marks = [here.log.highwater]
        for _ in range(10):
            append(here)
            await trio.sleep(HIGHWATER_PAUSE_S / 2)
            marks.append(here.log.highwater)
        assert in_sync.marks_alone == []
        told = [one.highwater for _, one in in_sync.messages if isinstance(one, m.Replicate)]
        assert told == marks[:-1]


async def test_without_more_records_the_highwater_mark_is_told_after_a_pause(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        await here.produce(1)
        in_sync, late = await following(here, 2), await following(here, 3)
        for _ in range(2):
            append(here)
            committed_at = trio.current_time() + SOON_S
            await trio.sleep(0.1)
            for follower in (in_sync, late):
                (at, mark), *more = follower.marks_alone
                assert mark == here.log.highwater == here.log.end
                assert at == pytest.approx(committed_at + HIGHWATER_PAUSE_S)
                assert not more
                follower.messages.clear()


async def test_a_mark_whose_pause_ends_beside_new_records_goes_with_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leader() as here:
        await here.produce(1)
        in_sync = await following(here, 2)
        append(here)
        await trio.sleep(HIGHWATER_PAUSE_S)
        in_sync.is_prompt = False
        in_sync.hangs = True
        append(here)
        await trio.sleep(0.1)
        assert in_sync.end == here.log.end
        last = in_sync.messages[-1][1]
        assert isinstance(last, m.Replicate)
        assert last.highwater == here.log.highwater
