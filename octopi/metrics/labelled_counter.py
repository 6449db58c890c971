"""A counter with labels that others choose, of which a bounded number have a series of their own.

Knows no exposition format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

Labels: TypeAlias = tuple[str, ...]

SERIES_COUNT_MAX: Final = 1_000
"""Series of one counter; what comes later is counted in one series for all others."""


class LabelledCounter:
    """Counts by labels.

    Labels keep their series until they are forgotten, so no series is ever counted in another one:
    rates stay right.
    """

    def __init__(self, series_max: int = SERIES_COUNT_MAX) -> None:
        self._series_max = series_max
        self._counts: dict[Labels, int] = {}
        self.others = 0
        """What was counted for labels without a series."""

    def add(self, labels: Labels, amount: int = 1) -> bool:
        """Count *amount*; return whether *labels* have a series."""
        count = self._counts.get(labels)
        if count is None and len(self._counts) >= self._series_max:
            self.others += amount
            return False
        self._counts[labels] = (count or 0) + amount
        return True

    def forget(self, labels: Labels) -> None:
        """The series of *labels* ends, and others may have its place."""
        self._counts.pop(labels, None)

    def series(self) -> Iterator[tuple[Labels, int]]:
        """Labels and their counts."""
        return iter(list(self._counts.items()))
