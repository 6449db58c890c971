"""A peer that has not said hello makes a node hold little memory, whatever it sends."""

import tracemalloc

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair, wait_all_tasks_blocked

from octopi.errors import Status
from octopi.identifiers import PartitionId
from octopi.limits import CLOSE_TIMEOUT_S, HELLO_BYTES_MAX, KIB, MIB
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from tests.kit.streams import MemoryStreams
from tests.transport.serving import serving
from tests.transport.test_hostile_peers import UPGRADE

PIECE_BYTES = 64 * KIB
KEPT_BYTES_MAX = 512 * KIB
"""Of 6 MiB that are sent; a piece on its way is in some buffers of the test, too."""


def frame_of(size_bytes: int, *, final: bool = True, opcode: int = 2) -> bytes:
    """The head of a client's frame, with the mask that changes nothing."""
    if size_bytes < 126:
        length = bytes((0x80 | size_bytes,))
    elif size_bytes < 1 << 16:
        length = b"\xfe" + size_bytes.to_bytes(2, "big")
    else:
        length = b"\xff" + size_bytes.to_bytes(8, "big")
    return bytes((opcode | 0x80 * final,)) + length + bytes(4)


async def upgraded(stream: trio.abc.HalfCloseableStream) -> None:
    await stream.send_all(UPGRADE)
    assert (await stream.receive_some()).startswith(b"HTTP/1.1 101")
    await wait_all_tasks_blocked()


@pytest.mark.parametrize(
    ("head", "each"),
    [
        (frame_of(16 * MIB), b""),
        (frame_of(2**40), b""),
        (frame_of(PIECE_BYTES, final=False), frame_of(PIECE_BYTES, final=False, opcode=0)),
    ],
    ids=["one frame", "a frame without end", "fragments"],
)
async def test_a_long_first_message_of_a_stranger_is_refused_before_it_is_kept(
    head: bytes, each: bytes, autojump_clock: MockClock
) -> None:
    async with serving(streams=MemoryStreams(lockstep_stream_pair)) as server:
        stream = await server.streams.connect("127.0.0.1", server.port)
        async with stream:
            await upgraded(stream)
            piece = bytes(PIECE_BYTES)
            tracemalloc.start()
            try:
                await stream.send_all(head + piece)
                for _ in range(100):
                    await stream.send_all(each + piece)
                _, peak_bytes = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak_bytes < KEPT_BYTES_MAX
            answer = await stream.receive_some()
            failure = decode(bytes(answer[2 if answer[1] < 126 else 4 :]), frozenset({m.Failure}))
            assert isinstance(failure, m.Failure)
            assert failure.status == Status.MESSAGE_TOO_LARGE
            closing = await stream.receive_some()
            assert closing[2:4] == (1009).to_bytes(2, "big")
            with trio.fail_after(CLOSE_TIMEOUT_S + 1):
                while await stream.receive_some():
                    pass
        await wait_all_tasks_blocked()
        assert server.websockets.connection_count == 0
        assert server.sessions == []
        await server.still_serves()


async def test_a_stranger_that_sends_pings_instead_of_a_hello_is_given_up(
    autojump_clock: MockClock,
) -> None:
    async with serving(streams=MemoryStreams(lockstep_stream_pair)) as server:
        stream = await server.streams.connect("127.0.0.1", server.port)
        async with stream, trio.open_nursery() as nursery:
            await upgraded(stream)
            heard: list[bytes] = []

            async def listen() -> None:
                while data := await stream.receive_some():
                    heard.append(bytes(data))

            nursery.start_soon(listen)
            for _ in range(300):
                await stream.send_all(b"\x89\xfd\0\0\0\0" + bytes(125))
        await wait_all_tasks_blocked()
        assert 0 < len(heard) < 60, "pongs, and then why there are no more"
        assert trio.current_time() <= CLOSE_TIMEOUT_S
        assert server.websockets.connection_count == 0
        await server.still_serves()


@pytest.mark.parametrize("later_bytes", [0, 100 * KIB])
async def test_a_hello_of_full_length_is_accepted_byte_by_byte_and_with_a_request_behind_it(
    later_bytes: int, autojump_clock: MockClock
) -> None:
    """What is sent behind the hello, without waiting for the welcome, is kept for later."""
    empty = len(encode(m.Hello(1, "test", "x" * 300)))
    hello = encode(m.Hello(1, "test", "x" * (300 + HELLO_BYTES_MAX - empty)))
    assert len(hello) == HELLO_BYTES_MAX
    follows = encode(m.Produce(1, "t", PartitionId(0), bytes(later_bytes)))
    async with serving(streams=MemoryStreams(lockstep_stream_pair)) as server:
        stream = await server.streams.connect("127.0.0.1", server.port)
        async with stream, trio.open_nursery() as nursery:
            await upgraded(stream)
            data = frame_of(len(hello)) + hello + frame_of(len(follows)) + follows

            async def send() -> None:
                piece_bytes = len(data) if later_bytes else 7
                for at in range(0, len(data), piece_bytes):
                    await stream.send_all(data[at : at + piece_bytes])

            nursery.start_soon(send)
            heard = b""
            with trio.fail_after(5):
                while b"welcome" not in heard or b"produced" not in heard:
                    heard += await stream.receive_some()
        await server.still_serves()


async def test_a_large_message_is_accepted_after_the_hello(autojump_clock: MockClock) -> None:
    async with serving(streams=MemoryStreams(lockstep_stream_pair)) as server:
        stream = await server.streams.connect("127.0.0.1", server.port)
        async with stream:
            await upgraded(stream)
            hello = encode(m.Hello(1, "test"))
            await stream.send_all(frame_of(len(hello)) + hello)
            await stream.receive_some()
            large = encode(m.Produce(1, "t", PartitionId(0), bytes(MIB)))
            await stream.send_all(frame_of(len(large)) + large)
            assert b"produced" in await stream.receive_some()
        await server.still_serves()
