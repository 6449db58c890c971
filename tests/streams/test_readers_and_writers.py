"""Slow readers, and writers of one log, without any node: on virtual time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import attrs
import h11
import pytest
import trio
import trio.testing

from octopi.environment import Environment
from octopi.errors import RefusedError, StorageError
from octopi.identifiers import Epoch, Offset, ProducerEpoch, ProducerId, TopicId
from octopi.limits import KIB, SEND_TIMEOUT_S, SSE_LIFE_S
from octopi.position import NO_ANCHOR
from octopi.record import BatchBuilder, scan
from octopi.replication.producer_sequences import ProducerSequences
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.streams import appending
from octopi.roles.broker.streams.appending import StreamWriter
from octopi.roles.broker.streams.reading import ReaderCounts, StreamReader
from octopi.roles.streams.exchange import StreamCaller
from octopi.roles.streams.forwarding import forward
from octopi.streams.writing import MARK, Write, WriteNote
from octopi.transport.http_requests import Asker, HttpRequest
from octopi.transport.memory_budget import MemoryBudget


class VirtualClock:
    """A clock that follows Trio's."""

    def now(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return 0

    async def sleep_until(self, deadline: float) -> None:
        await trio.sleep_until(deadline)

    def timeout(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(seconds)


@attrs.define
class Surroundings:
    """An environment with a clock alone."""

    clock: VirtualClock = attrs.field(factory=VirtualClock)


def surroundings() -> Environment:
    return cast(Environment, Surroundings())


async def nobody(_: str) -> Any:  # noqa: ANN401
    raise AssertionError("nothing is forwarded here")


# --- readers -------------------------------------------------------------------------------


@attrs.define
class State:
    """The state of a log that is open."""

    sequences: ProducerSequences = attrs.field(factory=ProducerSequences)


@attrs.define
class SomeLog:
    """A log with content, for one reader."""

    topic_id = TopicId("5f0c2a1b5f0c2a1b")
    topic: Any = attrs.field(factory=lambda: SimpleNamespace(stream=None, generations=()))
    epoch: int = 1
    highwater: int = 5
    end: int = 5
    delivered_bytes: int = 0
    state: State = attrs.field(factory=State)

    def read_bytes_min(self, _: int) -> int:
        return 5

    def anchor_before(self, _: int) -> str:
        return NO_ANCHOR

    def add_waker(self, _: object) -> None:
        pass

    def remove_waker(self, _: object) -> None:
        pass


class OneEvent:
    """Makes one event, however little it is made of."""

    def __init__(self, event: bytes) -> None:
        self._event = event

    async def next(self, log: SomeLog, *_: object) -> tuple[bytes, int]:
        return self._event, log.highwater


def reader_of(event: bytes, budget: MemoryBudget) -> tuple[Any, StreamCaller]:
    """The function that sends *event*, and who asked for it."""
    events: Any = OneEvent(event)
    manager: Any = None
    reader = StreamReader(surroundings(), manager, budget, ReaderCounts(), events)
    caller = StreamCaller("peer", nobody)
    log: Any = SomeLog()
    return reader._sse(caller, log, Offset(0), "7").stream, caller


async def test_a_part_of_an_event_that_a_slow_reader_takes_is_never_sent_in_half(
    autojump_clock: object,
) -> None:
    send_events, _ = reader_of(b"x" * 60 * KIB, MemoryBudget())
    taken: list[bytes] = []

    async def slowly(part: bytes) -> None:
        await trio.sleep(SEND_TIMEOUT_S - 1)
        taken.append(part)

    await send_events(slowly)
    assert len(b"".join(taken)) > 60 * KIB
    assert trio.current_time() == pytest.approx(4 * (SEND_TIMEOUT_S - 1))


async def test_a_reader_that_takes_nearly_nothing_is_given_up_between_two_parts(
    autojump_clock: object,
) -> None:
    send_events, _ = reader_of(b"x" * 400 * KIB, MemoryBudget())
    sends = [0, 0]

    async def slowly(_: bytes) -> None:
        sends[0] += 1
        await trio.sleep(SEND_TIMEOUT_S - 1)
        sends[1] += 1

    with pytest.raises(RefusedError):
        await send_events(slowly)
    assert sends[0] == sends[1]
    assert trio.current_time() < SSE_LIFE_S + 3 * SEND_TIMEOUT_S


async def test_an_event_that_is_longer_than_its_records_is_charged_as_it_is(
    autojump_clock: object,
) -> None:
    budget, held = MemoryBudget(), []
    send_events, caller = reader_of(b"x" * 400 * KIB, budget)

    async def send(_: bytes) -> None:
        held.append(caller.accounts(budget).outgoing.held_bytes)

    await send_events(send)
    assert min(held) >= 400 * KIB
    assert caller.accounts(budget).outgoing.held_bytes == 0


# --- forwarding ------------------------------------------------------------------------------


async def test_an_answer_that_is_forwarded_is_charged_until_the_client_has_it(
    autojump_clock: object,
) -> None:
    size_bytes, budget = 300 * KIB, MemoryBudget()
    ours, theirs = trio.testing.memory_stream_pair()

    async def open_stream(_: str) -> trio.abc.HalfCloseableStream:
        return ours

    async def locate() -> str:
        return "ws://127.0.0.1:1"

    async def serve() -> None:
        protocol = h11.Connection(h11.SERVER)
        while (event := protocol.next_event()) is not h11.PAUSED:
            if event is h11.NEED_DATA:
                protocol.receive_data(bytes(await theirs.receive_some()))
            if isinstance(event, h11.EndOfMessage):
                break
        headers = [("content-length", str(size_bytes))]
        await theirs.send_all(protocol.send(h11.Response(status_code=200, headers=headers)) or b"")
        await theirs.send_all(b"x" * size_bytes)

    caller = StreamCaller("peer", open_stream)
    memory = caller.accounts(budget)
    request = HttpRequest("GET", "/v1/streams/orders", {}, {"host": "a"}, Asker("peer"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        answer = await forward(surroundings(), request, b"", caller, locate)
    assert len(answer.body) == size_bytes
    assert memory.outgoing.held_bytes >= size_bytes
    caller.leave()
    assert budget.used_bytes == 0


# --- writers -------------------------------------------------------------------------------


class CountedLog:
    """A leader's log in memory, which counts how often it is read."""

    topic_id = TopicId("5f0c2a1b5f0c2a1b")
    partition = 1
    start = 0

    def __init__(self) -> None:
        self.topic = type("Topic", (), {"topic": "orders"})()
        self.sequences = ProducerSequences()
        self.content = b""
        self.reads = 0
        self.log, self.epoch = self, Epoch(1)
        """It stands for its machine, too."""

    @property
    def end(self) -> Offset:
        return Offset(len(self.content))

    def append(self, producer: ProducerId, headers: dict[str, bytes], sequence: int = 0) -> None:
        builder = BatchBuilder()
        builder.add(b"x", None, headers, 0)
        self.take(builder.encode(producer, ProducerEpoch(0), cast(Any, sequence)))

    def take(self, records: bytes) -> None:
        self.sequences.note(scan(records), self.end)
        self.content += records

    def read_uncommitted(self, offset: int, _: int) -> bytes:
        self.reads += 1
        begun = self.content[offset : offset + 200]
        return begun[: 4 + int.from_bytes(begun[:4], "big")]


def made(writer: StreamWriter, log: CountedLog, write: Write) -> appending._Outcome:
    outcome, one = appending._Outcome(), cast(Any, log)
    records = writer._make(one, one, write, outcome)
    if isinstance(records, bytes) and records:
        log.take(records)
    return outcome


def test_the_newest_stream_seq_is_found_without_reading_the_records_of_all_other_producers() -> (
    None
):
    log, writer = CountedLog(), StreamWriter(surroundings_at_rest())
    assert made(writer, log, Write([b"x"], stream_seq="7")).decided is None
    for number in range(300):
        log.append(ProducerId(number.to_bytes(16, "big")), {})
    for expected in (300, 0, 0):
        log.reads = 0
        assert made(writer, log, Write([b"x"])).decided is None
        assert log.reads <= expected
    refused = made(writer, log, Write([b"x"], stream_seq="6"))
    assert refused.decided is not None
    log.append(ProducerId(b"p" * 16), {MARK: WriteNote(stream_seq="9").encode()})
    refused = made(writer, log, Write([b"x"], stream_seq="8"))
    assert refused.decided is not None
    log.epoch = Epoch(2)
    log.reads = 0
    assert made(writer, log, Write([b"x"], stream_seq="91")).decided is None
    assert log.reads > 0


def surroundings_at_rest() -> Environment:
    return cast(Environment, type("AtRest", (), {"clock": type("C", (), {"wall_ms": int})()})())


async def test_what_was_reserved_for_a_write_is_given_back_if_the_log_can_not_be_read() -> None:
    settled: list[object] = []

    class Driver:
        def append_made(self, log: object, make: Any, answer: Any) -> None:  # noqa: ANN401
            answer(make(None))

    class Damaged:
        async def prove(self, _: int) -> None:
            raise StorageError("the disk fails")

        highwater = 0

    writer = StreamWriter(surroundings())

    def make(_: object, __: object, ___: object, outcome: appending._Outcome) -> bytes:
        outcome.unproven = Offset(0)
        return b""

    cast(Any, writer)._make = make
    driver, log = cast(Any, Driver()), cast(LocalLog, Damaged())
    with pytest.raises(StorageError):
        await writer.write(driver, log, Write([b"x"]), settled.append)
    assert settled == [None]
