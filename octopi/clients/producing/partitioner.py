"""Chooses the partition for a message.

A message with a key goes to the partition at index ``crc32(key) % count`` of the topic's list, so
that all messages of a key keep their order; any client in any language can compute it.  Messages
without a key go to one partition until its batch is full, then to the next, so that batches fill.
"""

from __future__ import annotations

from zlib import crc32


def place_for_key(key: bytes, count: int) -> int:
    """The index of *key* in a list of *count* partitions (from 0)."""
    return crc32(key) % count


class StickyPartitioner:
    """Chooses partitions, as indexes, for messages without a key."""

    def __init__(self, count: int, first: int) -> None:
        self._count = count
        self.place = first % count
        """The index of the partition for messages without a key now."""

    def move_on(self) -> int:
        """The batch of this partition is full: take the next index, and return it."""
        self.place = (self.place + 1) % self._count
        return self.place
