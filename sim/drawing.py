"""What stories are made of: places, deaths, absences, and other troubles, drawn by chance."""

from __future__ import annotations

import errno
from random import Random
from typing import Final

from octopi.simulation.disk_faults import Delay, DiskFault, Fail
from octopi.simulation.failures import (
    Action,
    AtEffect,
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    FillDisk,
    Kill,
    LosePower,
    Pause,
    Place,
    Reset,
    Slow,
    Spoil,
    Stop,
)
from octopi.simulation.route import Mishap
from sim.kinds import STOPS, is_drawn

_PRODUCING: Final = (
    *("P1", "P2a", "P2b", "P2c", "P2d", "P3a", "P3b", "P4a", "P4b", "P5a", "P5b"),
    *("P6a", "P6b", "P6c", "P6d", "P7a", "P7b", "P8a", "P8b", "C1b", "C3", "C10b", "D1a", "D1b"),
)
_CHANGING: Final = (
    *("E1", "E2", "E3a", "E3b", "E4", "E5", "E6a", "E6b", "E7", "E8a", "E8b", "E9a", "E9b"),
    *("E10a", "E10b", "E11", "E12", "E13a", "E13b", "E15", "E16b", "E17a", "E17b", "E18"),
    *("J7", "J8b", "J9b", "J10", "J11", "J12", "D2a", "D2b", "D3a", "D3b", "R2b", "R3a", "R3b"),
)
_COMING_BACK: Final = (
    *("J1b", "J2", "J3", "J4a", "J4b", "J5a", "J5b", "J6", "E10b", "E12", "J8a", "J9a", "J10"),
    *("E13a", "E13b", "P3a", "P3b", "J11", "E16a", "E17a", "J12", "D2b", "D3b"),
)
BROKERS: Final = ("broker-1", "broker-2", "broker-3")
"""The hosts of the brokers that every plan has."""

QUICK: Final = {"latency_s": 0.0005, "jitter_s": 0.0005}
"""Options of a quick network."""

EDGES: Final = (
    *(("append", "before"), ("append", "after"), ("sync", "before"), ("sync", "during")),
    *(("sync", "after"), ("truncate", "after"), ("rename", "before"), ("rename", "after")),
    *(("sync_directory", "before"), ("sync_directory", "after"), ("send", "after")),
)
"""Operations and edges of them, as `octopi.simulation.failures.AtEffect` takes them."""


def when_producing(chance: Random) -> Place:
    """At a step of producing, or at a call that it takes."""
    occurrence = chance.choice((1, 2, 3, 5, 8, 12, 20))
    if chance.random() < 0.7:
        return AtStep(chance.choice(_PRODUCING), occurrence=occurrence)
    operation, edge = chance.choice(EDGES)
    return AtEffect(operation, edge, chance.choice(("leader", "follower")), occurrence)


def soon(chance: Random) -> Place:
    """Behind the fault before it: in what follows from that."""
    kind = chance.random()
    if kind < 0.5:
        steps = chance.choice((_CHANGING, _COMING_BACK, _PRODUCING))
        return AtStep(chance.choice(steps), occurrence=chance.choice((1, 1, 2, 4)), behind=True)
    if kind < 0.7:
        operation, edge = chance.choice(EDGES)
        who = chance.choice(("leader", "follower", "register"))
        return AtEffect(operation, edge, who, chance.choice((1, 1, 2, 4)), behind=True)
    return AtTime(
        chance.choice((0.0, some_seconds(chance, 0.0, 0.4), _late_s(chance))), behind=True
    )


def at_once(chance: Random) -> Place:
    """Behind the fault before it, at a step of producing."""
    return AtStep(chance.choice(_PRODUCING), occurrence=chance.randint(1, 8), behind=True)


def shortly(chance: Random) -> Place:
    """Behind the fault before it, and before anybody draws consequences."""
    return AtTime(some_seconds(chance, 0.0, 0.9), behind=True)


def late(chance: Random) -> Place:
    """Behind the fault before it, when its consequences were drawn."""
    return AtTime(_late_s(chance), behind=True)


def _late_s(chance: Random) -> float:
    return some_seconds(chance, 1.1, 2.2)


def some_seconds(chance: Random, least: float, most: float) -> float:
    """From *least* to *most*, in whole hundredths."""
    return round(chance.uniform(least, most), 2)


def some_restart_s(chance: Random) -> float | None:
    """How long somebody is down (seconds); None: until everything is healed."""
    return chance.choice(
        (0.0, 0.1, some_seconds(chance, 0.2, 0.8), some_seconds(chance, 1.2, 3.0), None)
    )


def a_death(chance: Random) -> Action:
    """Of a process, or of its machine, which may lose what was not synced."""
    kinds = (Kill, Kill, LosePower, LosePower, Stop)
    kind = chance.choice((*kinds, Stop) if is_drawn(STOPS) else kinds)
    return kind(some_restart_s(chance))


def an_absence(chance: Random) -> Action:
    """For longer than anybody waits."""
    seconds = some_seconds(chance, 1.2, 3.0)
    away = some_seconds(chance, 1.2, 3.0)
    return chance.choice(
        (
            Pause(seconds),
            Cut("others", seconds, "both", chance.random() < 0.5, chance.random() < 0.5),
            Cut(chance.choice(("leader", "follower", "register")), seconds, resets=True),
            Cut("others", seconds, chance.choice(("in", "out"))),
            Kill(away),
            LosePower(away),
        )
    )


def some_trouble(chance: Random) -> Action:
    """What connections and disks do now and then."""
    peer = chance.choice(("leader", "follower", "client", "register", "others"))
    return chance.choice(
        (
            Reset(peer),
            Spoil(chance.choice((Mishap.RESET, Mishap.FINISH, Mishap.SILENCE)), peer),
            Slow(peer, some_seconds(chance, 0.3, 2.0), latency_s=some_seconds(chance, 0.05, 0.6)),
            Cut(peer, some_seconds(chance, 0.1, 1.0), "both", holds=True),
            Pause(some_seconds(chance, 0.1, 0.9)),
            BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.05, 1.0)), times=3)),
        )
    )


def a_failing_disk(chance: Random) -> Action:
    """A disk that is full, or that fails a call."""
    if chance.random() < 0.15:
        return FillDisk(0.3)
    if chance.random() < 0.5:
        full = Fail(errno.ENOSPC, written_fraction=chance.choice((0.0, 0.5, 0.9)))
        return BreakDisk(DiskFault("append", full, ".log", chance.choice((0, 0, 1, 5))))
    operation = chance.choice(("append", "sync", "sync", "sync", "rename", "sync_directory"))
    how = Fail(errno.EIO, written_fraction=chance.choice((0.0, 0.5, 0.9)))
    return BreakDisk(DiskFault(operation, how, chance.choice((".log", ""))))
