"""Crowds that come, ask or talk at the same moment, on a stopwatch that the test moves: what is
done for them in one round of the event loop is bounded, so whatever else runs goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from octopi.identifiers import PartitionId
from octopi.limits import ROUND_S, TURN_S
from octopi.operating_system import SystemClock
from octopi.transport.http_front import EmptySite
from octopi.transport.http_requests import HttpAnswer, HttpRequest, plain
from octopi.transport.paced_stream import PacedStream
from octopi.transport.turns import ConnectionTurn, ConnectionTurns
from octopi.wire import messages as m
from octopi.wire.codec import encode
from tests.kit.streams import MemoryStreams
from tests.transport.serving import EchoSession, serving
from tests.transport.test_hostile_peers import UPGRADE, greet, masked
from tests.transport.test_turns import Stopwatch

COUNT = 100


@attrs.define
class SlowSite(EmptySite):
    """Whatever is asked takes a whole turn."""

    watch: Stopwatch

    def refuse_upgrade(self, request: HttpRequest) -> HttpAnswer | None:
        self.watch.seconds += TURN_S
        return None

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        self.watch.seconds += TURN_S
        return plain(200, "there")


@asynccontextmanager
async def rounds(watch: Stopwatch) -> AsyncIterator[list[float]]:
    """How much work was done in each round of the loop within the block."""
    found: list[float] = []

    async def look() -> None:
        before = watch.seconds
        while True:
            await trio.lowlevel.checkpoint()
            found.append(watch.seconds - before)
            before = watch.seconds

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        yield found
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("asked", [UPGRADE, b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"])
async def test_strangers_that_ask_at_the_same_moment_are_answered_a_few_in_each_round(
    asked: bytes,
) -> None:
    watch = Stopwatch()
    answered = 0
    async with (
        serving(streams=MemoryStreams(), site=SlowSite(watch), stopwatch=watch) as server,
        rounds(watch) as found,
    ):

        async def ask(stream: trio.abc.HalfCloseableStream) -> None:
            nonlocal answered
            await stream.send_all(asked)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 ")
            answered += 1

        streams = [await server.streams.connect("127.0.0.1", server.port) for _ in range(COUNT)]
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for stream in streams:
                    nursery.start_soon(ask, stream)
        assert answered == COUNT
        assert sum(found) >= COUNT * TURN_S * 0.9
        assert max(found) <= 5 * ROUND_S, "not all in one"
        for stream in streams:
            await stream.aclose()


async def test_clients_that_ask_at_the_same_moment_are_answered_a_few_in_each_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Stopwatch()
    async with serving(streams=MemoryStreams(), stopwatch=watch) as server:
        streams = []
        for _ in range(COUNT):
            stream = await server.streams.connect("127.0.0.1", server.port)
            await greet(stream, settle=False)
            streams.append(stream)
        while len(server.sessions) < COUNT:
            await trio.lowlevel.checkpoint()

        handle = EchoSession.handle

        def slowly(session: EchoSession, message: object) -> None:
            watch.seconds += TURN_S
            handle(session, message)

        monkeypatch.setattr(EchoSession, "handle", slowly)
        async with rounds(watch) as found:
            question = masked(encode(m.Produce(1, "t", PartitionId(0), b"")))
            for stream in streams:
                await stream.send_all(question)
            for stream in streams:
                assert b"produced" in await stream.receive_some()
        assert sum(found) >= COUNT * TURN_S * 0.9
        assert max(found) <= 5 * ROUND_S, "not all in one"
        for stream in streams:
            await stream.aclose()


class NoTurn(ConnectionTurn):
    """Never comes, until it may."""

    may_go = False

    def begin(self) -> bool:
        return self.may_go and super().begin()

    async def wait(self) -> None:
        await trio.sleep_forever()


async def test_messages_that_arrive_while_a_connection_waits_for_its_turn_are_not_lost(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        turn = NoTurn(ConnectionTurns(SystemClock(), Stopwatch(), nursery))
        ours, theirs = trio.testing.memory_stream_pair()
        paced = PacedStream(ours, turn)
        await theirs.send_all(b"hello")
        with trio.move_on_after(1) as scope:
            await paced.receive_some()
        assert scope.cancelled_caught
        turn.may_go = True
        assert await paced.receive_some(2) == b"he"
        assert paced.lift()[1] == b"llo"
        assert await paced.receive_some() == b"llo"
