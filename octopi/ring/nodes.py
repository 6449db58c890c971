"""Where keys stand among the brokers of the ring (`octopi.wire.ring.RingNode`)."""

from __future__ import annotations


def key_place(key: int) -> tuple[int, int]:
    """The place of *key*: before all nodes at that point."""
    return key, 0
