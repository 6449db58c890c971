"""Streams of bytes on simulated connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
import trio.testing

from octopi.simulation.streams import SimulatedStreams, WebSocketTier
from tests.simulation.worlds import Small, run_small

Stream = trio.abc.HalfCloseableStream


async def stream_pair(small: Small) -> tuple[Stream, Stream]:
    ends = []
    for name in ("here", "there"):
        life = small.hosts[name].life
        assert life is not None
        ends.append(SimulatedStreams(small.network, life))
    here, there = ends
    listening = await there.listen("there", 0)
    stream = await here.connect("there", listening.port)
    accepted = await listening.listeners[0].accept()
    await listening.listeners[0].aclose()
    return stream, accepted


def in_world(main: Callable[[Small], Awaitable[None]]) -> None:
    run_small(WebSocketTier, main)


def test_a_simulated_stream_is_a_half_closeable_stream() -> None:
    async def main(small: Small) -> None:
        async def make() -> tuple[Stream, Stream]:
            return await stream_pair(small)

        async def make_clogged() -> tuple[Stream, Stream]:
            one, other = await make()
            for stream in (one, other):
                with trio.move_on_after(1):
                    while True:
                        await stream.send_all(bytes(100_000))
            return one, other

        await trio.testing.check_half_closeable_stream(make, make_clogged)

    in_world(main)
