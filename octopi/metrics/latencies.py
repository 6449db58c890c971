"""How long requests take: one histogram for each kind of request.

In charge of counting, for the price of a look-up and two additions a request.  Knows no
clock and no exposition format.
"""

from __future__ import annotations

from bisect import bisect_left
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
"""Upper bounds of the buckets (s, inclusive); one more bucket has what took longer."""


class Histogram:
    """Counts durations by bucket."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """By bucket, not added up."""
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


class Latencies:
    """The histograms of a node, by class of request."""

    def __init__(self) -> None:
        self.by_request: dict[type, Histogram] = {}

    def observe(self, request: type, seconds: float) -> None:
        """A *request* was answered after so long."""
        histogram = self.by_request.get(request)
        if histogram is None:
            histogram = self.by_request[request] = Histogram()
        histogram.observe(seconds)
