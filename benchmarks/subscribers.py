"""Many WebSocket subscribers in one process, as cheap as they can be: what they cost shall not
hide what the server costs.

They shake hands and subscribe properly; after that they take bytes until the last message's
mark comes, and parse nothing.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import attrs

from benchmarks.client import Gate

_RECEIVE_BYTES = 1 << 20
_HEARTBEAT_S = 3.0
_TAIL_BYTES = 512
"""Behind the last message may come the end of what carries it."""


@attrs.frozen
class Greeting:
    """How a subscriber of some system begins."""

    path: str
    subprotocol: str
    messages: Callable[[int], list[bytes]]
    """What subscriber number n says, a message after the other, each answered before the next."""
    heartbeat: bytes = b""
    """Sent now and then by who would be taken for dead otherwise."""


def drain(access: Gate, url: str, greeting: Greeting, count: int, mark: bytes) -> dict[str, float]:
    """Subscribe *count* times at *url*; return when each has got the message with *mark*."""
    sockets: dict[int, socket.socket] = {}
    heartbeat_at = time.monotonic() + _HEARTBEAT_S

    def beat() -> None:
        nonlocal heartbeat_at
        if greeting.heartbeat and time.monotonic() > heartbeat_at:
            heartbeat_at = time.monotonic() + _HEARTBEAT_S
            for one in sockets.values():
                one.send(_frame(greeting.heartbeat))

    for one in connected(url, greeting, count):
        one.setblocking(False)
        sockets[one.fileno()] = one
        beat()  # on a busy machine it takes long until all are there
    poll = select.epoll()
    for descriptor in sockets:
        poll.register(descriptor, select.EPOLLIN)
    buffer = bytearray(_RECEIVE_BYTES)
    access.wait()
    received_bytes = 0
    waiting = len(sockets)
    while waiting:
        beat()
        for descriptor, _ in poll.poll(_HEARTBEAT_S):
            size = sockets[descriptor].recv_into(buffer)
            assert size, "a subscriber was thrown out"
            received_bytes += size
            if buffer.find(mark, max(0, size - _TAIL_BYTES), size) >= 0:
                poll.unregister(descriptor)
                waiting -= 1
    figures = {"received_bytes": float(received_bytes)}
    for one in sockets.values():
        one.close()
    return figures


def connected(url: str, greeting: Greeting, count: int) -> Iterator[socket.socket]:
    """*count* WebSockets to *url* that have said their *greeting*."""
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    for number in range(count):
        one = socket.create_connection((address.hostname, address.port), 30)
        _shake_hands(one, greeting)
        for message in greeting.messages(number):
            one.sendall(_frame(message))
            assert one.recv(_RECEIVE_BYTES), "a subscriber was not wanted"
        yield one


def _shake_hands(one: socket.socket, greeting: Greeting) -> None:
    protocol = f"Sec-WebSocket-Protocol: {greeting.subprotocol}\r\n" if greeting.subprotocol else ""
    one.sendall(
        f"GET {greeting.path} HTTP/1.1\r\nHost: benchmark\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Sec-WebSocket-Version: 13\r\n{protocol}\r\n".encode()
    )
    head = b""
    while b"\r\n\r\n" not in head:
        more = one.recv(4096)
        assert more, head
        head += more
    assert head.startswith(b"HTTP/1.1 101"), head


def _frame(message: bytes) -> bytes:
    """One binary frame with the mask that changes nothing."""
    size = len(message)
    length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x82" + length + b"\0\0\0\0" + message
