"""Requests and answers over a link, and how a connection ends."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from octopi.errors import (
    ChecksumError,
    ConnectionLostError,
    CorruptLogError,
    DiskFullError,
    IncompleteRecordError,
    InvalidOptionError,
    InvalidTopicError,
    LogReadOnlyError,
    NeedsTimeError,
    NotLeaderError,
    OctopiError,
    ProtocolError,
    RefusedError,
    Status,
    UnknownTopicError,
)
from octopi.identifiers import Epoch, Incarnation, Offset, PartitionId
from octopi.limits import (
    CLOSE_TIMEOUT_S,
    MESSAGE_BYTES_MAX,
    OUTBOX_BYTES_MAX,
    REQUESTS_IN_FLIGHT_MAX,
    SEND_TIMEOUT_S,
    TEXT_BYTES_MAX,
)
from octopi.operating_system import SystemClock
from octopi.security.authenticator import AuthenticatedPeer
from octopi.security.token_bucket import TokenBucket
from octopi.transport.connection import Connection
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from tests.kit.links import MemoryLink, link_pair
from tests.kit.logs import capture_logs

EVERY_CLASS = frozenset(m.TYPE_NAMES)
HEARTBEAT_S = 5.0
SILENCE_S = 20.0
BULK = bytes(1024 * 1024)


@attrs.define
class Peer:
    """The other end of the link, message by message, without a connection's manners."""

    link: MemoryLink

    async def tell(self, *messages: object) -> None:
        for message in messages:
            await self.link.send(encode(message))

    async def hear(self) -> object:
        """The next message that is no heartbeat."""
        while True:
            message = decode(await self.link.receive(), EVERY_CLASS)
            if message != m.Heartbeat():
                return message

    async def hear_end(self) -> str:
        """Why the link ended, behind everything that was said before."""
        while True:
            try:
                await self.link.receive()
            except ConnectionLostError as error:
                return str(error)

    async def answer(self, *answers: object) -> None:
        """Answer one question after the other, whatever it is."""
        for answer in answers:
            await self.hear()
            await self.tell(answer)


@attrs.define
class Side:
    """A running connection, what it was asked, and its peer."""

    connection: Connection
    link: MemoryLink
    peer: Peer
    heard: list[Any] = attrs.Factory(list)
    on_message: Callable[[Any], None] | None = None
    was_closed_at_end: list[bool] = attrs.Factory(list)
    ended: trio.Event = attrs.Factory(trio.Event)
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)

    def take(self, message: object) -> None:
        self.heard.append(message)
        if self.on_message is not None:
            self.on_message(message)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with self.scope:
            try:
                await self.connection.run(
                    self.take,
                    on_end=lambda: self.was_closed_at_end.append(self.link.closed_with is not None),
                    task_status=task_status,
                )
            finally:
                self.ended.set()


def new_side(
    capacity: float = math.inf,
    heartbeat_timeout_s: float = SILENCE_S,
    bucket: TokenBucket | None = None,
) -> Side:
    ours, theirs = link_pair(capacity=capacity)
    nothing = cast(Any, None)
    connection = Connection(
        ours,
        SystemClock(),
        m.Hello(1, "peer"),
        receives=EVERY_CLASS - {m.Hello, m.Welcome, m.Join},
        heartbeat_interval_s=HEARTBEAT_S,
        heartbeat_timeout_s=heartbeat_timeout_s,
        entry=AuthenticatedPeer(nothing, nothing, bucket, nothing) if bucket else None,
    )
    return Side(connection, ours, Peer(theirs))


@asynccontextmanager
async def running(
    capacity: float = math.inf,
    heartbeat_timeout_s: float = SILENCE_S,
    bucket: TokenBucket | None = None,
) -> AsyncIterator[Side]:
    """A connection that runs within the block, on virtual time."""
    side = new_side(capacity, heartbeat_timeout_s, bucket)
    async with trio.open_nursery() as nursery:
        await nursery.start(side.run)
        yield side
        nursery.cancel_scope.cancel()


def produce(request: int, records: bytes = b"") -> m.Produce:
    return m.Produce(request, "topic", PartitionId(0), records)


def produced(request: int) -> m.Produced:
    return m.Produced(request, Offset(0), Epoch(1), False)


# --- our requests --------------------------------------------------------------------


async def test_a_request_returns_its_answer(autojump_clock: MockClock) -> None:
    async with running() as side, trio.open_nursery() as nursery:

        async def ask(request: int) -> None:
            answer = await side.connection.request(produce(request), m.Produced, 5)
            assert answer == produced(request)

        for request in (1, 2, 3):
            nursery.start_soon(ask, request)
        asked = [await side.peer.hear() for _ in range(3)]
        assert {question.request for question in asked} == {1, 2, 3}  # type: ignore[attr-defined]
        await side.peer.tell(produced(2), produced(3), produced(1))
    assert side.connection.statistics().awaited_count == 0


async def test_numbers_of_requests_do_not_repeat() -> None:
    connection = new_side().connection
    assert [connection.next_request() for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("failure", "expected", "status"),
    [
        (m.Failure(1, 40, "ask there", "ws://there:1"), NotLeaderError, Status.NOT_LEADER),
        (m.Failure(1, 20, "no topic"), UnknownTopicError, Status.UNKNOWN_TOPIC),
        (m.Failure(1, 6, "enough"), RefusedError, Status.TOO_MANY),
        (m.Failure(1, 999, "from the future"), RefusedError, Status.INTERNAL),
    ],
)
async def test_a_failure_is_raised_as_the_exception_of_its_status(
    failure: m.Failure,
    expected: type[RefusedError],
    status: Status,
    autojump_clock: MockClock,
) -> None:
    async with running() as side, trio.open_nursery() as nursery:
        nursery.start_soon(side.peer.answer, failure)
        with pytest.raises(expected, match=failure.reason) as caught:
            await side.connection.request(produce(1), m.Produced, 5)
        assert (caught.value.status, caught.value.address) == (status, failure.address)
        assert side.connection.end_reason is None


async def test_an_answer_of_another_class_ends_the_connection(autojump_clock: MockClock) -> None:
    async with running() as side, trio.open_nursery() as nursery:
        nursery.start_soon(side.peer.answer, m.Done(1))
        with pytest.raises(ProtocolError, match="answered produce with done"):
            await side.connection.request(produce(1), m.Produced, 5)
        await side.ended.wait()


async def test_a_request_without_an_answer_in_time_ends_the_connection(
    autojump_clock: MockClock,
) -> None:
    async with running() as side:
        start = trio.current_time()
        with pytest.raises(ConnectionLostError, match=r"no answer to produce within 5 s"):
            await side.connection.request(produce(1), m.Produced, 5)
        assert trio.current_time() - start == 5
        await side.ended.wait()
        assert side.connection.end_reason == "right gave no answer to produce within 5 s"


async def test_the_end_of_the_connection_ends_its_requests(autojump_clock: MockClock) -> None:
    async with running() as side, trio.open_nursery() as nursery:
        lost = []

        async def ask() -> None:
            with pytest.raises(ConnectionLostError) as caught:
                await side.connection.request(produce(1), m.Produced, 5)
            lost.append(str(caught.value))

        nursery.start_soon(ask)
        await side.peer.hear()
        await side.peer.link.aclose(1001, "gone home")
    assert lost == ["right closed the connection (1001): gone home"]


async def test_a_reading_hears_every_message_until_it_is_forgotten(
    autojump_clock: MockClock,
) -> None:
    heard: list[object] = []
    async with running() as side:
        side.connection.ask(m.Subscribe(1, "t", PartitionId(0), Offset(0), 0), heard.append)
        answers = [
            m.Subscribed(1, "id", Epoch(1), Offset(0), Offset(0)),
            m.Delivery(1, Offset(0), b"", Offset(0)),
        ]
        await side.peer.tell(*answers, m.Delivery(2, Offset(0), b"not mine", Offset(0)))
        await wait_all_tasks_blocked()
        side.connection.forget(1)
        side.connection.forget(1)
        await side.peer.tell(m.Delivery(1, Offset(0), b"late", Offset(0)))
        await wait_all_tasks_blocked()
        assert heard == answers
        assert side.connection.end_reason is None


async def test_every_reading_is_told_once_of_the_end_of_the_connection(
    autojump_clock: MockClock,
) -> None:
    heard: list[object] = []
    async with running() as side:
        side.connection.ask(produce(1), heard.append)
        side.connection.ask(produce(2), heard.append)
        side.connection.ask(produce(3), heard.append)
        side.connection.forget(3)
        await side.peer.link.aclose()
        await side.ended.wait()
    assert [type(end) for end in heard] == [ConnectionLostError, ConnectionLostError]
    with pytest.raises(ConnectionLostError, match="right closed"):
        side.connection.ask(produce(4), heard.append)
    assert len(heard) == 2


async def test_a_fault_in_one_reading_at_the_end_spares_the_others(
    autojump_clock: MockClock,
) -> None:
    heard: list[object] = []

    def fail(_: object) -> None:
        raise ZeroDivisionError

    async with running() as side:
        side.connection.ask(produce(1), fail)
        side.connection.ask(produce(2), heard.append)
        with capture_logs() as logs:
            await side.peer.link.aclose()
            await side.ended.wait()
    assert len(heard) == 1
    assert [entry["event"] for entry in logs] == ["answer_handler_failed"]


@pytest.mark.parametrize("steps", range(12))
async def test_a_request_can_be_cancelled_at_any_step(
    steps: int, autojump_clock: MockClock
) -> None:
    async with running() as side, trio.open_nursery() as nursery:

        async def serve() -> None:
            while True:
                question: Any = await side.peer.hear()
                await side.peer.tell(produced(question.request))

        async def ask() -> None:
            await side.connection.request(produce(1), m.Produced, 5)

        nursery.start_soon(serve)
        async with trio.open_nursery() as asking:
            asking.start_soon(ask)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            asking.cancel_scope.cancel()
        answer = await side.connection.request(produce(2), m.Produced, 5)
        assert answer == produced(2)
        assert side.connection.statistics().awaited_count == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("steps", range(12))
async def test_a_send_can_be_cancelled_at_any_step(steps: int, autojump_clock: MockClock) -> None:
    heard: list[Any] = []
    async with running(capacity=0) as side, trio.open_nursery() as nursery:

        async def listen() -> None:
            while m.Done(3) not in heard:
                heard.append(await side.peer.hear())

        while side.connection.statistics().outbox_bytes <= OUTBOX_BYTES_MAX:
            side.connection.post(produce(1, BULK))
        nursery.start_soon(listen)
        async with trio.open_nursery() as sending:
            sending.start_soon(side.connection.send, produce(2, BULK))
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            sending.cancel_scope.cancel()
        await side.connection.send(m.Done(3))
    assert [one.request for one in heard] in ([1, 1, 1, 1, 3], [1, 1, 1, 1, 2, 3])


# --- the outbox ----------------------------------------------------------------------


async def test_messages_go_out_in_order(autojump_clock: MockClock) -> None:
    async with running(capacity=1) as side:
        for request in range(5):
            side.connection.post(m.Done(request))
        assert [await side.peer.hear() for _ in range(5)] == [m.Done(n) for n in range(5)]


async def test_a_send_waits_for_room_and_posts_nothing_if_cancelled(
    autojump_clock: MockClock,
) -> None:
    async with running(capacity=0) as side:
        for request in range(6):
            side.connection.post(produce(request, BULK))
        with trio.move_on_after(1) as waiting:
            await side.connection.send(m.Done(7))
        assert waiting.cancelled_caught
        await side.peer.hear()
        await side.peer.hear()
        with trio.move_on_after(1) as waiting:
            await side.connection.drained()
        assert waiting.cancelled_caught
        await side.peer.hear()
        await side.connection.drained()
        await side.connection.send(m.Done(8))
        heard = [await side.peer.hear() for _ in range(4)]
        assert heard[-1] == m.Done(8)
        assert m.Done(7) not in heard


async def test_encoded_messages_keep_their_order_and_are_refused_if_there_is_no_room(
    autojump_clock: MockClock,
) -> None:
    async with running(capacity=0) as side:
        now = trio.current_time()
        side.connection.post(m.Done(1))
        assert side.connection.try_send_encoded(encode(m.Done(2)), now)
        side.connection.post(m.Done(3))
        assert [await side.peer.hear() for _ in range(3)] == [m.Done(n) for n in (1, 2, 3)]
        for request in range(6):
            side.connection.post(produce(request, BULK))
        assert not side.connection.try_send_encoded(encode(m.Done(4)), now)
        heard = [await side.peer.hear() for _ in range(6)]
        assert side.connection.try_send_encoded(encode(m.Done(5)), now)
        assert [*heard, await side.peer.hear()][-1] == m.Done(5)
        await side.peer.link.aclose()
        await side.ended.wait()
        assert not side.connection.try_send_encoded(encode(m.Done(6)), now)


async def test_encoded_messages_count_against_the_share_of_the_peer(
    autojump_clock: MockClock,
) -> None:
    data = encode(m.Done(1))
    bucket = TokenBucket(float(len(data)), trio.current_time())
    async with running(bucket=bucket) as side:
        now = trio.current_time()
        assert side.connection.try_send_encoded(data, now)
        assert side.connection.try_send_encoded(data, now)
        assert not side.connection.try_send_encoded(data, now)
        await trio.sleep(1)
        assert side.connection.try_send_encoded(data, trio.current_time())
        assert [await side.peer.hear() for _ in range(3)] == [m.Done(1)] * 3


async def test_many_senders_wait_for_the_same_room(autojump_clock: MockClock) -> None:
    async with running(capacity=0) as side, trio.open_nursery() as nursery:
        for request in range(10):
            nursery.start_soon(side.connection.send, produce(request, BULK))
        heard = set()
        for _ in range(10):
            await wait_all_tasks_blocked()
            waiting_bytes = side.connection.statistics().outbox_bytes
            assert waiting_bytes <= OUTBOX_BYTES_MAX + len(encode(produce(9, BULK)))
            message = await side.peer.hear()
            assert isinstance(message, m.Produce)
            heard.add(message.request)
        assert heard == set(range(10))


async def test_a_send_that_waits_for_room_learns_of_the_end_of_the_connection(
    autojump_clock: MockClock,
) -> None:
    async with running(capacity=0) as side:
        for request in range(6):
            side.connection.post(produce(request, BULK))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(side.peer.link.aclose)
            with pytest.raises(ConnectionLostError, match="right closed"):
                await side.connection.send(m.Done(7))


async def test_a_peer_that_takes_nothing_is_given_up(autojump_clock: MockClock) -> None:
    async with running(capacity=0, heartbeat_timeout_s=10 * SEND_TIMEOUT_S) as side:
        start = trio.current_time()
        side.connection.post(m.Done(1))
        await side.ended.wait()
        assert trio.current_time() - start == SEND_TIMEOUT_S
        assert side.connection.end_reason == "right took nothing for 20 s"


async def test_nothing_is_posted_after_the_end(autojump_clock: MockClock) -> None:
    async with running() as side:
        await side.peer.link.aclose()
        await side.ended.wait()
        with pytest.raises(ConnectionLostError, match="right closed"):
            side.connection.post(m.Done(1))
        with pytest.raises(ConnectionLostError, match="right closed"):
            await side.connection.send(m.Done(1))


async def test_a_field_out_of_bounds_is_the_callers_fault(autojump_clock: MockClock) -> None:
    async with running() as side:
        with pytest.raises(ValueError, match=r"done\.request"):
            side.connection.post(m.Done(2**63))
        side.connection.post(m.Done(1))
        assert await side.peer.hear() == m.Done(1)


# --- heartbeats ----------------------------------------------------------------------


async def test_a_heartbeat_is_sent_when_nothing_else_was(autojump_clock: MockClock) -> None:
    async with running(heartbeat_timeout_s=1000) as side:
        start = trio.current_time()
        for beat in (1, 2):
            assert decode(await side.peer.link.receive(), EVERY_CLASS) == m.Heartbeat()
            assert trio.current_time() - start == beat * HEARTBEAT_S
        await trio.sleep(HEARTBEAT_S - 1)
        side.connection.post(m.Done(1))
        assert decode(await side.peer.link.receive(), EVERY_CLASS) == m.Done(1)
        assert decode(await side.peer.link.receive(), EVERY_CLASS) == m.Heartbeat()
        assert trio.current_time() - start == 4 * HEARTBEAT_S - 1


async def test_heartbeats_keep_a_connection_alive_and_are_not_delivered(
    autojump_clock: MockClock,
) -> None:
    async with running() as side:
        for _ in range(10):
            await trio.sleep(SILENCE_S - 1)
            await side.peer.tell(m.Heartbeat())
        assert side.connection.end_reason is None
        assert side.heard == []


async def test_silence_ends_the_connection(autojump_clock: MockClock) -> None:
    async with running() as side:
        start = trio.current_time()
        await side.ended.wait()
        assert trio.current_time() - start == SILENCE_S
        assert side.connection.end_reason == "right was silent for 20 s"
        assert side.link.closed_with == (1001, "right was silent for 20 s")


async def test_the_end_is_reported_once_before_the_link_is_closed(
    autojump_clock: MockClock,
) -> None:
    async with running() as side:
        await side.ended.wait()
        assert side.was_closed_at_end == [False]


async def test_a_peer_whose_messages_a_pausing_reader_leaves_unread_is_not_silent(
    autojump_clock: MockClock,
) -> None:
    async with running() as side:
        await side.peer.tell(*(produce(n) for n in range(REQUESTS_IN_FLIGHT_MAX)))
        await trio.sleep(10 * SILENCE_S)
        assert side.connection.end_reason is None
        side.connection.post(produced(0))
        await trio.sleep(SILENCE_S + 1)
        assert side.connection.end_reason == "right was silent for 20 s"


# --- the peer's requests -------------------------------------------------------------


async def test_the_reader_pauses_at_the_bound_of_unanswered_requests(
    autojump_clock: MockClock,
) -> None:
    async with running() as side:
        await side.peer.tell(*(produce(n) for n in range(REQUESTS_IN_FLIGHT_MAX + 3)))
        await wait_all_tasks_blocked()
        assert len(side.heard) == REQUESTS_IN_FLIGHT_MAX
        side.connection.post(m.Failure(5, 53, "no"))
        side.connection.post(produced(6))
        side.connection.post(m.InstallTopics(7, []))  # our question of that number, no answer
        await wait_all_tasks_blocked()
        assert len(side.heard) == REQUESTS_IN_FLIGHT_MAX + 2
        assert side.connection.statistics().unanswered_count == REQUESTS_IN_FLIGHT_MAX


async def test_requests_that_are_set_aside_do_not_count_until_they_are_answered(
    autojump_clock: MockClock,
) -> None:
    async with running() as side:
        aside = range(1000, 1000 + 2 * REQUESTS_IN_FLIGHT_MAX)
        side.on_message = lambda message: (
            side.connection.set_aside(message.request) if message.request in aside else None
        )
        await side.peer.tell(*(produce(n) for n in aside))
        await side.peer.tell(*(produce(n) for n in range(REQUESTS_IN_FLIGHT_MAX + 1)))
        await wait_all_tasks_blocked()
        assert len(side.heard) == len(aside) + REQUESTS_IN_FLIGHT_MAX
        for number in aside:
            side.connection.post(produced(number))
        await wait_all_tasks_blocked()
        assert len(side.heard) == len(aside) + REQUESTS_IN_FLIGHT_MAX
        side.connection.post(produced(0))
        await wait_all_tasks_blocked()
        assert len(side.heard) == len(aside) + REQUESTS_IN_FLIGHT_MAX + 1


async def test_a_reader_that_pauses_reads_on_when_a_request_is_set_aside(
    autojump_clock: MockClock,
) -> None:
    async with running() as side:
        await side.peer.tell(*(produce(n) for n in range(REQUESTS_IN_FLIGHT_MAX + 2)))
        await wait_all_tasks_blocked()
        for _ in range(2):  # the second time it is no news
            side.connection.set_aside(5)
            await wait_all_tasks_blocked()
            assert len(side.heard) == REQUESTS_IN_FLIGHT_MAX + 1
        side.connection.set_aside(4711)  # it was never asked
        assert len(side.heard) == REQUESTS_IN_FLIGHT_MAX + 1
        assert side.connection.statistics().unanswered_count == REQUESTS_IN_FLIGHT_MAX + 1


async def test_the_reader_pauses_while_the_outbox_is_full(autojump_clock: MockClock) -> None:
    async with running(capacity=0) as side:
        side.on_message = lambda message: side.connection.post(
            m.Fetched(message.request, "id", BULK, Offset(0), Offset(0))
        )
        for request in range(4):
            await side.peer.tell(m.Fetch(request, "t", PartitionId(0), Offset(0), 1, 0))
        with trio.move_on_after(1) as waiting:
            await side.peer.tell(m.Fetch(5, "t", PartitionId(0), Offset(0), 1, 0))
        assert waiting.cancelled_caught
        assert len(side.heard) == 4
        assert side.connection.statistics().outbox_bytes > OUTBOX_BYTES_MAX


async def test_a_request_number_can_not_be_used_again_before_its_answer(
    autojump_clock: MockClock,
) -> None:
    async with running() as side:
        await side.peer.tell(produce(1))
        await wait_all_tasks_blocked()
        side.connection.post(produced(1))
        await side.peer.tell(produce(1), produce(1))
        assert await side.peer.hear() == produced(1)
        reason = "produce.request: 1 has had no answer yet"
        assert await side.peer.hear() == m.Failure(None, Status.MALFORMED_MESSAGE, reason)
        assert (
            await side.peer.hear_end()
            == f"right closed the connection (1002): {reason}".replace("right", "left")
        )


async def test_messages_about_a_reading_use_its_request_number_while_it_lasts(
    autojump_clock: MockClock,
) -> None:
    said = [
        m.Subscribe(1, "t", PartitionId(0), Offset(0), 0),
        m.Credit(1, 5),
        m.Credit(1, 6),
        m.Unsubscribe(1),
    ]
    async with running() as side:
        await side.peer.tell(*said)
        await wait_all_tasks_blocked()
        assert side.heard == said
        assert side.connection.statistics().unanswered_count == 1


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (NotLeaderError("ask b", address="ws://b:1"), Status.NOT_LEADER, "ask b"),
        (RefusedError("x" * 2000, Status.TOO_MANY), Status.TOO_MANY, "x" * TEXT_BYTES_MAX),
        (RefusedError("é" * 501, Status.TOO_MANY), Status.TOO_MANY, "é" * 500),
        (InvalidTopicError("bad name"), Status.INVALID_TOPIC, "bad name"),
        (InvalidOptionError("bad value"), Status.INVALID_OPTION, "bad value"),
        (IncompleteRecordError("torn"), Status.MALFORMED_RECORD, "torn"),
        (ChecksumError("changed"), Status.RECORD_CHECKSUM, "changed"),
        (DiskFullError("full"), Status.DISK_FULL, "full"),
        (LogReadOnlyError("failed"), Status.LOG_READ_ONLY, "failed"),
        (NeedsTimeError("later"), Status.NOT_READY, "later"),
        (
            CorruptLogError("/d/1.log", 7, 9, "bits"),
            Status.LOG_CORRUPT,
            str(CorruptLogError("/d/1.log", 7, 9, "bits")),
        ),
    ],
)
async def test_a_refusal_becomes_the_answer_and_the_connection_goes_on(
    error: OctopiError, status: Status, reason: str, autojump_clock: MockClock
) -> None:
    def refuse(_: object) -> None:
        raise error

    async with running() as side:
        side.on_message = refuse
        await side.peer.tell(produce(1), m.Credit(2, 0))
        address = getattr(error, "address", "")
        assert await side.peer.hear() == m.Failure(1, status, reason, address)
        assert await side.peer.hear() == m.Failure(2, status, reason, address)
        assert side.connection.end_reason is None
        assert side.connection.statistics().unanswered_count == 0


async def test_an_address_that_does_not_fit_is_left_out(autojump_clock: MockClock) -> None:
    def refuse(_: object) -> None:
        raise NotLeaderError("elsewhere", address="ws://" + "b" * 300)

    async with running() as side:
        side.on_message = refuse
        await side.peer.tell(produce(1))
        assert await side.peer.hear() == m.Failure(1, Status.NOT_LEADER, "elsewhere", "")


async def test_a_refused_notice_without_a_number_ends_the_connection(
    autojump_clock: MockClock,
) -> None:
    def refuse(_: object) -> None:
        raise RefusedError("not you", Status.WRONG_CLUSTER)

    async with running() as side:
        side.on_message = refuse
        await side.peer.tell(m.Inventory([], []))
        assert await side.peer.hear() == m.Failure(None, Status.WRONG_CLUSTER, "not you")
        assert await side.peer.hear_end() == "left closed the connection (1002): not you"


@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), ConnectionLostError("another's")])
async def test_a_fault_in_a_handler_ends_only_that_connection(
    error: Exception, autojump_clock: MockClock
) -> None:
    def fail(_: object) -> None:
        raise error

    async with running() as side, running() as other:
        side.on_message = fail
        with capture_logs() as logs:
            await side.peer.tell(produce(1))
            said = await side.peer.hear()
            ended = await side.peer.hear_end()
        text = "the node failed internally"
        assert said == m.Failure(None, Status.INTERNAL, text)
        assert ended == f"left closed the connection (1011): {text}"
        assert logs[0]["event"] == "message_handler_failed"
        assert logs[0]["exc_info"] is True
        await other.peer.tell(produce(1))
        await wait_all_tasks_blocked()
        assert other.heard == [produce(1)]


# --- what the protocol doesn't allow -------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "request_number"),
    [
        (b"\xff" * 100, Status.MALFORMED_MESSAGE, None),
        (b"", Status.MALFORMED_MESSAGE, None),
        (encode(produce(7))[:-1], Status.MALFORMED_MESSAGE, 7),
        (encode(m.Done(7)).replace(b"done", b"dune"), Status.UNKNOWN_MESSAGE, 7),
        (
            encode(m.Join(7, "", None, Incarnation(1), "n", [], None, "ws://a:1")),
            Status.WRONG_ENDPOINT,
            7,
        ),
        (encode(m.Hello(1, "again")), Status.WRONG_ENDPOINT, None),
    ],
)
async def test_a_message_that_is_not_allowed_is_answered_and_ends_the_connection(
    data: bytes, status: Status, request_number: int | None, autojump_clock: MockClock
) -> None:
    async with running() as side:
        await side.peer.link.send(data)
        said = await side.peer.hear()
        assert isinstance(said, m.Failure)
        assert (said.request, said.status) == (request_number, status)
        assert await side.peer.hear_end() == f"left closed the connection (1002): {said.reason}"
        await side.ended.wait()
        assert side.connection.end_reason == f"closed by this side: {said.reason}"


async def test_a_message_too_large_ends_the_connection_with_1009(
    autojump_clock: MockClock,
) -> None:
    async with running() as side:
        await side.peer.link.send(bytes(MESSAGE_BYTES_MAX + 1))
        said = await side.peer.hear()
        reason = f"a message had more than {MESSAGE_BYTES_MAX} bytes"
        assert said == m.Failure(None, Status.MESSAGE_TOO_LARGE, reason)
        assert "(1009)" in await side.peer.hear_end()


async def test_a_peer_that_ends_the_connection_says_why(autojump_clock: MockClock) -> None:
    async with running() as side:
        await side.peer.tell(m.Failure(None, Status.TOO_SLOW, "hurry"))
        await side.ended.wait()
        assert side.connection.end_reason == "right ended the connection: hurry [too_slow]"


# --- closing -------------------------------------------------------------------------


async def test_closing_sends_posted_messages_first(autojump_clock: MockClock) -> None:
    async with running() as side:
        for request in range(3):
            side.connection.post(m.Done(request))
        await side.connection.close(1001, "bye")
        assert side.ended.is_set()
        assert [await side.peer.hear() for _ in range(3)] == [m.Done(n) for n in range(3)]
        assert await side.peer.hear_end() == "left closed the connection (1001): bye"
        with pytest.raises(ConnectionLostError, match="closed by this side: bye"):
            side.connection.post(m.Done(4))
        await side.connection.close()


async def test_closing_does_not_wait_long_for_a_peer_that_takes_nothing(
    autojump_clock: MockClock,
) -> None:
    async with running(capacity=0) as side:
        start = trio.current_time()
        side.connection.post(m.Done(1))
        await side.connection.close(1001, "bye")
        assert trio.current_time() - start == CLOSE_TIMEOUT_S
        assert side.ended.is_set()


async def test_a_cancelled_close_still_closes(autojump_clock: MockClock) -> None:
    async with running(capacity=0) as side:
        side.connection.post(m.Done(1))
        with trio.move_on_after(0.5):
            await side.connection.close(1001, "bye")
        await side.ended.wait()
        assert trio.current_time() == 0.5
        assert side.link.closed_with == (1001, "bye")


async def test_closing_with_grace_finishes_requests_and_refuses_new_ones(
    autojump_clock: MockClock,
) -> None:
    async with running() as side, trio.open_nursery() as nursery:
        await side.peer.tell(produce(1))
        await wait_all_tasks_blocked()
        close = side.connection.close
        nursery.start_soon(lambda: close(1001, "bye", grace_s=5))
        await trio.sleep(1)
        await side.peer.tell(produce(2))
        refusal = m.Failure(2, Status.SHUTTING_DOWN, "the node is shutting down")
        assert await side.peer.hear() == refusal
        side.connection.post(produced(1))
        assert await side.peer.hear() == produced(1)
        assert await side.peer.hear_end() == "left closed the connection (1001): bye"
        assert side.heard == [produce(1)]
        assert trio.current_time() < 4


async def test_closing_with_grace_ends_after_the_grace_period(autojump_clock: MockClock) -> None:
    async with running() as side:
        await side.peer.tell(produce(1))
        await wait_all_tasks_blocked()
        start = trio.current_time()
        await side.connection.close(1001, "bye", grace_s=5)
        assert trio.current_time() - start == 5
        assert side.ended.is_set()


async def test_messages_that_arrive_while_closing_are_dropped(autojump_clock: MockClock) -> None:
    async with running(capacity=0) as side, trio.open_nursery() as nursery:
        side.connection.post(m.Done(1))
        nursery.start_soon(side.connection.close)
        await wait_all_tasks_blocked()
        await side.peer.tell(produce(1))
        assert await side.peer.hear() == m.Done(1)
    assert side.heard == []


async def test_a_message_that_is_not_allowed_does_not_disturb_closing(
    autojump_clock: MockClock,
) -> None:
    async with running(capacity=1) as side, trio.open_nursery() as nursery:
        for request in (1, 2, 3):
            side.connection.post(m.Done(request))
        nursery.start_soon(side.connection.close, 1001, "bye")
        await wait_all_tasks_blocked()
        await side.peer.link.send(bytes(MESSAGE_BYTES_MAX + 1))
        await wait_all_tasks_blocked()
        assert [await side.peer.hear() for _ in range(3)] == [m.Done(n) for n in (1, 2, 3)]
        assert await side.peer.hear_end() == "left closed the connection (1001): bye"


async def test_a_connection_that_never_ran_is_closed_too() -> None:
    side = new_side()
    await side.connection.close(1001, "bye")
    assert side.link.closed_with == (1001, "bye")


async def test_cancelling_a_connection_closes_the_link_and_ends_all_requests(
    autojump_clock: MockClock,
) -> None:
    heard: list[object] = []
    async with running() as side:
        side.connection.ask(produce(1), heard.append)
        side.scope.cancel()
        await side.ended.wait()
        assert side.link.closed_with == (1001, "")
        assert side.connection.end_reason == "closed by this side"
        assert [str(end) for end in heard] == ["closed by this side"]


async def test_a_connection_counts_messages_and_bytes(autojump_clock: MockClock) -> None:
    async with running(capacity=1) as side:
        side.connection.post(m.Done(1))
        side.connection.post(m.Done(2))
        side.connection.post(m.Done(3))
        await side.peer.tell(produce(1))
        await wait_all_tasks_blocked()
        counted = side.connection.statistics()
        size = len(encode(m.Done(1)))
        assert (counted.sent_count, counted.sent_bytes) == (1, size)
        assert counted.outbox_bytes == 2 * size
        assert (counted.received_count, counted.unanswered_count) == (1, 1)
        assert counted.received_bytes == len(encode(produce(1)))
        assert side.connection.peer == "right"
