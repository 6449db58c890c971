"""Situations that a search has to reach now and then.  A search prints how often it did.

If no run of a thousand reaches one of them, the load or the faults of the search have a blind spot.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

from octopi.simulation.history.events import Acknowledged, Event as HistoryEvent, Invoked
from octopi.simulation.kernel.world import Event
from octopi.tracing import steps
from octopi.tracing.step import Step

Marked = TypeVar("Marked", bound=Step)

_AtStep = tuple[str, Callable[[Any], bool]]


def _mark(
    step: type[Marked], mark: str, holds: Callable[[Marked], bool] = lambda step: True
) -> tuple[str, _AtStep]:
    """The row for *mark*, which is hit by each *step* for which *holds* is true."""
    return step.text, (mark, holds)


_AT_STEPS: Final[dict[str, _AtStep]] = dict(
    [
        _mark(steps.E1Wanted, "a leader was replaced", lambda step: step.goal is None),
        _mark(steps.E13Truncated, "a follower cut its log"),
        _mark(steps.E14Restarted, "a follower dropped its log"),
        _mark(
            steps.E16Proposed,
            "an in-sync set of one was proposed",
            lambda step: len(step.in_sync) == 1,
        ),
        _mark(
            steps.E17Altered,
            "a proposed in-sync set was refused",
            lambda step: not step.accepted,
        ),
        _mark(steps.E19Resigned, "a leader resigned"),
        _mark(steps.E20GivenUp, "the goal of an election was given up"),
        _mark(steps.J13Retired, "a broker gave a replica up"),
        _mark(
            steps.P7Acknowledged,
            "a batch was acknowledged again",
            lambda step: step.duplicate,
        ),
        _mark(steps.P9Refused, "a producer was refused"),
        _mark(steps.C2Repeated, "a producer sent a batch again"),
        _mark(steps.C7GaveUp, "a producer gave a batch up"),
        _mark(steps.C9Resuming, "a consumer went on elsewhere"),
        _mark(steps.D4Retired, "retention removed a segment"),
        _mark(steps.T7Removed, "a topic was removed from a broker"),
    ]
)

_LATER: Final = (
    "an epoch changed within a produce",
    "an epoch changed twice within a produce",
)

MARKS: Final = (*sorted(mark for mark, _ in _AT_STEPS.values()), *_LATER)
"""All marks."""


class CoverageMarks:
    """An observer that counts marks."""

    def __init__(self) -> None:
        self.kinds: Final = {*_AT_STEPS, steps.E11Leading.text}
        self.counts: Counter[str] = Counter()
        self._epochs_at: dict[int, list[float]] = {}

    def __call__(self, event: Event) -> None:
        """Count the mark that *event* hits, if any."""
        known = _AT_STEPS.get(event.what)
        if known is not None:
            mark, holds = known
            if holds(event.about):
                self.counts[mark] += 1
        elif isinstance(event.about, steps.E11Leading):
            self._epochs_at.setdefault(event.about.partition, []).append(event.at)

    def look_back(self, events: list[HistoryEvent]) -> None:
        """Count the marks that can only be found in the history, when the run has ended."""
        invoked: dict[bytes, float] = {}
        for one in events:
            if isinstance(one, Invoked):
                invoked[one.value] = one.at
            elif isinstance(one, Acknowledged) and one.value in invoked:
                times = self._epochs_at.get(one.log.partition, [])
                count = bisect_right(times, one.at) - bisect_left(times, invoked[one.value])
                if count:
                    self.counts[_LATER[0]] += 1
                if count > 1:
                    self.counts[_LATER[1]] += 1
