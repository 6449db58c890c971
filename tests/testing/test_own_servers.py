"""Programs of a test that serve HTTP and WebSockets of their own, on the simulated network."""

from __future__ import annotations

import h11
import pytest
import trio
from trio_websocket import (
    ConnectionClosed,
    WebSocketRequest,
    open_websocket,
    serve_websocket,
)

from octopi.testing import Cluster, Host, MisuseError, simulated

ORDERS = [b"a hat", b"three umbrellas"]


async def shop(host: Host) -> None:
    """Sends what is posted to it to a topic, by HTTP/1.1."""
    async with host.connect() as client, client.producer() as producer:

        async def answer(stream: trio.abc.Stream) -> None:
            peer = h11.Connection(h11.SERVER)
            body = b""
            while True:
                event = peer.next_event()
                if event is h11.NEED_DATA:
                    peer.receive_data(bytes(await stream.receive_some()))
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    break
                elif isinstance(event, h11.ConnectionClosed):
                    return
            receipt = await producer.send("orders", body)
            text = b"%d" % receipt.offset
            head = h11.Response(status_code=201, headers=[("content-length", str(len(text)))])
            for part in (head, h11.Data(data=text), h11.EndOfMessage()):
                await stream.send_all(peer.send(part) or b"")
            await stream.aclose()

        await trio.serve_tcp(answer, 80)


async def post(order: bytes, server: str = "shop") -> int:
    """Post an order; returns the status of the answer."""
    stream = await trio.open_tcp_stream(server, 80)
    async with stream:
        peer = h11.Connection(h11.CLIENT)
        headers = [("host", server), ("content-length", str(len(order)))]
        request = h11.Request(method="POST", target="/orders", headers=headers)
        for part in (request, h11.Data(data=order), h11.EndOfMessage()):
            await stream.send_all(peer.send(part) or b"")
        while True:
            event = peer.next_event()
            if event is h11.NEED_DATA:
                peer.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Response):
                return event.status_code


@simulated(seeds=2)
async def test_an_order_that_is_posted_again_until_it_is_answered_is_stored(
    cluster: Cluster,
) -> None:
    async def buyer(host: Host) -> None:
        await trio.sleep(0.5)
        for order in ORDERS:
            while True:
                try:
                    with trio.fail_after(2.0):
                        assert await post(order) == 201
                except (OSError, trio.TooSlowError, trio.BrokenResourceError, h11.ProtocolError):
                    await trio.sleep(0.2)
                else:
                    break

    async with cluster.client() as client:
        await client.create_topic("orders", 1)
        cluster.program("shop", shop)
        bought = cluster.program("buyer", buyer)
        cluster.kill("shop", after_s=0.505, restart_s=0.5)
        await bought.wait()
        async with client.consumer("orders", start="earliest", stop_at_end=True) as orders:
            assert {order.value async for order in orders} == set(ORDERS)


@simulated()
async def test_a_cut_lasts_for_programs_of_ones_own_too(cluster: Cluster) -> None:
    took: list[float] = []

    async def serve(host: Host) -> None:
        async def echo(stream: trio.abc.Stream) -> None:
            await stream.send_all(await stream.receive_some())

        await trio.serve_tcp(echo, 7)

    async def ask(host: Host) -> None:
        stream = await trio.open_tcp_stream("server", 7)
        cluster.cut("asker", "server", seconds=3.0)
        began = cluster.now
        await stream.send_all(b"hello")
        assert await stream.receive_some() == b"hello"
        took.append(cluster.now - began)

    cluster.program("server", serve)
    await cluster.sleep(0.1)
    await cluster.program("asker", ask).wait()
    assert took[0] >= 3.0


@simulated()
async def test_a_program_serves_websockets_of_its_own(cluster: Cluster) -> None:
    heard: list[str | bytes] = []

    async def serve(host: Host) -> None:
        async def chat(request: WebSocketRequest) -> None:
            socket = await request.accept()
            while True:
                try:
                    await socket.send_message(await socket.get_message())
                except ConnectionClosed:
                    return

        await serve_websocket(chat, "0.0.0.0", 8080, ssl_context=None)

    async def talk(host: Host) -> None:
        async with open_websocket("chat", 8080, "/", use_ssl=False) as socket:
            await socket.send_message("hello")
            heard.append(await socket.get_message())

    cluster.program("chat", serve)
    await cluster.sleep(0.1)
    await cluster.program("talker", talk).wait()
    assert heard == ["hello"]


@simulated()
async def test_the_test_itself_is_on_no_host(cluster: Cluster) -> None:
    with pytest.raises(MisuseError, match="runs on no host"):
        await trio.open_tcp_stream("shop", 80)


@simulated()
async def test_who_serves_not_refuses(cluster: Cluster) -> None:
    refused: list[OSError] = []

    async def ask(host: Host) -> None:
        for name in ("broker-1", "nowhere"):
            try:
                await trio.open_tcp_stream(name, 80)
            except OSError as error:
                refused.append(error)

    await cluster.program("asker", ask).wait()
    assert len(refused) == 2
