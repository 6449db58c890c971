"""HTTP and WebSocket on one listener: valid, broken and hostile requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import h11
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from octopi.limits import CLOSE_TIMEOUT_S, HANDSHAKE_TIMEOUT_S, HTTP_IDLE_S, SEND_TIMEOUT_S
from octopi.transport.http_requests import HEAD_BYTES_MAX, HttpAnswer, HttpRequest, plain
from octopi.wire import messages as m
from octopi.wire.codec import encode
from tests.kit.logs import capture_logs
from tests.kit.streams import MemoryStreams, Stream, read_to_end
from tests.transport.serving import Server, serving
from tests.transport.test_before_the_hello import frame_of
from tests.transport.test_hostile_peers import UPGRADE

GET = b"GET /hello HTTP/1.1\r\nHost: test\r\n\r\n"


class EchoSite:
    """Says who asked for what; knows the pages ``/fault``, ``/never``, ``/same`` and ``/long``."""

    def __init__(self) -> None:
        self.asked: list[HttpRequest] = []

    def refuse_upgrade(self, request: HttpRequest) -> HttpAnswer | None:
        if "origin" in request.headers:
            return plain(403, "not from there")
        return None

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        self.asked.append(request)
        match request.path:
            case "/fault":
                raise ZeroDivisionError("a fault in a page")
            case "/never":
                await trio.sleep_forever()
            case "/same":
                return HttpAnswer(304, b"")
            case "/long":
                return HttpAnswer(200, bytes(1 << 20))
        return plain(200, f"you asked for {request.path}")


@asynccontextmanager
async def asking() -> AsyncIterator[tuple[EchoSite, Server, Stream]]:
    """A site in memory, and a stream to it."""
    site = EchoSite()
    async with serving(streams=MemoryStreams(), site=site) as server:
        stream = await server.streams.connect("127.0.0.1", server.port)
        async with stream:
            yield site, server, stream
        await wait_all_tasks_blocked()
        assert server.websockets.connection_count == 0


class Answers:
    """Reads answers as an HTTP client does."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._protocol = h11.Connection(h11.CLIENT)

    async def next(self, method: str = "GET") -> tuple[int, bytes]:
        """Status and body of the answer to a request with *method*."""
        protocol = self._protocol
        protocol.send(h11.Request(method=method, target="/", headers=[("host", "test")]))
        protocol.send(h11.EndOfMessage())
        status, body = 0, b""
        while True:
            event = protocol.next_event()
            match event:
                case h11.NEED_DATA:
                    protocol.receive_data(bytes(await self._stream.receive_some()))
                case h11.Response():
                    status = event.status_code
                case h11.Data():
                    body += event.data
                case h11.EndOfMessage():
                    if protocol.our_state is h11.DONE and protocol.their_state is h11.DONE:
                        protocol.start_next_cycle()
                    return status, body
                case _:
                    return status, body


async def test_requests_follow_each_other_on_one_connection(autojump_clock: MockClock) -> None:
    async with asking() as (site, _, stream):
        answers = Answers(stream)
        for path in (b"/a", b"/b?x=1&y=%32"):
            await stream.send_all(GET.replace(b"/hello", path))
            status, body = await answers.next()
            assert (status, body) == (200, b"you asked for %s\n" % path.partition(b"?")[0])
        assert site.asked[1].query == {"x": "1", "y": "2"}


async def test_pipelined_requests_are_answered_one_by_one(autojump_clock: MockClock) -> None:
    async with asking() as (_, _, stream):
        answers = Answers(stream)
        await stream.send_all(GET * 3)
        assert [await answers.next() for _ in range(3)] == [(200, b"you asked for /hello\n")] * 3


async def test_a_head_request_is_answered_without_a_body(autojump_clock: MockClock) -> None:
    async with asking() as (_, _, stream):
        await stream.send_all(GET.replace(b"GET", b"HEAD"))
        assert await Answers(stream).next("HEAD") == (200, b"")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"HEAD * HTTP/1.1\r\nHost: test\r\n\r\n", 400),
        (b"HEAD /hello HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\n", 400),
        (b"HEAD /hello HTTP/1.1\r\nHost: test\r\nHost: test\r\n\r\n", 400),
        (b"HEAD /hello HTTP/1.1\nHost: test\n\n", 400),
        (b"HEAD /fault HTTP/1.1\r\nHost: test\r\n\r\n", 500),
    ],
)
async def test_a_head_request_that_is_refused_is_answered_without_a_body(
    data: bytes, status: int, autojump_clock: MockClock
) -> None:
    async with asking() as (_, _, stream):
        with capture_logs() as logs:
            await stream.send_all(data)
            answer = await read_to_end(stream)
        assert answer.startswith(b"HTTP/1.1 %d" % status)
        assert answer.endswith(b"\r\n\r\n")
        assert [entry["event"] for entry in logs] == ["request_failed"] * (status == 500)


async def test_a_304_answer_has_no_content_length(autojump_clock: MockClock) -> None:
    """It would be that of what the peer has already."""
    async with asking() as (_, _, stream):
        await stream.send_all(GET.replace(b"/hello", b"/same") + GET)
        received = b""
        while b"you asked for /hello" not in received:
            received += await stream.receive_some()
        first, _, second = received.partition(b"\r\n\r\n")
        assert first.startswith(b"HTTP/1.1 304")
        assert b"content-length" not in first.lower()
        assert second.startswith(b"HTTP/1.1 200")


async def test_a_connection_that_asked_over_http_may_become_a_websocket(
    autojump_clock: MockClock,
) -> None:
    """Also when all of it comes at once, with the first frame behind it."""
    async with asking() as (_, server, stream):
        hello = encode(m.Hello(1, "test"))
        await stream.send_all(GET + UPGRADE + frame_of(len(hello)) + hello)
        received = b""
        while b"welcome" not in received:
            received += await stream.receive_some()
        assert received.startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 101" in received
        await wait_all_tasks_blocked()
        assert len(server.sessions) == 1


async def test_the_site_may_refuse_an_upgrade(autojump_clock: MockClock) -> None:
    async with asking() as (_, server, stream):
        await stream.send_all(UPGRADE.replace(b"Host: test", b"Host: test\r\nOrigin: http://evil"))
        assert (await read_to_end(stream)).startswith(b"HTTP/1.1 403")
        assert server.sessions == []


@pytest.mark.parametrize(
    "header",
    [
        b"Sec-WebSocket-Protocol: \xc3\xa9",
        b"Sec-WebSocket-Extensions: \xff",
        b"Connection: \xff",
        b"X-Name: \xc3\xa9",
    ],
)
async def test_a_request_to_upgrade_with_a_header_not_in_ascii_is_refused(
    header: bytes, autojump_clock: MockClock
) -> None:
    async with asking() as (_, server, stream):
        with capture_logs() as logs:
            await stream.send_all(UPGRADE[:-2] + header + b"\r\n\r\n")
            answer = await read_to_end(stream)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"has to be ASCII" in answer
        assert logs == []
        assert server.sessions == []


@pytest.mark.parametrize("host", [b"xn--a", b"xn--\x7f-\x7f", b"\xff"])
async def test_an_upgrade_request_with_an_invalid_host_is_refused(
    host: bytes, autojump_clock: MockClock
) -> None:
    async with asking() as (_, server, stream):
        with capture_logs() as logs:
            await stream.send_all(UPGRADE.replace(b"Host: test", b"Host: " + host))
            answer = await read_to_end(stream)
        assert answer.startswith(b"HTTP/1.1 400")
        assert logs == []
        assert server.sessions == []


BODIES = {
    "length": b"Content-Length: 5\r\n",
    "chunks": b"Transfer-Encoding: chunked\r\n",
    "both": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 5\r\n",
    "odd chunks": b"Transfer-Encoding: xchunked\r\n",
    "length with sign": b"Content-Length: +0\r\n",
    "folded": b"Content-Length:\r\n 5\r\n",
    "space before the colon": b"Content-Length : 5\r\n",
    "bare line feed": b"X: y\nContent-Length: 5\r\n",
}


@pytest.mark.parametrize("start", [GET, UPGRADE], ids=["get", "upgrade"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_a_request_with_a_body_is_refused(
    start: bytes, body: bytes, autojump_clock: MockClock
) -> None:
    """What follows a request whose length is in doubt is never taken for another one."""
    async with asking() as (site, server, stream):
        await stream.send_all(start[:-2] + body + b"\r\n" + GET.replace(b"/hello", b"/smuggled"))
        answer = await read_to_end(stream)
        assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501"))
        assert answer.count(b"HTTP/1.1") == 1
        assert site.asked == []
        assert server.sessions == []


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /hello HTTP/1.1\r\nHost: test\r\n\r\n", 405),
        (b"CONNECT test:80 HTTP/1.1\r\nHost: test\r\n\r\n", 405),
        (b"OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n", 405),
        (b"GET http://other/ HTTP/1.1\r\nHost: test\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: a\r\nOrigin: a\r\nOrigin: b\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\nHost: test\n\n", 400),
        (b"GET /hel\x00lo HTTP/1.1\r\nHost: test\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: test\r\nX: %s\r\n\r\n" % (b"x" * HEAD_BYTES_MAX), 431),
        (b"GET /%s HTTP/1.1\r\nHost: test\r\n\r\n" % (b"x" * HEAD_BYTES_MAX), 431),
        (b"x" * 10 * HEAD_BYTES_MAX, 431),
        (b"GET /fault HTTP/1.1\r\nHost: test\r\n\r\n", 500),
    ],
)
async def test_a_malformed_request_is_refused_and_the_connection_closed(
    data: bytes, status: int, autojump_clock: MockClock
) -> None:
    async with asking() as (_, server, stream):
        with capture_logs() as logs:
            await stream.send_all(data)
            answer = await read_to_end(stream)
        assert answer.startswith(b"HTTP/1.1 %d" % status)
        assert b"connection: close" in answer.lower()
        assert [entry["event"] for entry in logs] == ["request_failed"] * (status == 500)
        await server.still_serves()


async def test_a_head_may_be_as_long_as_allowed(autojump_clock: MockClock) -> None:
    async with asking() as (_, _, stream):
        padding = HEAD_BYTES_MAX - len(GET) - len(b"X: \r\n")
        await stream.send_all(GET[:-2] + b"X: " + b"x" * padding + b"\r\n\r\n")
        assert (await Answers(stream).next())[0] == 200


async def test_a_request_that_arrives_letter_by_letter_is_given_up(
    autojump_clock: MockClock,
) -> None:
    async with asking() as (_, server, stream):
        for _ in range(7):
            await stream.send_all(b"x")
            await trio.sleep(HANDSHAKE_TIMEOUT_S / 8)
        await trio.sleep(HANDSHAKE_TIMEOUT_S / 4)
        assert server.websockets.connection_count == 0


async def test_a_connection_without_requests_is_closed_after_a_while(
    autojump_clock: MockClock,
) -> None:
    async with asking() as (_, _, stream):
        await stream.send_all(GET)
        await read_to_end(stream)
        assert trio.current_time() == HTTP_IDLE_S


async def test_a_peer_that_takes_no_answer_is_given_up(autojump_clock: MockClock) -> None:
    site = EchoSite()
    async with serving(streams=MemoryStreams(trio.testing.lockstep_stream_pair), site=site) as here:
        stream = await here.streams.connect("127.0.0.1", here.port)
        await stream.send_all(GET.replace(b"/hello", b"/long"))
        await trio.sleep(SEND_TIMEOUT_S + CLOSE_TIMEOUT_S + 1)
        assert here.websockets.connection_count == 0
        await stream.aclose()


async def test_a_connection_that_ends_holds_no_resources(autojump_clock: MockClock) -> None:
    async with asking() as (_, server, stream):
        with capture_logs() as logs:
            await stream.send_all(GET)
            await stream.aclose()
            await wait_all_tasks_blocked()
            assert server.websockets.connection_count == 0
        assert logs == []


@pytest.mark.parametrize("begun", [b"G", b"GET /hello HTTP/1.1\r\nHost: te"], ids=["byte", "line"])
@pytest.mark.parametrize("together", [True, False], ids=["together", "later"])
async def test_a_second_head_has_five_seconds_from_its_first_byte_too(
    begun: bytes, together: bool, autojump_clock: MockClock
) -> None:
    async with asking() as (_, _, stream):
        await stream.send_all(GET + begun * together)
        assert (await Answers(stream).next())[0] == 200
        began_at = 0.0
        if not together:
            await trio.sleep(HTTP_IDLE_S - 1)
            began_at = trio.current_time()
            await stream.send_all(begun)
        with capture_logs() as logs:
            assert await stream.receive_some() == b""
        assert trio.current_time() - began_at == HANDSHAKE_TIMEOUT_S
        assert [one["event"] for one in logs] == ["request_too_slow"]
