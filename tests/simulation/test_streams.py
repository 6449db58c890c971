"""Streams of bytes: simulated ones do what TCP's do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs
import pytest
import trio
import trio.testing

from octopi.environment import StreamNet
from octopi.operating_system import SystemStreams
from octopi.simulation.network.streams import SimulatedStreams, WebSocketTier
from tests.kit.streams import read_to_end
from tests.simulation.worlds import Small, run_small

Stream = trio.abc.HalfCloseableStream


@attrs.define
class Place:
    """Two machines, or one that talks to itself."""

    here: StreamNet
    there: StreamNet
    there_host: str

    async def pair(self) -> tuple[Stream, Stream]:
        listening = await self.there.listen(self.there_host, 0)
        ours = await self.here.connect(self.there_host, listening.port)
        theirs = await listening.listeners[0].accept()
        for listener in listening.listeners:
            await listener.aclose()
        return ours, theirs


class RunIn(Protocol):
    def __call__(self, scenario: Callable[[Place], Awaitable[None]]) -> None: ...


def on_sockets(scenario: Callable[[Place], Awaitable[None]]) -> None:
    async def main() -> None:
        with trio.fail_after(30):
            await scenario(Place(SystemStreams(), SystemStreams(), "127.0.0.1"))

    trio.run(main)


def streams_of(small: Small, name: str) -> SimulatedStreams:
    life = small.hosts[name].life
    assert life is not None
    return SimulatedStreams(small.network, life)


def simulated(scenario: Callable[[Place], Awaitable[None]]) -> None:
    async def main(small: Small) -> None:
        await scenario(Place(streams_of(small, "here"), streams_of(small, "there"), "there"))

    run_small(WebSocketTier, main)


@pytest.fixture(params=[on_sockets, simulated], ids=["sockets", "simulated"])
def run_in(request: pytest.FixtureRequest) -> RunIn:
    run: RunIn = request.param
    return run


async def clog(stream: Stream) -> None:
    """Send until nothing more can be sent."""
    with trio.move_on_after(0.3):
        while True:
            await stream.send_all(bytes(100_000))


def test_a_simulated_stream_is_a_half_closeable_stream() -> None:
    async def scenario(place: Place) -> None:
        async def make_clogged() -> tuple[Stream, Stream]:
            streams = await place.pair()
            for stream in streams:
                await clog(stream)
            return streams

        await trio.testing.check_half_closeable_stream(place.pair, make_clogged)

    simulated(scenario)


def test_what_was_sent_before_a_half_close_arrives_and_the_other_way_stays_open(
    run_in: RunIn,
) -> None:
    async def scenario(place: Place) -> None:
        ours, theirs = await place.pair()
        await ours.send_all(b"question")
        await ours.send_eof()
        assert await read_to_end(theirs) == b"question"
        await theirs.send_all(b"answer")
        await theirs.aclose()
        assert await read_to_end(ours) == b"answer"
        await ours.aclose()

    run_in(scenario)


def test_closing_a_stream_with_unread_bytes_resets_the_connection(
    run_in: RunIn,
) -> None:
    async def scenario(place: Place) -> None:
        ours, theirs = await place.pair()
        await ours.send_all(b"never read")
        await theirs.send_all(b"last words")
        await trio.sleep(0.05)
        await theirs.aclose()
        await trio.sleep(0.05)
        assert await ours.receive_some() == b"last words"
        with pytest.raises(trio.BrokenResourceError):
            await ours.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await ours.send_all(b"too late")
        await ours.aclose()

    run_in(scenario)


def test_bytes_for_a_closed_stream_are_answered_by_a_reset(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        ours, theirs = await place.pair()
        await theirs.aclose()
        assert await ours.receive_some() == b""
        await ours.send_all(b"too late, but not known yet")
        await trio.sleep(0.05)
        with pytest.raises(trio.BrokenResourceError):
            await ours.send_all(b"too late")
        await ours.aclose()

    run_in(scenario)


def test_a_reset_ends_a_send_that_waits_for_room(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        ours, theirs = await place.pair()
        await clog(ours)
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                with pytest.raises(trio.BrokenResourceError):
                    await ours.send_all(bytes(100_000))

            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            await theirs.aclose()
        await ours.aclose()

    run_in(scenario)


def test_a_listener_that_closes_resets_connections_that_were_not_accepted(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        listening = await place.there.listen(place.there_host, 0)
        ours = await place.here.connect(place.there_host, listening.port)
        await trio.sleep(0.05)
        for listener in listening.listeners:
            await listener.aclose()
        with pytest.raises(trio.BrokenResourceError):
            await ours.receive_some()
        with pytest.raises(ConnectionRefusedError if place.there_host == "there" else OSError):
            await place.here.connect(place.there_host, listening.port)
        await ours.aclose()

    run_in(scenario)


def test_bytes_arrive_in_arbitrary_pieces() -> None:
    sizes = set()

    async def scenario(place: Place) -> None:
        ours, theirs = await place.pair()
        data = bytes(range(256)) * 4
        for _ in range(30):
            await ours.send_all(data)
            await trio.sleep(0.0007)
            received = b""
            while len(received) < len(data):
                some = await theirs.receive_some()
                sizes.add(len(some))
                received += some
            assert received == data

    simulated(scenario)
    assert len(sizes) > 2


def test_an_accepted_stream_knows_the_address_of_its_peer() -> None:
    async def scenario(place: Place) -> None:
        ours, theirs = await place.pair()
        assert str(ours).startswith("there:")
        assert str(theirs).startswith("here:")

    simulated(scenario)
