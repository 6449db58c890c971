"""Draws plans of clusters without a register.

Every other seed draws a scenario of `sim.generate.scenarios_of_rings`.  The other plans take what
`sim.generate.swarm` draws from its seed, but for what such clusters don't have: registers, and what
only an operator of a register can order.  They have founders, perhaps others that join them, and
faults of their own, at the steps that such brokers take.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from octopi.simulation.disk.faults import Delay, DiskFault, Fail, Tear
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
)
from octopi.simulation.faults.damage import Damage, Harm, Part
from octopi.tracing import steps
from sim.generate import scenario_plans, swarm
from sim.generate.fault_patterns import (
    some_mishap,
    some_restart_s,
    some_seconds,
)
from sim.generate.scenarios_of_rings import FORMED_S
from sim.run.plan import Chore, Plan, Tier, WorkloadOptions

_FOUNDERS: Final = (3, 3, 3, 4, 5, 5, 6, 7)
_JOINERS: Final = (0, 0, 0, 1, 2)
_CHORES: Final[tuple[Chore, ...]] = ("topic", "topic", "renew", "renew", "ask", "alter")
_KEPT_CHORES: Final = frozenset(
    {"topic", "renew", "ask", "poll", "end", "alter", "reset", "delete"}
)
"""Chores that a cluster without a register does."""
_OFTEN: Final = tuple(
    one.code for one in steps.ALL if one.code[0] in "PCDA" and "register" not in one.text
)
_SELDOM: Final = (
    *("E4", "E5", "E6a", "E6b", "E10a", "E10b", "E11", "E12", "E13a", "E13b", "E14", "E15"),
    *("E16a", "E16b", "E18", "E19a", "E19b", "J8a", "J8b", "J9a", "J9b", "J10", "J11", "D2a"),
    *("D2b", "T3a", "T3b", "T7a", "T7b", "T9a", "T9b", "A1", "A2a", "A2b", "A3"),
)
_PLACES: Final = tuple(one for one in _SELDOM if one in steps.BY_CODE)
_EFFECTS: Final = (
    *(("append", "before"), ("append", "after"), ("sync", "before"), ("sync", "during")),
    *(("sync", "after"), ("truncate", "after"), ("rename", "before"), ("rename", "after")),
    *(("sync_directory", "before"), ("sync_directory", "after"), ("send", "after")),
    *(("remove", "before"), ("remove", "after"), ("replace_file", "after")),
)
_TARGETS: Final = ("leader", "leader", "leader/0", "follower", "broker", "broker-1", "client")
_PEERS: Final = ("others", "broker", "leader", "follower", "broker-2", "client")
_WAYS: Final[tuple[Way, ...]] = ("both", "both", "in", "out")
_HARMS: Final[tuple[tuple[Harm, Part], ...]] = (
    *(("cut", "log"), ("missing", "log"), ("cut", "tail"), ("flip", "tail")),
    *(("flip", "unflushed"), ("flip", "unheard"), ("missing", "index"), ("cut", "index")),
    *(("missing", "checkpoint"), ("flip", "checkpoint"), ("missing", "directory")),
    *(("missing", "ends"), ("flip", "ends")),
)
"""Damage that brokers notice and repair."""


def draw(seed: int, tier: Tier | None = None) -> Plan:
    """The plan of *seed*; *tier* is drawn, too, if it isn't given."""
    if seed % 2:
        return scenario_plans.draw_of_rings(seed, tier or "message")
    plan = swarm.draw(seed, tier)
    founders = _randomness(seed, "founders").choice(_FOUNDERS)
    brokers = founders + _randomness(seed, "joiners").choice(_JOINERS)
    replicas = _randomness(seed, "replicas").choice((3, 3, 3, 2, 2, 1))
    randomness = _randomness(seed, "cut off")
    cuts_off = replicas > 1 and randomness.random() < 0.1
    least = _randomness(seed, "min_insync").choice((1, 1, 1, 2))
    return attrs.evolve(
        plan,
        founders=founders,
        brokers=brokers,
        replicas=replicas,
        min_insync=min(least, replicas - cuts_off),
        faults_s=FORMED_S + 8.0,
        cut_off=f"broker-{randomness.randint(1, brokers)}" if cuts_off else "",
        loses_all=False,
        sheds=False,
        workload=_workload(seed, plan.workload),
        faults=_faults(seed),
    )


def _randomness(seed: int, key: str | int) -> Random:
    state = hashlib.blake2b(f"rings|{seed}|{key}".encode(), digest_size=8).digest()
    return Random(int.from_bytes(state, "big"))


def _workload(seed: int, workload: WorkloadOptions) -> WorkloadOptions:
    randomness = _randomness(seed, "chores")
    kept = [one for one in workload.chores if one in _KEPT_CHORES]
    more = [randomness.choice(_CHORES) for _ in range(randomness.choice((0, 0, 1, 1, 2, 3)))]
    pause_s = _randomness(seed, "pause").choice((0.004, 0.02, 0.05))
    return attrs.evolve(
        workload,
        chores=(*kept, *more),
        entrances="brokers",
        pause_s=pause_s,
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
    if kind < 0.55:
        occurrence = randomness.choice((1, 1, 2, 3, 5, 8, 20))
        return AtStep(randomness.choice(_PLACES), occurrence=occurrence)
    if kind < 0.7:
        operation, edge = randomness.choice(_EFFECTS)
        who = randomness.choice(("leader", "follower", "broker"))
        return AtEffect(operation, edge, who, randomness.choice((1, 3, 10, 30, 100)))
    if kind < 0.85:
        return AtTime(some_seconds(randomness, FORMED_S, FORMED_S + 4.0))
    if kind < 0.9:
        return AtTime(some_seconds(randomness, 0.0, FORMED_S))
    return AtTime(randomness.choice((0.0, some_seconds(randomness, 0.0, 1.5))), behind=True)


def _long_s(randomness: Random) -> float:
    """A time that is shorter or longer than others need to suspect a broker."""
    return randomness.choice(
        (some_seconds(randomness, 0.05, 0.9), some_seconds(randomness, 1.0, 4.0))
    )


def _cut(randomness: Random) -> Action:
    way = randomness.choice(_WAYS)
    flaps, resets = randomness.random() < 0.3, randomness.random() < 0.4
    return Cut(randomness.choice(_PEERS), _long_s(randomness), way, flaps, resets)


def _slow(randomness: Random) -> Action:
    return Slow(
        randomness.choice(_PEERS),
        _long_s(randomness),
        latency_s=some_seconds(randomness, 0.01, 0.5),
        loss_chance=randomness.choice((0.0, 0.0, 0.2)),
    )


def _spoil(randomness: Random) -> Action:
    return some_mishap(randomness, _PEERS, _WAYS)


def _disk_fault(randomness: Random) -> Action:
    operation = randomness.choice(("append", "sync", "sync", "truncate", "open", "rename", ""))
    number = errno.EIO if operation == "sync" else randomness.choice((errno.EIO, errno.ENOSPC))
    how = Fail(number, randomness.choice((0.0, 0.5)), done=randomness.random() < 0.2)
    times = randomness.choice((1, 1, 1, 3, 20))
    return BreakDisk(DiskFault(operation, how, calls_before=randomness.randrange(4), times=times))


def _damage(randomness: Random) -> Action:
    harm, part = randomness.choice(_HARMS)
    return Damage(harm, part, some_restart_s(randomness), some_seconds(randomness, 1.5, 3.0))


_MAKERS: Final[tuple[Callable[[Random], Action], ...]] = (
    lambda randomness: Kill(some_restart_s(randomness)),
    lambda randomness: Kill(some_restart_s(randomness)),
    lambda randomness: LosePower(some_restart_s(randomness)),
    lambda randomness: LosePower(some_restart_s(randomness)),
    lambda randomness: Stop(some_restart_s(randomness)),
    lambda randomness: Stop(some_restart_s(randomness)),
    lambda randomness: Pause(_long_s(randomness)),
    lambda randomness: Pause(_long_s(randomness)),
    _cut,
    _cut,
    lambda randomness: Reset(randomness.choice(_PEERS)),
    lambda randomness: Reset(randomness.choice(_PEERS), randomness.choice(("follow", "client"))),
    _spoil,
    _slow,
    lambda randomness: Refuse(_long_s(randomness)),
    lambda randomness: BlackholeAccepts(_long_s(randomness)),
    lambda randomness: SwizzleClog(_long_s(randomness)),
    _disk_fault,
    lambda randomness: BreakDisk(
        DiskFault("sync", Delay(some_seconds(randomness, 0.01, 1.0)), times=9)
    ),
    lambda randomness: BreakDisk(DiskFault("append", Tear(), calls_before=randomness.randrange(9))),
    lambda randomness: FillDisk(_long_s(randomness)),
    lambda randomness: ProtectDisk(_long_s(randomness)),
    _damage,
    _damage,
    lambda randomness: DriftClock(randomness.choice((0.95, 1.05, 0.5, 2.0)), _long_s(randomness)),
)
"""The functions that draw an action; one that is listed twice is drawn more often."""
