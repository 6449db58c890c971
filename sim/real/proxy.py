"""The network between the nodes of a test, with its faults.

Every node is reached through a proxy that lives in the test's process.  Which node a
connection comes from is read from the system's table of sockets, so each direction between
each two nodes can be cut off on its own.  A cut direction holds what is sent into it, as TCP
would: after the fault it arrives, late, unless the connection was reset.  The end of a
connection is held back, too: behind a cut nobody notices that a process died.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeAlias

import trio

CLIENT: Final = "client"
"""Whoever connects and is no node."""

Way: TypeAlias = tuple[str, str]
"""One direction: from a name, to a name."""

_CHUNK_BYTES: Final = 64 * 1024
_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of no time at all: closing sends a reset."""
_ESTABLISHED: Final = "01"


class ProxyNetwork:
    """Proxies to nodes, and the directions that are cut off now."""

    def __init__(self, nursery: trio.Nursery, pids: Callable[[], dict[str, int]]) -> None:
        """*pids*: the processes of the nodes, by name, as they are now."""
        self._nursery = nursery
        self._pids = pids
        self._cut: Counter[Way] = Counter()
        self._healed = trio.Event()
        self._connections: dict[trio.CancelScope, Way] = {}

    async def open(self, name: str, port: int) -> str:
        """A proxy to the node *name*, which listens at *port*; return the url to use."""
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def connect(stream: trio.SocketStream) -> None:
            await self._connect(stream, name, port)

        self._nursery.start_soon(trio.serve_listeners, connect, [listener])
        return f"ws://127.0.0.1:{listener.socket.getsockname()[1]}"

    # --- faults ------------------------------------------------------------------------

    def cut(self, ways: Iterable[Way]) -> None:
        """Let nothing through in these directions until as many calls of `heal`."""
        self._cut.update(ways)

    def heal(self, ways: Iterable[Way]) -> None:
        """Take one cut of each direction back; what was held arrives."""
        self._cut.subtract(ways)
        self._cut = +self._cut
        self._healed.set()
        self._healed = trio.Event()

    def reset(self, ways: Iterable[Way]) -> None:
        """Reset the connections that run in these directions; what they held is lost."""
        wanted = set(ways)
        for scope, (source, target) in list(self._connections.items()):
            if (source, target) in wanted or (target, source) in wanted:
                scope.cancel()

    # --- one connection ----------------------------------------------------------------

    async def _passable(self, source: str, target: str) -> None:
        while self._cut[source, target]:
            await self._healed.wait()

    async def _connect(self, near: trio.SocketStream, target: str, port: int) -> None:
        source = self._owner(near.socket.getpeername()[1])
        with trio.CancelScope() as scope:
            self._connections[scope] = (source, target)
            far: trio.SocketStream | None = None
            try:
                await self._passable(source, target)
                await self._passable(target, source)
                far = await trio.open_tcp_stream("127.0.0.1", port)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, near, far, source, target)
                    nursery.start_soon(self._pump, far, near, target, source)
            except OSError:
                scope.cancel()  # nobody listens there
            finally:
                del self._connections[scope]
                for stream in (near, far):
                    if stream is not None:
                        if scope.cancel_called:
                            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
                        stream.socket.close()

    async def _pump(
        self, stream: trio.SocketStream, into: trio.SocketStream, source: str, target: str
    ) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            while data := await stream.receive_some(_CHUNK_BYTES):
                await self._passable(source, target)
                await into.send_all(data)
        await self._passable(source, target)
        with contextlib.suppress(trio.BrokenResourceError):
            await into.send_eof()

    def _owner(self, port: int) -> str:
        """The node whose socket on this machine has *port*, or `CLIENT`."""
        inode = _inode(port)
        for name, pid in self._pids().items():
            with contextlib.suppress(OSError):  # it may die while we look
                for link in Path(f"/proc/{pid}/fd").iterdir():
                    with contextlib.suppress(OSError):
                        if os.readlink(link) == f"socket:[{inode}]":
                            return name
        return CLIENT


def _inode(port: int) -> str:
    """The socket on this machine with local *port*, as its inode's number."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _ESTABLISHED and int(fields[1].split(":")[1], 16) == port:
            return fields[9]
    return ""


def both_ways(ones: Iterable[str], others: Iterable[str]) -> list[Way]:
    """All directions between *ones* and *others*."""
    pairs = [(one, other) for one in ones for other in others if one != other]
    return [*pairs, *((other, one) for one, other in pairs)]
