"""The parts of scenarios, drawn by chance: places, deaths, absences, and other troubles.  A place
says when a fault is injected."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random
from typing import Final

from octopi.identifiers import SUBSCRIPTIONS_LOG
from octopi.simulation.disk.faults import Delay, DiskFault, Fail
from octopi.simulation.faults.actions import (
    Action,
    AtEffect,
    AtStep,
    AtTime,
    BreakDisk,
    CorruptLink,
    Cut,
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
)
from octopi.simulation.network.route import Mishap
from sim.generate.fault_kinds import STOPS, is_drawn

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
"""The hosts of the brokers that every plan of a scenario has."""

QUICK: Final = {"latency_s": 0.0005, "jitter_s": 0.0005}
"""Options of a fast network."""

EDGES: Final = (
    *(("append", "before"), ("append", "after"), ("sync", "before"), ("sync", "during")),
    *(("sync", "after"), ("truncate", "after"), ("rename", "before"), ("rename", "after")),
    *(("sync_directory", "before"), ("sync_directory", "after"), ("send", "after")),
)
"""Operations with an edge, as `octopi.simulation.faults.actions.AtEffect` takes them."""


INTERNAL_SEGMENT: Final = f"{SUBSCRIPTIONS_LOG}/00000000000000000000.log"
"""The end of the path of an internal log's first segment."""


def lose_power(place: Place) -> list[InjectedFault]:
    """The machines of all brokers lose their power at *place*."""
    first, *others = BROKERS
    faults = [InjectedFault(place, LosePower(0.1), first)]
    faults += [InjectedFault(AtTime(0.0, behind=True), LosePower(0.1), one) for one in others]
    return faults


def when_producing(randomness: Random) -> Place:
    """A place at a step of producing, or at an operation of a leader or follower."""
    occurrence = randomness.choice((1, 2, 3, 5, 8, 12, 20))
    if randomness.random() < 0.7:
        return AtStep(randomness.choice(_PRODUCING), occurrence=occurrence)
    operation, edge = randomness.choice(EDGES)
    return AtEffect(operation, edge, randomness.choice(("leader", "follower")), occurrence)


def soon(randomness: Random) -> Place:
    """A place some time after the fault before it, mostly while the cluster reacts to that one."""
    kind = randomness.random()
    if kind < 0.5:
        steps = randomness.choice((_CHANGING, _COMING_BACK, _PRODUCING))
        return AtStep(
            randomness.choice(steps), occurrence=randomness.choice((1, 1, 2, 4)), behind=True
        )
    if kind < 0.7:
        operation, edge = randomness.choice(EDGES)
        who = randomness.choice(("leader", "follower", "register"))
        return AtEffect(operation, edge, who, randomness.choice((1, 1, 2, 4)), behind=True)
    return AtTime(
        randomness.choice((0.0, some_seconds(randomness, 0.0, 0.4), _late_s(randomness))),
        behind=True,
    )


def at_once(randomness: Random) -> Place:
    """A place at a step of producing after the fault before it."""
    return AtStep(randomness.choice(_PRODUCING), occurrence=randomness.randint(1, 8), behind=True)


def shortly(randomness: Random) -> Place:
    """A place up to 0.9 s after the fault before it, before other nodes react to that one."""
    return AtTime(some_seconds(randomness, 0.0, 0.9), behind=True)


def late(randomness: Random) -> Place:
    """A place 1.1 s or more after the fault before it, when other nodes have reacted to that
    one."""
    return AtTime(_late_s(randomness), behind=True)


def _late_s(randomness: Random) -> float:
    return some_seconds(randomness, 1.1, 2.2)


def some_seconds(randomness: Random, least: float, most: float) -> float:
    """A time from *least* to *most* seconds, in whole hundredths."""
    return round(randomness.uniform(least, most), 2)


def some_restart_s(randomness: Random) -> float | None:
    """How long a process is down (seconds); None: until everything is healed."""
    return randomness.choice(
        (0.0, 0.1, some_seconds(randomness, 0.2, 0.8), some_seconds(randomness, 1.2, 3.0), None)
    )


def some_mishap(randomness: Random, peers: Sequence[str], ways: Sequence[Way]) -> Action:
    """What happens to connections with one of *peers*, perhaps after some bytes."""
    mishap = randomness.choice((Mishap.RESET, Mishap.FINISH, Mishap.SILENCE))
    after_bytes = randomness.choice((0, randomness.randint(1, 5_000)))
    return CorruptLink(mishap, randomness.choice(peers), randomness.choice(ways), after_bytes)


def a_death(randomness: Random) -> Action:
    """The death of a process, or of its machine, which may lose what was not synced."""
    kinds = (Kill, Kill, LosePower, LosePower, Stop)
    kind = randomness.choice((*kinds, Stop) if is_drawn(STOPS) else kinds)
    return kind(some_restart_s(randomness))


def an_absence(randomness: Random) -> Action:
    """An absence that is longer than other nodes wait."""
    seconds = some_seconds(randomness, 1.2, 3.0)
    away = some_seconds(randomness, 1.2, 3.0)
    return randomness.choice(
        (
            Pause(seconds),
            Cut("others", seconds, "both", randomness.random() < 0.5, randomness.random() < 0.5),
            Cut(randomness.choice(("leader", "follower", "register")), seconds, resets=True),
            Cut("others", seconds, randomness.choice(("in", "out"))),
            Kill(away),
            LosePower(away),
        )
    )


def some_trouble(randomness: Random) -> Action:
    """A trouble of a connection or a disk that passes."""
    peer = randomness.choice(("leader", "follower", "client", "register", "others"))
    return randomness.choice(
        (
            Reset(peer),
            CorruptLink(randomness.choice((Mishap.RESET, Mishap.FINISH, Mishap.SILENCE)), peer),
            Slow(
                peer,
                some_seconds(randomness, 0.3, 2.0),
                latency_s=some_seconds(randomness, 0.05, 0.6),
            ),
            Cut(peer, some_seconds(randomness, 0.1, 1.0), "both", holds=True),
            Pause(some_seconds(randomness, 0.1, 0.9)),
            BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.05, 1.0)), times=3)),
        )
    )


def a_failing_disk(randomness: Random) -> Action:
    """A disk that is full, or that fails a call."""
    if randomness.random() < 0.15:
        return FillDisk(0.3)
    if randomness.random() < 0.5:
        full = Fail(errno.ENOSPC, written_fraction=randomness.choice((0.0, 0.5, 0.9)))
        return BreakDisk(DiskFault("append", full, ".log", randomness.choice((0, 0, 1, 5))))
    operation = randomness.choice(("append", "sync", "sync", "sync", "rename", "sync_directory"))
    how = Fail(errno.EIO, written_fraction=randomness.choice((0.0, 0.5, 0.9)))
    return BreakDisk(DiskFault(operation, how, randomness.choice((".log", ""))))
