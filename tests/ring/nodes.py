"""Nodes for tests."""

from __future__ import annotations

from octopi.identifiers import BrokerId, DirectoryId, Incarnation, RingPoint
from octopi.wire.ring import RingNode


def node(broker: int, *, point: int | None = None, host: str = "") -> RingNode:
    """A broker; *point*: its id, if None."""
    return RingNode(
        BrokerId(broker),
        DirectoryId(f"{broker:02x}"),
        RingPoint(broker if point is None else point),
        host,
        f"ws://b{broker}:9101",
        Incarnation(1),
    )
