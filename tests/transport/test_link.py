"""What every link does, be it a WebSocket or a test's stand-in for one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio

from octopi.environment import Link, Net
from octopi.errors import ConnectionLostError, ProtocolError, Status, UnreachableError
from octopi.limits import MESSAGE_BYTES_MAX, MIB
from octopi.operating_system import SystemClock, SystemStreams
from octopi.transport.websocket import WebSocketNet
from tests.kit.links import MemoryNet, receive_to_end
from tests.kit.streams import MemoryStreams

PATH = "/v1/client"


def memory_links(nursery: trio.Nursery) -> Net:
    return MemoryNet(capacity=1)


def websocket_in_memory(nursery: trio.Nursery) -> Net:
    return WebSocketNet(MemoryStreams(trio.testing.lockstep_stream_pair), SystemClock(), nursery)


def plain_websocket_in_memory(nursery: trio.Nursery) -> Net:
    streams = MemoryStreams(trio.testing.lockstep_stream_pair)
    return WebSocketNet(streams, SystemClock(), nursery, plain=True)


def plain_websocket_on_sockets(nursery: trio.Nursery) -> Net:
    return WebSocketNet(SystemStreams(), SystemClock(), nursery, plain=True)


def websocket_on_sockets(nursery: trio.Nursery) -> Net:
    return WebSocketNet(SystemStreams(), SystemClock(), nursery)


pytestmark = pytest.mark.parametrize(
    "make_net",
    [
        memory_links,
        websocket_in_memory,
        websocket_on_sockets,
        plain_websocket_in_memory,
        plain_websocket_on_sockets,
    ],
    ids=lambda make: make.__name__,
)
MakeNet = Callable[[trio.Nursery], Net]


@attrs.define
class Served:
    """A net with a listener at `url`."""

    net: Net
    nursery: trio.Nursery
    url: str
    listening: trio.CancelScope
    accepted: trio.MemoryReceiveChannel[Link]

    async def pair(self) -> tuple[Link, Link]:
        """The connecting end and the accepted end of a new link."""
        return await self.net.connect(self.url, PATH), await self.accepted.receive()


@asynccontextmanager
async def served(make_net: MakeNet) -> AsyncIterator[Served]:
    async with trio.open_nursery() as background:
        net = make_net(background)
        send, accepted = trio.open_memory_channel[Link](100)

        async def hold(link: Link) -> None:
            send.send_nowait(link)
            await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            listening = trio.CancelScope()

            async def listen(*, task_status: trio.TaskStatus[str]) -> None:
                with listening:
                    await net.listen(
                        "127.0.0.1:0",
                        hold,
                        paths=frozenset({PATH}),
                        handler_nursery=nursery,
                        task_status=task_status,
                    )

            url = await nursery.start(listen)
            with trio.fail_after(30):
                yield Served(net, nursery, url, listening, accepted)
            nursery.cancel_scope.cancel()
        background.cancel_scope.cancel()


async def test_messages_arrive_whole_and_in_order_both_ways(make_net: MakeNet) -> None:
    messages = [b"", b"\x00", b"text", bytes(range(256)) * 4096, b"end"]
    async with served(make_net) as net:
        ends = await net.pair()
        for sender, receiver in (ends, ends[::-1]):
            async with trio.open_nursery() as nursery:

                async def send(sender: Link = sender) -> None:
                    for message in messages:
                        await sender.send(message)

                nursery.start_soon(send)
                assert [await receiver.receive() for _ in messages] == messages


async def test_a_link_knows_its_path_and_its_peer(make_net: MakeNet) -> None:
    async with served(make_net) as net:
        for end in await net.pair():
            assert end.path == PATH
            assert end.peer


async def test_a_message_longer_than_its_reader_allows_is_refused_and_an_answer_passes(
    make_net: MakeNet,
) -> None:
    async with served(make_net) as net:
        here, there = await net.pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.send, b"x" * 100)
            assert await there.receive(100) == b"x" * 100
            nursery.start_soon(here.send, bytes(MIB))
            with pytest.raises(ProtocolError) as caught:
                await there.receive(100)
            assert caught.value.status is Status.MESSAGE_TOO_LARGE
            async with trio.open_nursery() as answering:
                answering.start_soon(there.send, b"too long")
                assert await here.receive() == b"too long"
            nursery.start_soon(there.aclose, 1009, "too large")
            with pytest.raises((ConnectionLostError, ProtocolError)):
                await here.receive()
            await here.aclose()


async def test_the_largest_message_passes_and_a_larger_one_is_refused(make_net: MakeNet) -> None:
    async with served(make_net) as net:
        here, there = await net.pair()
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                await here.send(bytes(MESSAGE_BYTES_MAX))
                await here.send(bytes(MESSAGE_BYTES_MAX + 1))

            nursery.start_soon(send)
            assert len(await there.receive()) == MESSAGE_BYTES_MAX
            with pytest.raises(ProtocolError) as caught:
                await there.receive()
            assert caught.value.status is Status.MESSAGE_TOO_LARGE
            nursery.start_soon(there.aclose, 1009, "too large")
            with pytest.raises((ConnectionLostError, ProtocolError)):
                await here.receive()
            await here.aclose()


async def test_messages_sent_before_the_close_arrive_before_code_and_reason(
    make_net: MakeNet,
) -> None:
    async with served(make_net) as net:
        here, there = await net.pair()
        async with trio.open_nursery() as nursery:

            async def say_and_close() -> None:
                await here.send(b"last words")
                await here.aclose(1001, "going home")

            nursery.start_soon(say_and_close)
            assert await there.receive() == b"last words"
            for _ in range(2):
                with pytest.raises(ConnectionLostError, match=r"1001.*going home"):
                    await there.receive()
            with pytest.raises(ConnectionLostError):
                await there.send(b"too late")


async def test_closing_a_link_ends_this_side_too(make_net: MakeNet) -> None:
    async with served(make_net) as net:
        here, _ = await net.pair()
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(ConnectionLostError):
                    await here.receive()

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(here.aclose)
        with pytest.raises(ConnectionLostError):
            await here.receive()
        with pytest.raises(ConnectionLostError):
            await here.send(b"too late")
        await here.aclose()


async def test_a_long_reason_is_cut(make_net: MakeNet) -> None:
    async with served(make_net) as net:
        here, there = await net.pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.aclose, 1008, "é" * 500)
            with pytest.raises(ConnectionLostError, match=r"1008.*éé"):
                await there.receive()


async def test_a_cancelled_close_closes_and_tells_the_peer(make_net: MakeNet) -> None:
    async with served(make_net) as net:
        here, there = await net.pair()
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(ConnectionLostError, match="1001"):
                    await there.receive()

            nursery.start_soon(wait)
            with trio.CancelScope() as scope:
                scope.cancel()
                await here.aclose(1001, "cancelled")


async def test_a_cancelled_send_tears_the_link_and_never_passes_for_a_message(
    make_net: MakeNet,
) -> None:
    async with served(make_net) as net:
        here, there = await net.pair()
        with trio.move_on_after(0.05) as scope:
            while True:
                await here.send(bytes(MESSAGE_BYTES_MAX))
        assert scope.cancelled_caught
        with pytest.raises(ConnectionLostError):
            await here.send(b"after the tear")
        await here.aclose()
        assert set(await receive_to_end(there)) <= {bytes(MESSAGE_BYTES_MAX)}


async def test_a_cancelled_receive_loses_nothing(make_net: MakeNet) -> None:
    async with served(make_net) as net:
        here, there = await net.pair()
        with trio.move_on_after(0.01) as scope:
            await there.receive()
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.send, b"message")
            assert await there.receive() == b"message"


async def test_accepted_links_outlive_their_listener(make_net: MakeNet) -> None:
    async with served(make_net) as net:
        here, there = await net.pair()
        net.listening.cancel()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(UnreachableError):
            await net.pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.send, b"still here")
            assert await there.receive() == b"still here"


async def test_an_address_is_taken_only_once(make_net: MakeNet) -> None:
    async with served(make_net) as net:
        address = net.url.removeprefix("ws://")
        listen = partial(
            net.net.listen,
            address,
            trio.sleep_forever,  # type: ignore[arg-type]  # never called
            paths=frozenset({PATH}),
            handler_nursery=net.nursery,
        )
        with pytest.raises(UnreachableError, match=f"{address}: another program listens there"):
            await listen()


async def test_an_address_without_a_listener_is_unreachable(make_net: MakeNet) -> None:
    async with served(make_net) as net:
        with pytest.raises(UnreachableError, match=r"ws://127\.0\.0\.1:9"):
            await net.net.connect("ws://127.0.0.1:9", PATH)
