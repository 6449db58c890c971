"""Stories of full disks and of who serves meanwhile, of producers that have no register to ask,
and of consumers whose log goes on in another way."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from math import inf
from random import Random
from typing import Any, Final

from octopi.simulation.disk_faults import Delay, DiskFault, Fail
from octopi.simulation.failures import (
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    Fault,
    FillDisk,
    Kill,
    LosePower,
    Pause,
    Reset,
    Stop,
)
from sim.drawing import BROKERS, a_death, some_seconds, soon, when_producing
from sim.kinds import ALONE, FULL, POWER, STOPS
from sim.story import Story


def _no_space_for(chance: Random, operation: str, path_end: str = "") -> BreakDisk:
    """No space for the next few calls of *operation*, and for no other."""
    fault = DiskFault(operation, Fail(errno.ENOSPC), path_end, times=chance.choice((1, 1, 2)))
    return BreakDisk(fault)


def _told_with_a_full_disk(chance: Random) -> Story:
    """A broker can't store the first decisions that it is told when it comes back."""
    who = chance.choice(BROKERS)
    gone = chance.choice((Kill, Kill, Stop, LosePower))(some_seconds(chance, 0.3, 2.5))
    full = chance.choice(
        (
            FillDisk(some_seconds(chance, 0.2, 1.5)),
            _no_space_for(chance, "replace_file", "partitions"),
            _no_space_for(chance, "replace_file", "partitions"),
        )
    )
    faults = (
        Fault(when_producing(chance), gone, who),
        Fault(AtStep("E10a", who, behind=True), full),
    )
    return Story(faults, {"faults_s": 8.0, "kills_each": False}, {"pause_s": 0.1})


def _appointed_with_a_full_disk(chance: Random) -> Story:
    """A leader ends for good, and its successor can't store that it leads now."""
    ends = chance.choice((Stop, Kill, Kill))(inf)
    times = chance.choice((1, 1, 2, 3))
    full = BreakDisk(DiskFault("replace_file", Fail(errno.ENOSPC), "partitions", times=times))
    faults = (
        Fault(when_producing(chance), ends, "leader/0"),
        Fault(
            AtStep("E8b", behind=True), full, chance.choice(("leader/0", "leader/0", "follower/0"))
        ),
    )
    options = {"replicas": chance.choice((2, 3)), "min_insync": 1, "kills_each": False}
    return Story(faults, {**options, "faults_s": 6.0}, {"pause_s": 0.1})


def _ordered_with_a_full_disk(chance: Random) -> Story:
    """A broker can't make the log of a topic that it is to hold."""
    operation = chance.choice(("make_directory", "append", "open", "replace_file"))
    full = chance.choice(
        (_no_space_for(chance, operation), FillDisk(some_seconds(chance, 0.1, 1.5)))
    )
    faults = [Fault(AtStep("T3a", "any", chance.choice((1, 2, 2, 3, 3, 4))), full)]
    if chance.random() < 0.3:
        faults.append(Fault(soon(chance), a_death(chance), chance.choice(("leader", "follower"))))
    chores = chance.choice(((), (), ("topic",), ("renew",), ("move",)))
    return Story(tuple(faults), {"faults_s": 8.0, "kills_each": False}, {"chores": chores})


def _full_in_the_end(chance: Random) -> Story:
    """The disk of one broker after the other is full for a while, or fails once."""
    faults = []
    if chance.random() < 0.3:
        faults.append(Fault(when_producing(chance), a_death(chance), "leader"))
    partitions = chance.choice((1, 3))
    options = {"replicas": chance.choice((2, 3)), "min_insync": 1, "spoils_disks": True}
    load = {"topic_partitions": partitions, "records": 15}
    return Story(tuple(faults), {**options, "partitions": partitions}, load)


def _finds_its_way(chance: Random) -> Story:
    """Leaders change while producers are silent, and then the register is down."""
    faults = []
    if chance.random() < 0.3:
        faults.append(Fault(when_producing(chance), a_death(chance), "leader"))
    options: dict[str, Any] = {"without_register": True, "min_insync": 1}
    options["replicas"] = chance.choice((1, 2, 3))
    options["kills_each"] = chance.random() < 0.7
    options["flush_before_ack"] = True
    load = {"reopen_count": 0, "delivery_timeout_s": chance.choice((30.0, 5.0)), "chores": ()}
    return Story(tuple(faults), options, {**load, "records": 15})


def _stops_beside_a_sleeper(chance: Random) -> Story:
    """A leader is asked to stop while a follower hangs, or can't be heard."""
    hangs = chance.choice(
        (
            Pause(some_seconds(chance, 1.0, 3.0)),
            Cut("leader", some_seconds(chance, 1.0, 3.0), chance.choice(("both", "out"))),
            BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.3, 1.5)), times=20)),
        )
    )
    faults = [
        Fault(when_producing(chance), hangs, "follower/0"),
        Fault(AtTime(some_seconds(chance, 0.0, 1.2), behind=True), Stop(0.5), "leader/0"),
    ]
    if chance.random() < 0.5:
        slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.3, 1.0)), times=9))
        faults.insert(1, Fault(AtTime(0.0, behind=True), slow, "register"))
    options = {"replicas": chance.choice((2, 3)), "min_insync": 1}
    return Story(tuple(faults), options, {"pause_s": 0.05})


def _polls(chance: Random) -> Story:
    """Many fetches wait on the connections of producers."""
    faults = []
    if chance.random() < 0.5:
        faults.append(Fault(when_producing(chance), a_death(chance), "leader"))
    load = {"polls": chance.choice((64, 100)), "records": 15, "delivery_timeout_s": 30.0}
    return Story(tuple(faults), {"min_insync": 1}, load)


def _asks_twice(chance: Random) -> Story:
    """A producer of version 1 records doesn't hear what became of one, and sends it again."""
    place = AtStep(chance.choice(("P2b", "P5a", "P6b", "P7a")), "leader", chance.randint(1, 12))
    loss = chance.choice((Reset("client"), Reset("client"), a_death(chance)))
    faults = [Fault(place, loss, "leader")]
    for _ in range(chance.randint(0, 2)):
        again = AtStep(chance.choice(("P2b", "P6b", "P7a")), "leader", 2, behind=True)
        faults.append(Fault(again, Reset("client"), "leader"))
    load = {"opaque_records": 20, "producers": 1, "records": 15, "pause_s": 0.05}
    return Story(tuple(faults), {"flush_before_ack": chance.random() < 0.5}, load)


def _goes_on_differently(chance: Random) -> Story:
    """The only replica loses what was in its memory, and gets messages of the same sizes in its
    place, while consumers begin anew from where they were."""
    back_s = chance.choice((0.0, 0.1, 0.5))
    at = AtTime(some_seconds(chance, 0.3, 1.5))
    faults = [Fault(at, LosePower(back_s), "leader/0")]
    if chance.random() < 0.5:
        # It comes back before the log is as long again as it was, or when it is longer.
        away_s = round(back_s + some_seconds(chance, 0.0, 2.5), 2)
        faults.insert(0, Fault(at, Kill(away_s), "consumer-1"))
    options: dict[str, Any] = {"replicas": 1, "min_insync": 1, "partitions": 1, "loses_all": True}
    options |= {"flush_before_ack": False, "flush_interval_s": chance.choice((0.3, 1.0, 2.5))}
    options |= {"faults_s": 8.0, "checkpoint_bytes": chance.choice((2000, 1_000_000))}
    load: dict[str, Any] = {"value_bytes_max": 30, "topic_partitions": 1, "consumers": 2}
    load |= {"records": 60, "pause_s": chance.choice((0.01, 0.03)), "burst_count": 1}
    load["reopen_count"] = chance.choice((0, 4, 8))
    return Story(tuple(faults), options, load)


TOLD_OF_SERVING: Final[Mapping[str, tuple[Callable[[Random], Story], ...]]] = {
    FULL: (
        _told_with_a_full_disk,
        _appointed_with_a_full_disk,
        _ordered_with_a_full_disk,
        _full_in_the_end,
        _full_in_the_end,
    ),
    ALONE: (_finds_its_way,),
    STOPS: (_stops_beside_a_sleeper,),
    POWER: (_goes_on_differently, _goes_on_differently),
}
"""By the kind of `sim.kinds` that has to be drawn."""
ALWAYS_TOLD_OF_SERVING: Final = (_polls, _asks_twice)
