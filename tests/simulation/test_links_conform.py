"""What links do, be they WebSockets over real sockets or simulated ones of either tier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

import attrs
import pytest
import trio

from octopi.environment import Link, Net
from octopi.errors import ConnectionLostError, ProtocolError, Status, UnreachableError
from octopi.limits import CLOSE_TIMEOUT_S, MESSAGE_BYTES_MAX
from octopi.operating_system import SystemClock, SystemStreams
from octopi.simulation.network.message_links import FrameNet
from octopi.simulation.network.network import Tier
from octopi.simulation.network.streams import WebSocketTier
from octopi.transport.websocket import WebSocketNet
from tests.kit.links import receive_to_end
from tests.kit.logs import capture_logs
from tests.simulation.worlds import PATH, Small, run_small

OTHER_PATH = "/v1/cluster"


@attrs.define
class Place:
    """Where a scenario happens: somebody connects with *here*, somebody listens with *there*."""

    here: Net
    there: Net
    there_host: str
    nursery: trio.Nursery
    """What handles the links of *there*."""

    async def serve(
        self, handler: Callable[[Link], Awaitable[None]], *, port: int = 0
    ) -> tuple[str, trio.CancelScope]:
        """The url, and the scope of the listening."""
        scope = trio.CancelScope()

        async def listen(*, task_status: trio.TaskStatus[str]) -> None:
            with scope:
                await self.there.listen(
                    f"{self.there_host}:{port}",
                    handler,
                    paths=frozenset({PATH, OTHER_PATH}),
                    handler_nursery=self.nursery,
                    task_status=task_status,
                )

        return await self.nursery.start(listen), scope

    async def pair(self, path: str = PATH) -> tuple[Link, Link]:
        """The ends of a new link: the opener's and the other."""
        accepted, waiting = trio.open_memory_channel[Link](1)

        async def hold(link: Link) -> None:
            accepted.send_nowait(link)
            await trio.sleep_forever()

        url, _ = await self.serve(hold)
        return await self.here.connect(url, path), await waiting.receive()


Scenario = Callable[[Place], Awaitable[None]]


class RunIn(Protocol):
    def __call__(self, scenario: Scenario) -> None: ...


def on_sockets(scenario: Scenario) -> None:
    async def main() -> None:
        async with trio.open_nursery() as background:
            net = WebSocketNet(SystemStreams(), SystemClock(), background)
            async with trio.open_nursery() as nursery:
                with trio.fail_after(30):
                    await scenario(Place(net, net, "127.0.0.1", nursery))
                nursery.cancel_scope.cancel()
            background.cancel_scope.cancel()

    trio.run(main)


def simulated(tier: Tier, scenario: Scenario) -> None:
    async def main(small: Small) -> None:
        await scenario(Place(small.here.net, small.there.net, "there", small.tasks["there"]))

    run_small(tier, main)


@pytest.fixture(
    params=[on_sockets, partial(simulated, FrameNet), partial(simulated, WebSocketTier)],
    ids=["sockets", "frames", "streams"],
)
def run_in(request: pytest.FixtureRequest) -> RunIn:
    run: RunIn = request.param
    return run


async def closed_with(link: Link) -> str:
    """What *link* says when it ends, and nothing comes before."""
    with pytest.raises(ConnectionLostError) as caught:
        await link.receive()
    return str(caught.value)


def test_messages_arrive_whole_and_in_order_both_ways(run_in: RunIn) -> None:
    messages = [b"", b"\x00", b"text", bytes(range(256)) * 8192, b"end"]

    async def scenario(place: Place) -> None:
        ends = await place.pair()
        for sender, receiver in (ends, ends[::-1]):
            async with trio.open_nursery() as nursery:

                async def send(sender: Link = sender) -> None:
                    for message in messages:
                        await sender.send(message)

                nursery.start_soon(send)
                assert [await receiver.receive() for _ in messages] == messages

    run_in(scenario)


def test_both_sides_may_send_at_the_same_time(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        async def send(link: Link) -> None:
            for number in range(200):
                await link.send(number.to_bytes(2, "big") * 2000)

        async def receive(link: Link) -> None:
            for number in range(200):
                assert await link.receive() == number.to_bytes(2, "big") * 2000

        async with trio.open_nursery() as nursery:
            for link in await place.pair():
                nursery.start_soon(send, link)
                nursery.start_soon(receive, link)

    run_in(scenario)


def test_a_reader_takes_messages_in_order_until_it_has_enough(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair()
        taken: list[bytes] = []

        def take(message: bytes) -> bool:
            taken.append(message)
            return len(taken) % 10 > 0

        async def send() -> None:
            for number in range(100):
                message = number.to_bytes(2, "big") * (1 if number % 3 else 50_000)
                if not here.offer(message[:1], message[1:]):
                    await here.send(message)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            for tens in range(1, 6):
                await there.receive_all(take)
                assert len(taken) == tens * 10
            # Being interrupted loses nothing, and messages come one by one, too.
            taken.append(await there.receive())
            while len(taken) < 90:
                with trio.move_on_after(0.001):
                    await there.receive_all(take)
            while len(taken) < 100:
                taken.append(await there.receive())
        assert [int.from_bytes(message[:2], "big") for message in taken] == list(range(100))

    run_in(scenario)


def test_a_reader_learns_that_the_link_is_gone(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair()
        taken: list[bytes] = []

        def take(message: bytes) -> bool:
            taken.append(message)
            return True

        async def close() -> None:
            await here.send(b"last words")
            await here.aclose(1001, "away")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(close)
            with pytest.raises(ConnectionLostError, match="away"):
                await there.receive_all(take)
        assert taken == [b"last words"]
        assert not here.offer(b"too late")

    run_in(scenario)


def test_a_link_knows_its_path_and_its_peer(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair(OTHER_PATH)
        assert here.path == there.path == OTHER_PATH
        assert here.peer.startswith(place.there_host)
        assert there.peer

    run_in(scenario)


def test_the_largest_message_passes_and_a_larger_one_is_refused(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair()
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                await here.send(bytes(MESSAGE_BYTES_MAX))
                await here.send(bytes(MESSAGE_BYTES_MAX + 1))

            nursery.start_soon(send)
            assert len(await there.receive()) == MESSAGE_BYTES_MAX
            for _ in range(2):
                with pytest.raises(ProtocolError) as caught:
                    await there.receive()
                assert caught.value.status is Status.MESSAGE_TOO_LARGE
            nursery.start_soon(there.aclose, 1009, "too large")
            with pytest.raises((ConnectionLostError, ProtocolError)):
                await here.receive()
            await here.aclose()

    run_in(scenario)


def test_a_receiver_may_take_no_more_than_a_short_message(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        for size_bytes in (101, 5_000, 500_000):
            here, there = await place.pair()
            async with trio.open_nursery() as nursery:

                async def send(link: Link = here, size_bytes: int = size_bytes) -> None:
                    await link.send(bytes(100))
                    with suppress(ConnectionLostError):
                        await link.send(bytes(size_bytes))

                nursery.start_soon(send)
                assert await there.receive(100) == bytes(100)
                with pytest.raises(ProtocolError, match="more than 100 bytes") as caught:
                    await there.receive(100)
                assert caught.value.status is Status.MESSAGE_TOO_LARGE
                nursery.start_soon(there.aclose, 1009, "too large")
                with pytest.raises((ConnectionLostError, ProtocolError)):
                    await here.receive()
                await here.aclose()

    run_in(scenario)


def test_messages_sent_before_the_close_arrive_before_code_and_reason(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        for number in range(2):
            ends = await place.pair()
            closing, other = ends[number], ends[1 - number]
            async with trio.open_nursery() as nursery:

                async def say_and_close(closing: Link = closing) -> None:
                    await closing.send(b"last words")
                    await closing.aclose(1001, "going home")

                nursery.start_soon(say_and_close)
                assert await other.receive() == b"last words"
                for _ in range(2):
                    assert "closed the connection (1001): going home" in await closed_with(other)
                with pytest.raises(ConnectionLostError, match=r"\(1001\): going home"):
                    await other.send(b"too late")
                await other.aclose()

    run_in(scenario)


def test_a_close_without_a_reason_says_only_its_code(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.aclose)
            assert (await closed_with(there)).endswith("closed the connection (1000)")

    run_in(scenario)


def test_a_long_reason_is_cut(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.aclose, 1008, "é" * 500)
            reason = (await closed_with(there)).partition("(1008): ")[2]
            assert len(reason.encode()) == 122

    run_in(scenario)


def test_closing_a_link_ends_this_side_too(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair()
        await there.send(b"unread")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive_to_end, here)
            nursery.start_soon(receive_to_end, there)
            await here.aclose()
        with pytest.raises(ConnectionLostError):
            await here.receive()
        with pytest.raises(ConnectionLostError):
            await here.send(b"too late")
        await here.aclose()

    run_in(scenario)


def test_what_the_peer_sent_is_dropped_by_a_close_and_the_peer_still_learns_why(
    run_in: RunIn,
) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair()
        async with trio.open_nursery() as nursery:

            async def keep_sending() -> None:
                with suppress(ConnectionLostError):
                    while True:
                        await there.send(bytes(1000))

            nursery.start_soon(keep_sending)
            assert await here.receive() == bytes(1000)
            nursery.start_soon(here.aclose, 1001, "enough")
            assert "(1001): enough" in await closed_with(there)
            await there.aclose()

    run_in(scenario)


def test_both_sides_may_close_at_the_same_time(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.aclose, 1001, "one")
            nursery.start_soon(there.aclose, 1001, "other")
        for link in (here, there):
            with pytest.raises(ConnectionLostError):
                await link.receive()

    run_in(scenario)


def test_closing_waits_a_bounded_time_for_a_peer_that_takes_nothing(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, _ = await place.pair()
        with trio.move_on_after(0.2):
            while True:
                await here.send(bytes(10_000))
        # What lies unread in front of the close frame keeps the peer from answering it.
        other, _ = await place.pair()
        with trio.move_on_after(0.2):
            while True:
                await other.send(b"small")
        start = trio.current_time()
        await here.aclose(1001, "torn")
        await other.aclose(1001, "torn, too")
        assert trio.current_time() - start <= 2 * CLOSE_TIMEOUT_S + 1

    run_in(scenario)


def test_a_cancelled_close_closes_and_tells_the_peer(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair()
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                assert "(1001): cancelled" in await closed_with(there)

            nursery.start_soon(wait)
            with trio.CancelScope() as scope:
                scope.cancel()
                await here.aclose(1001, "cancelled")

    run_in(scenario)


def test_a_cancelled_send_tears_the_link_and_never_passes_for_a_message(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair()
        with trio.move_on_after(0.2) as scope:
            while True:
                await here.send(bytes(MESSAGE_BYTES_MAX))
        assert scope.cancelled_caught
        with pytest.raises(ConnectionLostError, match="torn"):
            await here.send(b"after the tear")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.aclose)
            assert set(await receive_to_end(there)) <= {bytes(MESSAGE_BYTES_MAX)}
        assert "broke" in await closed_with(there)

    run_in(scenario)


def test_a_send_that_was_cancelled_before_it_began_sends_nothing(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair()
        with trio.CancelScope() as scope:
            scope.cancel()
            await here.send(b"never")
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.aclose)
            assert await receive_to_end(there) == []

    run_in(scenario)


def test_a_cancelled_receive_loses_nothing(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        here, there = await place.pair()
        large = bytes(range(256)) * 40_000
        with trio.move_on_after(0.01) as scope:
            await there.receive()
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.send, large)
            received = None
            while received is None:
                with trio.move_on_after(0.001):
                    received = await there.receive()
            assert received == large

    run_in(scenario)


def test_accepted_links_outlive_their_listener(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        accepted, waiting = trio.open_memory_channel[Link](1)

        async def hold(link: Link) -> None:
            accepted.send_nowait(link)
            await trio.sleep_forever()

        url, listening = await place.serve(hold)
        here, there = await place.here.connect(url, PATH), await waiting.receive()
        listening.cancel()
        await trio.sleep(0.01)
        with pytest.raises(UnreachableError):
            await place.here.connect(url, PATH)
        await here.send(b"still here")
        assert await there.receive() == b"still here"

    run_in(scenario)


def test_a_link_is_gone_when_its_handler_returns(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        async def answer_once(link: Link) -> None:
            await link.send(await link.receive())

        url, _ = await place.serve(answer_once)
        link = await place.here.connect(url, PATH)
        await link.send(b"ping")
        assert await link.receive() == b"ping"
        assert "broke" in await closed_with(link)
        with pytest.raises(ConnectionLostError, match="broke"):
            await link.send(b"too late")

    run_in(scenario)


def test_a_handler_that_fails_ends_its_link_only(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        async def fail(link: Link) -> None:
            await link.receive()
            raise ZeroDivisionError

        url, _ = await place.serve(fail)
        with capture_logs() as logs:
            for _ in range(2):
                link = await place.here.connect(url, PATH)
                await link.send(b"go")
                assert "broke" in await closed_with(link)
        # Whoever connects may cause it, so not each time has a line of its own.
        assert {entry["event"] for entry in logs} == {"link_handler_failed"}

    run_in(scenario)


def test_an_unknown_path_is_refused_and_the_known_ones_are_named(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        url, _ = await place.serve(never)
        with pytest.raises(UnreachableError, match=r"404: no such endpoint; use /v1/client or"):
            await place.here.connect(url, "/v1/nonsense")

    run_in(scenario)


def test_an_address_is_taken_only_once_and_can_be_had_again(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        url, listening = await place.serve(never)
        host, _, port = url.removeprefix("ws://").rpartition(":")
        listen = partial(
            place.there.listen,
            f"{host}:{port}",
            never,
            paths=frozenset({PATH}),
            handler_nursery=place.nursery,
        )
        with pytest.raises(
            UnreachableError, match=f"can't listen at {host}:{port}: another program listens"
        ):
            await listen()
        listening.cancel()
        await trio.sleep(0.01)
        again, _ = await place.serve(never, port=int(port))
        assert again == url

    run_in(scenario)


def test_a_foreign_address_can_not_be_listened_at(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        with pytest.raises(UnreachableError, match=r"can't listen at 192\.0\.2\.1:7000: this mach"):
            await place.there.listen(
                "192.0.2.1:7000", never, paths=frozenset({PATH}), handler_nursery=place.nursery
            )

    run_in(scenario)


def test_an_address_without_a_listener_is_unreachable(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        with pytest.raises(UnreachableError, match=f"no node answers at ws://{place.there_host}:9"):
            await place.here.connect(f"ws://{place.there_host}:9", PATH)

    run_in(scenario)


def test_a_cancelled_connect_does_not_harm_the_listener(run_in: RunIn) -> None:
    async def scenario(place: Place) -> None:
        async def echo(link: Link) -> None:
            for message in await receive_to_end(link):
                await link.send(message)

        url, _ = await place.serve(echo)
        for tenth_ms in range(0, 40, 3):
            with trio.move_on_after(tenth_ms / 10_000):
                await place.here.connect(url, PATH)
        here, there = await place.pair()
        await here.send(b"well")
        assert await there.receive() == b"well"

    run_in(scenario)


async def never(link: Link) -> None:
    raise AssertionError("nobody connects here")
