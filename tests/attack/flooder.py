"""A process that sends without pause: ``python -m tests.attack.flooder``, with a plan in JSON on
standard input.

It keeps none of the protocol's bounds.  What the nodes answer is read and thrown away.  It stops
when its standard input ends, and then prints, as JSON, how many bytes it sent and how many of its
connections had been closed.
"""

from __future__ import annotations

import base64
import json
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import attrs
import trio

from octopi.transport.frame_reader import BINARY
from octopi.wire import messages as m
from octopi.wire.codec import encode
from octopi.wire.endpoints import CLIENT, Endpoint

_say = partial(print, flush=True)
_READ_BYTES: Final = 1 << 16
_SEND_BUFFER_BYTES: Final = 1 << 16
_ROUND_BYTES: Final = 1 << 16
"""What a connection is given to send before the next one has its turn."""


def frame(payload: bytes, *, opcode: int = BINARY, final: bool = True) -> bytes:
    """A client's frame, with the mask that changes nothing."""
    first = bytes((opcode | 0x80 * final,))
    if len(payload) < 126:
        length = bytes((0x80 | len(payload),))
    elif len(payload) < 1 << 16:
        length = b"\xfe" + len(payload).to_bytes(2, "big")
    else:
        length = b"\xff" + len(payload).to_bytes(8, "big")
    return first + length + bytes(4) + payload


def upgrade(path: str, host: str) -> bytes:
    """The head of a request for WebSocket."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Protocol: octopi.v1.cbor\r\n\r\n"
    ).encode()


@attrs.frozen
class Target:
    """Where some connections go, and what they send."""

    url: str
    connections: int
    payload: bytes
    """Sent again and again, unless `once`."""
    once: bool = False
    first: bytes = b""
    """Sent once, behind the hello."""
    token: str | None = None
    endpoint: Endpoint = CLIENT
    is_bare: bool = False
    """Send the payload without shaking hands and saying hello first."""
    comes_again: bool = False
    """Connect anew, whenever the node has said welcome or closed."""
    again_per_s: float = 0.0
    """Connect anew so often where the node has closed."""

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        host, _, port = self.url.partition("://")[2].rpartition(":")
        hello = frame(encode(m.Hello(1, "flooder", self.token)))
        return {
            "host": host,
            "port": int(port),
            "path": self.endpoint.path,
            "connections": self.connections,
            "first": base64.b64encode(hello + self.first).decode(),
            "payload": base64.b64encode(self.payload).decode(),
            "once": self.once,
            "is_bare": self.is_bare,
            "comes_again": self.comes_again,
            "again_per_s": self.again_per_s,
        }


@asynccontextmanager
async def flooding(targets: list[Target]) -> AsyncIterator[dict[str, int]]:
    """Flood *targets* from another process within the block; what is yielded says afterwards what
    came of it: ``sent_bytes``, and how many connections were ``closed``."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.attack.flooder"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    outcome: dict[str, int] = {}
    try:
        plan = json.dumps([one.dump() for one in targets])
        await process.stdin.send_all(plan.encode() + b"\n")
        said = b""
        while not said.endswith(b"\n"):
            more = await process.stdout.receive_some()
            assert more, "the flooder could not connect"
            said += more
        yield outcome
        await process.stdin.aclose()
        outcome.update(json.loads(b"".join([piece async for piece in process.stdout])))
        await process.wait()
    finally:
        process.kill()


class _Connection:
    def __init__(self, plan: dict[str, Any], payload: bytes) -> None:
        self.socket = socket.create_connection((plan["host"], plan["port"]))
        # What waits in a sender's buffers hurts no node, and filling them costs this machine.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self.plan = plan
        self.payload = payload
        if not plan["is_bare"]:
            self._shake_hands(plan)
        self.socket.setblocking(False)
        self._at = 0
        self._is_once = bool(plan["once"])

    def _shake_hands(self, plan: dict[str, Any]) -> None:
        self.socket.sendall(upgrade(plan["path"], f"{plan['host']}:{plan['port']}"))
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._received()
        self.socket.sendall(base64.b64decode(plan["first"]))
        if answer.endswith(b"\r\n\r\n"):
            self._received()

    def _received(self) -> bytes:
        data = self.socket.recv(4096)
        if not data:
            raise ConnectionError("the node closed the connection")
        return data

    @property
    def is_done(self) -> bool:
        """Whether all is sent that was to be sent."""
        return self._is_once and self._at == len(self.payload)

    def write(self) -> int:
        """Send what the system takes of the next piece."""
        piece = memoryview(self.payload)[self._at : self._at + _ROUND_BYTES]
        sent = self.socket.send(piece)
        self._at += sent
        if self._at == len(self.payload) and not self._is_once:
            self._at = 0
        return sent


def main() -> None:
    plans = json.loads(sys.stdin.readline())
    selector = selectors.DefaultSelector()
    for plan in plans:
        payload = base64.b64decode(plan["payload"])
        for _ in range(plan["connections"]):
            one = _Connection(plan, payload)
            selector.register(one.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, one)
    _say("flooding")
    stopping = threading.Event()

    def hear_the_end() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=hear_the_end, daemon=True).start()
    sent = closed = 0
    both = selectors.EVENT_READ | selectors.EVENT_WRITE
    gone: deque[tuple[float, _Connection]] = deque()
    while not stopping.is_set():
        while gone and gone[0][0] <= time.monotonic():
            _, former = gone.popleft()
            another = _Connection(former.plan, former.payload)
            selector.register(another.socket, both, another)
        for key, events in selector.select(0.02 if gone else 0.1):
            connection: _Connection = key.data
            try:
                if events & selectors.EVENT_READ:
                    data = connection.socket.recv(_READ_BYTES)
                    if not data or (connection.plan["comes_again"] and b"welcome" in data):
                        raise ConnectionError
                if events & selectors.EVENT_WRITE:
                    sent += connection.write()
                    if connection.is_done:
                        selector.modify(key.fileobj, selectors.EVENT_READ, connection)
            except BlockingIOError:
                continue
            except OSError:
                selector.unregister(key.fileobj)
                connection.socket.close()
                closed += 1
                if connection.plan["comes_again"]:
                    another = _Connection(connection.plan, connection.payload)
                    selector.register(another.socket, both, another)
                elif connection.plan["again_per_s"]:
                    last = gone[-1][0] if gone else 0.0
                    pause_s = 1 / connection.plan["again_per_s"]
                    gone.append((max(last, time.monotonic()) + pause_s, connection))
    _say(json.dumps({"sent_bytes": sent, "closed": closed}))


if __name__ == "__main__":
    main()
