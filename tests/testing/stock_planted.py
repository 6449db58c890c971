"""A program that states properties, most of which don't come to pass."""

from __future__ import annotations

from octopi import properties
from octopi.properties import always, reachable, sometimes


def sell(count: int) -> None:
    """Sell *count* of a hundred hats."""
    left = 100 - count
    if left < 10:
        sometimes(left == 0, "the last one is sold")
        reachable("more is ordered")
    if count < 0:
        properties.unreachable("a negative number")
    always(left >= 0, "the stock is no debt")
    properties.reachable(name="something is sold")
