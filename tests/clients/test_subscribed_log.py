"""A log that a member has, with a leader and a reading that the test plays: what becomes of marks
and messages when all replicas lost records that were read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.consuming.consumer_session import ConsumerSession
from octopi.clients.consuming.log_subscriber import LogSubscriber, SubscriberListener
from octopi.clients.subscribing import log_reading, subscribed_log
from octopi.clients.subscribing.log_owner import LogOwner
from octopi.clients.subscribing.log_reading import LogReading
from octopi.clients.subscribing.subscribed_log import SubscribedLog
from octopi.errors import (
    HistoryForkedError,
    HistoryLostError,
    OctopiError,
    Status,
    refused,
)
from octopi.identifiers import (
    Claim,
    MemberId,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence,
    SubscriptionId,
    TopicId,
    TopicName,
)
from octopi.record import BatchBuilder, Message
from octopi.wire import messages as m
from tests.kit.world import VirtualClock

REQUEST = 7
OLD, NEW = "1-0", "2-100.1-0"
FORKED = refused(Status.HISTORY_FORKED, "this log has them only up to offset 100")


def record(text: bytes) -> bytes:
    batch = BatchBuilder()
    batch.add(text, timestamp_ms=1)
    return batch.encode(ProducerId(b"p" * 16), ProducerEpoch(0), Sequence(0))


SIZE = len(record(b"a"))
"""Of all records here."""


class Link:
    """In place of a `LeaderSession`."""

    def __init__(self, *arguments: object) -> None:
        self.posted: list[m.Mark] = []
        self.attaches: list[m.Attach] = []
        self.take: Callable[[object], None] = lambda message: None
        self._ended, self._error = trio.Event(), cast("OctopiError", None)

    def post(self, notice: Callable[[int], object]) -> None:
        self.posted.append(cast("m.Mark", notice(REQUEST)))

    async def run(
        self,
        question: Callable[[int], m.Attach],
        take: Callable[[object], None],
        farewell: Callable[[int], object],
    ) -> None:
        self._ended = trio.Event()
        self.attaches.append(question(REQUEST))
        self.take = take
        await self._ended.wait()
        raise self._error

    def end(self, error: OctopiError) -> None:
        self._error = error
        self._ended.set()

    def why_given_up(self, error: OctopiError, timeout_s: float | None) -> OctopiError | None:
        return None

    async def before_again(self, error: OctopiError) -> None:
        await trio.sleep(0.01)


class Reader:
    """In place of a `LogSubscriber`."""

    made: list[Reader]

    def __init__(
        self,
        cluster: object,
        session: ConsumerSession,
        options: object,
        listener: SubscriberListener,
        generation: int = 0,
    ) -> None:
        self.session = session
        self.listener = listener
        self._ended = trio.Event()
        self.made.append(self)

    async def run(self) -> None:
        await self._ended.wait()

    def took(self, chunk: object) -> None:
        pass

    def deliver(self, texts: bytes, anchor: str) -> None:
        """Records of one letter each arrive together."""
        data = b"".join(record(b"%c" % one) for one in texts)
        wanted = self.session.wanted
        chunk = self.session.delivered(wanted, data, wanted + len(data), anchor)
        assert chunk is not None
        self.listener.take_chunk(cast("LogSubscriber", self), chunk)

    def end(self, error: OctopiError) -> None:
        self.listener.take_end(cast("LogSubscriber", self), error)
        self._ended.set()


class Owner:
    def __init__(self) -> None:
        self.forks: list[HistoryForkedError] = []
        self.is_fenced = False

    def take_news(self) -> None:
        pass

    def take_gap(self, gap: HistoryLostError) -> None:
        raise AssertionError(gap)

    def take_fork(self, fork: HistoryForkedError) -> None:
        self.forks.append(fork)

    def released(self, log: SubscribedLog) -> None:
        pass

    def fenced(self, log: SubscribedLog) -> None:
        self.is_fenced = True

    @property
    def ranges(self) -> list[tuple[int | None, int | None]]:
        return [(one.offset, one.read_until) for one in self.forks]


class Stage:
    def __init__(self, log: SubscribedLog, link: Link, owner: Owner) -> None:
        self.log = log
        self.link = link
        self.owner = owner

    @property
    def reader(self) -> Reader:
        return Reader.made[-1]

    def attached(self, mark: int, anchor: str = "", *, lost: tuple[int, int] | None = None) -> None:
        begin, end = (None, None) if lost is None else (Offset(lost[0]), Offset(lost[1]))
        told = m.Attached(REQUEST, Offset(mark), Claim(1), Offset(0), begin, end, anchor)
        self.link.take(told)

    def take(self, count: int) -> list[Message]:
        """The next *count* messages; the one before each is done."""
        messages = [self.log.next_message() for _ in range(count)]
        assert None not in messages
        return cast("list[Message]", messages)

    def texts(self, count: int) -> bytes:
        return b"".join(message.value for message in self.take(count))

    @property
    def marks(self) -> list[tuple[int, str]]:
        return [(one.offset, one.anchor) for one in self.link.posted]

    async def until_attached_again(self) -> None:
        known = len(self.link.attaches)
        await trio.sleep(1)
        assert len(self.link.attaches) == known + 1


@asynccontextmanager
async def stage(monkeypatch: pytest.MonkeyPatch, *, is_auto: bool = True) -> AsyncIterator[Stage]:
    """A member that has read and done two of four messages, `a` to `d`, the third one in hand."""
    monkeypatch.setattr(subscribed_log, "LeaderSession", Link)
    monkeypatch.setattr(log_reading, "LogSubscriber", Reader)
    Reader.made = []
    cluster = SimpleNamespace(environment=SimpleNamespace(clock=VirtualClock()))
    reading = LogReading(
        TopicName("orders"),
        TopicId("5f0c2a1b5f0c2a1b"),
        SubscriptionId("0" * 16),
        1_000_000,
        is_auto,
        False,
        None,
        30.0,
        30.0,
    )
    owner = Owner()
    log = SubscribedLog(
        cast("ClusterHandle", cluster),
        reading,
        MemberId("m1"),
        PartitionId(3),
        Claim(1),
        cast("LogOwner[SubscribedLog]", owner),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run)
        await trio.testing.wait_all_tasks_blocked()
        one = Stage(log, cast("Link", log._link), owner)
        one.attached(0)
        await trio.testing.wait_all_tasks_blocked()
        one.reader.deliver(b"abcd", OLD)
        assert one.texts(3) == b"abc"
        yield one
        log.abandon()


async def test_a_mark_goes_with_the_anchor_of_its_offset(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one:
        await trio.sleep(1)
        assert one.marks[-1] == (2 * SIZE, OLD)
        one.reader.deliver(b"e", NEW)
        assert one.texts(2) == b"de"
        await trio.sleep(1)
        assert one.marks[-1] == (4 * SIZE, OLD)
        one.log.settle()
        await trio.sleep(1)
        assert one.marks[-1] == (5 * SIZE, NEW)


async def test_a_member_whose_leader_has_another_history_begins_again_at_its_mark(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one:
        one.link.end(FORKED)
        await one.until_attached_again()
        assert one.log.next_message() is None  # `d` is void
        one.log.settle()  # and `c`, which was in hand, marks nothing
        one.link.posted.clear()
        one.attached(SIZE, OLD)
        assert one.owner.ranges == [(SIZE, 4 * SIZE)]
        assert one.reader.session.place.offset == SIZE
        assert one.reader.session.place.anchor == OLD
        one.reader.deliver(b"xyz", NEW)
        assert one.texts(3) == b"xyz"
        await trio.sleep(1)
        found = [place for place in one.marks if place[0] > SIZE]
        assert found == [(2 * SIZE, NEW), (3 * SIZE, NEW)]
        assert not one.owner.is_fenced
        assert one.log.error is None


@pytest.mark.parametrize("has_read_on", [False, True])
async def test_a_lost_message_marks_nothing_in_the_new_history(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, has_read_on: bool
) -> None:
    async with stage(monkeypatch, is_auto=False) as one:
        lost = one.take(1)[0]
        one.link.end(FORKED)
        await one.until_attached_again()
        one.attached(SIZE, OLD)
        one.reader.deliver(b"xyz", NEW)
        if has_read_on:
            found = one.take(2)[1]
            one.log.mark(found)
        one.log.mark(lost)
        await trio.sleep(1)
        taken = [place for place in one.marks if place[0] > SIZE]
        assert taken == ([(3 * SIZE, NEW)] if has_read_on else [])


@pytest.mark.parametrize(
    ("mark", "lost"), [(SIZE, None), (2 * SIZE, (2 * SIZE, 3 * SIZE))], ids=["mark", "loss"]
)
async def test_a_member_begins_again_if_the_answer_to_its_attach_tells_a_loss(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    mark: int,
    lost: tuple[int, int] | None,
) -> None:
    async with stage(monkeypatch) as one:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.log.confirmed)
            await trio.testing.wait_all_tasks_blocked()
            one.link.take(m.Marked(REQUEST, one.link.posted[-1].acknowledge))
        one.link.end(refused(Status.NOT_LEADER, "moved"))
        await one.until_attached_again()
        for _ in range(2):  # the loss is told until there is a newer mark
            one.attached(mark, OLD, lost=lost)
        assert one.owner.ranges == [(mark, 4 * SIZE)]
        assert len(Reader.made) == 2
        one.reader.deliver(b"x", NEW)
        assert one.texts(1) == b"x"


@pytest.mark.parametrize("kept", [2, 3], ids=["below what was handed out", "behind it"])
async def test_a_member_begins_again_if_its_reading_finds_a_loss(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    async with stage(monkeypatch) as one:
        first = one.reader
        fork = HistoryForkedError.of_range("orders", 3, kept * SIZE, 4 * SIZE)
        if kept == 2:
            first.end(fork)
            await one.until_attached_again()
            one.attached(SIZE, OLD)
        else:
            first.end(fork)
            assert len(one.link.attaches) == 1
        begin = SIZE if kept == 2 else 3 * SIZE
        assert one.owner.ranges == [(begin, 4 * SIZE)]
        assert one.reader.session.place.offset == begin
        assert one.reader.session.place.anchor == OLD
        first.deliver(b"d", OLD)  # late
        one.reader.deliver(b"x", NEW)
        assert one.texts(1) == b"x"
        assert one.log.next_message() is None


async def test_a_waiting_commit_fails_if_its_messages_are_lost(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one:

        async def commit() -> None:
            with pytest.raises(HistoryForkedError, match="lost after they were read") as caught:
                await one.log.commit()
            assert (caught.value.offset, caught.value.read_until) == (0, 4 * SIZE)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            await trio.testing.wait_all_tasks_blocked()
            one.link.end(FORKED)
        await one.log.commit()  # it was told


async def test_a_commit_after_a_loss_confirms_the_newer_messages(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one:
        one.link.end(FORKED)
        await one.until_attached_again()
        one.attached(SIZE, OLD)
        one.reader.deliver(b"x", NEW)
        assert one.texts(1) == b"x"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.log.commit)
            await trio.testing.wait_all_tasks_blocked()
            assert one.marks[-1] == (2 * SIZE, NEW)
            one.link.take(m.Marked(REQUEST, one.link.posted[-1].acknowledge))
