"""Points on the ring: numbers of 52 bits, which follow each other clockwise, and 0 the last one.

52 bits are exact in the numbers of a browser, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeVar

from octopi.identifiers import PartitionId, RingPoint
from octopi.limits import POINT_DRAWS, RING_BITS

_T = TypeVar("_T", int, tuple[int, int])

RING_SIZE: Final = 1 << RING_BITS

_GOLDEN: Final = 0x9E3779B97F4A7
"""The ring's size divided by the golden ratio.  Its multiples are spread evenly, however many there
are (D. Knuth, "The Art of Computer Programming", volume 3, section 6.4), and it is odd, so no two
partitions share a key."""


def partition_key(partition: PartitionId) -> RingPoint:
    """The key of *partition*.  It does not depend on how many partitions there are."""
    return RingPoint(partition * _GOLDEN % RING_SIZE)


def distance(origin: int, point: int) -> int:
    """How far it is clockwise from *origin* to *point*, from 0 to `RING_SIZE` - 1."""
    return (point - origin) % RING_SIZE


def is_between(low: _T, item: _T, high: _T) -> bool:
    """Whether *item* is passed on the way clockwise from *low* to *high*, which both don't count.
    If *low* is *high*, the way is once around."""
    if low < high:
        return low < item and item < high
    return (low < item or item < high) and item not in {low, high}


def choose_point(taken: Collection[int], draw: Callable[[], float]) -> RingPoint:
    """The point of a broker that joins a ring with the points *taken*: of 8 random points the one
    in the longest arc, and of that arc the middle.  *draw* gives random numbers from 0 to 1.

    The largest share of the keys is then about 1.6 times the mean; at random points it would be
    four times the mean in a ring of a thousand brokers.
    """
    draws = [int(draw() * RING_SIZE) for _ in range(POINT_DRAWS)]
    if not taken:
        return RingPoint(draws[0])
    low, length = max((arc_around(point, taken) for point in draws), key=lambda arc: arc[1])
    return RingPoint((low + length // 2) % RING_SIZE)


def arc_around(point: int, taken: Collection[int]) -> tuple[int, int]:
    """The arc between two neighbours of *taken* in which *point* lies: where it begins, and its
    length.  One point alone has the whole ring."""
    low = min(taken, key=lambda one: distance(one, point))
    return low, min(distance(low, one) or RING_SIZE for one in taken)
