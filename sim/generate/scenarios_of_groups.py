"""Scenarios of clusters with three registers, of which one is active."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Final

from octopi.simulation.disk.faults import Delay, DiskFault, Fail
from octopi.simulation.faults.actions import (
    Action,
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Stop,
    Way,
    Wipe,
)
from sim.generate.fault_patterns import (
    a_death,
    an_absence,
    shortly,
    some_seconds,
    soon,
    when_producing,
)
from sim.generate.scenario import Scenario

_REGISTERS: Final = ("register", "register-2", "register-3")
_THREE: Final = {"registers": 3}
_DECIDING: Final = (
    *("E2", "E3b", "E7", "E8a", "E8b", "E9a", "E17a", "E17b", "J5a", "T1b", "T2a"),
    *("R2b", "R3a", "R3b", "G5"),
)


def _busy(randomness: Random) -> dict[str, object]:
    """A load with decisions: topics are made, altered and deleted meanwhile."""
    chores = randomness.choice((("topic",), ("topic", "alter"), ("renew", "topic"), ("move",)))
    return {"chores": chores, "pause_s": 0.05, "records": 40}


def _options(randomness: Random) -> dict[str, object]:
    return {**_THREE, "snapshot_entries": randomness.choice((3, 20, 100_000)), "faults_s": 8.0}


def _quick_death(randomness: Random) -> Action:
    return randomness.choice((Kill, LosePower))(randomness.choice((0.0, 0.1, 0.6)))


def active_register_dies(randomness: Random) -> Scenario:
    """The active register dies, or is away, in the middle of a decision."""
    step = AtStep(randomness.choice(_DECIDING), "active", randomness.choice((1, 2, 3, 5, 9)))
    gone = randomness.choice((a_death, an_absence))(randomness)
    faults = [InjectedFault(step, gone)]
    if randomness.random() < 0.6:
        who = randomness.choice(("leader", "follower"))
        faults.insert(0, InjectedFault(when_producing(randomness), a_death(randomness), who))
    if randomness.random() < 0.4:
        faults.append(InjectedFault(soon(randomness), a_death(randomness), "leader"))
    return Scenario(tuple(faults), _options(randomness), _busy(randomness))


def active_registers_die_in_turn(randomness: Random) -> Scenario:
    """Whoever is active dies, one after the other, each shortly after it was elected."""
    faults = [InjectedFault(AtTime(some_seconds(randomness, 0.2, 1.0)), Kill(0.5), "active")]
    for _ in range(randomness.choice((1, 2, 3))):
        step = randomness.choice(("G2", "G2", "G3", "G4b", "R1", "R2b", "G5"))
        kind = randomness.choice((Kill, LosePower, Stop))
        faults.append(
            InjectedFault(AtStep(step, behind=True), kind(some_seconds(randomness, 0, 1)))
        )
    return Scenario(tuple(faults), _options(randomness), _busy(randomness))


def voter_forgets(randomness: Random) -> Scenario:
    """A register loses its power when it has voted, and the candidate is cut off."""
    faults = (
        InjectedFault(AtTime(some_seconds(randomness, 0.3, 1.0)), Kill(0.1), "active"),
        InjectedFault(AtStep("G1b", behind=True), LosePower(0.0)),
        InjectedFault(
            AtTime(randomness.choice((0.0, 0.01, 0.05)), behind=True),
            Cut("register", some_seconds(randomness, 0.5, 1.5)),
            randomness.choice(_REGISTERS),
        ),
        InjectedFault(AtStep("G1b", behind=True), LosePower(0.0)),
    )
    return Scenario(faults, _options(randomness), _busy(randomness))


def stored_on_two(randomness: Random) -> Scenario:
    """A standby is away, so each decision is on two registers; the other standby loses its power
    when it has acknowledged one, and the active register dies."""
    away = Cut("register", some_seconds(randomness, 0.8, 1.5), resets=True)
    told = AtStep("R3b", occurrence=randomness.choice((1, 2, 3, 5)), behind=True)
    faults = (
        InjectedFault(AtTime(some_seconds(randomness, 0.2, 0.5)), away, "standby"),
        InjectedFault(told, Kill(some_seconds(randomness, 1.0, 3.0))),
        InjectedFault(AtTime(0.0, behind=True), LosePower(0.0), "register-2"),
        InjectedFault(AtTime(0.0, behind=True), LosePower(0.0), "register-3"),
        InjectedFault(AtTime(0.0, behind=True), LosePower(0.0), "register"),
    )
    return Scenario(faults, _options(randomness), _busy(randomness))


def active_register_is_cut_off(randomness: Random) -> Scenario:
    """The active register reaches brokers and clients, and no other register, or hears less than it
    says; then it comes back."""
    ways: tuple[Way, ...] = ("both", "in", "out")
    way = randomness.choice(ways)
    seconds = some_seconds(randomness, 0.5, 3.0)
    peer = randomness.choice(("register", "register", "standby", "broker"))
    cut = Cut(peer, seconds, way, randomness.random() < 0.3, randomness.random() < 0.4)
    faults = [InjectedFault(AtTime(some_seconds(randomness, 0.2, 1.0)), cut, "active")]
    faults.append(InjectedFault(shortly(randomness), a_death(randomness), "leader"))
    if randomness.random() < 0.5:
        faults.append(InjectedFault(soon(randomness), _quick_death(randomness), "active"))
    return Scenario(tuple(faults), _options(randomness), _busy(randomness))


def active_register_sleeps(randomness: Random) -> Scenario:
    """The active register is paused, and goes on when another one has decided."""
    step = AtStep(randomness.choice(_DECIDING), "active", randomness.choice((1, 2, 3, 5)))
    faults = [InjectedFault(step, Pause(some_seconds(randomness, 0.8, 3.0)))]
    faults.append(InjectedFault(shortly(randomness), a_death(randomness), "leader"))
    if randomness.random() < 0.5:
        faults.append(InjectedFault(soon(randomness), _quick_death(randomness), "active"))
    return Scenario(tuple(faults), _options(randomness), _busy(randomness))


def journals_are_folded(randomness: Random) -> Scenario:
    """Registers die while they fold their journals, and some come back far behind."""
    step = randomness.choice(("G7a", "G7b", "G7b", "R4a", "R4b"))
    behind = randomness.choice(_REGISTERS)
    faults = [
        InjectedFault(AtTime(some_seconds(randomness, 0.1, 0.4)), Kill(2.0), behind),
        InjectedFault(
            AtStep(step, occurrence=randomness.choice((1, 2, 3)), behind=True),
            _quick_death(randomness),
        ),
        InjectedFault(AtTime(some_seconds(randomness, 0.5, 2.5), behind=True), Kill(1.0), "active"),
    ]
    if randomness.random() < 0.5:
        faults.append(InjectedFault(soon(randomness), Kill(1.0), "active"))
    options = {**_THREE, "snapshot_entries": randomness.choice((3, 8, 20)), "faults_s": 8.0}
    return Scenario(tuple(faults), options, _busy(randomness))


def register_loses_its_disk(randomness: Random) -> Scenario:
    """A register comes back without its disk; then others die."""
    who = randomness.choice(("active", "standby", *_REGISTERS))
    faults = [
        InjectedFault(
            AtTime(some_seconds(randomness, 0.1, 1.0)),
            Wipe(randomness.choice((0.0, 0.1, 0.6))),
            who,
        ),
        InjectedFault(
            AtTime(some_seconds(randomness, 0.0, 2.0), behind=True),
            a_death(randomness),
            randomness.choice(("active", "standby")),
        ),
        InjectedFault(
            AtTime(some_seconds(randomness, 0.5, 2.0), behind=True),
            randomness.choice((Wipe(0.1), Kill(1.0), LosePower(0.1))),
            randomness.choice(("active", "standby")),
        ),
    ]
    return Scenario(tuple(faults), _options(randomness), _busy(randomness))


def disk_is_lost_beside_one_behind(randomness: Random) -> Scenario:
    """A register is cut off, and behind; then another one loses its disk, and the third dies."""
    behind, wiped = randomness.sample(_REGISTERS, 2)
    cut = Cut("register", some_seconds(randomness, 0.5, 1.2), resets=True)
    told = AtStep("R3b", occurrence=randomness.choice((1, 2, 3, 5)), behind=True)
    faults = (
        InjectedFault(AtTime(some_seconds(randomness, 0.2, 0.5)), cut, behind),
        InjectedFault(told, Kill(some_seconds(randomness, 3.0, 5.0))),
        InjectedFault(AtTime(0.0, behind=True), Wipe(randomness.choice((0.0, 0.1))), wiped),
    )
    return Scenario(faults, _options(randomness), _busy(randomness))


def registers_lose_power(randomness: Random) -> Scenario:
    """All registers lose their power at a step of one, some with slow disks."""
    place = AtStep(
        randomness.choice(("R2b", "R3a", "R3b", "G4a", "G4b", "G5", "G1a", "G1b")),
        occurrence=randomness.choice((1, 2, 4, 8, 16)),
    )
    faults = [InjectedFault(place, LosePower(0.1))]
    faults += [InjectedFault(AtTime(0.0, behind=True), LosePower(0.1), one) for one in _REGISTERS]
    if randomness.random() < 0.5:
        slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.02, 0.3)), times=20))
        faults.insert(0, InjectedFault(AtTime(0.1), slow, randomness.choice(_REGISTERS)))
    return Scenario(tuple(faults), _options(randomness), _busy(randomness))


def sync_of_a_register_fails(randomness: Random) -> Scenario:
    """A sync of a register fails, so it ends.  It starts again, goes by what its files say, and
    loses its power; meanwhile another one may die."""
    who = randomness.choice(_REGISTERS)
    step = AtStep(
        randomness.choice(("G1a", "G4a", "G4a", "G5", "R2b")), who, randomness.choice((1, 2, 3, 5))
    )
    dark = AtTime(some_seconds(randomness, 0.7, 2.5), behind=True)
    faults = [
        InjectedFault(step, BreakDisk(DiskFault("sync", Fail(errno.EIO), ".log"))),
        InjectedFault(dark, LosePower(randomness.choice((0.0, 0.1, 0.6))), who),
    ]
    if randomness.random() < 0.6:
        faults.append(InjectedFault(shortly(randomness), _quick_death(randomness), "active"))
    return Scenario(tuple(faults), _options(randomness), _busy(randomness))


GROUP_SCENARIOS: Final[tuple[Callable[[Random], Scenario], ...]] = (
    active_register_dies,
    active_register_dies,
    active_registers_die_in_turn,
    active_registers_die_in_turn,
    voter_forgets,
    stored_on_two,
    active_register_is_cut_off,
    active_register_sleeps,
    journals_are_folded,
    register_loses_its_disk,
    disk_is_lost_beside_one_behind,
    registers_lose_power,
    sync_of_a_register_fails,
)
"""All of them; they are drawn by `sim.generate.groups` only."""
