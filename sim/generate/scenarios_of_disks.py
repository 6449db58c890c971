"""Scenarios in which a disk fails, fills up or changes stored bytes, or the power fails."""

from __future__ import annotations

import errno
from random import Random
from typing import Any, get_args

import attrs

from octopi.simulation.disk.faults import Delay, DiskFault, Fail, Tear
from octopi.simulation.faults.actions import (
    AtEffect,
    AtStep,
    AtTime,
    BitFlip,
    BreakDisk,
    FillDisk,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Reset,
    RollBack,
    Slow,
    Stop,
    Wipe,
)
from octopi.simulation.faults.damage import Damage, Harm, Part
from sim.generate.fault_patterns import (
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
from sim.generate.scenario import PIPELINED, Scenario


def back_with_less(randomness: Random) -> Scenario:
    """A follower loses records that were not on its device, and the leader dies before the follower
    has told it."""
    loss = randomness.choice((LosePower, LosePower, Wipe))(randomness.choice((0.0, 0.1, 0.3)))
    step = randomness.choice(("J1b", "J2", "J4b", "J5a", "J5b", "J7", "J8a", "J8b"))
    death = randomness.choice((Kill, Kill, Pause))(some_seconds(randomness, 2.0, 4.0))
    faults = (
        InjectedFault(AtStep("P4b", "follower", randomness.choice((2, 3, 5, 8))), loss),
        InjectedFault(AtStep(step, behind=True), death, "leader"),
    )
    options = {"replicas": 2, "min_insync": 1, "flush_before_ack": False}
    return Scenario(faults, {**options, "flush_interval_s": 2.5, **QUICK})


def back_with_rot(randomness: Random) -> Scenario:
    """A bit flips in a follower's files, and its leader dies before the two compare their logs."""
    step = randomness.choice(("J1b", "J2", "J4b", "J5a", "J5b"))
    death = randomness.choice((Kill, Kill, Pause))(some_seconds(randomness, 2.0, 4.0))
    faults = (
        InjectedFault(AtStep("P4b", "follower", randomness.choice((5, 8, 12))), BitFlip(0.0)),
        InjectedFault(AtStep(step, behind=True), death, "leader"),
    )
    options = {"replicas": 2, "min_insync": 1, "partitions": 1, "flush_before_ack": True}
    load = {"topic_partitions": 1, "value_bytes_max": 40}  # so the bit is behind the checkpoint
    return Scenario(faults, {**options, **QUICK}, load)


def rots_before_its_flush(randomness: Random) -> Scenario:
    """A bit flips in what a follower has acknowledged and not flushed, after its process was
    killed.  Its leader dies a moment after it, when it has acknowledged that to a producer."""
    death = randomness.choice((Kill, Kill, Pause))(some_seconds(randomness, 2.0, 4.0))
    place = AtStep("P4b", "follower", randomness.choice((2, 3, 5, 8)))
    faults = (
        InjectedFault(place, Damage("flip", "unflushed", 0.0)),
        InjectedFault(AtTime(randomness.choice((0.002, 0.003, 0.004)), True), death, "leader"),
    )
    options = {"replicas": 2, "min_insync": 1, "partitions": 1, "flush_before_ack": False}
    load = {"topic_partitions": 1, "members": 0, "chores": ()}
    return Scenario(faults, {**options, "flush_interval_s": 2.5, **QUICK}, load)


def late_word(randomness: Random) -> Scenario:
    """The last acknowledgement of a follower arrives late: its machine has lost its power and
    started again and gets slowly in its next session what it has lost, and its former connection
    isn't found broken yet."""
    records = randomness.choice((5, 8))
    delayed = Slow("leader", 0.05, latency_s=some_seconds(randomness, 0.18, 0.28))
    slow = Slow("leader", 1.0, latency_s=0.0005, bytes_per_s=20_000.0)
    back_s = some_seconds(randomness, 0.03, 0.06)
    faults = (
        InjectedFault(AtStep("P3b", "follower", records), delayed),
        InjectedFault(AtStep("P4b", "follower", 1, behind=True), LosePower(back_s)),
        InjectedFault(AtStep("J8b", behind=True), slow),
        InjectedFault(AtTime(4.0), Reset("client"), "leader"),  # healing can't begin before this
    )
    options = {"partitions": 1, "replicas": 2, "min_insync": 1, "flush_before_ack": False}
    load: dict[str, Any] = {"producers": 1, "records": records, "burst_count": 1}
    load |= {"named_producers": 0, "members": 0}  # the follower appends these records alone
    load |= {"topic_partitions": 1, "value_bytes_max": 6_000, "chores": ()}
    return Scenario(faults, {**options, "flush_interval_s": 2.5, **QUICK}, load)


def leads_at_once(randomness: Random) -> Scenario:
    """A leader loses records that were not on its device, and is back before others notice."""
    busy = randomness.choice(
        (Pause(0.9), Slow("others", 2.0, latency_s=some_seconds(randomness, 0.2, 0.8)))
    )
    faults = [
        InjectedFault(AtStep("P6b", "leader", randomness.choice((2, 3, 5, 8))), busy, "register"),
        InjectedFault(AtTime(0.0, behind=True), LosePower(0.0), "leader"),
    ]
    if randomness.random() < 0.3:
        faults.append(InjectedFault(soon(randomness), a_death(randomness), "follower"))
    options = {"replicas": 2, "min_insync": 1, "flush_before_ack": False}
    return Scenario(tuple(faults), {**options, "flush_interval_s": 2.5, **QUICK})


def older_copy(randomness: Random) -> Scenario:
    """A follower's machine gets an older copy of its disk, and starts so often that its incarnation
    could be the next one; then its leader dies."""
    taken_s = randomness.choice((0.3, 0.5))
    faults = (
        InjectedFault(AtTime(taken_s + 0.1), Kill(0.0), "follower/0"),
        InjectedFault(
            AtTime(some_seconds(randomness, 1.0, 1.6), behind=True), RollBack(taken_s, 0.0)
        ),
        InjectedFault(AtStep("J1b", behind=True), Kill(0.0)),
        InjectedFault(
            AtStep(randomness.choice(("J1b", "J2", "J5b")), behind=True), Kill(3.0), "leader/0"
        ),
    )
    options = {"replicas": 2, "min_insync": 1, "flush_before_ack": True, **QUICK}
    return Scenario(faults, options, {"producers": 1, "records": 60})


def power_fails(randomness: Random) -> Scenario:
    """All machines lose their power at about the same time, as if they stood in one room."""
    count = randomness.choice((2, 3, 3))
    deaths = [
        randomness.choice((LosePower, LosePower, Kill))(some_restart_s(randomness))
        for _ in range(count)
    ]
    gap_s = randomness.choice((0.0, 0.0, 0.01, 0.3))
    targets = randomness.sample(BROKERS, count)
    faults = [InjectedFault(when_producing(randomness), deaths[0], targets[0])]
    for death, target in zip(deaths[1:], targets[1:], strict=True):
        faults.append(InjectedFault(AtTime(gap_s, True), death, target))
    return Scenario(tuple(faults), {"flush_before_ack": True} if randomness.random() < 0.7 else {})


def full_for_a_moment(randomness: Random) -> Scenario:
    """A disk doesn't take one batch, but takes the next one."""
    full = Fail(errno.ENOSPC, written_fraction=randomness.choice((0.0, 0.5, 0.9)))
    moment = BreakDisk(DiskFault("append", full, ".log"))
    load = {"burst_count": 12, "producers": 1, "topic_partitions": 1, **PIPELINED}
    options: dict[str, Any] = {"partitions": 1, "min_insync": 1}
    if randomness.random() < 0.5:
        # A new epoch is stored first, and batches that are sent meanwhile wait for that.
        slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.1, 0.3)), times=9))
        faults = [
            InjectedFault(AtStep("P2a", "leader"), slow, "follower"),
            InjectedFault(AtStep("P3a", "follower", randomness.choice((1, 1, 2))), moment),
        ]
        options.update(replicas=2, latency_s=0.001, jitter_s=0.02)
        load["producers"] = 3
    else:
        faults = [
            InjectedFault(AtStep("P2a", "leader", randomness.choice((1, 1, 1, 2, 3))), moment)
        ]
        options["replicas"] = randomness.choice((1, 1, 3))  # a sole replica goes on leading
    if randomness.random() < 0.3:
        faults.append(
            InjectedFault(
                shortly(randomness), a_death(randomness), randomness.choice(("leader", "here"))
            )
        )
    return Scenario(tuple(faults), options, load)


def disk_fails(randomness: Random) -> Scenario:
    begins = AtStep(randomness.choice(("J10", "E11", "D3a")), occurrence=randomness.randint(1, 3))
    place = randomness.choice((begins, when_producing(randomness)))
    who = randomness.choice(("leader", "follower", "follower"))
    faults = [InjectedFault(place, a_failing_disk(randomness), who)]
    if randomness.random() < 0.3:
        faults.insert(
            0, InjectedFault(when_producing(randomness), Kill(some_restart_s(randomness)), "leader")
        )
        faults[1] = InjectedFault(
            attrs.evolve(begins, behind=True), a_failing_disk(randomness), who
        )
    if randomness.random() < 0.5:
        faults.append(
            InjectedFault(
                soon(randomness), a_death(randomness), randomness.choice(("here", "leader"))
            )
        )
    return Scenario(tuple(faults))


def flush_fails(randomness: Random) -> Scenario:
    """A flush fails for which an acknowledgement waits."""
    place = AtStep(
        "D1a", randomness.choice(("leader", "follower")), randomness.choice((1, 2, 3, 5))
    )
    faults = [InjectedFault(place, BreakDisk(DiskFault("sync", Fail(errno.EIO), ".log")))]
    if randomness.random() < 0.5:
        faults.append(
            InjectedFault(
                shortly(randomness), LosePower(0.1), randomness.choice(("here", "leader"))
            )
        )
    return Scenario(tuple(faults), {"flush_before_ack": True})


def flush_of_the_only_replica_fails(randomness: Random) -> Scenario:
    """A flush of the only replica fails, and its broker may die.  When it is started again, it
    takes messages, and in the end all machines lose their power."""
    place = AtStep("D1a", "leader", randomness.choice((1, 2, 3, 5)))
    faults = [InjectedFault(place, BreakDisk(DiskFault("sync", Fail(errno.EIO), ".log")))]
    if randomness.random() < 0.6:
        faults.append(InjectedFault(shortly(randomness), Kill(some_restart_s(randomness)), "here"))
    options: dict[str, Any] = {"replicas": 1, "min_insync": 1, "loses_all": True}
    options["flush_before_ack"] = randomness.random() < 0.5
    options["loses_power"] = randomness.random() < 0.5
    return Scenario(tuple(faults), options, {"chores": ()})


def first_flush_fails(randomness: Random) -> Scenario:
    """A broker dies while it flushes.  The first flush of each log after its restart fails, in some
    runs also the second one.  Then its machine loses its power, or, if it has the only replica, all
    machines do in the end."""
    who = randomness.choice(("leader", "follower"))
    is_alone = randomness.random() < 0.5
    begins = AtStep("D1a", "leader" if is_alone else who, randomness.choice((2, 3, 5)))
    faults = [InjectedFault(begins, Kill(randomness.choice((0.1, 0.6))))]
    syncs = randomness.choice(((0, 2, 4), (0, 2, 4), (0, 2, 4), (0, 1), (2, 3)))
    for calls_before in syncs:  # a sync that fails is made once more
        fails = DiskFault("sync", Fail(errno.EIO), ".log", calls_before)
        faults.append(InjectedFault(AtTime(0.0, behind=True), BreakDisk(fails), "here"))
    if is_alone:
        alone = {"replicas": 1, "min_insync": 1, "loses_all": True, "loses_power": True}
        return Scenario(tuple(faults), {**alone, "flush_before_ack": True}, {"chores": ()})
    dark = AtTime(some_seconds(randomness, 0.7, 1.5), behind=True)
    faults.append(InjectedFault(dark, LosePower(0.1), "here"))
    return Scenario(tuple(faults), {"flush_before_ack": True})


def torn_writes(randomness: Random) -> Scenario:
    """A machine loses its power while it writes."""
    operation, edge = randomness.choice(EDGES[:6])
    who = randomness.choice(("leader", "follower", "register"))
    slow = DiskFault("sync", Delay(some_seconds(randomness, 0.02, 0.3)), times=20)
    torn = DiskFault("append", Tear(), calls_before=randomness.randrange(9))
    place = AtEffect(operation, edge, who, randomness.randint(1, 25))
    return Scenario(
        (
            InjectedFault(
                AtTime(some_seconds(randomness, 0.0, 0.3)),
                BreakDisk(randomness.choice((slow, torn))),
                who,
            ),
            InjectedFault(place, LosePower(some_restart_s(randomness))),
            *(
                (InjectedFault(soon(randomness), a_death(randomness), "leader"),)
                if randomness.random() < 0.4
                else ()
            ),
        )
    )


def found_after_a_kill(randomness: Random) -> Scenario:
    """A broker is killed while it makes a log or stores a checkpoint.  It starts again, goes on
    with what is in the page cache, and then its machine loses its power."""
    operation, edge = randomness.choice(
        (
            *(("replace_file", "before"), ("replace_file", "after"), ("rename", "after")),
            *(("sync_directory", "before"), ("sync_directory", "after"), ("append", "after")),
        )
    )
    place = AtEffect(operation, edge, randomness.choice(BROKERS), randomness.randint(3, 40))
    gone = AtStep(randomness.choice(("J1b", "J3", "J4b", "E10b", "J7")), behind=True)
    faults = (
        InjectedFault(place, Kill(0.0)),
        InjectedFault(gone, LosePower(randomness.choice((0.0, 0.1)))),
    )
    options = {"flush_before_ack": True, "checkpoint_bytes": 500, "min_insync": 1}
    return Scenario(faults, options, {"chores": randomness.choice((("topic",), ("renew",), ()))})


def disk_is_lost(randomness: Random) -> Scenario:
    loss = randomness.choice((Wipe, BitFlip))(randomness.choice((0.0, 0.2, 1.5)))
    second = randomness.choice(("leader", "follower", "register"))
    return Scenario(
        (
            InjectedFault(
                when_producing(randomness), loss, randomness.choice(("leader", "follower"))
            ),
            InjectedFault(soon(randomness), a_death(randomness), second),
        )
    )


def damaged_comes_first(randomness: Random) -> Scenario:
    """All brokers end, and the one that comes back first has damaged files."""
    damaged, *others = randomness.sample(BROKERS, len(BROKERS))
    parts: tuple[Part, ...] = ("log", "log", "log", "checkpoint", "directory", "ends")
    harms: tuple[Harm, ...] = ("cut", "missing")
    part, harm = randomness.choice(parts), randomness.choice(harms)
    back_s = randomness.choice(
        (some_seconds(randomness, 0.3, 0.9), some_seconds(randomness, 1.5, 3.0))
    )
    end = randomness.choice((Kill, Kill, Stop))
    flushed = AtStep("D1b", damaged, randomness.choice((2, 3, 4, 6)))
    return Scenario(
        (
            InjectedFault(flushed, Damage(harm, part, randomness.choice((0.0, 0.2))), damaged),
            *(InjectedFault(AtTime(0.0, behind=True), end(back_s), one) for one in others),
        ),
        {
            "flush_interval_s": 0.05,
            "faults_s": 8.0,
            "checkpoint_bytes": randomness.choice((2000, 1_000_000)),
        },
        {"pause_s": 0.03, "records": 40},
    )


def damaged_leads(randomness: Random) -> Scenario:
    """A broker comes back with damaged files, and the leader dies before the two compare their
    logs."""
    harm: Harm = randomness.choice(get_args(Harm))
    part: Part = randomness.choice(get_args(Part))
    damage = Damage(harm, part, randomness.choice((0.0, 0.1, 0.4)), 0.4)
    step = randomness.choice(("J1b", "J2", "J3", "J4b", "J5a", "J5b", "J6", "J7", "J9b"))
    who = randomness.choice(("leader", "follower", "follower"))
    place = AtStep("D1b", who, randomness.choice((2, 3, 5, 8)))
    faults = [
        InjectedFault(place, damage, "register" if part == "journal" else "here"),
        InjectedFault(AtStep(step, behind=True), a_death(randomness), "leader"),
    ]
    if randomness.random() < 0.4:
        faults.append(
            InjectedFault(
                soon(randomness), a_death(randomness), randomness.choice(("here", "leader"))
            )
        )
    options: dict[str, Any] = {"flush_interval_s": 0.05, "replicas": randomness.choice((2, 3))}
    options["checkpoint_bytes"] = randomness.choice((2000, 1_000_000))
    return Scenario(tuple(faults), options, {"pause_s": 0.03, "records": 40})


def starts_with_a_full_disk(randomness: Random) -> Scenario:
    """A node starts while its disk is full, or full for some operations."""
    times = randomness.choice((1, 1, 2, 5, 20))
    full = DiskFault(
        randomness.choice(("append", "append", "open", "make_directory")),
        Fail(errno.ENOSPC),
        calls_before=randomness.choice((0, 0, 1, 2, 4, 8)),
        times=times,
    )
    seconds = some_seconds(randomness, 0.3, 4.0)
    trouble = randomness.choice((FillDisk(seconds), FillDisk(seconds), BreakDisk(full)))
    who = randomness.choice(("leader", "follower", "follower", "register"))
    first = randomness.choice((Kill, Kill, Stop))(randomness.choice((0.1, 0.5, 1.5)))
    faults = [
        InjectedFault(when_producing(randomness), first, who),
        InjectedFault(AtTime(0.0, True), trouble),
    ]
    if randomness.random() < 0.4:
        faults.append(InjectedFault(late(randomness), a_death(randomness), "leader"))
    return Scenario(tuple(faults), {"faults_s": 8.0, "kills_each": randomness.random() < 0.5})


def all_lose_power(randomness: Random) -> Scenario:
    """All machines lose their power, at once or one after the other within a moment."""
    gap_s = randomness.choice((0.0, 0.0, 0.01, 0.1, 0.5))
    back = [
        randomness.choice((0.0, 0.2, some_seconds(randomness, 0.2, 2.0), None)) for _ in BROKERS
    ]
    order = randomness.sample(BROKERS, len(BROKERS))
    faults = [InjectedFault(when_producing(randomness), LosePower(back[0]), order[0])]
    for target, back_s in zip(order[1:], back[1:], strict=True):
        faults.append(InjectedFault(AtTime(gap_s, behind=True), LosePower(back_s), target))
    if randomness.random() < 0.3:
        faults.append(InjectedFault(AtTime(0.0, behind=True), LosePower(0.1), "register"))
    if randomness.random() < 0.4:
        faults.append(
            InjectedFault(
                soon(randomness), a_death(randomness), randomness.choice(("leader", "register"))
            )
        )
    options: dict[str, Any] = {"loses_all": True, "faults_s": 8.0}
    options["flush_before_ack"] = randomness.random() < 0.3
    options["flush_interval_s"] = randomness.choice((0.05, 0.3, 1.0))
    options["replicas"] = randomness.choice((3, 3, 2, 1))
    if options["replicas"] == 1:
        options["min_insync"] = 1
    return Scenario(tuple(faults), options, {"value_bytes_max": randomness.choice((0, 40, 400))})


def dark_in_the_end(randomness: Random) -> Scenario:
    """All machines lose their power in the end, when everything has been flushed."""
    faults: list[InjectedFault] = []
    kind = randomness.random()
    if kind < 0.3:
        broken = BreakDisk(DiskFault("sync", Fail(errno.EIO), ".log"))
        place = AtStep("D1a", "any", randomness.randint(1, 8))
        faults.append(InjectedFault(place, broken))
    elif kind < 0.7:
        faults.append(
            InjectedFault(
                when_producing(randomness),
                a_death(randomness),
                randomness.choice(("leader", "follower", "register")),
            )
        )
    options: dict[str, Any] = {"loses_all": True, "loses_power": True, "min_insync": 1}
    options["flush_before_ack"] = randomness.random() < 0.4
    options["flush_interval_s"] = randomness.choice((0.05, 0.3, 1.0))
    options["replicas"] = randomness.choice((3, 2, 1))
    options["checkpoint_bytes"] = randomness.choice((500, 2000, 1_000_000))
    chores = randomness.choice(((), (), ("topic",), ("renew",), ("move",)))
    return Scenario(tuple(faults), options, {"chores": chores, "records": 30})
