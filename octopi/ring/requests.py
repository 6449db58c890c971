"""What a broker of the ring waits for: the requests that are not answered yet."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from octopi.ring.lookup import Lookup
from octopi.ring.nodes import RingNode


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


AwaitedOfNode: TypeAlias = Stabilising | AskingCandidate | CheckingPredecessor | Probing | LookingUp
Awaited: TypeAlias = AwaitedOfNode | Meeting


@attrs.frozen
class OpenRequest:
    """A request that was sent."""

    awaited: Awaited
    until: float
    """Then it counts as not answered."""
