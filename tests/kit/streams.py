"""Streams of bytes in memory: what TCP does, without sockets and on any clock."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable

import trio
from trio.testing import memory_stream_pair

from octopi.environment import Listening

Stream = trio.abc.HalfCloseableStream
Pair = Callable[[], tuple[Stream, Stream]]


class MemoryListener(trio.abc.Listener[Stream]):
    """Accepts what `MemoryStreams.connect` makes."""

    def __init__(self) -> None:
        self.arrivals, self._waiting = trio.open_memory_channel[Stream](math.inf)

    async def accept(self) -> Stream:
        return await self._waiting.receive()

    async def aclose(self) -> None:
        self.arrivals.close()
        self._waiting.close()
        await trio.lowlevel.checkpoint()


class MemoryStreams:
    """`octopi.environment.StreamNet` of one machine, whatever hosts it is asked for."""

    def __init__(self, pair: Pair = memory_stream_pair) -> None:
        self._pair = pair
        self._listeners: dict[int, MemoryListener] = {}

    async def connect(self, host: str, port: int) -> Stream:
        await trio.lowlevel.checkpoint()
        ours, theirs = self._pair()
        try:
            self._listeners[port].arrivals.send_nowait(theirs)
        except (KeyError, trio.ClosedResourceError):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused") from None
        return ours

    async def listen(self, host: str, port: int) -> Listening:
        await trio.lowlevel.checkpoint()
        if port in self._listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        chosen = port or 1000 + len(self._listeners)
        self._listeners[chosen] = MemoryListener()
        return Listening([self._listeners[chosen]], chosen)


async def read_to_end(stream: trio.abc.ReceiveStream) -> bytes:
    """All that comes until the other side ends the stream."""
    data = b""
    while more := await stream.receive_some():
        data += more
    return data
