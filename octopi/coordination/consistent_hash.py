"""Which partition a topic lives on.

Consistent hashing (Karger et al., 1997): every partition owns many points of a circle,
a topic belongs to the partition of the first point at or behind its own.  A partition
that is added takes topics from all others, about their fair share, and no topic moves
between old ones.
"""

from __future__ import annotations

from bisect import bisect_left
from hashlib import blake2b
from typing import Final

from octopi.identifiers import PartitionId, TopicName

POINTS_PER_PARTITION: Final = 128
"""With 128 points, shares differ by about 10 %.  The difference shrinks with the square root of the
number of points."""


class HashCircle:
    """Partitions 0 to *partition_count* - 1 on the circle of 64-bit numbers."""

    def __init__(self, partition_count: int) -> None:
        assert partition_count > 0
        self.partition_count = partition_count
        points = sorted(
            (_point(f"{partition}/{index}"), partition)
            for partition in range(partition_count)
            for index in range(POINTS_PER_PARTITION)
        )
        self._points = [point for point, _ in points]
        self._owners = [PartitionId(partition) for _, partition in points]

    def partitions(self, topic: TopicName, count: int) -> list[PartitionId]:
        """*count* different partitions for *topic*, in the order of the circle."""
        assert 0 < count <= self.partition_count
        at = bisect_left(self._points, _point(topic))
        found: dict[PartitionId, None] = {}
        while len(found) < count:
            found[self._owners[at % len(self._owners)]] = None
            at += 1
        return list(found)


def _point(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
