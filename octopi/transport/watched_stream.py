"""A stream that can be watched and finished: what trio-websocket leaves to its user.

Its handshakes wait for ever for a peer that is gone, and closing a connection whose peer
still sends loses the last words.  Knows no WebSocket.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

_DRAIN_BYTES: Final = 64 * 1024

_T = TypeVar("_T")


class WatchedStream(trio.abc.Stream):
    """A stream that says when nothing more can come.

    trio-websocket's handshakes wait for ever after that.
    """

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self._stream = stream
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
        return await self._read(max_bytes)

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
