"""Stories of disks that fail, fill up or change what they hold, and of power that fails."""

from __future__ import annotations

import errno
from random import Random
from typing import Any, Final, get_args

import attrs

from octopi.simulation.damage import Damage, Harm, Part
from octopi.simulation.disk_faults import Delay, DiskFault, Fail, Tear
from octopi.simulation.failures import (
    AtEffect,
    AtStep,
    AtTime,
    BreakDisk,
    Fault,
    FillDisk,
    Kill,
    LosePower,
    Pause,
    RollBack,
    Rot,
    Slow,
    Stop,
    Wipe,
)
from sim.drawing import (
    BROKERS,
    EDGES,
    QUICK,
    a_death,
    a_failing_disk,
    late,
    shortly,
    some_restart_s,
    some_seconds,
    soon,
    when_producing,
)
from sim.story import Story

_PIPELINED: Final = {"batch_bytes": 1}
"""Each message is a batch, and several are under way."""


def back_with_less(chance: Random) -> Story:
    """A follower loses what was in its memory, and the leader is gone before it can say so."""
    loss = chance.choice((LosePower, LosePower, Wipe))(chance.choice((0.0, 0.1, 0.3)))
    step = chance.choice(("J1b", "J2", "J4b", "J5a", "J5b", "J7", "J8a", "J8b"))
    death = chance.choice((Kill, Kill, Pause))(some_seconds(chance, 2.0, 4.0))
    faults = (
        Fault(AtStep("P4b", "follower", chance.choice((2, 3, 5, 8))), loss),
        Fault(AtStep(step, behind=True), death, "leader"),
    )
    options = {"replicas": 2, "min_insync": 1, "flush_before_ack": False}
    return Story(faults, {**options, "flush_interval_s": 2.5, **QUICK})


def back_with_rot(chance: Random) -> Story:
    """A bit turns over in what a follower has, and its leader is gone before the two compare."""
    step = chance.choice(("J1b", "J2", "J4b", "J5a", "J5b"))
    death = chance.choice((Kill, Kill, Pause))(some_seconds(chance, 2.0, 4.0))
    faults = (
        Fault(AtStep("P4b", "follower", chance.choice((5, 8, 12))), Rot(0.0)),
        Fault(AtStep(step, behind=True), death, "leader"),
    )
    options = {"replicas": 2, "min_insync": 1, "partitions": 1, "flush_before_ack": True}
    load = {"topic_partitions": 1, "value_bytes_max": 40}  # for it to lie behind the checkpoint
    return Story(faults, {**options, **QUICK}, load)


def leads_at_once(chance: Random) -> Story:
    """A leader loses what was in its memory and is back before anybody finds out."""
    busy = chance.choice(
        (Pause(0.9), Slow("others", 2.0, latency_s=some_seconds(chance, 0.2, 0.8)))
    )
    faults = [
        Fault(AtStep("P6b", "leader", chance.choice((2, 3, 5, 8))), busy, "register"),
        Fault(AtTime(0.0, behind=True), LosePower(0.0), "leader"),
    ]
    if chance.random() < 0.3:
        faults.append(Fault(soon(chance), a_death(chance), "follower"))
    options = {"replicas": 2, "min_insync": 1, "flush_before_ack": False}
    return Story(tuple(faults), {**options, "flush_interval_s": 2.5, **QUICK})


def older_copy(chance: Random) -> Story:
    """A follower's machine is set up again from a copy that it went on from, and starts so
    often that its life could be the next one; then its leader is gone."""
    taken_s = chance.choice((0.3, 0.5))
    faults = (
        Fault(AtTime(taken_s + 0.1), Kill(0.0), "follower/0"),
        Fault(AtTime(some_seconds(chance, 1.0, 1.6), behind=True), RollBack(taken_s, 0.0)),
        Fault(AtStep("J1b", behind=True), Kill(0.0)),
        Fault(AtStep(chance.choice(("J1b", "J2", "J5b")), behind=True), Kill(3.0), "leader/0"),
    )
    options = {"replicas": 2, "min_insync": 1, "flush_before_ack": True, **QUICK}
    return Story(faults, options, {"producers": 1, "records": 60})


def power_fails(chance: Random) -> Story:
    """All machines of a room, at about the same time."""
    count = chance.choice((2, 3, 3))
    deaths = [
        chance.choice((LosePower, LosePower, Kill))(some_restart_s(chance)) for _ in range(count)
    ]
    gap_s = chance.choice((0.0, 0.0, 0.01, 0.3))
    targets = chance.sample(BROKERS, count)
    faults = [Fault(when_producing(chance), deaths[0], targets[0])]
    for death, target in zip(deaths[1:], targets[1:], strict=True):
        faults.append(Fault(AtTime(gap_s, True), death, target))
    return Story(tuple(faults), {"flush_before_ack": True} if chance.random() < 0.7 else {})


def full_for_a_moment(chance: Random) -> Story:
    """A disk doesn't take a batch, and takes what comes right behind it."""
    full = Fail(errno.ENOSPC, written_fraction=chance.choice((0.0, 0.5, 0.9)))
    moment = BreakDisk(DiskFault("append", full, ".log"))
    load = {"burst_count": 12, "producers": 1, "topic_partitions": 1, **_PIPELINED}
    options: dict[str, Any] = {"partitions": 1, "min_insync": 1}
    if chance.random() < 0.5:
        # A new epoch is stored first, and what is sent meanwhile piles up behind that.
        slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.1, 0.3)), times=9))
        faults = [
            Fault(AtStep("P2a", "leader"), slow, "follower"),
            Fault(AtStep("P3a", "follower", chance.choice((1, 1, 2))), moment),
        ]
        options.update(replicas=2, latency_s=0.001, jitter_s=0.02)
        load["producers"] = 3
    else:
        faults = [Fault(AtStep("P2a", "leader", chance.choice((1, 1, 1, 2, 3))), moment)]
        options["replicas"] = chance.choice((1, 1, 3))  # who leads alone goes on leading
    if chance.random() < 0.3:
        faults.append(Fault(shortly(chance), a_death(chance), chance.choice(("leader", "here"))))
    return Story(tuple(faults), options, load)


def disk_fails(chance: Random) -> Story:
    begins = AtStep(chance.choice(("J10", "E11", "D3a")), occurrence=chance.randint(1, 3))
    place = chance.choice((begins, when_producing(chance)))
    who = chance.choice(("leader", "follower", "follower"))
    faults = [Fault(place, a_failing_disk(chance), who)]
    if chance.random() < 0.3:
        faults.insert(0, Fault(when_producing(chance), Kill(some_restart_s(chance)), "leader"))
        faults[1] = Fault(attrs.evolve(begins, behind=True), a_failing_disk(chance), who)
    if chance.random() < 0.5:
        faults.append(Fault(soon(chance), a_death(chance), chance.choice(("here", "leader"))))
    return Story(tuple(faults))


def flush_fails(chance: Random) -> Story:
    """The device refuses what an acknowledgement waits for."""
    place = AtStep("D1a", chance.choice(("leader", "follower")), chance.choice((1, 2, 3, 5)))
    faults = [Fault(place, BreakDisk(DiskFault("sync", Fail(errno.EIO), ".log")))]
    if chance.random() < 0.5:
        faults.append(Fault(shortly(chance), LosePower(0.1), chance.choice(("here", "leader"))))
    return Story(tuple(faults), {"flush_before_ack": True})


def torn_writes(chance: Random) -> Story:
    """A machine loses its power while it writes."""
    operation, edge = chance.choice(EDGES[:6])
    who = chance.choice(("leader", "follower", "register"))
    slow = DiskFault("sync", Delay(some_seconds(chance, 0.02, 0.3)), times=20)
    torn = DiskFault("append", Tear(), calls_before=chance.randrange(9))
    place = AtEffect(operation, edge, who, chance.randint(1, 25))
    return Story(
        (
            Fault(
                AtTime(some_seconds(chance, 0.0, 0.3)), BreakDisk(chance.choice((slow, torn))), who
            ),
            Fault(place, LosePower(some_restart_s(chance))),
            *((Fault(soon(chance), a_death(chance), "leader"),) if chance.random() < 0.4 else ()),
        )
    )


def disk_is_lost(chance: Random) -> Story:
    loss = chance.choice((Wipe, Rot))(chance.choice((0.0, 0.2, 1.5)))
    second = chance.choice(("leader", "follower", "register"))
    return Story(
        (
            Fault(when_producing(chance), loss, chance.choice(("leader", "follower"))),
            Fault(soon(chance), a_death(chance), second),
        )
    )


def damaged_comes_first(chance: Random) -> Story:
    """All end, and the one that comes back first lacks some of what it had."""
    damaged, *others = chance.sample(BROKERS, len(BROKERS))
    parts: tuple[Part, ...] = ("log", "log", "log", "checkpoint", "directory", "ends")
    harms: tuple[Harm, ...] = ("cut", "missing")
    part, harm = chance.choice(parts), chance.choice(harms)
    back_s = chance.choice((some_seconds(chance, 0.3, 0.9), some_seconds(chance, 1.5, 3.0)))
    end = chance.choice((Kill, Kill, Stop))
    flushed = AtStep("D1b", damaged, chance.choice((2, 3, 4, 6)))
    return Story(
        (
            Fault(flushed, Damage(harm, part, chance.choice((0.0, 0.2))), damaged),
            *(Fault(AtTime(0.0, behind=True), end(back_s), one) for one in others),
        ),
        {
            "flush_interval_s": 0.05,
            "faults_s": 8.0,
            "checkpoint_bytes": chance.choice((2000, 1_000_000)),
        },
        {"pause_s": 0.03, "records": 40},
    )


def damaged_leads(chance: Random) -> Story:
    """A node comes back damaged, and the leader is gone before the two compare."""
    harm: Harm = chance.choice(get_args(Harm))
    part: Part = chance.choice(get_args(Part))
    damage = Damage(harm, part, chance.choice((0.0, 0.1, 0.4)), 0.4)
    step = chance.choice(("J1b", "J2", "J3", "J4b", "J5a", "J5b", "J6", "J7", "J9b"))
    who = chance.choice(("leader", "follower", "follower"))
    place = AtStep("D1b", who, chance.choice((2, 3, 5, 8)))
    faults = [
        Fault(place, damage, "register" if part == "journal" else "here"),
        Fault(AtStep(step, behind=True), a_death(chance), "leader"),
    ]
    if chance.random() < 0.4:
        faults.append(Fault(soon(chance), a_death(chance), chance.choice(("here", "leader"))))
    options: dict[str, Any] = {"flush_interval_s": 0.05, "replicas": chance.choice((2, 3))}
    options["checkpoint_bytes"] = chance.choice((2000, 1_000_000))
    return Story(tuple(faults), options, {"pause_s": 0.03, "records": 40})


def starts_with_a_full_disk(chance: Random) -> Story:
    """A node starts while its disk is full, or full for some of what it does."""
    times = chance.choice((1, 1, 2, 5, 20))
    full = DiskFault(
        chance.choice(("append", "append", "open", "make_directory")),
        Fail(errno.ENOSPC),
        calls_before=chance.choice((0, 0, 1, 2, 4, 8)),
        times=times,
    )
    seconds = some_seconds(chance, 0.3, 4.0)
    trouble = chance.choice((FillDisk(seconds), FillDisk(seconds), BreakDisk(full)))
    who = chance.choice(("leader", "follower", "follower", "register"))
    first = chance.choice((Kill, Kill, Stop))(chance.choice((0.1, 0.5, 1.5)))
    faults = [Fault(when_producing(chance), first, who), Fault(AtTime(0.0, True), trouble)]
    if chance.random() < 0.4:
        faults.append(Fault(late(chance), a_death(chance), "leader"))
    return Story(tuple(faults), {"faults_s": 8.0, "kills_each": chance.random() < 0.5})


def all_lose_power(chance: Random) -> Story:
    """All machines lose their power, at once or one after the other within a moment."""
    gap_s = chance.choice((0.0, 0.0, 0.01, 0.1, 0.5))
    back = [chance.choice((0.0, 0.2, some_seconds(chance, 0.2, 2.0), None)) for _ in BROKERS]
    order = chance.sample(BROKERS, len(BROKERS))
    faults = [Fault(when_producing(chance), LosePower(back[0]), order[0])]
    for target, back_s in zip(order[1:], back[1:], strict=True):
        faults.append(Fault(AtTime(gap_s, behind=True), LosePower(back_s), target))
    if chance.random() < 0.3:
        faults.append(Fault(AtTime(0.0, behind=True), LosePower(0.1), "register"))
    if chance.random() < 0.4:
        faults.append(Fault(soon(chance), a_death(chance), chance.choice(("leader", "register"))))
    options: dict[str, Any] = {"loses_all": True, "faults_s": 8.0}
    options["flush_before_ack"] = chance.random() < 0.3
    options["flush_interval_s"] = chance.choice((0.05, 0.3, 1.0))
    options["replicas"] = chance.choice((3, 3, 2, 1))
    if options["replicas"] == 1:
        options["min_insync"] = 1
    return Story(tuple(faults), options, {"value_bytes_max": chance.choice((0, 40, 400))})
