"""When the highwater marks of logs passed which offsets, as far as they were looked at.

It tells how long a message waits without reading it: as long as its log's highwater mark is known
to lie behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Generic, TypeVar

_Log = TypeVar("_Log")

SAMPLES_COUNT_MAX: Final = 64
"""Samples that are kept of a log; beyond that every second one goes, but for the newest."""


class HighwaterTimes(Generic[_Log]):
    """Samples of the highwater marks of logs, which the caller names as it likes."""

    def __init__(self) -> None:
        self._samples: dict[_Log, list[tuple[int, float]]] = {}
        """Offset and time (s) of each sample; both increase."""

    def note(self, log: _Log, highwater: int, now: float) -> None:
        """The highwater mark of *log* is *highwater* at *now* (monotonic, s)."""
        samples = self._samples.setdefault(log, [])
        if samples and samples[-1][0] > highwater:
            samples.clear()  # the log was cut
        if not samples or samples[-1][0] < highwater:
            samples.append((highwater, now))
        if len(samples) > SAMPLES_COUNT_MAX:
            del samples[1:-1:2]

    def age_s(self, log: _Log, offset: int, now: float) -> float:
        """How long ago, at least, *log* had a committed message at *offset*; 0: it has none, as far
        as is known."""
        samples = self._samples.get(log, [])
        at = bisect_right(samples, offset, key=lambda one: one[0])
        return max(0.0, now - samples[at][1]) if at < len(samples) else 0.0

    def keep(self, logs: set[_Log]) -> None:
        """Forget all logs but these."""
        for log in self._samples.keys() - logs:
            del self._samples[log]
