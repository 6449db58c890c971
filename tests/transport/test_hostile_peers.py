"""Whatever a stranger sends to the port of a node, other connections are served as before.

Each scenario ends with another client being served as ever.
"""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial

import cbor2
import pytest
import trio
import trio_websocket
from trio.testing import MockClock, lockstep_stream_pair, wait_all_tasks_blocked

from octopi.errors import ConnectionLostError, Status, UnreachableError
from octopi.identifiers import Offset, PartitionId
from octopi.limits import (
    CLOSE_TIMEOUT_S,
    HANDSHAKE_TIMEOUT_S,
    HEARTBEAT_TIMEOUT_S,
    KIB,
    MESSAGE_BYTES_MAX,
    MIB,
    SEND_TIMEOUT_S,
)
from octopi.operating_system import SystemClock, SystemStreams, allow_many_files
from octopi.transport.websocket import WebSocketNet
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import CLIENT
from tests.kit.logs import capture_logs
from tests.kit.streams import MemoryStreams
from tests.transport.serving import Server, serving

UPGRADE = (
    b"GET /v1/client HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: octopi.v1.cbor\r\n\r\n"
)


def in_memory() -> AbstractAsyncContextManager[Server]:
    """A server on streams whose sender waits for the reader, so on any clock."""
    return serving(streams=MemoryStreams(lockstep_stream_pair))


@asynccontextmanager
async def stranger(server: Server) -> AsyncIterator[trio.abc.HalfCloseableStream]:
    """A bare stream to *server*, which serves another client afterwards."""
    stream = await server.streams.connect("127.0.0.1", server.port)
    with trio.fail_after(60):
        async with stream:
            yield stream
        await server.still_serves()


async def all_of(stream: trio.abc.ReceiveStream) -> bytes:
    """What comes until the other side ends the stream."""
    data = b""
    while True:
        try:
            more = await stream.receive_some()
        except trio.BrokenResourceError:
            return data
        if not more:
            return data
        data += more


@asynccontextmanager
async def websocket(
    server: Server, path: str = CLIENT.path, subprotocol: str = "octopi.v1.cbor"
) -> AsyncIterator[trio_websocket.WebSocketConnection]:
    """A WebSocket that keeps none of our bounds; another client is served afterwards."""
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    async with stream, trio.open_nursery() as nursery:
        with trio.fail_after(30):
            yield await trio_websocket.wrap_client_stream(
                nursery, stream, "test", path, subprotocols=[subprotocol], max_message_size=1 << 40
            )
        nursery.cancel_scope.cancel()
    await server.still_serves()


@asynccontextmanager
async def welcomed(server: Server) -> AsyncIterator[trio_websocket.WebSocketConnection]:
    async with websocket(server) as connection:
        await connection.send_message(encode(m.Hello(1, "stranger")))
        await connection.get_message()
        yield connection


async def hear_failure(connection: trio_websocket.WebSocketConnection) -> m.Failure:
    data = await connection.get_message()
    assert isinstance(data, bytes)
    failure = decode(data, frozenset({m.Failure}))
    assert isinstance(failure, m.Failure)
    return failure


async def close_code(connection: trio_websocket.WebSocketConnection) -> int:
    """The code that the connection is closed with, after what is said before."""
    reason = None
    while reason is None:
        try:
            await connection.get_message()
        except trio_websocket.ConnectionClosed as closed:
            reason = closed.reason
    return reason.code


# --- before there is a WebSocket -----------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff\x16\x03\x01 garbage \r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"GET / HTTP/1.1\r\nHost: test\r\n\r\n",
        b"POST /v1/client HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello",
        b"GET /v1/client HTTP/1.1\r\nHost: test\r\nX: " + b"x" * 100_000,
        UPGRADE.replace(b"Version: 13", b"Version: 7"),
    ],
    ids=["garbage", "tls", "get", "post", "long-head", "old-version"],
)
async def test_a_request_that_is_not_an_upgrade_is_refused_and_closed(data: bytes) -> None:
    async with serving() as server, stranger(server) as stream:
        await stream.send_all(data)
        answer = await all_of(stream)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


async def test_an_unknown_path_is_answered_with_404_and_the_paths() -> None:
    async with serving() as server, stranger(server) as stream:
        await stream.send_all(UPGRADE.replace(b"/v1/client", b"/v1/nonsense"))
        answer = await all_of(stream)
        assert answer.startswith(b"HTTP/1.1 404")
        assert answer.endswith(b"no such endpoint; use /v1/client or /v1/membership\n")


async def test_a_path_may_have_a_query() -> None:
    async with serving() as server, websocket(server, path="/v1/client?x=1") as connection:
        await connection.send_message(encode(m.Hello(1, "stranger")))
        assert await connection.get_message()


@pytest.mark.parametrize("offer", [b"octopi.v0", b"graphql-ws, mqtt", b""])
async def test_another_subprotocol_is_answered_with_400_and_ours(offer: bytes) -> None:
    async with serving() as server, stranger(server) as stream:
        await stream.send_all(UPGRADE.replace(b"octopi.v1.cbor", offer))
        answer = await all_of(stream)
        assert answer.startswith(b"HTTP/1.1 400")
        assert offer == b"" or answer.endswith(b"offer the subprotocol octopi.v1.cbor\n")


async def test_a_list_of_subprotocols_with_ours_is_accepted() -> None:
    async with serving() as server, stranger(server) as stream:
        await stream.send_all(UPGRADE.replace(b"octopi.v1.cbor", b"mqtt, octopi.v1.cbor"))
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 101")


@pytest.mark.parametrize("data", [b"", b"G", UPGRADE[:-3]], ids=["nothing", "letter", "half"])
async def test_a_handshake_that_stalls_is_given_up(data: bytes, autojump_clock: MockClock) -> None:
    async with in_memory() as server, stranger(server) as stream:
        if data:
            await stream.send_all(data)
        await all_of(stream)
        assert trio.current_time() == HANDSHAKE_TIMEOUT_S


async def test_a_handshake_byte_by_byte_works(autojump_clock: MockClock) -> None:
    async with in_memory() as server, stranger(server) as stream:
        for index in range(len(UPGRADE)):
            await stream.send_all(UPGRADE[index : index + 1])
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 101")


@pytest.mark.parametrize("data", [b"", UPGRADE[:50]], ids=["at once", "halfway"])
async def test_a_peer_that_leaves_during_the_handshake_holds_nothing(
    data: bytes, autojump_clock: MockClock
) -> None:
    async with in_memory() as server:
        with capture_logs() as logs:
            async with stranger(server) as stream:
                if data:
                    await stream.send_all(data)
                await stream.aclose()
                await wait_all_tasks_blocked()
                assert server.websockets.connection_count == 0
        assert trio.current_time() == 0
        assert logs == []


async def test_a_refused_peer_may_finish_its_request_but_not_stay(
    autojump_clock: MockClock,
) -> None:
    async with in_memory() as server, stranger(server) as stream:
        await stream.send_all(UPGRADE.replace(b"/v1/client", b"/v1/nothing"))
        answer = await all_of(stream)
        assert answer.startswith(b"HTTP/1.1 404")
        await stream.send_all(bytes(MIB))
        await trio.sleep(CLOSE_TIMEOUT_S + 1)
        assert server.websockets.connection_count == 0
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"still here")


async def test_one_connection_too_many_is_closed_at_once_and_a_crowd_is_logged_once() -> None:
    async with serving(connections_max=2) as server:
        async with server.client() as client, server.client():
            with capture_logs() as logs:
                for _ in range(3):
                    with pytest.raises(UnreachableError, match="did not complete the WebSocket"):
                        await server.connect()
            assert [one["event"] for one in logs].count("too_many_connections") == 1
            await client.request(m.Produce(1, "t", PartitionId(0), b""), m.Produced, 5)
        await server.still_serves()


async def test_silent_connections_do_not_block_new_ones() -> None:
    """Connections that ask for nothing go when all places are taken, the oldest one first."""
    async with (
        serving(connections_max=3) as server,
        server.client() as client,
        AsyncExitStack() as idle,
    ):
        streams = []
        for _ in range(4):
            stream = await server.streams.connect("127.0.0.1", server.port)
            streams.append(await idle.enter_async_context(stream))
        with trio.fail_after(2):
            assert await all_of(streams[0]) == b""
        await server.still_serves()
        await client.request(m.Produce(1, "t", PartitionId(0), b""), m.Produced, 5)


# --- frames --------------------------------------------------------------------------


async def test_a_text_frame_is_refused_with_1003() -> None:
    async with serving() as server, welcomed(server) as connection:
        await connection.send_message("hello?")
        failure = await hear_failure(connection)
        assert failure.status == Status.MALFORMED_MESSAGE
        assert failure.reason == "a text frame came; every message is a binary frame"
        assert await close_code(connection) == 1003


async def test_a_text_frame_instead_of_a_hello_is_refused_too() -> None:
    async with serving() as server, websocket(server) as connection:
        await connection.send_message("hello?")
        assert (await hear_failure(connection)).status == Status.MALFORMED_MESSAGE
        assert await close_code(connection) == 1003


async def test_an_oversized_message_is_refused_with_1009() -> None:
    async with serving() as server:
        async with welcomed(server) as connection, trio.open_nursery() as nursery:

            async def send() -> None:
                with contextlib.suppress(trio_websocket.ConnectionClosed):
                    while True:
                        await connection.send_message(bytes(MESSAGE_BYTES_MAX + 1))

            nursery.start_soon(send)
            assert await close_code(connection) == 1009
        session = server.sessions[0]
        await session.ended.wait()
        assert session.connection.end_reason is not None
        assert "more than 16842752 bytes" in session.connection.end_reason


async def test_a_message_without_end_is_given_up_before_it_fills_the_memory(
    autojump_clock: MockClock,
) -> None:
    async with in_memory() as server, stranger(server) as stream:
        await greet(stream)
        await stream.send_all(b"\x02\xff" + (2**40).to_bytes(8, "big") + b"\0\0\0\0")
        async with trio.open_nursery() as nursery:
            answers: list[bytes] = []

            async def listen() -> None:
                answers.append(await all_of(stream))

            nursery.start_soon(listen)
            for _ in range(MESSAGE_BYTES_MAX // MIB + 1):
                await stream.send_all(bytes(MIB))
            await wait_all_tasks_blocked()
            assert (1009).to_bytes(2, "big") in answers[0]
            # What it sends now is thrown away, so that it gets to read why.
            for _ in range(100):
                await stream.send_all(bytes(MIB))
            await stream.aclose()
        await wait_all_tasks_blocked()
        assert server.websockets.connection_count == 0
        assert trio.current_time() == 0


@pytest.mark.parametrize(
    "frame",
    [
        b"\x82\x05hello",  # not masked
        b"\xf2\x85\0\0\0\0hello",  # reserved bits
        b"\x83\x85\0\0\0\0hello",  # reserved opcode
        b"\x09\x80\0\0\0\0",  # fragmented ping
        b"\x89\xfe\x00\xff\0\0\0\0" + bytes(255),  # ping longer than 125 bytes
        b"\x80\x85\0\0\0\0hello",  # continuation of nothing
        b"\x81\x82\0\0\0\0\xff\xfe",  # text that is no UTF-8
        b"\x88\x81\0\0\0\0\x00",  # close with half a code
        b"\x88\x82\0\0\0\0\x00\x00",  # close with code 0
    ],
)
async def test_a_broken_frame_ends_the_connection(frame: bytes) -> None:
    async with serving() as server, stranger(server) as stream:
        await stream.send_all(UPGRADE)
        await stream.receive_some()
        await stream.send_all(frame)
        with trio.fail_after(HANDSHAKE_TIMEOUT_S / 2):
            await all_of(stream)


async def test_pings_are_answered() -> None:
    async with serving() as server, welcomed(server) as connection:
        for _ in range(3):
            await connection.ping()


async def test_each_ping_is_answered_in_order() -> None:
    """Also those in one piece, and within a message that comes in parts."""
    async with serving() as server, stranger(server) as stream:
        await greet(stream)
        question = encode(m.Produce(1, "t", PartitionId(0), b""))
        parts = [bytes((0x02, 0x80 | 3)) + bytes(4) + question[:3]]
        parts += [bytes((0x89, 0x81)) + bytes(4) + bytes((number,)) for number in range(5)]
        rest = question[3:]
        parts.append(bytes((0x80, 0x80 | len(rest))) + bytes(4) + rest)
        await stream.send_all(b"".join(parts))
        heard = b""
        with trio.fail_after(5):
            while b"produced" not in heard:
                heard += await stream.receive_some()
        assert heard.startswith(b"".join(bytes((0x8A, 1, number)) for number in range(5)))


async def test_a_ping_instead_of_an_answer_to_the_close_is_harmless(
    autojump_clock: MockClock,
) -> None:
    async with in_memory() as server:
        with capture_logs() as logs:
            async with stranger(server) as stream:
                await greet(stream)
                await stream.send_all(masked(b"nonsense"))
                await stream.receive_some()  # the failure
                await stream.receive_some()  # the close
                with contextlib.suppress(trio.BrokenResourceError):
                    await stream.send_all(b"\x89\x80\0\0\0\0")
                await all_of(stream)
        assert {entry["log_level"] for entry in logs} == {"info"}
        assert "exc_info" not in {key for entry in logs for key in entry}
        assert server.sessions[0].ended.is_set()


# --- messages ------------------------------------------------------------------------


def produce_with(**changes: object) -> bytes:
    fields = {"type": "produce", "request": 1, "topic": "t", "partition": 0, "records": b""}
    return cbor2.dumps(fields | changes)


def nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        (b"", Status.MALFORMED_MESSAGE, "message: it ends too early"),
        (b"GET / HTTP/1.1\r\n\r\n", Status.MALFORMED_MESSAGE, "message: it has to be a map"),
        (bytes(MIB), Status.MALFORMED_MESSAGE, "message: it has to be a map"),
        (produce_with(type="steal"), Status.UNKNOWN_MESSAGE, "there is no type 'steal'"),
        (produce_with()[:-1], Status.MALFORMED_MESSAGE, "produce.records: it ends too early"),
        (produce_with(more=1), Status.MALFORMED_MESSAGE, "there is no field 'more'"),
        (
            cbor2.dumps({"type": "produce", "request": 1}),
            Status.MALFORMED_MESSAGE,
            "field 'topic' is missing",
        ),
        (produce_with(partition="0"), Status.MALFORMED_MESSAGE, "produce.partition: it has to be"),
        (produce_with(partition=-1), Status.MALFORMED_MESSAGE, "partition: it can't be negative"),
        (produce_with(topic=nested(400)), Status.MALFORMED_MESSAGE, "produce.topic: it has to be"),
        (
            encode(m.Delivery(1, Offset(0), b"", Offset(0))),
            Status.WRONG_ENDPOINT,
            "delivery: it may not be sent",
        ),
        (encode(m.Ask(1, encode(m.DescribeCluster(1)))), Status.WRONG_ENDPOINT, ""),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
async def test_an_invalid_message_is_answered_and_ends_the_connection(
    data: bytes, status: Status, reason: str
) -> None:
    async with serving() as server, welcomed(server) as connection:
        await connection.send_message(data)
        failure = await hear_failure(connection)
        assert failure.status == status
        assert reason in failure.reason
        assert await close_code(connection) == 1002


async def test_requests_before_the_hello_are_refused() -> None:
    async with serving() as server, websocket(server) as connection:
        await connection.send_message(produce_with())
        assert (await hear_failure(connection)).status == Status.WRONG_ENDPOINT
        assert await close_code(connection) == 1002
        assert server.sessions == []


async def test_a_bug_in_the_node_closes_the_connection_with_1011() -> None:
    async with serving() as server, welcomed(server) as connection:
        with capture_logs():
            await connection.send_message(produce_with(topic="fault"))
            assert (await hear_failure(connection)).status == Status.INTERNAL
            assert await close_code(connection) == 1011


# --- silence -------------------------------------------------------------------------


async def test_a_hello_that_never_comes_is_given_up(autojump_clock: MockClock) -> None:
    async with in_memory() as server, stranger(server) as stream:
        await stream.send_all(UPGRADE)
        answer = await all_of(stream)
        assert b"no hello within 5 s" in answer
        assert trio.current_time() == HANDSHAKE_TIMEOUT_S + CLOSE_TIMEOUT_S


async def test_a_peer_that_dies_without_closing_is_given_up(autojump_clock: MockClock) -> None:
    async with in_memory() as server, stranger(server) as stream:
        await greet(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(all_of, stream)
            start = trio.current_time()
            session = server.sessions[0]
            await session.ended.wait()
        assert trio.current_time() - start <= HEARTBEAT_TIMEOUT_S + CLOSE_TIMEOUT_S
        assert session.connection.end_reason is not None
        assert session.connection.end_reason.endswith("was silent for 20 s")


async def test_a_message_that_is_not_finished_in_time_ends_the_connection(
    autojump_clock: MockClock,
) -> None:
    async with in_memory() as server, stranger(server) as stream:
        await greet(stream)
        start, session = trio.current_time(), server.sessions[0]
        await stream.send_all(b"\x82\xff" + MESSAGE_BYTES_MAX.to_bytes(8, "big") + bytes(4))
        answers: list[bytes] = []
        async with trio.open_nursery() as nursery:

            async def hear() -> None:
                answers.append(await all_of(stream))

            nursery.start_soon(hear)
            for _ in range(19):  # a little now and then is of no use to it
                await trio.sleep(1)
                await stream.send_all(bytes(KIB))
            await session.ended.wait()
            assert trio.current_time() - start <= HEARTBEAT_TIMEOUT_S
        assert session.connection.end_reason is not None
        assert session.connection.end_reason.endswith("has not finished a message for 20 s")
        assert (4408).to_bytes(2, "big") in b"".join(answers)
        assert session.connection.memory.incoming.pool.held_bytes == 0


async def test_a_peer_that_reads_nothing_is_given_up(autojump_clock: MockClock) -> None:
    async with in_memory() as server, stranger(server) as stream:
        await greet(stream)
        await stream.send_all(masked(encode(m.Fetch(1, "t", PartitionId(0), Offset(0), MIB, 0))))
        start = trio.current_time()
        session = server.sessions[0]
        for _ in range(5):  # it goes on talking, so that it is not the silence that ends it
            await trio.sleep(SEND_TIMEOUT_S / 5 - 0.1)
            await stream.send_all(masked(encode(m.Heartbeat())))
        await session.ended.wait()
        assert trio.current_time() - start == SEND_TIMEOUT_S
        assert session.connection.end_reason is not None
        assert session.connection.end_reason.endswith("took nothing for 20 s")


async def test_a_peer_that_resets_its_connection_is_lost_at_once() -> None:
    async with serving() as server, stranger(server) as stream:
        await greet(stream)
        await stream.send_all(masked(encode(m.Fetch(1, "t", PartitionId(0), Offset(0), MIB, 0))))
        await stream.aclose()  # with unread data, so the system sends a reset
        with trio.fail_after(5):
            await server.sessions[0].ended.wait()


async def test_a_server_that_cuts_a_connection_is_noticed_by_its_client() -> None:
    async with serving() as server, server.client() as client:
        await client.request(m.Produce(1, "t", PartitionId(0), b""), m.Produced, 5)
        server.sessions[0].nursery.cancel_scope.cancel()
        with pytest.raises(ConnectionLostError), trio.fail_after(5):
            await client.request(m.Produce(2, "later", PartitionId(0), b""), m.Produced, 5)


async def greet(stream: trio.abc.HalfCloseableStream, *, settle: bool = True) -> None:
    """Shake hands by hand, up to the welcome."""
    await stream.send_all(UPGRADE)
    while b"\r\n\r\n" not in await stream.receive_some():
        pass
    await stream.send_all(masked(encode(m.Hello(1, "stranger"))))
    while b"welcome" not in await stream.receive_some():
        pass
    if settle:
        await wait_all_tasks_blocked()


def masked(data: bytes) -> bytes:
    """*data* as one binary frame of a client, with the mask that changes nothing."""
    assert len(data) < 126
    return bytes((0x82, 0x80 | len(data))) + b"\0\0\0\0" + data


@pytest.mark.slow
async def test_an_idle_connection_uses_little_memory() -> None:
    count = 300  # on a busy machine, too, the first is not silent for too long before the last
    allow_many_files()
    async with serving() as server, AsyncExitStack() as idle:

        async def connect() -> None:
            stream = await server.streams.connect("127.0.0.1", server.port)
            await idle.enter_async_context(stream)
            await greet(stream, settle=False)

        await connect()  # what comes with the first one is not counted
        tracemalloc.start()
        try:
            for _ in range(count):
                await connect()
            await wait_all_tasks_blocked()
            size_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert server.websockets.connection_count == 1 + count
        assert size_bytes / count < 40 * 1024
        await server.still_serves()


# --- a client of ours at a strange server --------------------------------------------


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "did not complete the WebSocket handshake: is it an Octopi node?"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "did not complete the WebSocket handshake"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "HTTP status 200: hi"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 404"),
    ],
)
async def test_a_server_that_is_not_a_node_is_unreachable(answer: bytes, problem: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            if answer:
                await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        net = WebSocketNet(SystemStreams(), SystemClock(), nursery)
        with pytest.raises(
            UnreachableError, match=f"^127.0.0.1:{port} .*{problem}".replace("?", ".")
        ):
            await net.connect(f"ws://127.0.0.1:{port}", CLIENT.path)
        nursery.cancel_scope.cancel()


async def test_a_websocket_server_without_our_subprotocol_is_unreachable() -> None:
    async def serve(request: trio_websocket.WebSocketRequest) -> None:
        connection = await request.accept()
        with pytest.raises(trio_websocket.ConnectionClosed):
            await connection.get_message()

    async with trio.open_nursery() as nursery:
        server = await nursery.start(
            partial(trio_websocket.serve_websocket, serve, "127.0.0.1", 0, None)
        )
        net = WebSocketNet(SystemStreams(), SystemClock(), nursery)
        with pytest.raises(UnreachableError, match=r"does not speak octopi\.v1\.cbor"):
            await net.connect(f"ws://127.0.0.1:{server.port}", CLIENT.path)
        nursery.cancel_scope.cancel()


async def test_a_node_refuses_an_endpoint_that_it_does_not_have() -> None:
    async with serving() as server:
        with pytest.raises(UnreachableError, match="HTTP status 404: no such endpoint"):
            await server.environment.net.connect(server.url, "/v1/follow")


async def test_a_server_that_never_answers_is_given_up(autojump_clock: MockClock) -> None:
    streams = MemoryStreams()
    async with trio.open_nursery() as nursery:
        listening = await streams.listen("any", 7)
        net = WebSocketNet(streams, SystemClock(), nursery)
        with pytest.raises(UnreachableError, match="ws://any:7 did not answer within 5 s"):
            await net.connect("ws://any:7", CLIENT.path)
        accepted = await listening.listeners[0].accept()
        await all_of(accepted)  # it was closed
        nursery.cancel_scope.cancel()
