"""Links in memory: what a WebSocket link does, without sockets and on any clock."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import attrs
import trio

from octopi.environment import Intake, Link, Turn
from octopi.errors import ConnectionLostError, ProtocolError, Status, UnreachableError
from octopi.limits import MESSAGE_BYTES_MAX


@attrs.define
class MemoryLink:
    """One end of a pair; see `link_pair`."""

    peer: str
    path: str
    _outgoing: trio.MemorySendChannel[bytes]
    _incoming: trio.MemoryReceiveChannel[bytes]
    closed_with: tuple[int, str] | None = None
    """Code and reason of this end's `aclose`."""
    other: MemoryLink | None = None
    _is_torn: bool = False

    async def send(self, data: bytes) -> None:
        if self._is_torn:
            raise ConnectionLostError("the link is torn")
        self._is_torn = True
        try:
            await self._outgoing.send(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ConnectionLostError(self._why()) from None
        self._is_torn = False

    def offer(self, data: bytes) -> bool:
        return False

    def settle(self, *, is_client: bool) -> bool:
        return True

    def meter(self, intake: Intake) -> None:
        """It keeps nothing that counts."""

    async def receive_all(self, take: Callable[[bytes], bool], turn: Turn | None = None) -> None:
        while take(await self.receive()):
            pass

    async def receive(self, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
        try:
            data = await self._incoming.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise ConnectionLostError(self._why()) from None
        if len(data) > bytes_max:
            raise ProtocolError(
                f"a message had more than {bytes_max} bytes", Status.MESSAGE_TOO_LARGE
            )
        return data

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        if self.closed_with is None:
            self.closed_with = (code, reason)
        self._outgoing.close()
        self._incoming.close()
        await trio.lowlevel.checkpoint()

    def _why(self) -> str:
        if self.other is None or self.other.closed_with is None:
            return "this end is closed"
        code, reason = self.other.closed_with
        return f"{self.peer} closed the connection ({code}): {reason}"


def link_pair(
    *, capacity: float = math.inf, path: str = "/v1/client"
) -> tuple[MemoryLink, MemoryLink]:
    """Two ends of a link; a send waits while *capacity* messages lie unread."""
    there, here = (
        trio.open_memory_channel[bytes](capacity),
        trio.open_memory_channel[bytes](capacity),
    )
    left = MemoryLink("right", path, there[0], here[1])
    right = MemoryLink("left", path, here[0], there[1])
    left.other, right.other = right, left
    return left, right


class MemoryNet:
    """`octopi.environment.Net` of memory links; port 0 picks one."""

    def __init__(self, *, capacity: float = math.inf) -> None:
        self._capacity = capacity
        self._listening: dict[str, trio.MemorySendChannel[MemoryLink]] = {}
        self.links: list[MemoryLink] = []
        """The connecting ends, in the order of `connect`."""

    async def connect(self, url: str, path: str) -> Link:
        await trio.lowlevel.checkpoint()
        if url not in self._listening:
            raise UnreachableError(f"nobody answers at {url}")
        left, right = link_pair(capacity=self._capacity, path=path)
        self.links.append(left)
        self._listening[url].send_nowait(right)
        return left

    async def listen(
        self,
        address: str,
        handler: Callable[[Link], Awaitable[None]],
        *,
        paths: frozenset[str],
        handler_nursery: trio.Nursery,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        url = f"ws://{address}"
        if address.endswith(":0"):
            url = f"ws://{address[:-1]}{len(self._listening) + 1}"
        if url in self._listening:
            raise UnreachableError(f"can't listen at {address}: another program listens there")
        send, receive = trio.open_memory_channel[MemoryLink](math.inf)
        self._listening[url] = send
        task_status.started(url)
        try:
            async for link in receive:
                if link.path in paths:
                    handler_nursery.start_soon(handler, link)
                else:
                    await link.aclose(1008, "no such endpoint")
        finally:
            del self._listening[url]
