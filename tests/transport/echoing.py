"""A listener of ours that suites for WebSocket servers can test: it echoes.

Such suites know neither endpoints nor subprotocols and send text, which nodes refuse.  So they
connect to a relay that asks for our endpoint and subprotocol, and gives text frames as binary
ones and back.  Everything else passes as it is: masks, lengths, fragments, reserved bits,
control frames, the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from octopi.environment import Link
from octopi.errors import ConnectionLostError, ProtocolError
from octopi.operating_system import SystemClock, SystemStreams
from octopi.transport.close_codes import PROTOCOL_ERROR
from octopi.transport.websocket import WebSocketNet
from octopi.wire.endpoints import CLIENT
from octopi.wire.messages import SUBPROTOCOL

_TEXT, _BINARY, _OPCODE = 1, 2, 0x0F


class _FirstBytes:
    """Changes the first byte of each frame in a stream of frames."""

    def __init__(self, change: Callable[[int], int]) -> None:
        self._change = change
        self._head = bytearray()
        self._left_bytes = 0
        """Of the frame that passes now."""

    def feed(self, data: bytes | bytearray) -> bytes:
        """What *data* becomes; an incomplete head is kept."""
        self._head += data
        passed = bytearray()
        while self._head:
            if not self._left_bytes:
                size_bytes = self._frame_bytes()
                if size_bytes is None:
                    break
                self._left_bytes = size_bytes
                self._head[0] = self._change(self._head[0])
            piece = self._head[: self._left_bytes]
            del self._head[: len(piece)]
            passed += piece
            self._left_bytes -= len(piece)
        return bytes(passed)

    def _frame_bytes(self) -> int | None:
        head = self._head
        if len(head) < 2:
            return None
        size_bytes, width = head[1] & 0x7F, 0
        if size_bytes > 125:
            width = 2 if size_bytes == 126 else 8
            if len(head) < 2 + width:
                return None
            size_bytes = int.from_bytes(head[2 : 2 + width], "big")
        return 2 + width + (4 if head[1] & 0x80 else 0) + size_bytes


class _Disguise:
    """Text as binary on its way to the listener; and back, as it echoes in order."""

    def __init__(self) -> None:
        self._opcodes: deque[int] = deque()

    def to_listener(self, first: int) -> int:
        if first & _OPCODE in {_TEXT, _BINARY}:
            self._opcodes.append(first & _OPCODE)
            return first & ~_OPCODE | _BINARY
        return first

    def from_listener(self, first: int) -> int:
        if first & _OPCODE == _BINARY and self._opcodes:
            return first & ~_OPCODE | self._opcodes.popleft()
        return first


async def _echo(link: Link) -> None:
    try:
        while True:
            await link.send(await link.receive())
    except ConnectionLostError:
        await link.aclose()
    except ProtocolError as error:
        await link.aclose(PROTOCOL_ERROR, str(error))


@asynccontextmanager
async def echoing() -> AsyncIterator[str]:
    """Address (``host:port``) of the relay to a listener that echoes, for the block."""
    async with trio.open_nursery() as nursery:
        net = WebSocketNet(SystemStreams(), SystemClock(), nursery)
        listen = partial(
            net.listen,
            "127.0.0.1:0",
            _echo,
            paths=frozenset({CLIENT.path}),
            handler_nursery=nursery,
        )
        url: str = await nursery.start(listen)
        relay = partial(_relay, int(url.rpartition(":")[2]))
        [listener] = await nursery.start(partial(trio.serve_tcp, relay, 0, host="127.0.0.1"))
        yield f"127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def _relay(port: int, client: trio.SocketStream) -> None:
    listener = await trio.open_tcp_stream("127.0.0.1", port)
    async with client, listener:
        head, behind = await _head_of(client)
        head = head.replace(b"GET / ", f"GET {CLIENT.path} ".encode())
        await listener.send_all(head + f"Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n".encode())
        answer, behind_answer = await _head_of(listener)
        kept = [
            line
            for line in answer.splitlines(keepends=True)
            if not line.lower().startswith(b"sec-websocket-protocol")
        ]
        await client.send_all(b"".join(kept) + b"\r\n")
        disguise = _Disguise()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_pass, client, listener, behind, disguise.to_listener)
            nursery.start_soon(_pass, listener, client, behind_answer, disguise.from_listener)


async def _head_of(stream: trio.SocketStream) -> tuple[bytes, bytes]:
    """The head of a request or an answer, without the empty line, and what came behind it."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some()
        assert more, "it went away during the handshake"
        data += more
    head, _, behind = data.partition(b"\r\n\r\n")
    return head + b"\r\n", behind


async def _pass(
    source: trio.SocketStream,
    target: trio.SocketStream,
    first: bytes,
    change: Callable[[int], int],
) -> None:
    frames = _FirstBytes(change)
    try:
        await target.send_all(frames.feed(first))
        async for data in source:
            await target.send_all(frames.feed(data))
        await target.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        for stream in (source, target):
            await trio.aclose_forcefully(stream)
