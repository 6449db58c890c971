"""Draws a plan whose faults belong together: the way in which replicated logs are known to fail.

Where `sim.swarm` draws every option by itself, this draws a story: a follower is away, then
the leader dies; a leader sleeps through its successor's election; who recovers is struck
again.  Each fault stands at a step of the protocol, or counts from the fault before it.  The
cluster is small and the load light and steady, so that there is always something to lose and
runs are cheap.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeVar

from octopi.simulation.disk_faults import Delay, DiskFault, Fail, Tear
from octopi.simulation.failures import (
    Action,
    AtEffect,
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    Fault,
    FillDisk,
    Kill,
    LosePower,
    Pause,
    Place,
    Reset,
    Rot,
    Slow,
    Spoil,
    Stop,
    Wipe,
)
from octopi.simulation.route import Mishap
from sim.plan import Plan, Tier, Workload

T = TypeVar("T")

Story = tuple[Fault, ...]

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
_REGISTER: Final = ("E2", "E3b", "E7", "E8a", "E8b", "E9a", "E17a", "E17b", "J5a", "R2b", "R3a")
_EDGES: Final = (
    *(("append", "before"), ("append", "after"), ("sync", "before"), ("sync", "during")),
    *(("sync", "after"), ("truncate", "after"), ("rename", "before"), ("rename", "after")),
    *(("sync_directory", "before"), ("sync_directory", "after"), ("send", "after")),
)


def draw(seed: int, tier: Tier = "message") -> Plan:
    """The plan of *seed*."""
    return _Director(seed).plan(tier)


class _Director:
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def _chance(self, key: str) -> Random:
        state = hashlib.blake2b(f"directed|{self._seed}|{key}".encode(), digest_size=8).digest()
        return Random(int.from_bytes(state, "big"))

    def _pick(self, option: str, choices: Sequence[T]) -> T:
        return self._chance(option).choice(choices)

    def plan(self, tier: Tier) -> Plan:
        partitions = self._pick("partitions", (1, 1, 1, 2))
        replicas = self._pick("replicas", (3, 3, 2))
        return Plan(
            seed=self._seed,
            tier=tier,
            partitions=partitions,
            replicas=replicas,
            min_insync=self._pick("min_insync", (1, 1, 1, 1, 2)),
            flush_before_ack=self._pick("flush_before_ack", (False, False, True)),
            flush_interval_s=self._pick("flush_interval", (1.0, 0.05)),
            segment_bytes=self._pick("segment", (None, None, 4096)),
            workload=self._workload(partitions),
            faults=self._pick("story", _STORIES)(self._chance("faults")),
        )

    def _workload(self, partitions: int) -> Workload:
        return Workload(
            producers=self._pick("producers", (1, 2, 2)),
            records=self._pick("records", (20, 40, 60)),
            consumers=self._pick("consumers", (1, 1, 2)),
            topic_partitions=partitions,
            value_bytes_max=self._pick("value_bytes", (40, 400, 3_000)),
            burst_count=self._pick("burst", (1, 1, 4, 12)),
            pause_s=self._pick("pause", (0.01, 0.03)),
            reopen_count=self._pick("reopen", (0, 0, 0, 8)),
            delivery_timeout_s=self._pick("delivery_timeout", (30.0, 30.0, 1.0)),
        )


# --- what stories are made of ----------------------------------------------------------


def _when_producing(chance: Random) -> Place:
    if chance.random() < 0.7:
        return AtStep(chance.choice(_PRODUCING), occurrence=chance.randint(1, 40))
    operation, edge = chance.choice(_EDGES)
    return AtEffect(operation, edge, chance.choice(("leader", "follower")), chance.randint(1, 30))


def _soon(chance: Random) -> Place:
    """Behind the fault before it: in what follows from that."""
    kind = chance.random()
    if kind < 0.5:
        steps = chance.choice((_CHANGING, _COMING_BACK, _PRODUCING))
        return AtStep(chance.choice(steps), occurrence=chance.choice((1, 1, 2, 4)), behind=True)
    if kind < 0.7:
        operation, edge = chance.choice(_EDGES)
        who = chance.choice(("leader", "follower", "register"))
        return AtEffect(operation, edge, who, chance.choice((1, 1, 2, 4)), behind=True)
    return AtTime(chance.choice((0.0, _seconds(chance, 0.0, 0.4), _late_s(chance))), behind=True)


def _late(chance: Random) -> Place:
    """Behind the fault before it, when its consequences were drawn."""
    return AtTime(_late_s(chance), behind=True)


def _late_s(chance: Random) -> float:
    return _seconds(chance, 1.1, 2.2)


def _seconds(chance: Random, least: float, most: float) -> float:
    return round(chance.uniform(least, most), 2)


def _restart_s(chance: Random) -> float | None:
    return chance.choice((0.0, 0.1, _seconds(chance, 0.2, 0.8), _seconds(chance, 1.2, 3.0), None))


def _death(chance: Random) -> Action:
    kind = chance.choice((Kill, Kill, LosePower, LosePower, Stop))
    return kind(_restart_s(chance))


def _absence(chance: Random) -> Action:
    """For longer than anybody waits."""
    seconds = _seconds(chance, 1.2, 3.0)
    away = _seconds(chance, 1.2, 3.0)
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


def _trouble(chance: Random) -> Action:
    """What connections and disks do now and then."""
    peer = chance.choice(("leader", "follower", "client", "register", "others"))
    return chance.choice(
        (
            Reset(peer),
            Spoil(chance.choice((Mishap.RESET, Mishap.FINISH, Mishap.SILENCE)), peer),
            Slow(peer, _seconds(chance, 0.3, 2.0), latency_s=_seconds(chance, 0.05, 0.6)),
            Cut(peer, _seconds(chance, 0.1, 1.0), "both", holds=True),
            Pause(_seconds(chance, 0.1, 0.9)),
            BreakDisk(DiskFault("sync", Delay(_seconds(chance, 0.05, 1.0)), times=3)),
        )
    )


def _failing_disk(chance: Random) -> Action:
    operation = chance.choice(("append", "append", "sync", "sync", "rename", "sync_directory"))
    number = errno.EIO
    if operation == "append":
        number = chance.choice((errno.EIO, errno.ENOSPC, errno.ENOSPC))
    how = Fail(number, written_fraction=chance.choice((0.0, 0.5, 0.9)))
    fault = DiskFault(operation, how, path_end=chance.choice((".log", "")))
    return chance.choice((BreakDisk(fault), BreakDisk(fault), FillDisk(0.3)))


# --- stories ---------------------------------------------------------------------------


def _one_dies(chance: Random) -> Story:
    return (Fault(_when_producing(chance), _death(chance)),)


def _one_after_the_other(chance: Random) -> Story:
    """Who recovers, or helps to, is struck again."""
    second = chance.choice(("here", "here", "leader", "follower", "register"))
    return (
        Fault(_when_producing(chance), _death(chance)),
        Fault(_soon(chance), _death(chance), second),
    )


def _leaders_die(chance: Random) -> Story:
    """One leader after the other: logs part, and meet again."""
    steps = ("P2b", "P2d", "P3b", "P5a", "P6b", "P7a", "P7b")
    first = AtStep(chance.choice(steps), "leader", chance.randint(1, 20))
    place = AtStep(chance.choice((*steps, "E11", "E15")), "leader", chance.randint(1, 3), True)
    faults = [Fault(AtStep(first.step, "any", first.occurrence), _death(chance), "leader")]
    again = [Fault(place, _death(chance), "leader") for _ in range(chance.randint(1, 2))]
    return (*faults, *again)


def _left_alone(chance: Random) -> Story:
    """A follower is away, the leader goes on without it and dies; the other comes back."""
    place = chance.choice((_late, _soon))
    return (
        Fault(_when_producing(chance), _absence(chance), "follower"),
        Fault(place(chance), chance.choice((_death, _absence))(chance), "leader"),
    )


def _all_alone(chance: Random) -> Story:
    """All followers are away, and then the leader is."""
    away = _absence(chance)
    return (
        Fault(_when_producing(chance), away, "follower"),
        Fault(AtTime(0.0, behind=True), chance.choice((away, Pause(2.5), Kill(2.5))), "follower"),
        Fault(_late(chance), chance.choice((_death, _absence))(chance), "leader"),
    )


def _sleeper(chance: Random) -> Story:
    """A leader sleeps, or is cut off, while another one is chosen; then it wakes up."""
    sleep = chance.choice((Pause(_seconds(chance, 1.2, 3.0)), _absence(chance)))
    return (
        Fault(_when_producing(chance), sleep, "leader"),
        *((Fault(_soon(chance), _death(chance), "leader"),) if chance.random() < 0.6 else ()),
    )


def _power_fails(chance: Random) -> Story:
    """All machines of a room, at about the same time."""
    place = _when_producing(chance)
    count = chance.randint(2, 3)
    deaths = [chance.choice((LosePower, LosePower, Kill))(_restart_s(chance)) for _ in range(count)]
    gap_s = chance.choice((0.0, 0.0, 0.01, 0.3))
    targets = chance.sample(("broker-1", "broker-2", "broker-3"), count)
    faults = [Fault(place, deaths[0], targets[0])]
    for death, target in zip(deaths[1:], targets[1:], strict=True):
        faults.append(Fault(AtTime(gap_s, behind=True), death, target))
    return tuple(faults)


def _register_fails(chance: Random) -> Story:
    """The register dies in the midst of what it decides."""
    death = chance.choice((Kill, LosePower, LosePower, Wipe))(chance.choice((0.0, 0.1, 0.6, 2.5)))
    place = AtStep(chance.choice(_REGISTER), occurrence=chance.choice((1, 1, 2, 3)), behind=True)
    slow = BreakDisk(DiskFault("sync", Delay(_seconds(chance, 0.02, 0.5)), times=5))
    faults = [Fault(_when_producing(chance), _death(chance), chance.choice(("leader", "follower")))]
    if chance.random() < 0.4:
        faults.insert(0, Fault(AtTime(0.0), slow, "register"))
    faults.append(Fault(place, death, "register"))
    if chance.random() < 0.5:
        faults.append(Fault(_soon(chance), _death(chance), chance.choice(("here", "leader"))))
    return tuple(faults)


def _answers_get_lost(chance: Random) -> Story:
    """Producers don't hear what became of their batches, and send them again."""
    step = chance.choice(("C1b", "P1", "P2b", "P5a", "P6b", "P7a", "P7b"))
    place = AtStep(step, occurrence=chance.randint(2, 40))
    cut = Cut("client", _seconds(chance, 0.05, 2.0), chance.choice(("both", "out")), resets=True)
    loss = chance.choice((Reset("client"), cut, _death(chance), Pause(1.5)))
    faults = [Fault(place, loss, "leader")]
    if chance.random() < 0.5:
        again = AtStep(chance.choice(("C2b", "P1", "P7a", "E11", "C6")), behind=True)
        faults.append(Fault(again, chance.choice((Reset("client"), _death(chance))), "leader"))
    return tuple(faults)


def _disk_fails(chance: Random) -> Story:
    faults = [Fault(_when_producing(chance), _failing_disk(chance))]
    if chance.random() < 0.7:
        faults.append(Fault(_soon(chance), _death(chance), chance.choice(("here", "leader"))))
    return tuple(faults)


def _torn_writes(chance: Random) -> Story:
    """A machine loses its power while it writes."""
    operation, edge = chance.choice(_EDGES[:6])
    who = chance.choice(("leader", "follower", "register"))
    slow = BreakDisk(
        chance.choice(
            (
                DiskFault("sync", Delay(_seconds(chance, 0.02, 0.3)), times=20),
                DiskFault("append", Tear(), calls_before=chance.randrange(9)),
            )
        )
    )
    return (
        Fault(AtTime(_seconds(chance, 0.0, 0.3)), slow, who),
        Fault(AtEffect(operation, edge, who, chance.randint(1, 25)), LosePower(_restart_s(chance))),
        *((Fault(_soon(chance), _death(chance), "leader"),) if chance.random() < 0.4 else ()),
    )


def _disk_is_lost(chance: Random) -> Story:
    loss = chance.choice((Wipe, Rot))(chance.choice((0.0, 0.2, 1.5)))
    return (
        Fault(_when_producing(chance), loss, chance.choice(("leader", "follower"))),
        Fault(_soon(chance), _death(chance), chance.choice(("leader", "follower", "register"))),
    )


def _unsteady(chance: Random) -> Story:
    """Connections and disks have their moods, and somebody dies."""
    faults = [Fault(_when_producing(chance), _trouble(chance))]
    for _ in range(chance.randint(1, 2)):
        what = chance.choice((_trouble, _trouble, _death))
        target = chance.choice(("here", "leader", "follower"))
        faults.append(Fault(_soon(chance), what(chance), target))
    return tuple(faults)


_STORIES: Final[tuple[Callable[[Random], Story], ...]] = (
    _one_dies,
    _one_after_the_other,
    _one_after_the_other,
    _leaders_die,
    _left_alone,
    _left_alone,
    _all_alone,
    _sleeper,
    _power_fails,
    _register_fails,
    _answers_get_lost,
    _disk_fails,
    _torn_writes,
    _disk_is_lost,
    _unsteady,
)
