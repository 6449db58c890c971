"""Delays that double, for actions that failed or must not be repeated often."""

from __future__ import annotations

import math


class RetryDelays:
    """One pause for each key.

    Invariant: a key's pause is between the first and the longest.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._pauses: dict[int, tuple[float, float]] = {}
        """Per key: how long its last pause is, and when that ends."""

    def is_over(self, key: int, now: float) -> bool:
        """Whether *key* has no pause at *now* (monotonic, s)."""
        return now >= self.ends_at(key)

    def begin(self, key: int, now: float) -> None:
        """*key* was tried at *now*: begin its next pause.  It is twice as long as the last one if
        that ended not much longer ago than the longest pause takes."""
        length_s, ended_at = self._pauses.get(key, (0.0, -math.inf))
        is_again = now - ended_at <= self._longest_s
        length_s = min(self._longest_s, 2 * length_s) if is_again else self._first_s
        self._pauses[key] = (length_s, now + length_s)

    def ends_at(self, key: int) -> float:
        """When the pause of *key* ends (monotonic, s)."""
        return self._pauses.get(key, (0.0, -math.inf))[1]

    def forget(self, key: int) -> None:
        """Drop the pause of *key*."""
        self._pauses.pop(key, None)
