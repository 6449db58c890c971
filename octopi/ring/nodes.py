"""Brokers as the ring knows them."""

from __future__ import annotations

import attrs

from octopi.agreement.values import AcceptorId
from octopi.identifiers import BrokerId, DirectoryId, Incarnation, RingPoint


@attrs.frozen
class RingNode:
    """A broker, and its place on the ring."""

    broker: BrokerId
    directory: DirectoryId
    """A broker that comes back with an empty disk has another directory, and is another node."""
    point: RingPoint
    host: str
    """The label of its machine; empty: it is the only broker there."""
    address: str
    incarnation: Incarnation
    """Of its directory: a node with a higher one is the same node, restarted since."""

    @property
    def place(self) -> tuple[int, int]:
        """What the order of the ring is by.  Two that join at once may choose the same point; then
        their ids decide."""
        return self.point, self.broker

    @property
    def identity(self) -> AcceptorId:
        """What stays the same when the broker is restarted, perhaps at another address."""
        return AcceptorId(self.broker, self.directory)

    def is_same(self, other: RingNode) -> bool:
        """Whether *other* is this node, perhaps of another incarnation."""
        return self.identity == other.identity


def key_place(key: int) -> tuple[int, int]:
    """The place of *key*: before all nodes at that point."""
    return key, 0
