"""A peer that sends useless frames without end is read slowly, and other connections are served.

Time is virtual, and work takes none of it: only counts of frames bound anything.
"""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair

from octopi.identifiers import Offset, PartitionId
from octopi.limits import (
    HEARTBEAT_TIMEOUT_S,
    PING_FRAMES,
    USELESS_FRAMES_FREE,
    USELESS_FRAMES_PER_S,
)
from octopi.transport.frame_reader import CONTINUATION, PING
from octopi.wire import messages as m
from octopi.wire.codec import encode
from tests.kit.streams import MemoryStreams
from tests.transport.serving import Server, serving
from tests.transport.test_before_the_hello import frame_of
from tests.transport.test_hostile_peers import greet, masked

SECONDS = 4
FLOODS = {
    "heartbeats": (b"", masked(encode(m.Heartbeat())), 1),
    "credits of no reading": (b"", masked(encode(m.Credit(1, 1))), 1),
    "positions in no reading": (b"", masked(encode(m.ReportPosition(1, Offset(1)))), 1),
    "tokens": (b"", masked(encode(m.Authenticate(1, "no token"))), 1),
    "pings": (b"", frame_of(0, opcode=PING), PING_FRAMES),
    "empty fragments": (
        frame_of(0, final=False),
        frame_of(0, final=False, opcode=CONTINUATION),
        1,
    ),
}
"""The first bytes, the repeated ones, and how many useless frames those count for."""


def in_memory() -> MemoryStreams:
    return MemoryStreams(lockstep_stream_pair)


async def take_all(stream: trio.abc.ReceiveStream) -> None:
    while await stream.receive_some():
        pass


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_is_read_at_a_bounded_rate_and_others_are_served_meanwhile(
    kind: str, autojump_clock: MockClock
) -> None:
    first, one, weight = FLOODS[kind]
    free, rate = USELESS_FRAMES_FREE // weight, USELESS_FRAMES_PER_S // weight
    async with serving(streams=in_memory()) as server, trio.open_nursery() as nursery:
        stream = await server.streams.connect("127.0.0.1", server.port)
        async with stream:
            await greet(stream)
            nursery.start_soon(take_all, stream)
            await stream.send_all(first)
            before = trio.current_time()
            count = free + SECONDS * rate
            nursery.start_soon(still_serves_all_the_time, server, SECONDS)
            for _ in range(0, count, 50):
                await stream.send_all(one * 50)
            took_s = trio.current_time() - before
            # What the link holds is taken for sent: less than a read.
            assert SECONDS * 0.5 <= took_s <= SECONDS * 1.5
            nursery.cancel_scope.cancel()


async def still_serves_all_the_time(server: Server, seconds: float) -> None:
    async with server.client() as client:
        while True:
            before = trio.current_time()
            question = m.Produce(client.next_request(), "t", PartitionId(0), b"")
            await client.request(question, m.Produced, 5)
            assert trio.current_time() == before
            await trio.sleep(0.05)


async def test_heartbeats_that_a_stopped_peer_left_behind_cost_no_pause(
    autojump_clock: MockClock,
) -> None:
    async with serving(streams=in_memory()) as server, trio.open_nursery() as nursery:
        stream = await server.streams.connect("127.0.0.1", server.port)
        async with stream:
            await greet(stream)
            nursery.start_soon(take_all, stream)
            before = trio.current_time()
            for _ in range(USELESS_FRAMES_FREE):
                await stream.send_all(masked(encode(m.Heartbeat())))
            await stream.send_all(masked(encode(m.Produce(1, "t", PartitionId(0), b""))))
            while not server.sessions[0].heard:
                await trio.lowlevel.checkpoint()
            assert trio.current_time() == before
            nursery.cancel_scope.cancel()


async def test_a_pausing_connection_is_not_taken_for_silent(autojump_clock: MockClock) -> None:
    async with serving(streams=in_memory()) as server, trio.open_nursery() as nursery:
        stream = await server.streams.connect("127.0.0.1", server.port)
        async with stream:
            await greet(stream)
            nursery.start_soon(take_all, stream)
            count = USELESS_FRAMES_FREE + round(2 * HEARTBEAT_TIMEOUT_S * USELESS_FRAMES_PER_S)
            before = trio.current_time()
            for _ in range(0, count, 100):
                await stream.send_all(masked(encode(m.Heartbeat())) * 100)
            assert trio.current_time() - before > HEARTBEAT_TIMEOUT_S
            assert server.websockets.connection_count == 1
            nursery.cancel_scope.cancel()
