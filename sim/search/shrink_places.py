"""Finds the steps that hosts reached shortly before a fault was injected, by running its plan."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.faults.actions import STEPS, AtStep
from octopi.simulation.faults.injector import FAULT
from octopi.simulation.kernel.world import Event
from sim.run.plan import Plan
from sim.run.simulation import simulate

_NEAR_COUNT: Final = 4
"""How many steps are returned of the host with the fault, and how many of other hosts."""

_CODES: Final = {text: code for code, text in STEPS.items()}


def steps_near(plan: Plan, number: int) -> list[tuple[AtStep, str]]:
    """Places for fault *number* of *plan*, the nearest one first, each with the target of the fault
    there; places of the host with the fault come first."""
    watcher = _Watcher(plan, number)
    simulate(plan, [watcher.watch], events_kept=0)
    ours = [one for one in watcher.near if one[0].who == watcher.target]
    others = [one for one in watcher.near if one[0].who != watcher.target]
    return ours[:_NEAR_COUNT] + others[:_NEAR_COUNT]


class _Watcher:
    def __init__(self, plan: Plan, number: int) -> None:
        self.target = ""
        self.near: list[tuple[AtStep, str]] = []
        self._action = plan.faults[number].action
        self._counts: Counter[tuple[str, str]] = Counter()
        self._last: deque[tuple[str, str, int]] = deque(maxlen=50)

    def watch(self, _: SimulatedCluster) -> _Watcher:
        return self

    def __call__(self, event: Event) -> None:
        if event.what in _CODES:
            code = _CODES[event.what]
            self._counts[event.host, code] += 1
            self._last.append((event.host, code, self._counts[event.host, code]))
        elif event.what == FAULT and event.facts["action"] is self._action:
            self.target = event.host
            for host, code, count in reversed(self._last):
                place = AtStep(code, host, count)
                self.near.append((place, "here" if host == event.host else event.host))
