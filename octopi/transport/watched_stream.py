"""A stream that can be watched, limited and finished, which trio-websocket leaves to its user.

trio-websocket's handshakes wait for ever for a peer that is gone; it has one bound for all
messages; and if it closes a connection whose peer still sends, the last messages are lost.
Knows nothing of WebSocket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

_DRAIN_BYTES: Final = 64 * 1024
_ACCEPTED: Final = b"HTTP/1.1 101 "
_END_OF_HEAD: Final = b"\r\n\r\n"

_T = TypeVar("_T")


class WatchedStream(trio.abc.Stream):
    """A stream with events for two moments: when it has ended (`gone`), and when the reader asks
    for more than the stream lets through (`exhausted`).  trio-websocket's handshakes would wait
    for ever after either.
    """

    def __init__(
        self,
        stream: trio.abc.HalfCloseableStream,
        *,
        bytes_max: int | None = None,
        holds_behind_head: bool = False,
    ) -> None:
        """*bytes_max*: let no more bytes than this through before `limit` or `lift` is called.
        *holds_behind_head*: if the peer's answer accepts an upgrade, let only its head through."""
        self._stream = stream
        self._head: bytearray | None = bytearray() if holds_behind_head else None
        self._bytes_left = bytes_max
        self._unread: deque[bytes] = deque()
        self._is_discarding = False
        self._decided = trio.lowlevel.ParkingLot()
        self.exhausted = trio.Event()
        """Set when all that may pass was received, and the reader asks for more."""
        self._is_reading = False
        self._is_finishing = False
        self._read_ended = trio.lowlevel.ParkingLot()
        self.gone: Final = trio.Event()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._is_finishing:
            await trio.lowlevel.checkpoint()
            return b""
        while self._bytes_left == 0 and not self._is_discarding:
            self.exhausted.set()
            await self._decided.park()
        if self._is_discarding:
            while await self._read(_DRAIN_BYTES):
                pass
            return b""
        if self._unread:
            await trio.lowlevel.checkpoint()
            data: bytes | bytearray = self._unread.popleft()
        elif self._bytes_left is None:
            return self._up_to_end_of_head(await self._read(max_bytes))
        else:
            data = await self._read(min(self._bytes_left, max_bytes or self._bytes_left))
        if self._bytes_left is not None:  # else the limit was lifted meanwhile
            self._bytes_left = max(0, self._bytes_left - len(data))
        return data

    def _up_to_end_of_head(self, data: bytes | bytearray) -> bytes | bytearray:
        """The part of *data* that belongs to the head of the answer; the rest is held."""
        if self._head is None:
            return data
        self._head += data
        if not self._head.startswith(_ACCEPTED[: len(self._head)]):
            self._head = None  # a refusal may have a body, and there is no link behind it
            return data
        end = self._head.find(_END_OF_HEAD)
        if end < 0:
            return data
        held = self._head[end + len(_END_OF_HEAD) :]
        self._head = None
        self.unread(b"", bytes(held))
        return data[: len(data) - len(held)]

    def release(self) -> tuple[trio.abc.HalfCloseableStream, bytes]:
        """The bare stream, and the bytes that were received on it and not let through.  This
        stream must not be used any more."""
        return self._stream, b"".join(self._unread)

    def unread(self, first: bytes, rest: bytes) -> None:
        """Put bytes back that were received.  *first* is received next, alone; *rest*, which may
        be empty, only after `limit` or `lift`."""
        self._unread.extend(piece for piece in (first, rest) if piece)
        self.limit(len(first))

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit to what is let through."""
        return self._bytes_left is not None

    def limit(self, bytes_max: int) -> None:
        """Let no more than *bytes_max* through from now on."""
        self._bytes_left = bytes_max
        self.exhausted = trio.Event()
        self._decided.unpark_all()

    def lift(self) -> None:
        """Let everything through from now on."""
        self._bytes_left = None
        self._decided.unpark_all()

    def discard(self) -> None:
        """Let nothing more through: drop what is received until the peer ends the stream."""
        self._is_discarding = True
        self._decided.unpark_all()

    async def _read(self, max_bytes: int | None) -> bytes | bytearray:
        self._is_reading = True
        try:
            data = await self._stream.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.gone.set()
            raise
        finally:
            self._is_reading = False
            self._read_ended.unpark_all()
        if not data:
            self.gone.set()
        return data

    async def finish(self) -> None:
        """End our direction, then receive and drop bytes until the peer ends the stream, too.

        If we closed the stream while the peer still sends, its system would discard our last
        message.  trio-websocket's reader may still be reading; it gets the end of the stream.
        """
        try:
            if not self.gone.is_set():
                await self._stream.send_eof()
            self._is_finishing = True
            if self._is_reading:
                await self._read_ended.park()
            while not self.gone.is_set():
                await self._read(_DRAIN_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            return

    async def aclose(self) -> None:
        self.gone.set()
        await self._stream.aclose()


async def while_open(stream: WatchedStream, step: Callable[[], Awaitable[_T]]) -> _T | None:
    """The result of *step*, or None if *stream* ends first."""
    result = None
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await stream.gone.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        result = await step()
        nursery.cancel_scope.cancel()
    return result
