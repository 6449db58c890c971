"""A network in memory, and what can go wrong on it.

Links carry whole messages, in order.  A fault looks at the messages that pass and breaks
the link around the one it waits for, once; `MemoryNet.cut` breaks all links of a node, and
`MemoryNet.hang` has a node say and hear nothing while its links stay open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import attrs
import trio

from octopi.environment import Intake, Link, Turn
from octopi.errors import ConnectionLostError, UnreachableError
from octopi.limits import MESSAGE_BYTES_MAX
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode

EVERYTHING = frozenset(m.MESSAGES.values())

Action = Literal["lose", "break before", "break after", "change"]


@attrs.define(eq=False)
class Fault:
    """Strikes messages of one class."""

    message: type
    action: Action
    skip: int = 0
    """So many of them pass first."""
    times: int = 1
    change: Callable[[object], object] | None = None
    struck: int = 0

    def meets(self, message: object) -> bool:
        if type(message) is not self.message or self.struck >= self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.struck += 1
        return True


class MemoryLink:
    """One end of a link."""

    def __init__(self, net: MemoryNet, owner: str, peer: str, path: str) -> None:
        self._net = net
        self.owner = owner
        """The node whose end it is; empty: a client's."""
        self._peer = peer
        self._path = path
        self._inbox: list[bytes] = []
        self._arrived = trio.lowlevel.ParkingLot()
        self._taken = trio.lowlevel.ParkingLot()
        self._is_over = False
        self._is_broken = False
        self.other: MemoryLink = self

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def path(self) -> str:
        return self._path

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        await self._net.runs(self.owner, self._path)
        while len(self.other._inbox) >= 8 and not self._is_over:
            await self._taken.park()
        if self._is_over:
            raise ConnectionLostError(f"the connection to {self._peer} broke")
        await self._net.try_send_encoded(self, data)

    def deliver(self, data: bytes) -> None:
        self.other._inbox.append(data)
        self.other._arrived.unpark_all()

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
        await trio.lowlevel.checkpoint()
        await self._net.runs(self.owner, self._path)
        while not self._inbox or self._is_broken:
            if self._is_over:
                raise ConnectionLostError(f"the connection to {self._peer} broke")
            await self._arrived.park()
            await self._net.runs(self.owner, self._path)
        self.other._taken.unpark_all()
        return self._inbox.pop(0)

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """What was sent still arrives."""
        await self._net.runs(self.owner, self._path)
        self.end(broken=False)

    def end(self, *, broken: bool) -> None:
        """*broken*: what is on its way is lost."""
        for side in (self, self.other):
            side._is_over = True
            side._is_broken = side._is_broken or broken
            side._arrived.unpark_all()
            side._taken.unpark_all()


class MemoryNet:
    """`octopi.environment.Net` for all nodes and clients of a test."""

    def __init__(self) -> None:
        self._handlers: dict[str, tuple[Callable[[Link], Awaitable[None]], trio.Nursery]] = {}
        self._links: dict[str, list[MemoryLink]] = {}
        self._next_port = 7000
        self.faults: list[Fault] = []
        self.passed: list[object] = []
        """Every message so far that wasn't lost, but for heartbeats."""
        self.connect_count = 0
        self.unreachable: set[str] = set()
        self._hung: dict[str, str] = {}
        """Nodes that hang, and on which path; empty: on all."""
        self._resumed = trio.lowlevel.ParkingLot()

    def of(self, owner: str) -> OwnNet:
        """The network as the node *owner* has it."""
        return OwnNet(self, owner)

    def fault(
        self,
        message: type,
        action: Action,
        *,
        skip: int = 0,
        times: int = 1,
        change: Callable[[object], object] | None = None,
    ) -> Fault:
        """Something goes wrong with the next (or a later) message of that class."""
        fault = Fault(message, action, skip, times, change)
        self.faults.append(fault)
        return fault

    def cut(self, url: str) -> None:
        """Break every link of a node."""
        for link in self._links.get(url, []):
            link.end(broken=True)

    def kill(self, url: str) -> None:
        """The node's process is gone, its machine is not: links break, new ones are refused."""
        self._handlers.pop(url, None)
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
        open, new ones are accepted, and nobody hears of it.  With *path* only there."""
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

    async def try_send_encoded(self, link: MemoryLink, data: bytes) -> None:
        message: object = decode(data, EVERYTHING)
        fault = next((one for one in self.faults if one.meets(message)), None)
        if fault is not None and fault.action == "lose":
            return
        if fault is not None and fault.action == "break before":
            link.end(broken=True)
            raise ConnectionLostError("broken")
        if fault is not None and fault.change is not None:
            message = fault.change(message)
            data = encode(message)
        if type(message) is not m.Heartbeat:
            self.passed.append(message)
        link.deliver(data)
        if fault is not None and fault.action == "break after":
            while link.other._inbox:
                await link._taken.park()
            link.end(broken=True)

    async def connect(self, url: str, path: str, *, owner: str = "") -> Link:
        await trio.lowlevel.checkpoint()
        await self.runs(owner, path)
        self.connect_count += 1
        if url in self.unreachable:
            raise UnreachableError(f"nobody answers at {url}")
        if url not in self._handlers:
            raise UnreachableError(f"nobody answers at {url}") from ConnectionRefusedError()
        handler, nursery = self._handlers[url]
        here, there = MemoryLink(self, owner, url, path), MemoryLink(self, url, "client", path)
        here.other, there.other = there, here
        self._links.setdefault(url, []).append(here)
        nursery.start_soon(handler, there)
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
        if url in self._handlers:
            raise UnreachableError(f"{address} is taken")
        self._handlers[url] = (handler, handler_nursery)
        task_status.started(url)
        try:
            await trio.sleep_forever()
        finally:
            self._handlers.pop(url, None)


class OwnNet:
    """`octopi.environment.Net` for one node."""

    def __init__(self, net: MemoryNet, owner: str) -> None:
        self._net = net
        self._owner = owner
        self.listen = net.listen

    async def connect(self, url: str, path: str) -> Link:
        return await self._net.connect(url, path, owner=self._owner)
