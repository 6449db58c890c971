"""One log of a queue, with a leader that the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.subscribing import dealt_log
from octopi.clients.subscribing.dealt import DealtMessage
from octopi.clients.subscribing.dealt_log import DealtLog, QueueReading
from octopi.errors import (
    ChecksumError,
    ClosedError,
    ConnectionLostError,
    HistoryForkedError,
    HistoryLostError,
    InvalidOptionError,
    MemberFencedError,
    OctopiError,
    ProtocolError,
    UnknownSubscriptionError,
)
from octopi.identifiers import (
    Claim,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence,
    SubscriptionId,
    TopicName,
)
from octopi.record import BatchBuilder
from octopi.retry import reworded
from octopi.wire import messages as m
from tests.kit.world import VirtualClock

REQUEST = 7
PRODUCER = ProducerId(b"p" * 16)


def records(values: Iterable[bytes]) -> list[bytes]:
    built = []
    for number, value in enumerate(values):
        batch = BatchBuilder()
        batch.add(value, timestamp_ms=1, key=b"k")
        built.append(batch.encode(PRODUCER, ProducerEpoch(0), Sequence(number)))
    return built


class Link:
    """In place of a `LeaderSession`."""

    def __init__(self, *arguments: object) -> None:
        self.posted: list[Any] = []
        self.attaches: list[m.Attach] = []
        self.take: Callable[[object], None] = lambda message: None
        self.farewells = 0
        self._ended = trio.Event()
        self._error: OctopiError | None = None

    def post(self, notice: Callable[[int], object]) -> None:
        self.posted.append(notice(REQUEST))

    async def run(
        self,
        question: Callable[[int], m.Attach],
        take: Callable[[object], None],
        farewell: Callable[[int], object],
    ) -> None:
        self._ended, self._error = trio.Event(), None
        self.attaches.append(question(REQUEST))

        def hear(message: object) -> None:
            try:
                take(message)
            except OctopiError as error:
                self.end(error)

        self.take = hear
        try:
            await self._ended.wait()
        except trio.Cancelled:
            self.farewells += 1
            self.posted.append(farewell(REQUEST))
            raise
        assert self._error is not None
        raise self._error

    def end(self, error: OctopiError) -> None:
        self._error = error
        self._ended.set()

    def why_given_up(self, error: OctopiError, timeout_s: float | None) -> OctopiError | None:
        if timeout_s is None:
            return None
        return reworded(error, f"no leader for {timeout_s:g} s; last: {error.args[0]}")

    async def before_again(self, error: OctopiError) -> None:
        if isinstance(error, UnknownSubscriptionError):
            raise error  # as if the coordinator didn't know it either
        await trio.sleep(0.1)


class Owner:
    member = "w1"

    def __init__(self) -> None:
        self.gaps: list[HistoryLostError] = []
        self.forks: list[HistoryForkedError] = []

    async def restore_mark(self, partition: PartitionId) -> None:
        raise AssertionError("the link does that")

    def take_news(self) -> None:
        pass

    def take_gap(self, gap: HistoryLostError) -> None:
        self.gaps.append(gap)

    def take_fork(self, fork: HistoryForkedError) -> None:
        self.forks.append(fork)


class Stage:
    def __init__(self, log: DealtLog, link: Link, owner: Owner) -> None:
        self.log = log
        self.link = link
        self.owner = owner
        self.stored = records([b"%d" % number for number in range(10)])
        ends = [sum(map(len, self.stored[: place + 1])) for place in range(10)]
        self.offsets = [Offset(0), *map(Offset, ends[:-1])]

    def attached(self, **facts: object) -> None:
        told: dict[str, Any] = {"mark": 0, "log_start": 0, "lost_from": None, "lost_to": None}
        self.link.take(m.Attached(REQUEST, claim=Claim(0), **{**told, **facts}))

    def deal(self, *numbers: int, attempt: int = 1) -> None:
        self.link.take(
            m.Deal(
                REQUEST,
                [self.offsets[one] for one in numbers],
                [attempt] * len(numbers),
                b"".join(self.stored[one] for one in numbers),
            )
        )

    def take(self) -> DealtMessage:
        message = self.log.next_message()
        assert message is not None
        return message

    @property
    def settles(self) -> list[m.Settle]:
        return [one for one in self.link.posted if isinstance(one, m.Settle)]


@asynccontextmanager
async def stage(
    monkeypatch: pytest.MonkeyPatch, reconnect_timeout_s: float | None = None
) -> AsyncIterator[Stage]:
    monkeypatch.setattr(dealt_log, "LeaderSession", Link)
    cluster = SimpleNamespace(environment=SimpleNamespace(clock=VirtualClock()))
    reading = QueueReading(
        TopicName("orders"), SubscriptionId("0" * 16), 30.0, 10, 1_000_000, reconnect_timeout_s
    )
    owner = Owner()
    log = DealtLog(cast("ClusterHandle", cluster), reading, PartitionId(3), owner)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run)
        await trio.testing.wait_all_tasks_blocked()
        yield Stage(log, cast("Link", log._link), owner)
        log.close(ClosedError("done"))


async def test_a_member_attaches_with_credit_and_takes_messages_at_any_offsets(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one:
        (attach,) = one.link.attaches
        assert (attach.member, attach.claim, attach.partition) == ("w1", 0, 3)
        assert (attach.credit_messages, attach.credit_bytes) == (10, 1_000_000)
        one.attached()
        assert one.log.next_message() is None
        one.deal(1, 2, 5, 0, 9)
        messages = [one.take() for _ in range(5)]
        assert [message.value for message in messages] == [b"1", b"2", b"5", b"0", b"9"]
        places = [one.offsets[number] for number in (1, 2, 5, 0, 9)]
        assert [message.offset for message in messages] == places
        first = messages[0]
        assert (first.topic, first.partition, first.key, first.headers) == ("orders", 3, b"k", {})
        assert (first.attempt, first.timestamp_ms) == (1, 1)
        assert first.timestamp is not None
        assert first.deadline == trio.current_time() + 30
        assert "attempt 1" in repr(first)
    assert one.link.farewells == 1


async def test_a_member_that_leaves_names_the_messages_that_its_program_was_given(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one:
        one.attached()
        one.deal(0, 1, 2, 3)
        done, _ = one.take(), one.take()
        done.acknowledge()
    assert one.link.posted[-1] == m.Detach(REQUEST, [one.offsets[1]], [1])


@pytest.mark.parametrize("is_seen_by_the_timer", [False, True])
async def test_messages_after_a_pause_are_not_handed_out_and_the_member_attaches_again(
    is_seen_by_the_timer: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one:
        one.attached()
        autojump_clock.jump(20.0)
        if is_seen_by_the_timer:
            await trio.testing.wait_all_tasks_blocked()
        one.deal(0)
        assert one.log.next_message() is None
        await trio.sleep(1)
        assert len(one.link.attaches) == 2
        one.attached()
        one.deal(0, attempt=2)
        assert one.take().attempt == 2
        await trio.sleep(100)
        one.deal(1)
        assert one.take().value == b"1"


async def test_answers_go_to_the_leader_soon_and_together(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one:
        one.attached()
        one.deal(0, 1, 2, 3, 4, 5)
        taken = [one.take() for _ in range(5)]
        await trio.sleep(1)
        async with taken[0]:
            pass
        assert [each.acknowledged for each in one.settles] == [[0]]
        with pytest.raises(ZeroDivisionError):
            async with taken[1]:
                raise ZeroDivisionError
        taken[2].release(delay_s=1.5)
        taken[3].reject("why not")
        taken[4].extend()
        assert len(one.settles) == 1
        await trio.sleep(0.2)
        *_, settle = one.settles
        release = [(each.offset, each.delay_ms) for each in settle.released]
        assert release == [(one.offsets[1], 0), (one.offsets[2], 1500)]
        assert settle.rejected == [m.Rejection(one.offsets[3], 1, "why not")]
        assert settle.extended == [m.Extension(one.offsets[4], 1)]
        with pytest.raises(InvalidOptionError):
            taken[4].release(delay_s=12 * 3600 + 1)
        with pytest.raises(InvalidOptionError):
            taken[4].reject("é" * 501)
        assert [taken[3].is_answered, taken[4].is_answered] == [True, False]


async def test_a_batch_answers_together_all_its_messages_that_have_no_answer_yet(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one:
        assert one.log.next_batch() is None
        one.attached()
        one.deal(0, 1, 2)
        batch = one.log.next_batch()
        assert batch is not None
        assert [message.value for message in batch] == [b"0", b"1", b"2"]
        assert (len(batch), batch[1].value, len(batch[1:])) == (3, b"1", 2)
        async with batch:
            batch[1].reject("no")
        await trio.sleep(0.2)
        acknowledged = [offset for each in one.settles for offset in each.acknowledged]
        assert acknowledged == [one.offsets[0], one.offsets[2]]
        one.deal(3, 4)
        batch = one.log.next_batch()
        assert batch is not None
        with pytest.raises(ZeroDivisionError):
            async with batch:
                raise ZeroDivisionError
        await trio.sleep(0.2)
        released = [each.offset for settle in one.settles for each in settle.released]
        assert released == [one.offsets[3], one.offsets[4]]


async def test_a_commit_waits_for_the_leader(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one, trio.open_nursery() as nursery:
        one.attached()
        one.deal(0, 1)
        one.take().acknowledge()
        is_done = trio.Event()

        async def commit() -> None:
            await one.log.commit()
            is_done.set()

        nursery.start_soon(commit)
        await trio.sleep(5)
        assert not is_done.is_set()
        asked = [each.acknowledge for each in one.settles if each.confirm]
        one.link.take(m.QueueSettled(REQUEST, asked[-1], []))
        await is_done.wait()
        assert one.log.stale_count == 0


async def test_a_member_attaches_again_and_its_open_messages_count_no_more(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one:
        one.attached()
        one.deal(0, 1)
        held = one.take()
        one.link.end(MemberFencedError("the mark was reset"))
        await trio.sleep(1)
        assert len(one.link.attaches) == 2
        one.attached()
        assert one.log.next_message() is None
        held.acknowledge()
        assert one.settles == []
        assert one.log.stale_count == 1
        one.deal(0, attempt=2)
        assert one.take().attempt == 2


async def test_a_loss_is_reported_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one:
        for _ in range(2):
            one.attached(mark=Offset(100), lost_from=Offset(100), lost_to=Offset(300),
                         log_start=Offset(300))  # fmt: skip
            one.link.end(ConnectionLostError("broken"))
            await trio.sleep(1)
        one.attached(mark=Offset(400), lost_from=Offset(400), lost_to=Offset(500))
        (gap,), (fork,) = one.owner.gaps, one.owner.forks
        assert "100" in str(gap)
        assert "400" in str(fork)


@pytest.mark.parametrize(
    ("error", "reconnect_timeout_s", "told"),
    [
        (UnknownSubscriptionError("it was deleted"), None, "deleted"),
        (ConnectionLostError("broken"), 0.0, "no leader for 0 s; last: broken"),
    ],
)
async def test_a_permanent_error_ends_the_log(
    error: OctopiError,
    reconnect_timeout_s: float | None,
    told: str,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage(monkeypatch, reconnect_timeout_s) as one:
        one.attached()
        one.deal(0)
        one.take().acknowledge()
        one.link.end(error)
        await trio.testing.wait_all_tasks_blocked()
        assert type(one.log.error) is type(error)
        assert told in str(one.log.error)
        assert len(one.link.attaches) == 1
        assert one.log.stale_count == 1
        await one.log.commit()


@pytest.mark.parametrize("fault", ["attempts", "few", "many", "early", "other", "damaged"])
async def test_an_invalid_delivery_is_an_error(
    fault: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(monkeypatch) as one:
        if fault != "early":
            one.attached()
        offsets, attempts = one.offsets[:2], [1, 1]
        data = b"".join(one.stored[:2])
        match fault:
            case "attempts":
                attempts = [1]
            case "few":
                data = one.stored[0]
            case "many":
                data += one.stored[2]
            case "damaged":
                data = data[:-1] + b"?"
        if fault == "other":
            one.link.take(m.Marked(REQUEST, 1))
        else:
            one.link.take(m.Deal(REQUEST, offsets, attempts, data))
        await trio.testing.wait_all_tasks_blocked()
        expected = ChecksumError if fault == "damaged" else ProtocolError
        assert isinstance(one.log.error, expected)
