"""An attacker between a node and the others, who changes the messages that they exchange.

The nodes are real, and so are their conversations: proofs are good, sessions are open, epochs and
offsets are those of the moment.  Then one field of a message is changed, or a message comes twice,
too late, never, or behind the end of its connection.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final, Literal

import attrs
import trio

from octopi.environment import Environment, Intake, Link, Net, Turn
from octopi.limits import MESSAGE_BYTES_MAX
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import EVERYWHERE, FOLLOW, MEMBERSHIP
from tests.security.forging import encoded, one_by_one, spoilt

Way = Literal["out", "in"]
"""Seen from the node that somebody stands beside."""

_CLASSES: Final = (
    EVERYWHERE | MEMBERSHIP.to_decider | MEMBERSHIP.back | FOLLOW.to_leader | FOLLOW.back
)
_REMEMBERED: Final = 20
_SHARE: Final = 0.5
"""Of the messages, so many are changed, and fewer of those that open a connection."""


@attrs.define
class Meddler:
    """Changes messages of one node, one after another."""

    randomness: Random
    way: Way
    """In which direction messages are changed."""
    path: str
    """At which endpoint."""
    spares: frozenset[str] = frozenset()
    """Fields that are left as they are."""
    is_active: bool = False
    counts: Counter[str] = attrs.field(factory=Counter)
    """How many messages were changed, by what was done."""
    fields: Counter[type] = attrs.field(factory=Counter)
    """How many fields of messages were changed, by the class of the message."""
    _old: deque[bytes] = attrs.field(factory=lambda: deque(maxlen=_REMEMBERED))
    _held: list[bytes] = attrs.field(factory=list)

    @property
    def count(self) -> int:
        """How many messages were changed."""
        return self.counts.total()

    def beside(self, environment: Environment) -> Environment:
        """*environment*, with somebody between it and the network."""
        return attrs.evolve(environment, net=_Net(environment.net, self))

    def change(self, path: str, way: Way, data: bytes) -> list[bytes]:
        """What comes instead of *data*."""
        if not self.is_active or (path, way) != (self.path, self.way):
            return [data]
        message = decode(data, _CLASSES)
        if isinstance(message, m.Heartbeat):
            return [data]
        held, self._held = self._held, []
        self._old.append(data)
        share = _SHARE / 4 if type(message) in EVERYWHERE else _SHARE
        if self.randomness.random() >= share:
            return [data, *held]
        done = self._do(message, data)
        return [*done, *held]

    def _do(self, message: Any, data: bytes) -> list[bytes]:  # noqa: ANN401
        what = self.randomness.choices(
            ("field", "bytes", "cut", "twice", "never", "late", "again", "behind the end"),
            (70, 5, 2, 5, 5, 5, 5, 3),
        )[0]
        if what == "field":
            return [self._with_other_field(message, data)]
        self.counts[what] += 1
        match what:
            case "bytes":
                return [spoilt(data, self.randomness)]
            case "cut":
                return [data[: self.randomness.randrange(len(data))]]
            case "twice":
                return [data, data]
            case "never":
                return []
            case "late":
                self._held.append(data)
                return []
            case "again":
                return [data, self.randomness.choice(self._old)]
            case _:
                return [encode(m.Goodbye()), data]

    def _with_other_field(self, message: Any, data: bytes) -> bytes:  # noqa: ANN401
        """*message* with one other field: all ends of the types of all fields, in turn."""
        others = list(one_by_one(message, self.spares))
        if not others:
            return data
        changed = others[self.fields[type(message)] % len(others)]
        self.fields[type(message)] += 1
        self.counts["field"] += 1
        return encoded(changed)


class _Net:
    """`octopi.environment.Net`."""

    def __init__(self, net: Net, meddler: Meddler) -> None:
        self._net = net
        self._meddler = meddler

    async def connect(self, url: str, path: str) -> Link:
        return _Link(await self._net.connect(url, path), self._meddler)

    async def listen(
        self,
        address: str,
        handler: Callable[[Link], Awaitable[None]],
        *,
        paths: frozenset[str],
        handler_nursery: trio.Nursery,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        async def handle(link: Link) -> None:
            await handler(_Link(link, self._meddler))

        await self._net.listen(
            address, handle, paths=paths, handler_nursery=handler_nursery, task_status=task_status
        )


class _Link:
    """`octopi.environment.Link`."""

    def __init__(self, link: Link, meddler: Meddler) -> None:
        self._link = link
        self._meddler = meddler
        self._came: deque[bytes] = deque()

    @property
    def peer(self) -> str:
        return self._link.peer

    @property
    def path(self) -> str:
        return self._link.path

    async def send(self, data: bytes) -> None:
        for one in self._meddler.change(self.path, "out", data):
            await self._link.send(one)

    def offer(self, *parts: bytes) -> bool:
        return False

    async def receive(self, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
        while not self._came:
            data = await self._link.receive(bytes_max)
            self._came.extend(self._meddler.change(self.path, "in", data))
        return self._came.popleft()

    async def receive_all(self, take: Callable[[bytes], bool], turn: Turn | None = None) -> None:
        def change(data: bytes) -> bool:
            self._came.extend(self._meddler.change(self.path, "in", data))
            return hand_over()

        def hand_over() -> bool:
            while self._came:
                if not take(self._came.popleft()):
                    return False
            return True

        if hand_over():
            await self._link.receive_all(change, turn)

    def settle(self, *, is_client: bool) -> bool:
        return self._link.settle(is_client=is_client)

    def meter(self, intake: Intake) -> None:
        self._link.meter(intake)

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        await self._link.aclose(code, reason)
