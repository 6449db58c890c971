"""Draws plans of clusters with three registers.

Every other seed draws a scenario of `sim.generate.scenarios_of_groups`.  The others take what
`sim.generate.swarm` draws from the seed, and have faults of the registers besides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from octopi.limits import JOURNAL_SNAPSHOT_ENTRIES
from octopi.simulation.disk.faults import Delay, DiskFault, Tear
from octopi.simulation.faults.actions import (
    Action,
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    DriftClock,
    FillDisk,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Place,
    Reset,
    Slow,
    Stop,
    Way,
    Wipe,
)
from octopi.tracing import steps
from sim.generate import scenario_plans, swarm
from sim.generate.fault_patterns import a_failing_disk, some_restart_s, some_seconds
from sim.run.plan import Plan, Tier

REGISTERS: Final = 3

_WHO: Final = ("active", "active", "standby", "register")
_PLACES: Final = (
    *sorted(one.code for one in steps.OF_SEVERAL_REGISTERS),
    *("R1", "R2b", "R3a", "R3b"),
)


def draw(seed: int, tier: Tier | None = None) -> Plan:
    """The plan of *seed*; *tier* is drawn, too, if it isn't given."""
    if seed % 2:
        return scenario_plans.draw_of_groups(seed, tier or "message")
    plan, randomness = swarm.draw(seed, tier), _randomness(seed, "faults")
    faults = [_fault(randomness) for _ in range(randomness.choice((0, 1, 1, 2, 3, 4)))]
    return attrs.evolve(
        plan,
        registers=REGISTERS,
        snapshot_entries=_randomness(seed, "snapshot").choice((JOURNAL_SNAPSHOT_ENTRIES, 3, 20)),
        faults=(*plan.faults, *faults),
    )


def _randomness(seed: int, key: str) -> Random:
    state = hashlib.blake2b(f"groups|{seed}|{key}".encode(), digest_size=8).digest()
    return Random(int.from_bytes(state, "big"))


def _fault(randomness: Random) -> InjectedFault:
    place = _place(randomness)
    action = randomness.choice(_MAKERS)(randomness)
    is_here = isinstance(place, AtStep) and randomness.random() < 0.6
    return InjectedFault(place, action, "here" if is_here else randomness.choice(_WHO))


def _place(randomness: Random) -> Place:
    if randomness.random() < 0.4:
        return AtTime(some_seconds(randomness, 0.0, 3.0))
    occurrence = randomness.choice((1, 1, 2, 3, 5, 9, 30))
    return AtStep(randomness.choice(_PLACES), randomness.choice(("any", *_WHO)), occurrence)


def _cut(randomness: Random) -> Action:
    peer = randomness.choice(("others", "register", "active", "standby", "broker"))
    ways: tuple[Way, ...] = ("both", "both", "in", "out")
    way = randomness.choice(ways)
    resets = randomness.random() < 0.4
    return Cut(peer, some_seconds(randomness, 0.1, 3.0), way, randomness.random() < 0.3, resets)


_MAKERS: Final[tuple[Callable[[Random], Action], ...]] = (
    lambda randomness: Kill(some_restart_s(randomness)),
    lambda randomness: Kill(some_restart_s(randomness)),
    lambda randomness: LosePower(some_restart_s(randomness)),
    lambda randomness: LosePower(some_restart_s(randomness)),
    lambda randomness: Stop(some_restart_s(randomness)),
    lambda randomness: Pause(some_seconds(randomness, 0.05, 3.0)),
    lambda randomness: Wipe(some_restart_s(randomness)),
    _cut,
    _cut,
    lambda randomness: Reset("register"),
    lambda randomness: Slow("register", latency_s=some_seconds(randomness, 0.05, 0.5)),
    a_failing_disk,
    lambda randomness: FillDisk(some_seconds(randomness, 0.1, 2.0)),
    lambda randomness: BreakDisk(
        DiskFault("sync", Delay(some_seconds(randomness, 0.05, 1.0)), times=9)
    ),
    lambda randomness: BreakDisk(DiskFault("append", Tear(), calls_before=randomness.randrange(9))),
    lambda randomness: DriftClock(randomness.choice((0.95, 1.05, 0.5, 2.0)), 2.0),
)
"""The functions that draw an action; one that is listed twice is drawn more often."""
