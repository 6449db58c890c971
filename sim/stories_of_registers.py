"""Stories of a register that is slow, dies, or forgets what it decided, and of topics that are made
again meanwhile."""

from __future__ import annotations

import errno
from random import Random
from typing import Final

from octopi.simulation.disk_faults import Delay, DiskFault, Fail
from octopi.simulation.failures import (
    AtStep,
    AtTime,
    BreakDisk,
    Fault,
    Kill,
    LosePower,
    Pause,
    Reset,
    Stop,
    Wipe,
)
from sim.drawing import BROKERS, a_death, an_absence, at_once, some_seconds, soon, when_producing
from sim.story import Story

_REGISTER: Final = ("E2", "E3b", "E7", "E8a", "E8b", "E9a", "E17a", "E17b", "J5a", "R2b", "R3a")


def memory_is_lost(chance: Random) -> Story:
    """The register forgets that a follower was left behind, and who knows it is gone, too."""
    forgets = chance.choice((Wipe, LosePower, LosePower))(chance.choice((0.0, 0.1, 0.3)))
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.2, 0.6)), times=9))
    alone = AtStep("P7b", "leader", chance.choice((1, 1, 2, 4)), behind=True)
    death = chance.choice((Kill, LosePower))(some_seconds(chance, 4.0, 5.0))
    faults = [
        Fault(when_producing(chance), Kill(some_seconds(chance, 1.5, 2.5)), "follower"),
        Fault(AtStep("E16b", behind=True), slow, "register"),
        Fault(AtStep("E17b", behind=True), Pause(0.0), "register"),  # others count from here
        Fault(alone, death, "leader"),
        Fault(AtTime(0.0, behind=True), forgets, "register"),
    ]
    if chance.random() < 0.5:
        del faults[1]
    options = {"replicas": 2, "min_insync": 1, "partitions": 1}
    return Story(tuple(faults), options, {"topic_partitions": 1, "records": 40})


def register_fails(chance: Random) -> Story:
    """The register is slow, or dies, in the midst of what it decides."""
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.02, 0.5)), times=9))
    death = chance.choice((Kill, LosePower, LosePower, Wipe))(chance.choice((0.0, 0.1, 0.6, 2.5)))
    step = AtStep(chance.choice(_REGISTER), occurrence=chance.choice((1, 1, 2, 3)), behind=True)
    who = chance.choice(("leader", "follower"))
    faults = [Fault(when_producing(chance), chance.choice((a_death, an_absence))(chance), who)]
    if chance.random() < 0.5:
        faults.insert(0, Fault(AtTime(0.3), slow, "register"))
    if chance.random() < 0.7:
        faults.append(Fault(step, death, "register"))
    if chance.random() < 0.6:
        target = chance.choice(("here", "leader", "leader/0", "follower"))
        faults.append(Fault(soon(chance), a_death(chance), target))
    return Story(tuple(faults))


def spent_epoch(chance: Random) -> Story:
    """The register loses its disk when an epoch was promised that nothing came of yet."""
    step = chance.choice(("E3b", "E4", "E5", "E6b", "E7", "E8a", "E8b", "E9a"))
    loss = Wipe(chance.choice((0.0, 0.1, 0.6)))
    faults = [
        Fault(when_producing(chance), a_death(chance), "leader"),
        Fault(AtStep(step, behind=True), loss, "register"),
    ]
    if chance.random() < 0.3:
        faults.append(Fault(soon(chance), a_death(chance), "leader"))
    return Story(tuple(faults))


def slow_to_remember(chance: Random) -> Story:
    """A leader takes its time to store who is in sync, and goes on replicating meanwhile."""
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.2, 0.5)), times=20))
    gone = chance.choice((Kill, Stop))(some_seconds(chance, 0.0, 0.4))
    faults = [
        Fault(when_producing(chance), slow, "leader"),
        Fault(at_once(chance), gone, "follower"),
    ]
    if chance.random() < 0.3:
        faults.append(Fault(soon(chance), a_death(chance), "leader"))
    options = {"replicas": 3, "min_insync": 1, "flush_before_ack": False}
    return Story(tuple(faults), options, {"pause_s": 0.02, "records": 40})


def forgets_with_a_full_disk(chance: Random) -> Story:
    """A broker comes back with what it heard long ago to a register that has to find everything
    out again, and whose disk doesn't take every entry."""
    full = Fail(errno.ENOSPC, written_fraction=chance.choice((0.0, 0.5)))
    operation = chance.choice(("append", "append", "append", "sync", ""))
    how = full if operation != "sync" else Fail(errno.EIO)
    fault = DiskFault(
        operation, how, ".log", chance.randrange(6), times=chance.choice((1, 1, 2, 4, 8))
    )
    step = chance.choice(("R1", "J3", "J4a", "J5a", "J5a", "R2a"))
    wiped_s, late_s = chance.choice((0.0, 0.1, 0.6)), some_seconds(chance, 1.2, 2.0)
    back_s = late_s + wiped_s + some_seconds(chance, -0.1, 1.5)
    faults = [
        Fault(when_producing(chance), chance.choice((Kill, Kill, Stop))(back_s), "follower"),
        Fault(AtTime(late_s, behind=True), Wipe(wiped_s), "register"),
        Fault(AtStep(step, behind=True), BreakDisk(fault), "register"),
    ]
    if chance.random() < 0.5:
        faults.append(Fault(soon(chance), a_death(chance), chance.choice(("leader", "register"))))
    options = {"snapshot_entries": chance.choice((3, 100_000)), "replicas": chance.choice((2, 3))}
    return Story(tuple(faults), {**options, "faults_s": 8.0}, {"pause_s": 0.05, "records": 80})


def made_again(chance: Random) -> Story:
    """A broker is away while topics are deleted and made again under their names."""
    gone = chance.choice((Kill, Stop, LosePower))(some_seconds(chance, 0.3, 3.0))
    step = chance.choice(("T3b", "T5a", "T5b", "T6a", "T6b", "T7a", "T7b", "T1b", "T2a"))
    faults = [
        Fault(
            AtStep(step, occurrence=chance.choice((1, 2, 3))),
            gone,
            chance.choice(("here", "follower", "leader")),
        )
    ]
    if chance.random() < 0.5:
        faults.append(Fault(soon(chance), a_death(chance), "leader"))
    return Story(tuple(faults), {"faults_s": 8.0}, {"chores": ("renew", "renew")})


def made_again_and_forgotten(chance: Random) -> Story:
    """The same, and before it is back the register loses its disk."""
    away = chance.choice(BROKERS)
    faults = (
        Fault(
            AtStep("T3b", away, chance.choice((2, 2, 3))),
            Kill(some_seconds(chance, 3.0, 5.0)),
            away,
        ),
        Fault(AtTime(some_seconds(chance, 1.2, 2.4), behind=True), Wipe(0.2), "register"),
        Fault(AtTime(3.0, behind=True), Reset("client"), "leader"),
    )
    options = {"faults_s": 12.0, "replicas": 3, "min_insync": 1, "partitions": 1}
    return Story(faults, options, {"chores": ("renew", "renew"), "topic_partitions": 1})
