"""Large messages are received in place, and their memory is used again only when nobody has it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trustme
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from octopi.environment import Link
from octopi.errors import ConnectionLostError
from octopi.limits import (
    IN_PLACE_BYTES_MIN,
    KEPT_BUFFER_BYTES,
    KEPT_BUFFERS_COUNT,
    MESSAGE_BYTES_MAX,
)
from octopi.operating_system import SystemClock, SystemStreams
from octopi.security.tls import Tls
from octopi.transport.frame_reader import BINARY, CONTINUATION, PING, FrameReader, frame_head
from octopi.transport.framed_link import FramedLink
from octopi.transport.receive_buffers import ReceiveBuffers
from octopi.transport.websocket import WebSocketNet
from tests.kit.streams import MemoryStreams

PATH = "/v1/client"
LARGE = IN_PLACE_BYTES_MIN


class Buffers(RuleBasedStateMachine):
    """Views are taken, kept, cut and dropped in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers = ReceiveBuffers()
        self.kept: list[tuple[memoryview, int]] = []
        self.count = 0

    @rule(size_bytes=st.sampled_from([1, 1000, KEPT_BUFFER_BYTES, KEPT_BUFFER_BYTES + 1]))
    def take(self, size_bytes: int) -> None:
        view = self.buffers.take(size_bytes)
        assert len(view) == size_bytes
        self.count += 1
        view[:] = bytes([self.count % 251]) * size_bytes
        self.kept.append((view.toreadonly(), self.count % 251))

    @rule(data=st.data())
    def drop_one(self, data: st.DataObject) -> None:
        if self.kept:
            self.kept.pop(data.draw(st.integers(0, len(self.kept) - 1)))

    @rule(data=st.data())
    def keep_only_a_part_of_one(self, data: st.DataObject) -> None:
        if self.kept:
            view, content = self.kept.pop(data.draw(st.integers(0, len(self.kept) - 1)))
            self.kept.append((view[len(view) // 2 :], content))

    @invariant()
    def what_is_kept_stays_as_it_is(self) -> None:
        for view, content in self.kept:
            assert bytes(view).count(content) == len(view)


TestBuffers = Buffers.TestCase
TestBuffers.settings = settings(max_examples=30, stateful_step_count=40)


def test_a_buffer_is_used_again_when_its_views_are_gone() -> None:
    buffers = ReceiveBuffers()
    first = buffers.take(10)
    part = first[5:]
    other = buffers.take(10)
    assert other.obj is not first.obj
    memory = id(first.obj)
    del first
    assert id(buffers.take(10).obj) != memory, "a part of it is still kept"
    del part
    assert id(buffers.take(10).obj) == memory


def test_only_some_buffers_are_kept_and_none_for_a_message_beyond_their_size() -> None:
    buffers = ReceiveBuffers()
    views = [buffers.take(KEPT_BUFFER_BYTES) for _ in range(KEPT_BUFFERS_COUNT)]
    memories = {id(view.obj) for view in views}
    beyond = [buffers.take(1000), buffers.take(KEPT_BUFFER_BYTES + 1)]
    assert len(memories) == KEPT_BUFFERS_COUNT
    assert not memories & {id(view.obj) for view in beyond}
    assert [len(bytes(view.obj)) for view in beyond] == [1000, KEPT_BUFFER_BYTES + 1]


# --- frames ------------------------------------------------------------------------------


def frame(payload: bytes, opcode: int = BINARY, *, final: bool = True) -> bytes:
    head = frame_head(opcode, len(payload))
    return (head if final else bytes([head[0] & 0x7F]) + head[1:]) + payload


def pattern(number: int, size_bytes: int) -> bytes:
    return bytes((number * 7 + at) % 256 for at in range(256)) * (size_bytes // 256) + bytes(
        size_bytes % 256
    )


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from([0, 100, LARGE - 1, LARGE, LARGE + 77, 3 * LARGE, KEPT_BUFFER_BYTES + 9]),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.integers(1, 5 * LARGE), min_size=1, max_size=6),
    st.sets(st.integers(0, 7)),
    st.booleans(),
)
def test_kept_messages_stay_as_they_are_however_their_bytes_come(
    sizes: list[int], pieces: list[int], kept: set[int], is_put: bool
) -> None:
    sent = [pattern(number, size) for number, size in enumerate(sizes)]
    data = b"".join(map(frame, sent))
    reader = FrameReader(is_masked=False, on_control=lambda *_: None, buffers=ReceiveBuffers())
    found: dict[int, bytes | memoryview] = {}
    number = turn = 0
    while data:
        piece, data = data[: pieces[turn % len(pieces)]], data[pieces[turn % len(pieces)] :]
        turn += 1
        if is_put and reader.place is not None:
            rest = reader.rest()
            piece, data = piece[: len(rest)], piece[len(rest) :] + data
            rest[: len(piece)] = piece
            del rest
            reader.received(len(piece))
        else:
            reader.feed(piece)
        while (message := reader.next(MESSAGE_BYTES_MAX)) is not None:
            assert message == sent[number]
            assert isinstance(message, bytes) or message.readonly
            if number in kept:
                found[number] = message
            number += 1
    assert number == len(sent)
    assert not reader.kept_bytes
    assert all(message == sent[number] for number, message in found.items())


@pytest.mark.parametrize("piece_bytes", [1000, LARGE + 5, 10 * LARGE])
def test_large_fragments_make_one_message_of_its_own(piece_bytes: int) -> None:
    events: list[object] = []
    reader = FrameReader(
        is_masked=False,
        on_control=lambda *control: events.append(control),
        buffers=ReceiveBuffers(),
    )
    payload = pattern(1, 2 * LARGE)
    data = frame(payload, final=False) + frame(b"!", PING) + frame(payload, CONTINUATION)
    for at in range(0, len(data), piece_bytes):
        reader.feed(data[at : at + piece_bytes])
        while (message := reader.next(MESSAGE_BYTES_MAX)) is not None:
            events.append(message)
    assert events == [(PING, b"!"), payload * 2]


def test_the_received_part_of_a_message_counts_as_kept() -> None:
    reader = FrameReader(is_masked=False, on_control=lambda *_: None, buffers=ReceiveBuffers())
    reader.feed(frame(bytes(LARGE))[: 1000 + 10])
    assert reader.next(MESSAGE_BYTES_MAX) is None
    assert (reader.kept_bytes, reader.missing_bytes) == (1000, LARGE - 1000)
    reader.received(24)
    assert (reader.kept_bytes, reader.missing_bytes) == (1024, LARGE - 1024)


# --- links -------------------------------------------------------------------------------


@asynccontextmanager
async def linked(net: WebSocketNet) -> AsyncIterator[tuple[Link, Link]]:
    """Both ends of a link: the client's and the node's."""
    send, accepted = trio.open_memory_channel[Link](1)

    async def hold(link: Link) -> None:
        send.send_nowait(link)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        listen = partial(
            net.listen, "127.0.0.1:0", hold, paths=frozenset({PATH}), handler_nursery=nursery
        )
        with trio.fail_after(30):
            url = await nursery.start(listen)
            yield await net.connect(url, PATH), await accepted.receive()
        nursery.cancel_scope.cancel()


async def received(net: WebSocketNet, sent: list[bytes]) -> list[bytes | memoryview]:
    """What a client keeps of *sent*."""
    found: list[bytes | memoryview] = []

    def take(message: bytes | memoryview) -> bool:
        found.append(message)
        return len(found) < len(sent)

    async with linked(net) as (client, node), trio.open_nursery() as nursery:
        nursery.start_soon(client.receive_all, take)
        for message in sent:
            await node.send(message)
    return found


SENT = [pattern(number, size) for number, size in enumerate([10, LARGE, 7 * LARGE, 99, 2 * LARGE])]


@pytest.mark.parametrize("streams", [MemoryStreams, SystemStreams])
@pytest.mark.parametrize("is_secure", [False, True])
async def test_a_client_keeps_large_messages_where_they_were_received(
    streams: type[MemoryStreams | SystemStreams], is_secure: bool
) -> None:
    async with trio.open_nursery() as nursery:
        tls = certified() if is_secure else None
        found = await received(WebSocketNet(streams(), SystemClock(), nursery, tls=tls), SENT * 3)
        nursery.cancel_scope.cancel()
    assert found == SENT * 3
    assert all(isinstance(one, bytes) == (len(one) < LARGE) for one in found)


async def test_a_plain_link_hands_on_copies() -> None:
    async with trio.open_nursery() as nursery:
        found = await received(
            WebSocketNet(SystemStreams(), SystemClock(), nursery, plain=True), SENT
        )
        nursery.cancel_scope.cancel()
    assert found == SENT
    assert all(isinstance(one, bytes) for one in found)


async def test_a_node_receives_copies() -> None:
    async with trio.open_nursery() as nursery:
        net = WebSocketNet(SystemStreams(), SystemClock(), nursery)
        async with linked(net) as (client, node), trio.open_nursery() as inner:
            found: list[bytes | memoryview] = []

            def take(message: bytes | memoryview) -> bool:
                found.append(message)
                return False

            inner.start_soon(node.receive_all, take)
            await client.send(SENT[2])
        nursery.cancel_scope.cancel()
    assert [type(one) for one in found] == [bytes]


async def test_one_message_at_a_time_is_a_copy_too() -> None:
    async with trio.open_nursery() as nursery:
        net = WebSocketNet(SystemStreams(), SystemClock(), nursery)
        async with linked(net) as (client, node), trio.open_nursery() as inner:
            inner.start_soon(node.send, SENT[2])
            assert type(await client.receive()) is bytes
        nursery.cancel_scope.cancel()


async def test_a_link_that_is_lost_within_a_large_message_says_so() -> None:
    async with trio.open_nursery() as nursery:
        net = WebSocketNet(SystemStreams(), SystemClock(), nursery)
        taken: list[bytes | memoryview] = []

        def take(message: bytes | memoryview) -> bool:
            taken.append(message)
            return True

        async with linked(net) as (client, node):
            assert isinstance(node, FramedLink)
            await node._stream.send_all(frame(SENT[2])[:100_000])
            await trio.aclose_forcefully(node._stream)
            with pytest.raises(ConnectionLostError):
                await client.receive_all(take)
        nursery.cancel_scope.cancel()
    assert taken == []


def certified() -> Tls:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return Tls(client, server)
