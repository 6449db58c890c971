"""Heads of HTTP requests, at the port that speaks HTTP and WebSocket."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

import attrs
import h11
import trio
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import Request
from wsproto.utilities import RemoteProtocolError

from octopi.environment import Clock
from octopi.transport.http_front import HttpFront
from octopi.transport.http_requests import HEAD_BYTES_MAX, Asker, HttpAnswer, HttpRequest, plain
from octopi.transport.watched_stream import WatchedStream
from tests.fuzz.target import Target, pieces

_STATUSES: Final = {200, 400, 403, 405, 431, 501}
"""200: of the site here; 403: where it lets nobody speak WebSocket; 431: the head is too long;
501: h11's answer to a transfer coding that it doesn't know."""

_T = TypeVar("_T")


class _Site:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[HttpRequest] = []

    def refuse_upgrade(self, request: HttpRequest) -> HttpAnswer | None:
        self.asked.append(request)
        return plain(403, "not from there") if "origin" in request.headers else None

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        self.asked.append(request)
        return plain(200, "here")


class _Clock:
    """Time stands still."""

    def now(self) -> float:
        return 0.0

    @contextmanager
    def timeout(self, _: float) -> Iterator[trio.CancelScope]:
        yield trio.CancelScope()


class PeerStream:
    """What a peer sends in pieces; and what is sent to it."""

    def __init__(self, data: Iterable[bytes]) -> None:
        self._pieces = [piece for piece in data if piece]
        self.sent = b""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if not self._pieces:
            return b""
        piece = self._pieces.pop(0)
        if max_bytes is not None and len(piece) > max_bytes:
            self._pieces.insert(0, piece[max_bytes:])
            piece = piece[:max_bytes]
        return piece

    async def send_all(self, data: bytes) -> None:
        self.sent += data

    async def send_eof(self) -> None:
        pass


@attrs.frozen
class _Served:
    """What became of a connection."""

    asked: list[HttpRequest]
    sent: bytes
    upgrade: HttpRequest | None
    behind: bytes
    """What comes behind the head of the upgrade."""


def _served(data: list[bytes]) -> _Served:
    site, stream = _Site(), PeerStream(data)
    watched = WatchedStream(cast(trio.abc.HalfCloseableStream, stream))
    front = HttpFront(watched, cast(Clock, STILL), site, Asker("a stranger"))
    upgrade = run_at_once(front.serve())
    behind = b""
    if upgrade is not None:
        watched.lift()
        _, unread = watched.release()
        behind = unread + b"".join(stream._pieces)
    return _Served(site.asked, stream.sent, upgrade, behind)


def run_at_once(waiting: Coroutine[Any, Any, _T]) -> _T:
    """The result of what never has to wait for anything."""
    try:
        waiting.send(None)
    except StopIteration as end:
        return cast(_T, end.value)
    raise AssertionError("it waits")


def check(data: bytes) -> bool:
    first, *others = [_served(one) for one in pieces(data)]
    for other in others:
        assert other == first, "it depends on how the bytes are cut"
    answers = list(_answers(first.sent))
    assert {status for status, _ in answers} <= _STATUSES, answers
    assert all(status < 400 for status, _ in answers[:-1]), "it goes on behind a refusal"
    _check_against_h11(data, first)
    if first.upgrade is not None:
        _check_against_wsproto(first)
    return bool(first.asked)


def _answers(sent: bytes) -> Iterator[tuple[int, bytes]]:
    """Status and body of each answer, as a client reads them that only knows GET."""
    while sent:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="GET", target="/", headers=[("host", "test")]))
        client.send(h11.EndOfMessage())
        head, end, rest = sent.partition(b"\r\n\r\n")
        client.receive_data(head + end)
        answer = client.next_event()
        assert isinstance(answer, h11.Response), answer
        [size] = [int(value) for name, value in answer.headers if name == b"content-length"]
        if rest.startswith(b"HTTP/1.1 "):  # to HEAD
            size = 0
        yield answer.status_code, rest[:size]
        sent = rest[size:]


def _check_against_h11(data: bytes, served: _Served) -> None:
    """That h11 finds the same requests in the whole of what came, one behind the other."""
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=len(data) + 1)
    server.receive_data(data)
    for request in served.asked:
        event = server.next_event()
        assert isinstance(event, h11.Request), f"h11 sees no request: {event}"
        path, _, _ = event.target.decode("latin-1").partition("?")
        assert (event.method.decode(), path) == (request.method, request.path)
        assert dict.fromkeys(name.decode() for name, _ in event.headers) == dict.fromkeys(
            request.headers
        )
        for name, value in event.headers:
            assert value.decode("latin-1") in request.headers[name.decode()]
        if request.is_upgrade:
            return
        assert isinstance(server.next_event(), h11.EndOfMessage), "h11 sees a body"
        server.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
        server.send(h11.EndOfMessage())
        if server.our_state is not h11.DONE or server.their_state is not h11.DONE:
            return
        server.start_next_cycle()


def _check_against_wsproto(served: _Served) -> None:
    """That the library behind us, which gets the head once more, reads the same in it."""
    connection = WSConnection(ConnectionType.SERVER)
    request = served.upgrade
    assert request is not None
    try:
        connection.receive_data(served.behind)
    except RemoteProtocolError:
        return  # it is stricter, and refuses
    event = next(iter(connection.events()), None)
    if isinstance(event, Request):
        assert event.target.partition("?")[0] == request.path, "wsproto reads another path"
        assert event.host == request.headers.get("host", ""), "wsproto reads another host"
        for name, value in event.extra_headers:
            if name.lower() in {b"origin", b"authorization"}:
                assert value.decode("latin-1") == request.headers[name.decode().lower()]


STILL: Final = _Clock()
_METHODS: Final = st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "get"])
_PATHS: Final = st.sampled_from(
    ["/", "/v1/client", "/api/v1/topics?limit=3&after=a%20b", "/console/", "/%2e%2e/x", "//a//b"]
)
_HEADERS: Final = st.lists(
    st.sampled_from(
        [
            "Host: test", "Origin: http://test", "Authorization: Bearer a.b.c", "Accept: */*",
            "Content-Length: 0", "Connection: close", "Connection: keep-alive, Upgrade",
            "Upgrade: websocket", "X-A: b,c", "Cookie: a=b",
        ]
    ),
    max_size=4,
)  # fmt: skip
_UPGRADE: Final = (
    "Host: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: octopi.v1.cbor"
)


@st.composite
def _requests(draw: st.DrawFn) -> bytes:
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        lines = [f"{draw(_METHODS)} {draw(_PATHS)} HTTP/1.1"]
        if draw(st.booleans()):
            lines.append(_UPGRADE)
        else:
            lines += ["Host: test", *draw(_HEADERS)]
        parts.append("\r\n".join(lines) + "\r\n\r\n")
    data = "".join(parts).encode()
    return data + draw(st.sampled_from([b"", b"\x82\x85\0\0\0\0hello", b"a" * 20]))


TARGET = Target(
    "heads",
    "any bytes, however they are cut, get the same answers, each with a documented status; h11 "
    "finds the same requests in them, and what is handed on is read the same by wsproto",
    _requests(),
    check,
    (
        "octopi/transport/http_front.py",
        "octopi/transport/http_requests.py",
        "octopi/transport/watched_stream.py",
    ),
    words=(
        b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b"\n\r\n", b" ", b"\t", b":", b": ", b",",
        b"GET / HTTP/1.1\r\n", b"HEAD /x HTTP/1.0\r\n", b"POST / HTTP/1.1\r\n", b"HTTP/1.1",
        b"HTTP/0.9", b"?", b"HTTP/2.0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"Host: a\r\n", b"host: b\r\n",
        b"Host : c\r\n", b"Content-Length: 5\r\n", b"Content-Length: 0, 0\r\n",
        b"content-length: 00\r\n", b"Content-Length: +0\r\n", b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip\r\n", b"Expect: 100-continue\r\n", b"Origin: null\r\n",
        b"Upgrade: websocket\r\n", b"Upgrade: WebSocket, h2c\r\n", b"Connection: upgrade\r\n",
        b"Sec-WebSocket-Extensions: permessage-deflate\r\n", b"Sec-WebSocket-Version: 12\r\n",
        b" folded\r\n", b"\tfolded\r\n", b"X: " + b"y" * 4000 + b"\r\n", b"\x00", b"\xff", b"\x0b",
        b"http://test/", b"*", b"GET  /", b"CONNECT a:1 HTTP/1.1\r\n",
    ),
    input_bytes_max=HEAD_BYTES_MAX + 4000,
)  # fmt: skip
