"""The proxied network passes, holds, and resets; one direction at a time."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from sim.real.proxy import ProxyNetwork, both_ways


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[ProxyNetwork, trio.SocketStream]]:
    """A network whose only node sends back what it gets, and a connection to it that comes
    from a node, too: this process."""

    async def echo(stream: trio.SocketStream) -> None:
        async with stream:
            async for data in stream:
                await stream.send_all(data)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, echo, [listener])
            network = ProxyNetwork(nursery, lambda: {"a": os.getpid()})
            url = await network.open("b", listener.socket.getsockname()[1])
            stream = await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
            async with stream:
                yield network, stream
            nursery.cancel_scope.cancel()


async def answers(stream: trio.SocketStream, data: bytes) -> bool:
    await stream.send_all(data)
    return await arrives(stream, data)


async def arrives(stream: trio.SocketStream, data: bytes) -> bool:
    with trio.move_on_after(0.1):
        return await stream.receive_some() == data
    return False


async def test_bytes_pass_in_a_direction_that_is_not_cut() -> None:
    async with echoing() as (network, stream):
        network.cut([("a", "c"), ("c", "b")])
        assert await answers(stream, b"one")


@pytest.mark.parametrize("way", [("a", "b"), ("b", "a")])
async def test_a_cut_direction_holds_sent_bytes_until_it_is_healed(way: tuple[str, str]) -> None:
    async with echoing() as (network, stream):
        assert await answers(stream, b"one")
        network.cut([way])
        network.cut([way])
        assert not await answers(stream, b"two")
        network.heal([way])
        assert not await arrives(stream, b"two")
        network.heal([way])
        assert await arrives(stream, b"two")


async def test_the_end_of_a_stream_is_not_noticed_behind_a_cut() -> None:
    async with echoing() as (network, stream):
        assert await answers(stream, b"one")
        network.cut([("b", "a")])
        await stream.send_eof()
        assert not await arrives(stream, b"")
        network.heal([("b", "a")])
        assert await arrives(stream, b"")


async def test_a_reset_is_noticed_at_once() -> None:
    async with echoing() as (network, stream):
        assert await answers(stream, b"one")
        network.reset(both_ways(["a"], ["b"]))
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
