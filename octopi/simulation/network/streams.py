"""Streams of bytes on simulated connections, and WebSockets over them: the faithful tier.

`SimulatedStreams` is the `octopi.environment.StreamNet` of one process.  `WebSocketTier` runs the
WebSocket code of production on it, unchanged, so that its bytes, its handshakes and its tasks are
part of the run.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from octopi.environment import Listening
from octopi.simulation.kernel.host import HostRandomness, ProcessLife
from octopi.simulation.network.connection import PIECE_BYTES, End
from octopi.simulation.network.message_links import IN_PLACE_BYTES_MIN
from octopi.simulation.network.network import Network
from octopi.transport.addresses import host_and_port
from octopi.transport.receive_buffers import ReceiveBuffers
from octopi.transport.websocket import WebSocketNet

_RECEIVE_BYTES: Final = 64 * 1024
"""The most bytes that one call receives by default."""


class SimulatedStream(trio.abc.HalfCloseableStream):
    """One end of a connection, as a stream of bytes."""

    def __init__(self, end: End, peer: str) -> None:
        self._end = end
        self._life = end.life
        self._peer = peer
        self._rest = b""
        """The bytes that arrived beyond the limit of the last call."""
        self._is_sending = False
        self._is_receiving = False
        self._sent_eof = False
        self._is_closed = False

    def __str__(self) -> str:
        return self._peer

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with self._sending():
            await trio.lowlevel.checkpoint()
            self._life.effect("send", "before", self._peer)
            if self._life.is_paused:
                await trio.lowlevel.cancel_shielded_checkpoint()
            self._check_sending()
            rest = bytes(data)
            if not self._end.path and rest.startswith(b"GET /"):
                self._end.path = rest[4 : rest.index(b" ", 4)].decode()
            while rest:
                await self._wait_for_room()
                self._end.put_bytes(rest[:PIECE_BYTES])
                rest = rest[PIECE_BYTES:]
            self._life.effect("send", "after", self._peer)

    async def wait_send_all_might_not_block(self) -> None:
        with self._sending():
            await trio.lowlevel.checkpoint()
            self._check_sending()
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        while not self._end.has_room:
            await self._end.room.park()
            self._check_sending()

    def _check_sending(self) -> None:
        self._life.check()
        if self._is_closed or self._sent_eof:
            raise trio.ClosedResourceError("this side of the stream is closed")
        if self._end.is_gone:
            raise trio.BrokenResourceError("the connection was reset")

    async def send_eof(self) -> None:
        with self._sending():
            await trio.lowlevel.checkpoint()
            self._life.check()
            if self._is_closed:
                raise trio.ClosedResourceError("the stream is closed")
            self._sent_eof = True
            self._end.finish()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        bytes_max = _RECEIVE_BYTES if max_bytes is None else operator.index(max_bytes)
        if bytes_max < 1:
            raise ValueError("max_bytes must be at least 1")
        if self._is_receiving:
            raise trio.BusyResourceError("another task receives from this stream")
        self._is_receiving = True
        try:
            await self._wait_for_news()
        finally:
            self._is_receiving = False
        self._life.check()
        if self._is_closed:
            raise trio.ClosedResourceError("the stream is closed")
        data = self._take(bytes_max)
        if not data and not self._end.is_finished:
            raise trio.BrokenResourceError("the connection was reset")
        self._life.host.world.fold(data)
        return data

    async def _wait_for_news(self) -> None:
        """Wait until there are bytes to take, or until none will arrive."""
        end = self._end
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._rest or end.inbox or end.is_finished or end.is_gone:
            await trio.lowlevel.cancel_shielded_checkpoint()
        # `aclose` closes the end, which wakes the task that waits here.
        while not (self._rest or end.inbox or end.is_finished or end.is_gone):
            await end.arrived.park()

    def _take(self, bytes_max: int) -> bytes:
        data = self._rest
        while self._end.inbox and len(data) < bytes_max:
            data += self._end.take()
        self._rest = data[bytes_max:]
        return data[:bytes_max]

    async def aclose(self) -> None:
        if not self._is_closed and not self._life.is_over:
            self._is_closed = True
            self._end.close(leaves_unread=bool(self._rest))
        await trio.lowlevel.checkpoint()

    @contextmanager
    def _sending(self) -> Iterator[None]:
        if self._is_sending:
            raise trio.BusyResourceError("another task sends on this stream")
        self._is_sending = True
        try:
            yield
        finally:
            self._is_sending = False


class SimulatedListener(trio.abc.Listener[SimulatedStream]):
    """Accepts the connections to one port."""

    def __init__(self, network: Network, life: ProcessLife) -> None:
        self._network = network
        self._life = life
        self._port = 0
        self._arrivals, self._waiting = trio.open_memory_channel[End](math.inf)

    def take_address(self, host: str, port: int) -> int:
        """Begin to listen, and return the port; 0 picks a free one.

        Raises:
          OSError: if the port is taken, or *host* is another host.
        """
        self._port = self._network.take_address(self._life, host, port, self._arrivals.send_nowait)
        return self._port

    async def accept(self) -> SimulatedStream:
        end = await self._waiting.receive()
        self._life.check()
        return SimulatedStream(end, host_and_port(end.other.life.host.name, end.connection))

    async def aclose(self) -> None:
        self._network.leave_address(self._life, self._port)
        self._arrivals.close()
        while self._waiting.statistics().current_buffer_used:
            self._waiting.receive_nowait().reset()
        self._waiting.close()
        await trio.lowlevel.checkpoint()


class SimulatedStreams:
    """The `octopi.environment.StreamNet` of one process."""

    def __init__(self, network: Network, life: ProcessLife) -> None:
        self._network = network
        self._life = life

    async def connect(self, host: str, port: int) -> trio.abc.HalfCloseableStream:
        self._life.check()
        end = await self._network.connect(self._life, host, port)
        return SimulatedStream(end, host_and_port(host, port))

    async def listen(self, host: str, port: int) -> Listening:
        await trio.lowlevel.checkpoint()
        self._life.check()
        listener = SimulatedListener(self._network, self._life)
        port = listener.take_address(host, port)
        return Listening([listener], port)


class WebSocketTier(WebSocketNet):
    """The `octopi.environment.Net` of one process; a `network.Tier`."""

    def __init__(self, network: Network, life: ProcessLife, tasks: trio.Nursery) -> None:
        super().__init__(
            SimulatedStreams(network, life),
            life.host.clock,
            tasks,
            randomness=HostRandomness(life.host.world, f"{life.host.name} masks", life.number),
            buffers=ReceiveBuffers(IN_PLACE_BYTES_MIN),
        )
