"""A small HTTP client for the tests of streams."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import attrs
import h11
import trio


@attrs.frozen
class Reply:
    """What was answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def next_offset(self) -> str:
        """Where to read on."""
        return self.headers["stream-next-offset"]


async def connect(url: str, tls: ssl.SSLContext | None = None) -> trio.abc.Stream:
    """A connection to the node at *url*."""
    place = urlsplit(url)
    assert place.port is not None
    stream = await trio.open_tcp_stream(str(place.hostname), place.port)
    if tls is None:
        return stream
    return trio.SSLStream(stream, tls, server_hostname=place.hostname, https_compatible=True)


async def ask(
    url: str,
    method: str,
    path: str,
    body: bytes = b"",
    /,
    *,
    tls: ssl.SSLContext | None = None,
    **headers: str,
) -> Reply:
    """Ask the node at *url*; ``_`` in the name of a header is ``-``."""
    protocol = h11.Connection(h11.CLIENT)
    fields = {"host": urlsplit(url).netloc, "connection": "close"}
    if body or method in {"POST", "PUT"}:
        fields["content-length"] = str(len(body))
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    with trio.fail_after(30):
        async with await connect(url, tls) as stream:
            head = h11.Request(
                method=method, target=f"/v1/streams/{path}", headers=list(fields.items())
            )
            data = protocol.send(head) or b""
            if body:
                data += protocol.send(h11.Data(data=body)) or b""
            await stream.send_all(data + (protocol.send(h11.EndOfMessage()) or b""))
            return await _reply(protocol, stream)


async def _reply(protocol: h11.Connection, stream: trio.abc.Stream) -> Reply:
    status, found, body = 0, dict[str, str](), b""
    while True:
        event = protocol.next_event()
        match event:
            case h11.NEED_DATA:
                protocol.receive_data(bytes(await stream.receive_some()))
            case h11.Response():
                status = event.status_code
                found = {name.decode(): value.decode() for name, value in event.headers}
            case h11.Data():
                body += event.data
            case _:
                return Reply(status, found, body)


@asynccontextmanager
async def events(url: str, path: str) -> AsyncIterator[trio.abc.Stream]:
    """A connection on which server-sent events come, behind the head of the answer."""
    async with await connect(url) as stream:
        head = f"GET /v1/streams/{path} HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\n\r\n"
        await stream.send_all(head.encode())
        yield stream


async def receive_until(stream: trio.abc.Stream, text: bytes) -> bytes:
    """What is received up to *text* and behind it."""
    received = b""
    with trio.fail_after(20):
        while text not in received:
            part = await stream.receive_some(65536)
            assert part, f"the connection ended: {received!r}"
            received += part
    return received
