"""What a broker of the ring waits for: the requests that are not answered yet."""

from __future__ import annotations

from math import inf
from typing import TypeAlias, TypeVar

import attrs

from octopi.limits import RING_ANSWER_S
from octopi.ring.lookup import Lookup
from octopi.wire.ring import RingNode


@attrs.frozen
class Stabilising:
    """The first successor is asked for its neighbours."""

    node: RingNode


@attrs.frozen
class AskingCandidate:
    """A broker between this one and its first successor is asked whether it is there."""

    node: RingNode


@attrs.frozen
class CheckingPredecessor:
    """The predecessor is asked whether it is there, since *rival* takes itself for that."""

    node: RingNode
    rival: RingNode


@attrs.frozen
class Probing:
    """A random broker is asked whether it is there."""

    node: RingNode


@attrs.frozen
class Meeting:
    """This broker joins by an address."""

    address: str


@attrs.frozen
class OpenLookup:
    """A look-up without an outcome."""

    lookup: Lookup
    number: int | None
    """None: it is for this broker's own place."""
    until: float


@attrs.frozen
class LookingUp:
    """A broker is asked on the way to a key."""

    node: RingNode
    of: OpenLookup


Awaited: TypeAlias = (
    Stabilising | AskingCandidate | CheckingPredecessor | Probing | Meeting | LookingUp
)
_T = TypeVar("_T", Stabilising, AskingCandidate, CheckingPredecessor, Meeting)


class OpenRequests:
    """The requests that were sent, each with its number and the time when it counts as not
    answered."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Awaited, float]] = {}
        self._last = 0

    @property
    def wakes_at(self) -> float:
        """When the first one is late; inf: none is open."""
        return min((until for _, until in self._open.values()), default=inf)

    def add(self, awaited: Awaited, now: float) -> int:
        """Await the answer to a request; return its number."""
        self._last += 1
        self._open[self._last] = (awaited, now + RING_ANSWER_S)
        return self._last

    def get(self, request: int) -> Awaited | None:
        """What is awaited under a number; None: nothing any more."""
        return self._open.get(request, (None, 0.0))[0]

    def take(self, request: int) -> Awaited | None:
        """The same, and it is awaited no longer."""
        return self._open.pop(request, (None, 0.0))[0]

    def late(self, now: float) -> list[int]:
        """Those that are not answered in time."""
        return [request for request, (_, until) in self._open.items() if until <= now]

    def of(self, kind: type[_T]) -> list[_T]:
        """What is awaited of one *kind*."""
        return [awaited for awaited, _ in self._open.values() if isinstance(awaited, kind)]

    def clear(self) -> None:
        """Await nothing any more."""
        self._open.clear()
