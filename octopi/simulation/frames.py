"""Links that carry whole messages, without WebSocket bytes: the fast tier.

`octopi.environment.Net` and `Link` on simulated connections.  What trio-websocket does to
bytes is not simulated here; `streams` is for that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Final

import trio

from octopi.environment import Link
from octopi.errors import ConnectionLostError, ProtocolError, Status, UnreachableError
from octopi.limits import MESSAGE_BYTES_MAX
from octopi.simulation.host import Life
from octopi.simulation.network import End, Network
from octopi.transport.addresses import host_and_port, listen_address, server_address

_FRAME_BYTES: Final = 14
"""Header of a WebSocket frame, at most (RFC 6455 section 5.2)."""


class FrameNet:
    """`octopi.environment.Net` of one life; a `network.Tier`."""

    def __init__(self, network: Network, life: Life, tasks: trio.Nursery) -> None:
        self._network = network
        self._life = life

    async def connect(self, url: str, path: str) -> Link:
        self._life.check()
        host, port = server_address(url)
        try:
            end = await self._network.connect(self._life, host, port, path)
        except OSError as error:
            raise UnreachableError(f"nobody answers at {url}: {error}") from error
        return FrameLink(self._network, end, f"{host}:{port}", path)

    async def listen(
        self,
        address: str,
        handler: Callable[[Link], Awaitable[None]],
        *,
        paths: frozenset[str],
        handler_nursery: trio.Nursery,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        self._life.check()
        host, port = listen_address(address)
        context = copy_context()  # what comes from the network comes from no task of ours

        def accept(end: End, asked: str) -> str | None:
            if asked not in paths:
                return f"there is no endpoint {asked}"
            peer = f"{end.other.life.host.name}:{end.connection}"
            link = FrameLink(self._network, end, peer, asked)
            context.run(handler_nursery.start_soon, handler, link)
            return None

        try:
            port = self._network.take_address(self._life, host, port, accept)
        except OSError as error:
            raise UnreachableError(f"can't listen at {address}: {error}") from error
        try:
            task_status.started(f"ws://{host_and_port(host, port)}")
            await trio.sleep_forever()
        finally:
            self._network.leave_address(self._life, host, port)


class FrameLink:
    """`octopi.environment.Link` over one simulated connection."""

    def __init__(self, network: Network, end: End, peer: str, path: str) -> None:
        self._network = network
        self._end = end
        self._life = end.life
        self._peer = peer
        self._path = path
        self._is_torn = False
        self._is_closed = False

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def path(self) -> str:
        return self._path

    async def send(self, data: bytes) -> None:
        self._life.effect("send", "before", self._peer)
        end = self._end
        self._is_torn, was_torn = True, self._is_torn
        await trio.lowlevel.checkpoint()
        while not end.has_room and not end.is_broken:
            await end.room.park()
        self._life.check()
        if end.is_broken or end.has_closed or was_torn:
            raise ConnectionLostError(f"the connection to {self._peer} broke")
        self._is_torn = False
        end.put(data, len(data) + _FRAME_BYTES)
        self._life.effect("send", "after", self._peer)

    async def receive(self) -> bytes:
        self._life.check()
        end = self._end
        await trio.lowlevel.checkpoint()
        while not end.inbox:
            if end.is_broken or end.has_closed:
                raise ConnectionLostError(f"the connection to {self._peer} broke")
            if end.is_finished:
                raise ConnectionLostError(f"{self._peer} closed the connection{end.last_word}")
            await end.arrived.park()
        self._life.check()
        data: bytes = end.take()
        self._network.world.fold(data)
        if len(data) > MESSAGE_BYTES_MAX:
            raise ProtocolError(
                f"a message had more than {MESSAGE_BYTES_MAX} bytes", Status.MESSAGE_TOO_LARGE
            )
        return data

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        if self._is_closed or self._life.is_over:
            return
        self._is_closed = True
        if self._is_torn:
            self._end.reset()
        else:
            self._end.finish(f" ({code}): {reason}" if reason else f" ({code})")
        self._end.arrived.unpark_all()
        self._network.forget(self._end)
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
