"""Many WebSocket subscribers in one process, which cost as little as possible, so that they don't
hide what the server costs.

They do a proper handshake and subscribe.  After that they receive bytes until the mark of the last
message arrives, and parse nothing.
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
"""How far from the end of what arrived the mark may be.  The last message may be followed by the
rest of the protocol message that carries it."""


@attrs.frozen
class Greeting:
    """How a subscriber of a system begins."""

    path: str
    subprotocol: str
    messages: Callable[[int], list[bytes]]
    """Returns the messages of the subscriber with a number.  Each is sent when the one before it
    was answered."""
    heartbeat: bytes = b""
    """Sent every few seconds if the system closes silent connections; empty: never."""


def drain(access: Gate, url: str, greeting: Greeting, count: int, mark: bytes) -> dict[str, float]:
    """Subscribe *count* times at *url*; return when each has received the message with *mark*."""
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
        beat()  # on a busy machine it takes long until all are connected
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
            assert size, "the server closed a subscriber's connection"
            received_bytes += size
            if buffer.find(mark, max(0, size - _TAIL_BYTES), size) >= 0:
                poll.unregister(descriptor)
                waiting -= 1
    figures = {"received_bytes": float(received_bytes)}
    for one in sockets.values():
        one.close()
    return figures


def connected(url: str, greeting: Greeting, count: int) -> Iterator[socket.socket]:
    """Open *count* WebSockets to *url*, and send the *greeting* over each."""
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    for number in range(count):
        one = socket.create_connection((address.hostname, address.port), 30)
        _shake_hands(one, greeting)
        for message in greeting.messages(number):
            one.sendall(_frame(message))
            assert one.recv(_RECEIVE_BYTES), "the server closed a new subscriber's connection"
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
    """A binary frame with *message*, masked with zeros, which change nothing."""
    size = len(message)
    length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x82" + length + b"\0\0\0\0" + message
