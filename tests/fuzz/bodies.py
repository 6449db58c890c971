"""Requests for streams with their bodies, as they come on a connection."""

from __future__ import annotations

import re
from typing import Final, cast

import attrs
import h11
import trio
from hypothesis import strategies as st

from octopi.environment import Clock
from octopi.roles.streams.exchange import received
from octopi.streams.problems import StreamProblem
from octopi.transport.http_front import HttpFront
from octopi.transport.http_requests import Asker, HttpAnswer, HttpRequest, plain
from octopi.transport.memory_budget import MemoryBudget
from octopi.transport.watched_stream import WatchedStream
from tests.fuzz.heads import STILL, PeerStream, run_at_once
from tests.fuzz.target import Target, pieces

_BODY_BYTES_MAX: Final = 600
_STATUS: Final = re.compile(rb"(?:\A|\n)HTTP/1\.1 (\d\d\d) ")


@attrs.frozen
class _Asked:
    method: str
    path: str
    body: bytes | None
    """None: it was refused."""


class _Site:
    """Notes what it is asked, with the body of each request of a stream."""

    def __init__(self) -> None:
        self.asked: list[_Asked] = []

    def refuse_upgrade(self, request: HttpRequest) -> HttpAnswer | None:
        self.asked.append(_Asked(request.method, request.path, b""))
        return plain(403, "no WebSocket here")

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        at = len(self.asked)
        self.asked.append(_Asked(request.method, request.path, None))
        memory = MemoryBudget().connection("a stranger", is_peer=False)
        try:
            body = await received(request, memory, _BODY_BYTES_MAX)
        except StreamProblem as problem:
            return plain(problem.http, "too long")
        finally:
            memory.close()
        self.asked[at] = _Asked(request.method, request.path, body)
        return HttpAnswer(204, b"", "")


@attrs.frozen
class _Served:
    asked: list[_Asked]
    statuses: list[bytes]


def _served(data: list[bytes]) -> _Served:
    site, stream = _Site(), PeerStream(data)
    watched = WatchedStream(cast(trio.abc.HalfCloseableStream, stream))
    front = HttpFront(watched, cast(Clock, STILL), site, Asker("a stranger"))
    assert run_at_once(front.serve()) is None
    return _Served(site.asked, [one for one in _STATUS.findall(stream.sent) if one != b"100"])


def check(data: bytes) -> bool:
    first, *others = [_served(one) for one in pieces(data)]
    for other in others:
        assert other == first, "it depends on how the bytes are cut"
    assert {*first.statuses} <= _STATUSES, first.statuses
    _check_against_h11(data, first.asked)
    return any(one.body for one in first.asked)


def _check_against_h11(data: bytes, asked: list[_Asked]) -> None:
    """That h11 finds the same requests, with the same bodies, in the whole of what came."""
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=len(data) + 1)
    server.receive_data(data)
    for one in asked:
        event = server.next_event()
        assert isinstance(event, h11.Request), f"h11 sees no request: {event}"
        path, _, _ = event.target.decode("latin-1").partition("?")
        assert (event.method.decode(), path) == (one.method, one.path)
        if one.body is None:
            return
        body = b""
        while isinstance(part := server.next_event(), h11.Data):
            body += part.data
        assert isinstance(part, h11.EndOfMessage), "h11 sees no end of the body"
        assert body == one.body
        server.send(h11.Response(status_code=204, headers=[]))
        server.send(h11.EndOfMessage())
        if server.our_state is not h11.DONE or server.their_state is not h11.DONE:
            return
        server.start_next_cycle()


_STATUSES: Final = {b"204", b"400", b"403", b"405", b"413", b"415", b"431", b"501"}


@st.composite
def _requests(draw: st.DrawFn) -> bytes:
    data = b""
    for _ in range(draw(st.integers(1, 3))):
        method = draw(st.sampled_from([b"POST", b"PUT", b"GET", b"DELETE"]))
        data += method + b" /v1/streams/a HTTP/1.1\r\nHost: test\r\n"
        if draw(st.booleans()):
            data += b"Expect: 100-continue\r\n"
        body = draw(st.binary(max_size=40))
        match draw(st.integers(0, 2)):
            case 0:
                data += b"\r\n"
            case 1:
                data += b"Content-Length: %d\r\n\r\n" % len(body) + body
            case _:
                data += b"Transfer-Encoding: chunked\r\n\r\n"
                for at in range(0, len(body), 7):
                    data += b"%x\r\n" % len(body[at : at + 7]) + body[at : at + 7] + b"\r\n"
                data += b"0\r\n\r\n"
    return data


TARGET = Target(
    "bodies",
    "any bytes, however they are cut, are the same requests for streams with the same bodies, "
    "which h11 finds in them, too; each answer has a documented status",
    _requests(),
    check,
    ("octopi/transport/http_bodies.py", "octopi/transport/http_requests.py"),
    words=(
        b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n", b"00000005\r\n",
        b"-1\r\n", b"+5\r\n", b"0x5\r\n", b"5 \r\n", b"5;a=b\r\n", b"ffffffffffffffffffff\r\n",
        b"fffffffff\r\n", b"Content-Length: 5\r\n", b"Content-Length: 5, 5\r\n",
        b"Content-Length: 05\r\n", b"Content-Length: 99999999999999999999\r\n",
        b"Content-Length: 700\r\n", b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: CHUNKED\r\n", b"Transfer-Encoding: chunked, chunked\r\n",
        b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding:\r\n chunked\r\n", b"Content-Encoding: gzip\r\n",
        b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"HTTP/1.0", b"HTTP/1.1",
        b"Upgrade: websocket\r\nConnection: upgrade\r\n", b"Trailer: a\r\n", b"a: b\r\n",
        b"POST /v1/streams/a HTTP/1.1\r\nHost: test\r\n", b"PATCH", b"OPTIONS", b"x" * 700,
        b"GET / HTTP/1.1\r\nHost: test\r\n\r\n", b"%2f", b"?", b"\x00",
    ),
)  # fmt: skip
