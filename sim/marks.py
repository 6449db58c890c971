"""What a search has to come across now and then, or it doesn't search there.

A mark that no run of a thousand hits says that the workload or the faults have a blind
spot; a search prints how often each was hit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from octopi.simulation.history import Acknowledged, Event as HistoryEvent, Invoked
from octopi.simulation.world import Event
from octopi.tracing import steps

_Facts = Mapping[str, Any]

_AT_STEPS: Final[dict[str, tuple[str, Callable[[_Facts], bool]]]] = {
    steps.E1Wanted.text: ("a leader was replaced", lambda facts: facts["wish"] is None),
    steps.E13Truncated.text: ("a follower cut its log", lambda facts: True),
    steps.E14Restarted.text: ("a follower dropped its log", lambda facts: True),
    steps.E16Proposed.text: (
        "an in-sync set of one was proposed",
        lambda facts: len(facts["in_sync"]) == 1,
    ),
    steps.E17Altered.text: (
        "a proposed in-sync set was refused",
        lambda facts: not facts["accepted"],
    ),
    steps.E19Resigned.text: ("a leader resigned", lambda facts: True),
    steps.E20GivenUp.text: ("a wish about a leader was given up", lambda facts: True),
    steps.J13Retired.text: ("a broker gave a replica up", lambda facts: True),
    steps.P7Acknowledged.text: (
        "a batch was acknowledged again",
        lambda facts: bool(facts["duplicate"]),
    ),
    steps.P9Refused.text: ("a producer was refused", lambda facts: True),
    steps.C2Repeated.text: ("a producer sent a batch again", lambda facts: True),
    steps.C7GaveUp.text: ("a producer gave a batch up", lambda facts: True),
    steps.C9Resuming.text: ("a consumer went on elsewhere", lambda facts: True),
    steps.D4Retired.text: ("retention removed a segment", lambda facts: True),
    steps.T7Removed.text: ("a topic was removed from a broker", lambda facts: True),
}

_LATER: Final = (
    "an epoch changed within a produce",
    "an epoch changed twice within a produce",
)

MARKS: Final = (*sorted(mark for mark, _ in _AT_STEPS.values()), *_LATER)
"""All there are."""


class Marks:
    """An observer that counts marks."""

    def __init__(self) -> None:
        self.kinds: Final = {*_AT_STEPS, steps.E11Leading.text}
        self.counts: Counter[str] = Counter()
        self._epochs_at: dict[int, list[float]] = {}

    def __call__(self, event: Event) -> None:
        """Look at *event*."""
        known = _AT_STEPS.get(event.what)
        if known is not None:
            mark, holds = known
            if holds(event.facts):
                self.counts[mark] += 1
        elif event.what == steps.E11Leading.text:
            self._epochs_at.setdefault(event.facts["partition"], []).append(event.at)

    def look_back(self, events: list[HistoryEvent]) -> None:
        """Look at what clients noted, when all is over."""
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
