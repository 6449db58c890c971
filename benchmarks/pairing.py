"""In which order systems take their turns, and what is made of their figures.

The speed of a machine drifts.  Systems that take turns within a round are compared within it, so
that drift hits all of them alike.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Mapping, Sequence

import attrs


@attrs.frozen
class Quartiles:
    """The median of some figures, and what a quarter of them is below and above."""

    lower: float
    median: float
    upper: float
    count: int


def quartiles(figures: Iterable[float]) -> Quartiles:
    """The quartiles of *figures*, interpolated between the nearest two.

    Raises:
      ValueError: if there is no figure.
    """
    found = list(figures)
    if not found:
        raise ValueError("there are no figures")
    if len(found) == 1:
        return Quartiles(found[0], found[0], found[0], 1)
    lower, median, upper = statistics.quantiles(found, n=4, method="inclusive")
    return Quartiles(lower, median, upper, len(found))


def turns(systems: Sequence[str], workload: str, number: int, seed: int) -> list[str]:
    """The order of *systems* in the round *number* (from 0) of a workload.

    The first order is drawn from *seed*.  Each second round has the reverse order of the one before
    it: then a steady drift helps and harms both sides of each pair as much.  Each two rounds the
    order is moved on by one, so that other systems are first and other systems are neighbours.
    """
    order = list(systems)
    random.Random(f"{seed} {workload}").shuffle(order)
    if order:
        first = number // 2 % len(order)
        order = order[first:] + order[:first]
    return order[::-1] if number % 2 else order


def paired_ratios(over: Mapping[int, float], under: Mapping[int, float]) -> dict[int, float]:
    """The ratios of the figures of one round, by round; rounds that lack one are left out."""
    return {
        number: figure / under[number]
        for number, figure in sorted(over.items())
        if under.get(number)
    }
