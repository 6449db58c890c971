"""What is asked and answered over HTTP, and how the head of a request is read.

A request here is its head: nothing that has a body is taken, so there is no length that two
readers could understand differently, and what follows a head is the next request or, behind
an upgrade, WebSocket.  The grammar is h11's; what stands here is stricter.  Knows no socket.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl

import attrs
import h11

HEAD_BYTES_MAX: Final = 16 * 1024
"""Of request line and headers together, as h11 takes them at most."""

_END_OF_HEAD: Final = re.compile(rb"\n\r?\n")
_BARE_LINE_FEED: Final = re.compile(rb"(?<!\r)\n")
_ONCE: Final = frozenset({"host", "origin", "authorization", "upgrade", "content-length"})
"""Headers that can mean only one thing."""

TEXT: Final = "text/plain; charset=utf-8"


@attrs.frozen
class Asker:
    """Who asks."""

    peer: str
    """Its address, for people to read."""
    is_secure: bool = False
    """Whether it came over TLS."""
    is_verified: bool = False
    """Whether it has shown a certificate that we trust."""


@attrs.frozen
class HttpRequest:
    """A request without a body."""

    method: str
    """``GET`` or ``HEAD``."""
    path: str
    """As it was sent, percent signs and all, without the query."""
    query: Mapping[str, str]
    """Of a name that comes twice the last value."""
    headers: Mapping[str, str]
    """By their names in lower case; of a name that comes twice all values, with commas."""
    asker: Asker

    @property
    def is_upgrade(self) -> bool:
        """Whether it asks for WebSocket instead of HTTP."""
        return "websocket" in _words(self.headers.get("upgrade", "")) and "upgrade" in _words(
            self.headers.get("connection", "")
        )


@attrs.frozen
class HttpAnswer:
    """What is answered."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()
    """Beside length and type."""
    done: Callable[[], None] | None = None
    """Called when it was sent, or can't be."""


class HttpRefusal(Exception):
    """A request that is answered without asking what it wants; its connection is closed."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.answer: Final = plain(status, text)


def plain(status: int, text: str, *headers: tuple[str, str]) -> HttpAnswer:
    """An answer that says *text*."""
    return HttpAnswer(status, f"{text}\n".encode(), TEXT, headers)


def end_of_head(data: bytes | bytearray, searched_bytes: int = 0) -> int | None:
    """Where the head that *data* begins with ends; None: not in it.  *searched_bytes*: the
    beginning that is known to hold no end.

    Raises:
      HttpRefusal: if it is too long, whether it ends or not.
    """
    found = _END_OF_HEAD.search(data, max(0, searched_bytes - 2))
    if (len(data) if found is None else found.end()) > HEAD_BYTES_MAX:
        raise HttpRefusal(431, f"a request's head has at most {HEAD_BYTES_MAX} bytes here")
    return None if found is None else found.end()


def read_head(connection: h11.Connection, head: bytes, asker: Asker) -> HttpRequest:
    """The request that *head*, cut by `end_of_head`, is.

    Raises:
      HttpRefusal: if it is none, or one that is never taken.
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
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise HttpRefusal(400, "a request here has no body")
    method = event.method.decode("ascii")
    if method not in {"GET", "HEAD"}:
        raise HttpRefusal(405, "only GET and HEAD are answered here")
    path, _, query = event.target.decode("latin-1").partition("?")
    if not path.startswith("/"):
        raise HttpRefusal(400, "ask for a path")
    request = HttpRequest(method, path, dict(parse_qsl(query)), headers, asker)
    if request.is_upgrade:
        _check_upgrade(headers)
    return request


def _check_upgrade(headers: Mapping[str, str]) -> None:
    """Make sure that wsproto, which gets the head next, can read it: it takes all to be ASCII.

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
