"""Draws plans of clusters with topics in memory.

Every other seed draws a scenario of `sim.generate.scenarios_of_relays`.  The other plans take what
`sim.generate.swarm` draws from its seed, with topics in memory beside log topics, and faults of
their own, at the steps that relays take.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from octopi.simulation.disk.faults import Delay, DiskFault, Fail
from octopi.simulation.faults.actions import (
    Action,
    AtEffect,
    AtStep,
    AtTime,
    BlackholeAccepts,
    BreakDisk,
    Cut,
    DriftClock,
    FillDisk,
    InjectedFault,
    JumpClock,
    Kill,
    LosePower,
    Pause,
    Place,
    ProtectDisk,
    Refuse,
    Reset,
    Slow,
    Stop,
    SwizzleClog,
    Way,
    Wipe,
)
from octopi.tracing import steps
from sim.generate import scenario_plans, swarm
from sim.generate.fault_patterns import some_mishap, some_restart_s, some_seconds
from sim.generate.scenarios_of_relays import FORMED_S
from sim.run.plan import Chore, Plan, Tier, WorkloadOptions

_CHORES: Final[tuple[Chore, ...]] = ("relays", "relays", "relays", "drain", "topic")
_OFTEN: Final = (
    *("M1", "M2a", "M2b", "M3a", "M3a", "M3b", "M4a", "M4b", "M5a", "M5a", "M5b", "M6", "M7a"),
    *("M7b", "M8"),
)
"""Steps of each message."""
_SELDOM: Final = tuple(
    sorted(one.code for one in steps.OF_RELAYS if one.code not in _OFTEN and one.code != "M19")
)
_EFFECTS: Final = (
    *(("append", "after"), ("sync", "before"), ("sync", "after"), ("rename", "before")),
    *(("rename", "after"), ("replace_file", "before"), ("replace_file", "after")),
    *(("send", "before"), ("send", "after"), ("sync_directory", "after")),
)
_TARGETS: Final = (
    *("sequencer", "sequencer", "relay", "relay", "broker", "broker-1", "broker-2", "broker-3"),
    *("register", "leader", "client"),
)
_PEERS: Final = ("others", "broker", "sequencer", "relay", "register", "broker-2", "client")
_WAYS: Final[tuple[Way, ...]] = ("both", "both", "in", "out")


def draw(seed: int, tier: Tier | None = None) -> Plan:
    """The plan of *seed*; *tier* is drawn, too, if it isn't given."""
    if seed % 2:
        return scenario_plans.draw_of_relays(seed, tier or "message")
    plan = swarm.draw(seed, tier)
    brokers = _randomness(seed, "brokers").choice((3, 3, 4, 4, 5))
    return attrs.evolve(
        plan,
        brokers=brokers,
        min_insync=min(plan.min_insync, plan.replicas, brokers - 1),
        faults_s=FORMED_S + _randomness(seed, "faults_s").choice((5.0, 5.0, 16.0)),
        cut_off="",
        kills_each=False,
        loses_all=False,
        workload=_workload(seed, plan.workload),
        faults=_faults(seed),
    )


def _randomness(seed: int, key: str | int) -> Random:
    state = hashlib.blake2b(f"relays|{seed}|{key}".encode(), digest_size=8).digest()
    return Random(int.from_bytes(state, "big"))


def _workload(seed: int, workload: WorkloadOptions) -> WorkloadOptions:
    randomness = _randomness(seed, "chores")
    more = [randomness.choice(_CHORES) for _ in range(randomness.choice((0, 0, 1, 1, 2, 3)))]
    return attrs.evolve(
        workload,
        chores=(*workload.chores, *more),
        pause_s=_randomness(seed, "pause").choice((0.02, 0.05, 0.1)),
        consumers=workload.consumers + 1,
        named_producers=0,  # such topics take none
        relay_topics=_randomness(seed, "topics").choice((1, 1, 2, 3)),
        relay_buffer_count=_randomness(seed, "buffer").choice((None, None, None, 12, 40)),
    )


# --- faults ------------------------------------------------------------------------------


def _faults(seed: int) -> tuple[InjectedFault, ...]:
    randomness = _randomness(seed, "kinds")
    kinds = randomness.sample(_MAKERS, randomness.randint(1, 6))
    count = _randomness(seed, "faults").choice((0, 1, 2, 3, 4, 5, 5, 6, 8))
    return tuple(_fault(_randomness(seed, number), kinds) for number in range(count))


def _fault(randomness: Random, kinds: list[Callable[[Random], Action]]) -> InjectedFault:
    action = randomness.choice(kinds)(randomness)
    place = _place(randomness)
    target = "here"
    if isinstance(place, AtTime) or randomness.random() < 0.2:
        target = randomness.choice(_TARGETS)
    return InjectedFault(place, action, target)


def _place(randomness: Random) -> Place:
    kind = randomness.random()
    if kind < 0.3:
        occurrence = randomness.choice((1, 2, 5, 10, 30, 60, 100, 200))
        return AtStep(randomness.choice(_OFTEN), occurrence=occurrence)
    if kind < 0.6:
        occurrence = randomness.choice((1, 1, 2, 3, 5, 8, 20))
        return AtStep(randomness.choice(_SELDOM), occurrence=occurrence)
    if kind < 0.7:
        operation, edge = randomness.choice(_EFFECTS)
        who = randomness.choice(("sequencer", "relay", "broker", "register"))
        return AtEffect(operation, edge, who, randomness.choice((1, 3, 10, 30, 100)))
    if kind < 0.85:
        return AtTime(some_seconds(randomness, FORMED_S, FORMED_S + 3.0))
    if kind < 0.9:
        return AtTime(some_seconds(randomness, 0.0, FORMED_S))
    return AtTime(randomness.choice((0.0, some_seconds(randomness, 0.0, 1.5))), behind=True)


def _long_s(randomness: Random) -> float:
    """A time that is shorter or longer than others need to notice an absence, or to begin another
    timeline."""
    return randomness.choice(
        (
            some_seconds(randomness, 0.05, 0.7),
            some_seconds(randomness, 0.7, 3.0),
            some_seconds(randomness, 9.0, 13.0),
        )
    )


def _cut(randomness: Random) -> Action:
    way = randomness.choice(_WAYS)
    holds, resets = randomness.random() < 0.3, randomness.random() < 0.4
    return Cut(randomness.choice(_PEERS), _long_s(randomness), way, holds, resets)


def _slow(randomness: Random) -> Action:
    return Slow(
        randomness.choice(_PEERS),
        _long_s(randomness),
        latency_s=some_seconds(randomness, 0.01, 0.6),
        loss_chance=randomness.choice((0.0, 0.0, 0.2)),
    )


def _spoil(randomness: Random) -> Action:
    return some_mishap(randomness, _PEERS, _WAYS)


def _disk_fault(randomness: Random) -> Action:
    operation = randomness.choice(("append", "sync", "sync", "rename", "replace_file", ""))
    number = errno.EIO if operation == "sync" else randomness.choice((errno.EIO, errno.ENOSPC))
    how = Fail(number, randomness.choice((0.0, 0.5)))
    times = randomness.choice((1, 1, 1, 3, 20))
    return BreakDisk(DiskFault(operation, how, calls_before=randomness.randrange(4), times=times))


_MAKERS: Final[tuple[Callable[[Random], Action], ...]] = (
    lambda randomness: Kill(some_restart_s(randomness)),
    lambda randomness: Kill(some_restart_s(randomness)),
    lambda randomness: Kill(some_restart_s(randomness)),
    lambda randomness: LosePower(some_restart_s(randomness)),
    lambda randomness: Stop(some_restart_s(randomness)),
    lambda randomness: Stop(some_restart_s(randomness)),
    lambda randomness: Pause(_long_s(randomness)),
    lambda randomness: Pause(_long_s(randomness)),
    _cut,
    _cut,
    lambda randomness: Reset(randomness.choice(_PEERS)),
    lambda randomness: Reset(randomness.choice(_PEERS), randomness.choice(("relay", "client"))),
    _spoil,
    _slow,
    lambda randomness: Refuse(_long_s(randomness)),
    lambda randomness: BlackholeAccepts(_long_s(randomness)),
    lambda randomness: SwizzleClog(_long_s(randomness)),
    _disk_fault,
    lambda randomness: BreakDisk(
        DiskFault("sync", Delay(some_seconds(randomness, 0.01, 1.0)), times=9)
    ),
    lambda randomness: FillDisk(_long_s(randomness)),
    lambda randomness: ProtectDisk(_long_s(randomness)),
    lambda randomness: Wipe(some_restart_s(randomness)),
    lambda randomness: DriftClock(randomness.choice((0.95, 1.05, 0.5, 2.0)), _long_s(randomness)),
    lambda randomness: JumpClock(randomness.choice((-3600.0, 3600.0, -1.0))),
)
"""The functions that draw an action; one that is listed twice is drawn more often."""
