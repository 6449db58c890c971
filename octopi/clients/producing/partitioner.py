"""Which of a topic's partitions a message goes to.

With a key: the partition at place ``crc32(key) % count`` of the topic's list, so that all
messages of a key keep their order; any client in any language can compute it.  Without:
one partition until its batch is full, then the next, so that batches fill.
"""

from __future__ import annotations

from zlib import crc32


def place_for_key(key: bytes, count: int) -> int:
    """The place in a list of *count* partitions that *key* belongs to (from 0)."""
    return crc32(key) % count


class StickyPartitioner:
    """Places for messages without a key."""

    def __init__(self, count: int, first: int) -> None:
        self._count = count
        self.place = first % count
        """Where messages without a key go now."""

    def move_on(self) -> int:
        """The batch there was closed: take the next place, and return it."""
        self.place = (self.place + 1) % self._count
        return self.place
