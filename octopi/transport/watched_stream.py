"""A stream that can be watched, limited and finished: what trio-websocket leaves to its user.

Its handshakes wait for ever for a peer that is gone, it has one bound for all messages, and
closing a connection whose peer still sends loses the last words.  Knows no WebSocket.
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
    """A stream that says when nothing more can come, and when more came than it lets through.

    trio-websocket's handshakes wait for ever after that.
    """

    def __init__(
        self,
        stream: trio.abc.HalfCloseableStream,
        *,
        bytes_max: int | None = None,
        holds_behind_head: bool = False,
    ) -> None:
        """*bytes_max*: let no more than that through before `limit` or `lift`.
        *holds_behind_head*: of an answer that accepts an upgrade only let the head through."""
        self._stream = stream
        self._head: bytearray | None = bytearray() if holds_behind_head else None
        self._bytes_left = bytes_max
        self._unread: deque[bytes] = deque()
        self._is_discarding = False
        self._decided = trio.lowlevel.ParkingLot()
        self.exhausted = trio.Event()
        """As much came through as may, and more is asked for."""
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
        if self._bytes_left is not None:  # else lifted meanwhile
            self._bytes_left = max(0, self._bytes_left - len(data))
        return data

    def _up_to_end_of_head(self, data: bytes | bytearray) -> bytes | bytearray:
        """As much of *data* as belongs to the head that is waited for; the rest is held."""
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
        """The bare stream, and what came on it and was not let through.  The caller sees to it
        that nobody uses this one any more."""
        return self._stream, b"".join(self._unread)

    def unread(self, first: bytes, rest: bytes) -> None:
        """Have what was received received again: *first* alone, and *rest*, which may be empty,
        not before `limit` or `lift`."""
        self._unread.extend(piece for piece in (first, rest) if piece)
        self.limit(len(first))

    @property
    def is_limited(self) -> bool:
        """Whether only so much is let through."""
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
        """Let nothing more through: what comes is thrown away until the peer is done."""
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
        """Say that we are done, and throw away what comes until the peer is done, too.

        Closing while the peer still sends would make its system throw away what we said
        last.  trio-websocket's reader may or may not read on by itself; it is told that
        the stream ended.
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
