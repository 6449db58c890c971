"""HTTP requests and answers, and how the head of a request is parsed.

A request consists of its head: a request with a body is refused.  So there is no length that two
readers could understand differently, and what follows a head is the next request or, behind an
upgrade, WebSocket.  h11 has the grammar; the checks of this module are stricter.  Knows no socket.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl

import attrs
import h11

HEAD_BYTES_MAX: Final = 16 * 1024
"""The most that request line and headers may have together; h11 is given the same bound."""

_END_OF_HEAD: Final = re.compile(rb"\n\r?\n")
_BARE_LINE_FEED: Final = re.compile(rb"(?<!\r)\n")
_ONCE: Final = frozenset({"host", "origin", "authorization", "upgrade", "content-length"})
"""Headers that must not come twice."""

TEXT: Final = "text/plain; charset=utf-8"


@attrs.frozen
class Asker:
    """The peer that sends a request."""

    peer: str
    """Its address, for people to read."""
    is_secure: bool = False
    """Whether it connected over TLS."""
    is_verified: bool = False
    """Whether it has shown a certificate that this node trusts."""


@attrs.frozen
class HttpRequest:
    """A request without a body."""

    method: str
    """``GET`` or ``HEAD``."""
    path: str
    """As it was sent, not percent-decoded, without the query."""
    query: Mapping[str, str]
    """The parameters of the query; if a name comes twice, its last value."""
    headers: Mapping[str, str]
    """By their names in lower case; if a name comes twice, all values, joined by commas."""
    asker: Asker

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
