"""HTTP requests and answers, and how the head of a request is parsed.

Only a request below `STREAMS` may have a body (`octopi.transport.http_bodies`).  Any other request
consists of its head, and one with a body is refused: so there is no length that two readers could
understand differently, and what follows a head is the next request or, behind an upgrade,
WebSocket.  h11 has the grammar; the checks of this module are stricter.  Knows no socket.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol
from urllib.parse import parse_qsl

import attrs
import h11

HEAD_BYTES_MAX: Final = 16 * 1024
"""The most that request line and headers may have together; h11 is given the same bound."""

_END_OF_HEAD: Final = re.compile(rb"\n\r?\n")
_BARE_LINE_FEED: Final = re.compile(rb"(?<!\r)\n")
_ONCE: Final = frozenset(
    {
        "authorization", "content-length", "content-type", "host", "origin", "producer-epoch",
        "producer-id", "producer-seq", "stream-closed", "stream-expires-at", "stream-forked-from",
        "stream-seq", "stream-ttl", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Headers that must not come twice."""

TEXT: Final = "text/plain; charset=utf-8"

STREAMS: Final = "/v1/streams/"
"""Below this path are topics as streams; requests there may have bodies."""

API_PATH: Final = "/api/v1/"
"""Below this path are pages about the cluster, which pages of other nodes may ask for, too."""

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})
"""What may be asked of a stream."""

Send = Callable[[bytes], Awaitable[None]]
"""Sends a part of an answer's body, and waits while the reader is slow."""


class RequestBody(Protocol):
    """The body of a request."""

    @property
    def announced_bytes(self) -> int | None:
        """Its length, as its head says; None: that is not known before its end."""

    async def receive(self) -> bytes:
        """The next part; empty at the end.

        Raises:
          HttpRefusal: if the peer is too slow, or breaks the rules.
        """


class NoBody:
    """The body of a request without one."""

    announced_bytes: int | None = 0

    async def receive(self) -> bytes:
        """There is nothing."""
        return b""


@attrs.frozen
class Asker:
    """The peer that sends a request."""

    peer: str
    """Its address, for people to read."""
    is_secure: bool = False
    """Whether it connected over TLS."""
    is_verified: bool = False
    """Whether it has shown a certificate that this node trusts."""
    settle: Callable[[], bool] = attrs.field(default=lambda: True, eq=False, repr=False)
    """Makes it a client, whose connection isn't closed for a newer one.  False: the node has no
    slot for another client."""


@attrs.frozen
class HttpRequest:
    """A request."""

    method: str
    """``GET`` or ``HEAD``, and below `STREAMS` also others."""
    path: str
    """As it was sent, not percent-decoded, without the query."""
    query: Mapping[str, str]
    """The parameters of the query; if a name comes twice, its last value."""
    headers: Mapping[str, str]
    """By their names in lower case; if a name comes twice, all values, joined by commas."""
    asker: Asker
    raw_query: str = ""
    """The query as it was sent."""
    body: RequestBody = attrs.field(factory=NoBody, eq=False, repr=False)

    @property
    def is_of_stream(self) -> bool:
        """Whether it is about a stream."""
        return self.path.startswith(STREAMS)

    @property
    def is_upgrade(self) -> bool:
        """Whether it asks for WebSocket instead of HTTP."""
        return "websocket" in _words(self.headers.get("upgrade", "")) and "upgrade" in _words(
            self.headers.get("connection", "")
        )


@attrs.frozen
class HttpAnswer:
    """The answer to a request."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()
    """Headers beside content-length and content-type."""
    done: Callable[[], None] | None = None
    """Called when the answer was sent, or could not be sent."""
    stream: Callable[[Send], Awaitable[None]] | None = None
    """Sends the body in parts, instead of `body`; only for requests of streams."""
    close: Callable[[], Awaitable[None]] | None = None
    """Like `done`, but may wait; only for requests of streams."""


class HttpRefusal(Exception):
    """A request whose head is not acceptable: it is answered with the error, and its connection is
    closed."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.answer: Final = plain(status, text)


def plain(status: int, text: str, *headers: tuple[str, str]) -> HttpAnswer:
    """An answer in plain text."""
    return HttpAnswer(status, f"{text}\n".encode(), TEXT, headers)


def end_of_head(data: bytes | bytearray, searched_bytes: int = 0) -> int | None:
    """How many bytes the head has with which *data* begins; None: it is incomplete.
    *searched_bytes*: how many bytes from the beginning an earlier call has searched in vain.

    Raises:
      HttpRefusal: if the head is too long, complete or not.
    """
    found = _END_OF_HEAD.search(data, max(0, searched_bytes - 2))
    if (len(data) if found is None else found.end()) > HEAD_BYTES_MAX:
        raise HttpRefusal(431, f"a request's head has at most {HEAD_BYTES_MAX} bytes here")
    return None if found is None else found.end()


def read_head(connection: h11.Connection, head: bytes, asker: Asker) -> HttpRequest:
    """Parse *head*, a complete head as found by `end_of_head`.

    Raises:
      HttpRefusal: if it is no HTTP request, or one that every site refuses.
    """
    if _BARE_LINE_FEED.search(head):
        raise HttpRefusal(400, "lines end with CR LF")
    connection.receive_data(head)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise HttpRefusal(error.error_status_hint, f"no request: {error}") from None
    if not isinstance(event, h11.Request):
        raise HttpRefusal(400, "no request")
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        if name in headers and name in _ONCE:
            raise HttpRefusal(400, f"{name} comes twice")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    path, _, query = event.target.decode("latin-1").partition("?")
    method = event.method.decode("ascii")
    if path.startswith(STREAMS):
        _check_body(headers)
        if method not in _METHODS:
            raise HttpRefusal(405, f"{method[:20]} is no method of a stream")
    else:
        if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
            raise HttpRefusal(400, "a request here has no body")
        is_preflight = method == "OPTIONS" and path.startswith(API_PATH)
        if method not in {"GET", "HEAD"} and not is_preflight:
            raise HttpRefusal(405, "only GET and HEAD are answered here")
        if not path.startswith("/"):
            raise HttpRefusal(400, "ask for a path")
    request = HttpRequest(method, path, dict(parse_qsl(query)), headers, asker, query)
    if request.is_upgrade:
        if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
            raise HttpRefusal(400, "a request to upgrade has no body")
        _check_upgrade(headers)
    return request


def _check_body(headers: Mapping[str, str]) -> None:
    """Check that the length of a body can be understood in one way only.

    Raises:
      HttpRefusal: if it can't.
    """
    encoding = headers.get("transfer-encoding")
    if encoding is not None and (encoding.lower() != "chunked" or "content-length" in headers):
        raise HttpRefusal(400, "a body has Content-Length, or Transfer-Encoding: chunked alone")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpRefusal(415, "send the body without Content-Encoding")


def _check_upgrade(headers: Mapping[str, str]) -> None:
    """Check that wsproto, which parses the head next, can read it: wsproto expects ASCII.

    Raises:
      HttpRefusal: if it can't.
    """
    for name, value in headers.items():
        if not value.isascii():
            raise HttpRefusal(400, f"{name} of a request to upgrade has to be ASCII")
    try:
        headers.get("host", "").encode("ascii").decode("idna")
    except UnicodeError:
        raise HttpRefusal(400, "host names no host") from None


def _words(value: str) -> set[str]:
    return {word.strip().lower() for word in value.split(",")}
