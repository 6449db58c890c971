"""Links and a network in memory: what WebSocket links do, without sockets and on any clock.

Links carry whole messages, in order.  A fault looks at the messages that pass and breaks the link
around the one that it waits for; `MemoryNet.cut` breaks all links of a node, and `MemoryNet.hang`
has a node say and hear nothing while its links stay open.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import attrs
import trio

from octopi.environment import Intake, Link, Turn
from octopi.errors import ConnectionLostError, ProtocolError, Status, UnreachableError
from octopi.limits import MESSAGE_BYTES_MAX
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode

_EVERYTHING = frozenset(m.MESSAGES.values())

Action = Literal["lose", "break before", "break after", "change"]


@attrs.define(eq=False)
class MessageFault:
    """Strikes messages of one class."""

    message: type
    action: Action
    skip: int = 0
    """This many of them pass first."""
    times: int = 1
    change: Callable[[object], object] | None = None
    struck: int = 0

    def meets(self, message: object) -> bool:
        """Whether it strikes *message*, which is counted if it might."""
        if type(message) is not self.message or self.struck >= self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.struck += 1
        return True


class MemoryLink:
    """One end of a link; see `link_pair` and `MemoryNet.connect`."""

    def __init__(
        self,
        net: MemoryNet,
        owner: str,
        peer: str,
        path: str,
        outgoing: trio.MemorySendChannel[bytes],
        incoming: trio.MemoryReceiveChannel[bytes],
    ) -> None:
        self.owner = owner
        """The node whose end it is; empty: a client's."""
        self.peer = peer
        self.path = path
        self.closed_with: tuple[int, str] | None = None
        """Code and reason of this end's `aclose`."""
        self.other: MemoryLink = self
        self._net = net
        self._outgoing = outgoing
        self._incoming = incoming
        self._taken = trio.lowlevel.ParkingLot()
        """Waits for the other end to take what was sent."""
        self._unread_count = 0
        """Messages that were sent and that the other end's `receive` has not returned: one that a
        task waits for is in no buffer any more, and not taken either."""
        self._arrived: bytes | None = None
        """A message that arrived while the node hung."""
        self._is_torn = False
        self._is_broken = False
        self._is_closed = False

    async def send(self, data: bytes) -> None:
        await self._net.runs(self.owner, self.path)
        if self._is_torn:
            raise ConnectionLostError("the link is torn")
        self._is_torn = True
        await self._net.send(self, data)
        self._is_torn = False

    async def deliver(self, data: bytes) -> None:
        """Have *data* arrive, as soon as there is room for it."""
        self._unread_count += 1
        try:
            await self._outgoing.send(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ConnectionLostError(self._why()) from None

    async def taken(self) -> None:
        """Wait until the other end has taken all that was sent, or the link is closed."""
        while self._unread_count and not self._is_closed:
            await self._taken.park()

    def offer(self, *parts: bytes) -> bool:
        return False

    def settle(self, *, is_client: bool) -> bool:
        return True

    def meter(self, intake: Intake) -> None:
        """It keeps nothing that counts."""

    async def receive_all(self, take: Callable[[bytes], bool], turn: Turn | None = None) -> None:
        while take(await self.receive()):
            pass

    async def receive(self, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
        await self._net.runs(self.owner, self.path)
        try:
            if self._arrived is None:
                self._arrived = await self._incoming.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise ConnectionLostError(self._why()) from None
        await self._net.runs(self.owner, self.path)
        data, self._arrived = self._arrived, None
        if self._is_broken:
            raise ConnectionLostError(self._why())
        self.other._unread_count -= 1
        self.other._taken.unpark_all()
        if len(data) > bytes_max:
            raise ProtocolError(
                f"a message had more than {bytes_max} bytes", Status.MESSAGE_TOO_LARGE
            )
        return data

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close the link; messages sent before still arrive."""
        await self._net.runs(self.owner, self.path)
        if self.closed_with is None:
            self.closed_with = (code, reason)
        self._close()
        await trio.lowlevel.checkpoint()

    def cut(self) -> None:
        """Break the link: what is on its way is lost."""
        for end in (self, self.other):
            end._is_broken = True
            end._close()

    def _close(self) -> None:
        self._outgoing.close()
        self._incoming.close()
        for end in (self, self.other):
            end._is_closed = True
            end._taken.unpark_all()

    def _why(self) -> str:
        if self._is_broken:
            return f"the connection to {self.peer} broke"
        if self.other.closed_with is None:
            return "this end is closed"
        code, reason = self.other.closed_with
        return f"{self.peer} closed the connection ({code}): {reason}"


def link_pair(
    *, capacity: float = math.inf, path: str = "/v1/client"
) -> tuple[MemoryLink, MemoryLink]:
    """Two ends of a link, called ``left`` and ``right``; a send waits while *capacity* messages lie
    unread."""
    return MemoryNet(capacity=capacity).pair("left", "right", path)


class MemoryNet:
    """`octopi.environment.Net` for all nodes and clients of a test."""

    def __init__(self, *, capacity: float = math.inf) -> None:
        """*capacity*: a send waits while so many messages lie unread at the other end."""
        self.links: list[MemoryLink] = []
        """The connecting ends, in the order of `connect`."""
        self.faults: list[MessageFault] = []
        self.passed: list[object] = []
        """Every message so far that wasn't lost, but for heartbeats; as bytes what is none."""
        self.connect_count = 0
        """How often somebody tried to connect."""
        self.unreachable: set[str] = set()
        self._capacity = capacity
        self._listening: dict[str, Callable[[MemoryLink], None]] = {}
        self._next_port = 7000
        self._hung: dict[str, str] = {}
        """Nodes that hang, and on which path; empty: on all."""
        self._resumed = trio.lowlevel.ParkingLot()

    def of(self, owner: str) -> OwnNet:
        """The network as the node *owner* has it."""
        return OwnNet(self, owner)

    def pair(self, owner: str, peer: str, path: str) -> tuple[MemoryLink, MemoryLink]:
        """A link between the nodes *owner* and *peer*: the end of each."""
        to_peer = trio.open_memory_channel[bytes](self._capacity)
        to_owner = trio.open_memory_channel[bytes](self._capacity)
        here = MemoryLink(self, owner, peer, path, to_peer[0], to_owner[1])
        there = MemoryLink(self, peer, owner or "client", path, to_owner[0], to_peer[1])
        here.other, there.other = there, here
        return here, there

    # --- what tests do to it -------------------------------------------------------------

    def fault(
        self,
        message: type,
        action: Action,
        *,
        skip: int = 0,
        times: int = 1,
        change: Callable[[object], object] | None = None,
    ) -> MessageFault:
        """Something goes wrong with the next (or a later) message of that class."""
        fault = MessageFault(message, action, skip, times, change)
        self.faults.append(fault)
        return fault

    def cut(self, url: str) -> None:
        """Break every link to a node."""
        for link in self.links:
            if link.peer == url:
                link.cut()

    def kill(self, url: str) -> None:
        """The node's process is gone, its machine is not: links break, new ones are refused."""
        self._listening.pop(url, None)
        self.cut(url)

    @contextmanager
    def away(self, url: str) -> Iterator[None]:
        """Within the block the node's machine can't be reached, which is no refusal."""
        self.unreachable.add(url)
        self.cut(url)
        yield
        self.unreachable.discard(url)

    @contextmanager
    def hang(self, url: str, path: str = "") -> Iterator[None]:
        """Within the block the node's process stands still, as others see it: its links stay
        open, new ones are accepted, and it neither sends nor receives.  With *path* only there."""
        self._hung[url] = path
        yield
        del self._hung[url]
        self._resumed.unpark_all()

    async def runs(self, owner: str, path: str) -> None:
        """Wait until the node doesn't hang."""
        while owner in self._hung and self._hung[owner] in {"", path}:
            await self._resumed.park()

    def count(self, message: type) -> int:
        """How many messages of that class have passed."""
        return sum(type(one) is message for one in self.passed)

    # --- Net -------------------------------------------------------------------------------

    async def send(self, link: MemoryLink, data: bytes) -> None:
        """Bring *data* to the other end of *link*, or do to it what a fault says."""
        try:
            message: object = decode(data, _EVERYTHING)
        except ProtocolError:
            message = data
        fault = next((one for one in self.faults if one.meets(message)), None)
        if fault is not None and fault.action == "lose":
            return
        if fault is not None and fault.action == "break before":
            link.cut()
            raise ConnectionLostError("broken")
        if fault is not None and fault.change is not None:
            message = fault.change(message)
            data = encode(message)
        await link.deliver(data)
        if type(message) is not m.Heartbeat:
            self.passed.append(message)
        if fault is not None and fault.action == "break after":
            await link.taken()
            link.cut()

    async def connect(self, url: str, path: str, *, owner: str = "") -> Link:
        await trio.lowlevel.checkpoint()
        await self.runs(owner, path)
        self.connect_count += 1
        if url in self.unreachable:
            raise UnreachableError(f"no node answers at {url}")
        if url not in self._listening:
            raise UnreachableError(f"no node answers at {url}") from ConnectionRefusedError()
        here, there = self.pair(owner, url, path)
        self.links.append(here)
        self._listening[url](there)
        return here

    async def listen(
        self,
        address: str,
        handler: Callable[[Link], Awaitable[None]],
        *,
        paths: frozenset[str],
        handler_nursery: trio.Nursery,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        host, _, port = address.partition(":")
        if port == "0":
            self._next_port += 1
            port = str(self._next_port)
        url = f"ws://{host}:{port}"
        if url in self._listening:
            raise UnreachableError(f"can't listen at {address}: another program listens there")

        def accept(link: MemoryLink) -> None:
            if link.path in paths:
                handler_nursery.start_soon(handler, link)
            else:
                handler_nursery.start_soon(link.aclose, 1008, "no such endpoint")

        self._listening[url] = accept
        task_status.started(url)
        try:
            await trio.sleep_forever()
        finally:
            self._listening.pop(url, None)


class OwnNet:
    """`octopi.environment.Net` for one node."""

    def __init__(self, net: MemoryNet, owner: str) -> None:
        self._net = net
        self._owner = owner
        self.listen = net.listen

    async def connect(self, url: str, path: str) -> Link:
        return await self._net.connect(url, path, owner=self._owner)


async def receive_to_end(link: Link) -> list[bytes]:
    """The messages of *link* to its end."""
    messages = []
    while True:
        try:
            messages.append(await link.receive())
        except ConnectionLostError:
            return messages
