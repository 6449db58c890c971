"""Plans with further faults after the oracle saw a broken rule, so that clients notice it, too.

If records are on too few disks, clients notice it only when these disks are gone.  So the brokers
that have them fail at that moment, in one way after another.  Up to that moment the run is the one
that the oracle saw, or up to a moment before: then a broker misses what was about to reach it, or
the register what was about to be proposed.

What a leader said too early shows when replicas lead that lack it; what a replica said of itself
shows when it is alone.  The likeliest comes first, as the time of a hunt is short: the brokers that
the oracle names, and what a follower got since it last acknowledged anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Final

import attrs

from octopi.simulation.disk.faults import Delay, DiskFault
from octopi.simulation.faults.actions import (
    STEPS,
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Wipe,
)
from octopi.simulation.kernel.world import Event, Violation
from octopi.tracing import steps
from sim.run.plan import Plan

_LATER_S: Final = 0.15
"""A time after which all nodes have been told that will be."""
_SOON_S: Final = 0.05
_CUT_S: Final = 6.0
_GOING_ON_S: Final = 3.0
"""How long the faults last: another replica leads soon, and is written to."""
_FLUSHED_S: Final = 0.02
"""How long other brokers take to flush what they got, and some more."""
_SLOW_S: Final = 2.0
"""How long the broker that broke the rule takes to flush."""
_DOWN_S: Final = 1.0
"""How long a register is down: until its brokers have died."""
_EARLIER: Final = (0.3, 0.8)
"""How long before a broken rule was seen, as shares of the time that a message takes."""
_DECIDED: Final = "E17b"
_OF_LEADERS: Final = frozenset({"P5", "P6", "P7", "P9"})
"""Steps at which a leader relies on what others said."""

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

    def acknowledgements(self) -> dict[str, AtStep]:
        """The place where each host last acknowledged what it got as a follower."""
        what = steps.P4Acknowledged.text
        counts = {host: count for (host, one), count in self._counts.items() if one == what}
        return {host: AtStep(_CODES[what], host, count) for host, count in counts.items()}


def aftermaths(
    plan: Plan,
    seen: Violation,
    place: AtStep | None,
    acknowledgements: Mapping[str, AtStep] | None = None,
) -> Iterator[Plan]:
    """Variants of *plan* in which clients may notice what the oracle has *seen* at *place*, when
    followers had last acknowledged something at *acknowledgements*."""
    if not seen.events:
        return
    follow_up = _FollowUp(plan, seen, place, acknowledgements or {})
    alone, behind = follow_up.alone(), follow_up.behind()
    parts = [alone, alone, behind, follow_up.ended(), follow_up.deaf()]
    if place is not None and place.step[:2] in _OF_LEADERS:
        parts = [behind, behind, follow_up.ended(), alone, follow_up.deaf()]
    for plans in zip_longest(*parts):
        yield from (one for one in plans if one is not None)


class _FollowUp:
    """The parts of `aftermaths`."""

    def __init__(
        self,
        plan: Plan,
        seen: Violation,
        place: AtStep | None,
        acknowledgements: Mapping[str, AtStep],
    ) -> None:
        self._plan = plan
        self._place = place
        self._acknowledgements = acknowledgements
        self._event = event = seen.events[-1]
        brokers = [f"broker-{number}" for number in range(1, plan.brokers + 1)]
        self._brokers = sorted(brokers, key=lambda one: one == event.host or one not in str(seen))
        """Those first of which the oracle says something."""
        self._message_s = plan.latency_s + plan.jitter_s
        self._told_s = self._message_s + 0.001  # until a client has heard of it

    def alone(self) -> Iterator[Plan]:
        """The host that broke the rule is the only one that is left, and has only what is in its
        memory or on its device."""
        event, place = self._event, self._place
        if event.host not in self._brokers or place is None:
            return
        others = [one for one in self._brokers if one != event.host]
        slow = BreakDisk(DiskFault("sync", Delay(_SLOW_S), ".log", times=9))
        last = self._acknowledgements.get(event.host)
        early = [InjectedFault(last, slow, event.host)] if last is not None else []
        # What it says goes to a leader first, which answers when it has flushed, too.
        for after_s in (2 * self._message_s + _FLUSHED_S, _LATER_S):
            at = AtTime(event.at + after_s)
            lost = [InjectedFault(at, Wipe(_SOON_S), one) for one in others]
            yield self._with(*early, *lost, InjectedFault(at, LosePower(_SOON_S), event.host))
        after = attrs.evolve(place, step=f"{place.step[:-1]}b")  # the step behind it, if it has two
        for edge in dict.fromkeys((after, place)) if place.step.endswith("a") else (place,):
            for death in (Kill(_SOON_S), LosePower(_SOON_S)):
                for after_s in (self._told_s, _LATER_S):
                    rest = self._without(event.host, after_s)
                    yield self._with(InjectedFault(edge, death), *rest)

    def behind(self) -> Iterator[Plan]:
        """A broker is left that gets nothing more from others.  What is about to reach it was sent
        before.  If its joining was proposed, the others are left when that is decided."""
        if self._event.get("proposed"):
            for survivor in self._brokers:
                for edge in self._edges(survivor) if survivor != self._event.host else ():
                    lag = InjectedFault(edge, Cut("broker", _CUT_S, "in"), survivor)
                    dead = [one for one in self._brokers if one != survivor]
                    first = InjectedFault(AtStep(_DECIDED, behind=True), Kill(None), dead[0])
                    rest = [InjectedFault(AtTime(0.0, True), Kill(None), one) for one in dead[1:]]
                    yield self._with(lag, first, *rest)
        for after_s in (self._told_s, _LATER_S):
            for survivor in self._brokers:
                for edge in self._edges(survivor) if survivor != self._event.host else ():
                    lag = InjectedFault(edge, Cut("broker", _CUT_S, "in"), survivor)
                    yield self._with(lag, *self._without(survivor, after_s))

    def _edges(self, survivor: str) -> Iterator[AtStep | AtTime]:
        """When *survivor* may cease to get anything."""
        last = self._acknowledgements.get(survivor)
        if last is not None:
            yield last
            if last.occurrence > 1:
                yield attrs.evolve(last, occurrence=last.occurrence - 1)
        if self._place is not None:
            yield self._place
        for share in _EARLIER:
            yield AtTime(max(0.0, self._event.at - share * self._message_s))

    def deaf(self) -> Iterator[Plan]:
        """The register doesn't hear what has just been proposed, or leaders don't hear its
        decision."""
        for share in _EARLIER:
            at = AtTime(max(0.0, self._event.at - share * self._told_s))
            dead = InjectedFault(at, Kill(_DOWN_S), "register")
            for survivor in self._brokers:
                yield self._with(dead, *self._without(survivor, self._told_s))

    def ended(self) -> Iterator[Plan]:
        """All brokers but one die, or all lose their power, or the host that broke the rule
        dies."""
        event = self._event
        for after_s in (self._told_s, _LATER_S):
            for survivor in self._brokers:
                yield self._with(*self._without(survivor, after_s))
            at = AtTime(event.at + after_s)
            yield self._with(*(InjectedFault(at, LosePower(0.3), one) for one in self._brokers))
        if event.host in self._brokers:
            at = AtTime(event.at + self._told_s)
            yield self._with(InjectedFault(at, LosePower(0.3), event.host))
            yield self._with(InjectedFault(at, Kill(None), event.host))

    def _without(self, survivor: str, after_s: float) -> tuple[InjectedFault, ...]:
        at = AtTime(self._event.at + after_s)
        return tuple(InjectedFault(at, Kill(None), one) for one in self._brokers if one != survivor)

    def _with(self, *faults: InjectedFault) -> Plan:
        """The plan with *faults*, which goes on just as long as they need."""
        return attrs.evolve(
            self._plan,
            faults=(*self._plan.faults, *faults),
            faults_s=self._event.at + _GOING_ON_S,
            kills_each=False,
            stops_each=False,
            spoils_disks=False,
            others_hang=False,
            without_register=False,
        )
