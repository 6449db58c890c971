"""How long requests take: one histogram for each kind of request.

This module only counts; each request costs a look-up and two additions.  The caller measures the
durations and writes the exposition format.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Final

BOUNDS_S: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
"""Upper bounds of the buckets (s, inclusive); one more bucket counts longer durations."""


class Histogram:
    """Counts durations by bucket."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """The count of each bucket alone, not cumulative."""
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """The buckets as Prometheus has them: upper bound, and the count of all up to it."""
        bounds = (*map(str, BOUNDS_S), "+Inf")
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class Latencies:
    """The histograms of a node, by class of request."""

    def __init__(self) -> None:
        self.by_request: dict[type, Histogram] = {}

    def observe(self, request: type, seconds: float) -> None:
        """Count a request of class *request* that was answered after *seconds*."""
        histogram = self.by_request.get(request)
        if histogram is None:
            histogram = self.by_request[request] = Histogram()
        histogram.observe(seconds)
