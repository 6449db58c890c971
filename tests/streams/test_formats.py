"""Offsets, paths, JSON, events and headers of streams, without any node."""

from __future__ import annotations

import json
import tracemalloc

import h11
import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from octopi.identifiers import Offset, TopicId, topic_name, topic_name_fault
from octopi.limits import HTTP_BODY_S, MIB, OFFSET_MAX, RECORDS_PER_PRODUCE_MAX, WALL_MS_MAX
from octopi.model import StreamDefinition
from octopi.position import Anchor, Place
from octopi.roles.streams import exchange
from octopi.streams import content_types, json_mode, paths, sse
from octopi.streams.cursors import cursor
from octopi.streams.definitions import definition_of
from octopi.streams.forks import ForkOrder, order_of
from octopi.streams.offsets import StreamPlace, offset_text, place_of
from octopi.streams.problems import StreamProblem
from octopi.streams.writing import (
    AlreadyWritten,
    HttpProducer,
    Known,
    Write,
    WriteNote,
    judge,
    log_producer,
    noted,
    write_of,
)
from octopi.transport.http_bodies import ReceivedBody
from octopi.transport.http_requests import Asker, HttpRefusal, HttpRequest, RequestBody
from octopi.transport.memory_budget import MemoryBudget
from octopi.transport.watched_stream import WatchedStream
from octopi.wire.codec import fault_in

ID = TopicId("5f0c2a1b5f0c2a1b")
offsets = st.integers(0, OFFSET_MAX).map(Offset)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)  # fmt: skip


@given(offsets, offsets)
def test_offsets_sort_as_texts_whatever_their_anchors_are(one: Offset, other: Offset) -> None:
    texts = offset_text(ID, one, Anchor("7-1200.6-800")), offset_text(ID, other, Anchor("12-1"))
    assert one == other or (texts[0] < texts[1]) == (one < other)


@given(offsets)
def test_an_offset_is_read_as_it_was_written(offset: Offset) -> None:
    anchor = Anchor("7-1200.6-800")
    assert place_of(offset_text(ID, offset, anchor)) == StreamPlace(ID, Place(offset, anchor))
    assert place_of(offset_text(ID, offset)) == StreamPlace(ID, Place(offset))
    assert place_of(f"{offset:020d}") == StreamPlace(None, Place(offset))


@pytest.mark.parametrize("text", ["", "0", "-2", "now ", "1" * 21, "9" * 20, f"{0:020d}~", "a,b"])
def test_what_no_node_gave_out_is_no_offset(text: str) -> None:
    with pytest.raises(StreamProblem) as problem:
        place_of(text)
    assert problem.value.http == 400


segments = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="/"), min_size=1, max_size=4
).filter(lambda text: text not in {".", ".."})


@given(st.lists(segments, min_size=1, max_size=3).map("/".join))
def test_a_path_names_a_legal_topic_from_which_it_can_be_read(path: str) -> None:
    from urllib.parse import quote, unquote

    topic = paths.topic_of(paths.PREFIX + quote(path, safe="/"))
    assert not topic_name_fault(topic)
    assert unquote(paths.path_of(topic)) in {paths.PREFIX + path, paths.PREFIX + topic}
    assert paths.topic_of(paths.path_of(topic)) == topic


def test_a_legal_name_is_its_own_topic_and_another_path_is_escaped() -> None:
    assert paths.topic_of("/v1/streams/eu.orders-1") == "eu.orders-1"
    assert paths.topic_of("/v1/streams/a/b%20c") == "path.a.2fb.20c"
    assert paths.path_of(topic_name("path.a.2fb.20c")) == "/v1/streams/a/b%20c"


@pytest.mark.parametrize("path", ["", "/", "a//b", "a/../b", "%ff", "a/", "x" * 201, "é" * 70])
def test_a_path_that_no_topic_can_have_is_refused(path: str) -> None:
    with pytest.raises(StreamProblem) as problem:
        paths.topic_of(paths.PREFIX + path)
    assert problem.value.http == 400


@given(st.lists(values, max_size=5))
def test_an_array_is_written_as_its_elements_and_read_as_an_array(elements: list[object]) -> None:
    written = json_mode.values_of(json.dumps(elements).encode())
    assert [json.loads(one) for one in written] == elements
    assert json.loads(json_mode.array_of(written)) == elements


def test_values_are_stored_as_they_were_written() -> None:
    assert json_mode.values_of(b' [1.0e3 , {"a" : 1}, [ ] ] ') == [b"1.0e3", b'{"a" : 1}', b"[ ]"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1", b"[1,]", b"1 2", b"NaN", b"\xff", b"[" * 100_000, b'"\x01"']
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(StreamProblem):
        json_mode.values_of(body)


def test_a_record_that_is_no_json_does_not_hide_the_others() -> None:
    assert json.loads(json_mode.array_of([b"1", b"hello", b""])) == [1, "hello"]


@given(st.text())
def test_content_makes_no_events_of_its_own(text: str) -> None:
    event = sse.data_event("text/plain", [text.encode()]) if text else b"event: data\n\n"
    lines = event.decode().split("\n")
    assert lines[0] == "event: data"
    assert lines[-2:] == ["", ""]
    assert all(line.startswith("data:") and "\r" not in line for line in lines[1:-2])


def test_an_event_of_many_lines_is_made_without_an_object_for_each() -> None:
    lines = b"\n" * MIB
    tracemalloc.start()
    try:
        event = sse.data_event("text/plain", [lines])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(event) > 6 * MIB
    assert peak_bytes < 5 * len(event)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a", "data:a"), (" a", "data:  a"), ("a\r\nb\rc\nd", "data:a\ndata:b\ndata:c\ndata:d"),
        ("\n x\n", "data:\ndata:  x\ndata:"), ("\r\r\n", "data:\ndata:\ndata:"),
    ],
)  # fmt: skip
def test_each_line_of_a_text_is_a_line_of_its_event(text: str, data: str) -> None:
    event = sse.data_event("text/plain", [text.encode()])
    assert event.decode() == f"event: data\n{data}\n\n"


def test_too_many_values_are_refused_before_all_of_them_are_parsed() -> None:
    too_many = b"[" + b"1," * (RECORDS_PER_PRODUCE_MAX + 1) + b"no JSON"
    with pytest.raises(StreamProblem) as problem:
        json_mode.values_of(too_many)
    assert problem.value.http == 413


def test_a_cursor_is_always_later_than_the_one_that_was_shown() -> None:
    now_ms = 1_800_000_000_000
    first = cursor(now_ms, "", 0)
    assert int(cursor(now_ms, first, 0)) > int(first)
    assert int(cursor(now_ms, str(int(first) + 5), 255)) > int(first) + 5
    assert cursor(now_ms, "no cursor", 0) == first


def test_the_form_type_of_curl_says_nothing_about_content() -> None:
    assert content_types.checked("application/x-www-form-urlencoded") == content_types.DEFAULT
    assert content_types.matches("application/x-www-form-urlencoded", content_types.DEFAULT)
    assert not content_types.matches("application/x-www-form-urlencoded", "text/plain")
    assert content_types.matches("TEXT/plain; charset=utf-8", "text/plain")


@pytest.mark.parametrize(
    "headers",
    [
        {"stream-ttl": "01"}, {"stream-ttl": "-1"}, {"stream-ttl": "1e3"},
        {"stream-ttl": "1", "stream-expires-at": "2030-01-01T00:00:00Z"},
        {"stream-expires-at": "tomorrow"}, {"stream-expires-at": "2030-13-01T00:00:00Z"},
        {"content-type": "text/" + "x" * 200}, {"content-type": "no type"},
        {"content-type": "text/pl\u2028ain"},
        {"stream-expires-at": "9999-12-31T23:59:59-23:59"},
    ],
)  # fmt: skip
def test_a_definition_that_contradicts_itself_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(StreamProblem) as problem:
        definition_of(headers)
    assert problem.value.http == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"producer-id": "p"}, {"producer-id": "p", "producer-epoch": "0"},
        {"producer-id": "", "producer-epoch": "0", "producer-seq": "0"},
        {"producer-id": "p", "producer-epoch": "+1", "producer-seq": "0"},
        {"producer-id": "p", "producer-epoch": "0", "producer-seq": str(1 << 53)},
        {"stream-seq": ""},
    ],
)  # fmt: skip
def test_headers_of_a_producer_that_are_no_numbers_or_incomplete_are_refused(
    headers: dict[str, str],
) -> None:
    with pytest.raises(StreamProblem) as problem:
        write_of(headers, [b"x"])
    assert problem.value.http == 400


def test_a_fork_that_names_half_of_a_place_is_refused() -> None:
    assert order_of({}) is None
    order = order_of({"stream-forked-from": "/v1/streams/a/b", "stream-fork-offset": "-1"})
    assert order == ForkOrder(topic_name("path.a.2fb"), "-1")
    assert ForkOrder.parse(order.text) == order
    for headers in (
        {"stream-fork-offset": "-1"},
        {"stream-forked-from": "/a", "stream-fork-sub-offset": "1"},
        {"stream-forked-from": "/a", "stream-fork-offset": "x"},
    ):
        with pytest.raises(StreamProblem):
            order_of(headers)
    with pytest.raises(StreamProblem):
        ForkOrder.parse("what another client sent")


def test_a_time_behind_the_year_9999_is_no_time_of_a_stream() -> None:
    assert not fault_in(StreamDefinition("", expires_at_ms=WALL_MS_MAX))
    assert fault_in(StreamDefinition("", expires_at_ms=WALL_MS_MAX + 1))


class TrioClock:
    """A clock that follows Trio's."""

    def now(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return 0

    async def sleep_until(self, deadline: float) -> None:
        await trio.sleep_until(deadline)

    def timeout(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(seconds)


async def test_a_body_that_comes_too_slowly_is_refused(autojump_clock: object) -> None:
    for pause_s in (HTTP_BODY_S / 4, HTTP_BODY_S):
        ours, theirs = trio.testing.memory_stream_pair()
        protocol = h11.Connection(h11.SERVER)
        protocol.receive_data(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\n")
        protocol.next_event()
        request = HttpRequest("POST", "/", {}, {"content-length": "99"}, Asker("peer"))
        body = ReceivedBody(protocol, WatchedStream(ours), bytearray(), TrioClock(), request)

        async def drip() -> None:
            for _ in range(10):
                await theirs.send_all(b"x")  # noqa: B023
                await trio.sleep(pause_s)  # noqa: B023

        async def take() -> None:
            while await body.receive():  # noqa: B023
                pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip)
            with pytest.raises(HttpRefusal) as refusal:
                await take()
            nursery.cancel_scope.cancel()
        assert refusal.value.answer.status == 408


class Chunks:
    """A body of very many small parts."""

    announced_bytes: int | None = None

    def __init__(self, count: int) -> None:
        self._left = count

    async def receive(self) -> bytes:
        self._left -= 1
        return bytes([self._left % 251, 1]) if self._left >= 0 else b""


async def test_small_parts_of_a_body_take_no_more_memory_than_large_ones() -> None:
    count = 200_000
    body: RequestBody = Chunks(count)
    request = HttpRequest("POST", "/", {}, {}, Asker("peer"), body=body)
    memory = MemoryBudget().connection("peer", is_peer=False)
    tracemalloc.start()
    try:
        whole = await exchange.received(request, memory, 2 * count)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(whole) == 2 * count
    assert peak_bytes < 3 * len(whole)


# --- whether a stream takes a write ------------------------------------------------------


def write(epoch: int, sequence: int, *, closes: bool = False) -> Write:
    """A write of the producer ``p``."""
    return Write([b"x"], HttpProducer("p", epoch, sequence), None, closes)


OPEN = Known(WriteNote("p", 1, 4), None, None)
CLOSED = Known(WriteNote("p", 1, 3), WriteNote("p", 1, 4), None)


def test_the_next_write_of_a_producer_is_taken_and_an_earlier_one_is_known() -> None:
    assert judge(write(1, 5), OPEN) is None
    assert judge(write(2, 0), OPEN) is None
    assert judge(write(1, 2), OPEN) == AlreadyWritten(False, 4)


@pytest.mark.parametrize(("epoch", "sequence", "http"), [(0, 9, 403), (1, 6, 409), (2, 1, 400)])
def test_a_gap_and_a_replaced_epoch_are_refused(epoch: int, sequence: int, http: int) -> None:
    with pytest.raises(StreamProblem) as problem:
        judge(write(epoch, sequence), OPEN)
    assert problem.value.http == http


def test_a_closed_stream_knows_the_write_that_closed_it_and_takes_no_other() -> None:
    assert judge(write(1, 4, closes=True), CLOSED) == AlreadyWritten(True, 4)
    assert judge(Write([], closes=True), CLOSED) == AlreadyWritten(True)
    for other in (write(1, 5), Write([b"x"]), Write([b"x"], closes=True)):
        with pytest.raises(StreamProblem) as problem:
            judge(other, CLOSED)
        assert (problem.value.http, ("stream-closed", "true") in problem.value.headers) == (
            409,
            True,
        )


def test_stream_seq_grows_byte_by_byte() -> None:
    known = Known(None, None, "2")
    assert judge(Write([b"x"], stream_seq="20"), known) is None
    with pytest.raises(StreamProblem):
        judge(Write([b"x"], stream_seq="10"), known)


@given(st.text(max_size=20), st.integers(0, 1 << 53), st.none() | st.text(max_size=20))
def test_what_a_write_notes_is_read_as_it_was_noted(
    name: str, number: int, stream_seq: str | None
) -> None:
    note = WriteNote(name, number if name else 0, number if name else 0, stream_seq)
    assert noted({"octopi-http": note.encode()}) == note


@given(st.binary(max_size=40))
def test_a_note_of_another_client_is_none(value: bytes) -> None:
    assert noted({"octopi-http": value}) is None or value.startswith((b"{", b" ", b"\n", b"\t"))
    assert noted({}) is None


def test_two_streams_have_no_producer_in_common() -> None:
    assert log_producer(TopicId("0" * 16), "p") != log_producer(TopicId("1" * 16), "p")
