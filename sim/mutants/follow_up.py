"""Plans with further faults after the oracle saw a broken rule, so that clients notice it, too.

If records are on too few disks, clients notice it only when these disks are gone.  So the brokers
that have them fail at that moment, in one way after another.  Up to that moment the run is the one
that the oracle saw, or up to a moment before: then a broker misses what was about to reach it, or
the register what was about to be proposed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import attrs

from octopi.simulation.faults.actions import (
    STEPS,
    AtStep,
    AtTime,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
)
from octopi.simulation.kernel.world import Event, Violation
from sim.run.plan import Plan

_LATER_S: Final = 0.15
"""A time after which all nodes have been told that will be."""
_SOON_S: Final = 0.05
_GOING_ON_S: Final = 6.0
_DOWN_S: Final = 1.0
"""How long a register is down: until its brokers have died."""
_EARLIER: Final = (0.3, 0.8)
"""How long before a broken rule was seen, as shares of the time that a message takes."""

_CODES: Final = {text: code for code, text in STEPS.items()}


class Occurrences:
    """An observer that counts how often each host reached each step."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def __call__(self, event: Event) -> None:
        self._counts[event.host, event.what] += 1

    def place(self, event: Event) -> AtStep | None:
        """The place of *event*, the newest of its kind; None: faults can't be injected there."""
        code = _CODES.get(event.what)
        return AtStep(code, event.host, self._counts[event.host, event.what]) if code else None


def aftermaths(plan: Plan, seen: Violation, place: AtStep | None) -> Iterator[Plan]:
    """Variants of *plan* in which clients may notice what the oracle has *seen* at *place*."""
    if not seen.events:
        return
    event = seen.events[-1]
    brokers = [f"broker-{number}" for number in range(1, plan.brokers + 1)]
    told_s = plan.latency_s + plan.jitter_s + 0.001  # until a client has heard of it

    def without(survivor: str, after_s: float) -> tuple[InjectedFault, ...]:
        at = AtTime(event.at + after_s)
        return tuple(InjectedFault(at, Kill(None), one) for one in brokers if one != survivor)

    if place is not None and event.host in brokers:
        after = attrs.evolve(place, step=f"{place.step[:-1]}b")  # the step behind it, if it has two
        for edge in dict.fromkeys((after, place)) if place.step.endswith("a") else (place,):
            for death in (Kill(_SOON_S), LosePower(_SOON_S)):
                for after_s in (told_s, _LATER_S):
                    yield _with(
                        plan, event, InjectedFault(edge, death), *without(event.host, after_s)
                    )
    for survivor in brokers:
        if survivor != event.host:
            # It gets nothing more from other brokers.  What is about to reach it was sent before.
            places = [AtTime(max(0.0, event.at - one * told_s)) for one in _EARLIER]
            for edge in (*([place] if place is not None else ()), *places):
                lag = InjectedFault(edge, Cut("broker", _GOING_ON_S, "in"), survivor)
                for after_s in (told_s, _LATER_S):
                    yield _with(plan, event, lag, *without(survivor, after_s))
    # The register doesn't hear what has just been proposed, or leaders don't hear its decision.
    for edge_s in _EARLIER:
        at = AtTime(max(0.0, event.at - edge_s * told_s))
        dead = InjectedFault(at, Kill(_DOWN_S), "register")
        for survivor in brokers:
            yield _with(plan, event, dead, *without(survivor, told_s))
    for after_s in (told_s, _LATER_S):
        for survivor in brokers:
            yield _with(plan, event, *without(survivor, after_s))
        at = AtTime(event.at + after_s)
        yield _with(plan, event, *(InjectedFault(at, LosePower(0.3), one) for one in brokers))
    if event.host in brokers:
        at = AtTime(event.at + told_s)
        yield _with(plan, event, InjectedFault(at, LosePower(0.3), event.host))
        yield _with(plan, event, InjectedFault(at, Kill(None), event.host))


def _with(plan: Plan, event: Event, *faults: InjectedFault) -> Plan:
    faults_s = max(plan.faults_s, event.at + _GOING_ON_S)
    return attrs.evolve(plan, faults=(*plan.faults, *faults), faults_s=faults_s)
