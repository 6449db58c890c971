"""What brokers of the ring send each other."""

from __future__ import annotations

from enum import Enum, unique
from typing import TypeAlias

import attrs

from octopi.identifiers import RingPoint
from octopi.ring.nodes import RingNode


@attrs.frozen
class NodeNews:
    """An entry of an address book, as one broker tells it to another."""

    node: RingNode
    age_s: float
    """How long ago the node was heard.  Clocks are not compared, so it is no time of day."""
    is_silent: bool = False
    """Whether it did not answer since.  It is told all the same: perhaps nobody else knows it, and
    it is on the other side of a split."""


@attrs.frozen
class Meet:
    """To a broker of which perhaps only the address is known: let us exchange our whole address
    books.  Answered by `Met` or `RingRefused`."""

    request: int
    sender: RingNode | None
    """None: it has no point on the ring yet."""
    news: tuple[NodeNews, ...]


@attrs.frozen
class Met:
    """Answer to `Meet`."""

    request: int
    node: RingNode
    is_member: bool
    news: tuple[NodeNews, ...]


@attrs.frozen
class Stabilise:
    """To the first successor: who stands between us?  It tells the successor, too, that *sender*
    takes itself for its predecessor.  Answered by `Neighbours` or `RingRefused`."""

    request: int
    sender: RingNode
    news: tuple[NodeNews, ...]


@attrs.frozen
class Probe:
    """Are you a member of the ring?  Answered by `Neighbours` or `RingRefused`."""

    request: int
    sender: RingNode


@attrs.frozen
class Neighbours:
    """Answer to `Stabilise` and `Probe`."""

    request: int
    node: RingNode
    predecessor: RingNode | None
    successors: tuple[RingNode, ...]
    news: tuple[NodeNews, ...]


@attrs.frozen
class FindHolder:
    """Who holds *key*?  Answered by `HolderAnswer`."""

    request: int
    key: RingPoint


@attrs.frozen
class HolderAnswer:
    """Answer to `FindHolder`: what the asked broker takes for true."""

    request: int
    node: RingNode
    """Who answers."""
    holder: RingNode | None
    """None: who answers stands neither at the key nor before it."""
    successors: tuple[RingNode, ...]
    """Those behind the holder; without a holder, those behind the broker that answers: some of them
    may be dead, which only whoever asks finds out."""
    nearer: tuple[RingNode, ...]
    """Brokers nearer to the key, the nearest first; of a broker that holds the key itself, its
    predecessor."""


@attrs.frozen
class Leave:
    """To the neighbours: *sender* leaves the ring for good, and its neighbours are these."""

    sender: RingNode
    predecessor: RingNode | None
    successors: tuple[RingNode, ...]


@unique
class RingRefusal(Enum):
    """Why a broker does not answer what it is asked."""

    NO_MEMBER = "no member"
    """It is not, or not yet, in the ring."""
    DUPLICATE_BROKER = "duplicate broker"
    """A broker with the id of the one that asks, and another directory, is alive."""
    BROKER_REMOVED = "broker removed"
    """Who asks was removed from the cluster for good."""
    ASK_AGAIN = "ask again"
    """It is being found out whether such a broker is alive."""


@attrs.frozen
class RingRefused:
    """Answer to any request."""

    request: int
    why: RingRefusal


RingRequest: TypeAlias = Meet | Stabilise | Probe | FindHolder
RingAnswer: TypeAlias = Met | Neighbours | HolderAnswer | RingRefused
RingMessage: TypeAlias = RingRequest | RingAnswer | Leave
