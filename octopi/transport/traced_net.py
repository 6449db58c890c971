"""A net that tells an observer of each whole message that its links send and receive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Protocol

import trio

from octopi.environment import Intake, Link, Net, Turn
from octopi.limits import MESSAGE_BYTES_MAX
from octopi.wire.endpoints import CLIENT


class MessageObserver(Protocol):
    """Is told of the messages of a node; doesn't wait, and raises nothing."""

    def opened(self, link: int, peer: str, path: str, *, is_ours: bool) -> None:
        """The link with this number, from 0, is open to *peer*.  *is_ours*: this node has opened
        it, to an endpoint of theirs."""

    def sent(self, link: int, data: bytes, *, is_first: bool) -> None:
        """A whole message was handed to the system, or will be as soon as there is room.
        *is_first*: it is the first one that this side sends."""

    def received(self, link: int, data: bytes | memoryview, *, is_first: bool) -> None:
        """A whole message has arrived, and is about to be taken.  *is_first*: none came before."""


class TracedNet:
    """`octopi.environment.Net` that does what another one does, and tells an observer.

    Links that the node itself opens as a client, for its pages and for the cluster's history, are
    left out.
    """

    def __init__(self, net: Net, observer: MessageObserver) -> None:
        self._net = net
        self._observer = observer
        self._numbers = count()

    async def connect(self, url: str, path: str) -> Link:
        """See `octopi.environment.Net.connect`."""
        link = await self._net.connect(url, path)
        return link if path == CLIENT.path else self._traced(link, is_ours=True)

    async def listen(
        self,
        address: str,
        handler: Callable[[Link], Awaitable[None]],
        *,
        paths: frozenset[str],
        handler_nursery: trio.Nursery,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """See `octopi.environment.Net.listen`."""
        await self._net.listen(
            address,
            partial(self._handle, handler),
            paths=paths,
            handler_nursery=handler_nursery,
            task_status=task_status,
        )

    async def _handle(self, handler: Callable[[Link], Awaitable[None]], link: Link) -> None:
        await handler(self._traced(link, is_ours=False))

    def _traced(self, link: Link, *, is_ours: bool) -> _TracedLink:
        number = next(self._numbers)
        self._observer.opened(number, link.peer, link.path, is_ours=is_ours)
        return _TracedLink(link, number, self._observer)


class _TracedLink:
    """`octopi.environment.Link` around another one."""

    def __init__(self, link: Link, number: int, observer: MessageObserver) -> None:
        self._link = link
        self._number = number
        self._observer = observer
        self._has_sent = self._has_received = False

    @property
    def peer(self) -> str:
        return self._link.peer

    @property
    def path(self) -> str:
        return self._link.path

    async def send(self, data: bytes) -> None:
        self._sent(data)
        await self._link.send(data)

    def offer(self, *parts: bytes) -> bool:
        is_sent = self._link.offer(*parts)
        if is_sent:  # else it is passed to `send` next
            self._sent(b"".join(parts))
        return is_sent

    async def receive(self, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
        data = await self._link.receive(bytes_max)
        self._received(data)
        return data

    async def receive_all(
        self, take: Callable[[bytes | memoryview], bool], turn: Turn | None = None
    ) -> None:
        def observed(data: bytes | memoryview) -> bool:
            self._received(data)
            return take(data)

        await self._link.receive_all(observed, turn)

    def settle(self, *, is_client: bool) -> bool:
        return self._link.settle(is_client=is_client)

    def meter(self, intake: Intake) -> None:
        self._link.meter(intake)

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        await self._link.aclose(code, reason)

    def _sent(self, data: bytes) -> None:
        self._observer.sent(self._number, data, is_first=not self._has_sent)
        self._has_sent = True

    def _received(self, data: bytes | memoryview) -> None:
        self._observer.received(self._number, data, is_first=not self._has_received)
        self._has_received = True
