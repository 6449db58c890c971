"""Scenarios in which the register is slow, dies or loses its decisions, and in which topics are
created again meanwhile."""

from __future__ import annotations

import errno
from random import Random
from typing import Final

from octopi.simulation.disk.faults import Delay, DiskFault, Fail
from octopi.simulation.faults.actions import (
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Reset,
    Slow,
    Stop,
    Wipe,
)
from sim.generate.fault_patterns import (
    BROKERS,
    QUICK,
    a_death,
    an_absence,
    at_once,
    some_seconds,
    soon,
    when_producing,
)
from sim.generate.scenario import Scenario

_REGISTER: Final = ("E2", "E3b", "E7", "E8a", "E8b", "E9a", "E17a", "E17b", "J5a", "R2b", "R3a")


def memory_is_lost(randomness: Random) -> Scenario:
    """The register loses its journal, which says that a follower is not in sync, and the brokers
    that know it are away, too."""
    forgets = randomness.choice((Wipe, LosePower, LosePower))(randomness.choice((0.0, 0.1, 0.3)))
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.2, 0.6)), times=9))
    alone = AtStep("P7b", "leader", randomness.choice((1, 1, 2, 4)), behind=True)
    death = randomness.choice((Kill, LosePower))(some_seconds(randomness, 4.0, 5.0))
    faults = [
        InjectedFault(
            when_producing(randomness), Kill(some_seconds(randomness, 1.5, 2.5)), "follower"
        ),
        InjectedFault(AtStep("E16b", behind=True), slow, "register"),
        InjectedFault(
            AtStep("E17b", behind=True), Pause(0.0), "register"
        ),  # the following faults count from here
        InjectedFault(alone, death, "leader"),
        InjectedFault(AtTime(0.0, behind=True), forgets, "register"),
    ]
    if randomness.random() < 0.5:
        del faults[1]
    options = {"replicas": 2, "min_insync": 1, "partitions": 1}
    return Scenario(tuple(faults), options, {"topic_partitions": 1, "records": 40})


def register_fails(randomness: Random) -> Scenario:
    """The register is slow, or dies, in the middle of a decision."""
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.02, 0.5)), times=9))
    death = randomness.choice((Kill, LosePower, LosePower, Wipe))(
        randomness.choice((0.0, 0.1, 0.6, 2.5))
    )
    step = AtStep(
        randomness.choice(_REGISTER), occurrence=randomness.choice((1, 1, 2, 3)), behind=True
    )
    who = randomness.choice(("leader", "follower"))
    faults = [
        InjectedFault(
            when_producing(randomness), randomness.choice((a_death, an_absence))(randomness), who
        )
    ]
    if randomness.random() < 0.5:
        faults.insert(0, InjectedFault(AtTime(0.3), slow, "register"))
    if randomness.random() < 0.7:
        faults.append(InjectedFault(step, death, "register"))
    if randomness.random() < 0.6:
        target = randomness.choice(("here", "leader", "leader/0", "follower"))
        faults.append(InjectedFault(soon(randomness), a_death(randomness), target))
    return Scenario(tuple(faults))


def spent_epoch(randomness: Random) -> Scenario:
    """The register loses its disk when replicas have promised an epoch that has no leader yet."""
    step = randomness.choice(("E3b", "E4", "E5", "E6b", "E7", "E8a", "E8b", "E9a"))
    loss = Wipe(randomness.choice((0.0, 0.1, 0.6)))
    faults = [
        InjectedFault(when_producing(randomness), a_death(randomness), "leader"),
        InjectedFault(AtStep(step, behind=True), loss, "register"),
    ]
    if randomness.random() < 0.3:
        faults.append(InjectedFault(soon(randomness), a_death(randomness), "leader"))
    return Scenario(tuple(faults))


def slow_to_remember(randomness: Random) -> Scenario:
    """A leader is slow to store a change of the in-sync set, and replicates meanwhile."""
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.2, 0.5)), times=20))
    gone = randomness.choice((Kill, Stop))(some_seconds(randomness, 0.0, 0.4))
    faults = [
        InjectedFault(when_producing(randomness), slow, "leader"),
        InjectedFault(at_once(randomness), gone, "follower"),
    ]
    if randomness.random() < 0.3:
        faults.append(InjectedFault(soon(randomness), a_death(randomness), "leader"))
    options = {"replicas": 3, "min_insync": 1, "flush_before_ack": False}
    return Scenario(tuple(faults), options, {"pause_s": 0.02, "records": 40})


def forgets_with_a_full_disk(randomness: Random) -> Scenario:
    """A broker with outdated decisions comes back to a register that has lost its journal, has to
    learn everything from brokers, and whose disk doesn't take every entry."""
    full = Fail(errno.ENOSPC, written_fraction=randomness.choice((0.0, 0.5)))
    operation = randomness.choice(("append", "append", "append", "sync", ""))
    how = full if operation != "sync" else Fail(errno.EIO)
    fault = DiskFault(
        operation, how, ".log", randomness.randrange(6), times=randomness.choice((1, 1, 2, 4, 8))
    )
    step = randomness.choice(("R1", "J3", "J4a", "J5a", "J5a", "R2a"))
    wiped_s, late_s = randomness.choice((0.0, 0.1, 0.6)), some_seconds(randomness, 1.2, 2.0)
    back_s = late_s + wiped_s + some_seconds(randomness, -0.1, 1.5)
    faults = [
        InjectedFault(
            when_producing(randomness), randomness.choice((Kill, Kill, Stop))(back_s), "follower"
        ),
        InjectedFault(AtTime(late_s, behind=True), Wipe(wiped_s), "register"),
        InjectedFault(AtStep(step, behind=True), BreakDisk(fault), "register"),
    ]
    if randomness.random() < 0.5:
        faults.append(
            InjectedFault(
                soon(randomness), a_death(randomness), randomness.choice(("leader", "register"))
            )
        )
    options = {
        "snapshot_entries": randomness.choice((3, 100_000)),
        "replicas": randomness.choice((2, 3)),
    }
    return Scenario(tuple(faults), {**options, "faults_s": 8.0}, {"pause_s": 0.05, "records": 80})


def joins_with_a_full_disk(randomness: Random) -> Scenario:
    """A broker's disk is full when it hears for the first time that it has joined.  Its connection
    breaks, and the register doesn't notice that."""
    full = DiskFault("replace_file", Fail(errno.ENOSPC), times=randomness.choice((1, 2, 3)))
    faults = (
        InjectedFault(AtStep("J5b", "register", randomness.choice((1, 2))), Pause(0.0)),
        InjectedFault(AtStep("J4b", behind=True), BreakDisk(full)),
        InjectedFault(
            AtTime(0.0, behind=True), Cut("register", randomness.choice((0.01, 0.02, 0.03)), "out")
        ),
    )
    return Scenario(faults, {"replicas": 3, "faults_s": 8.0, **QUICK}, {"records": 20})


def made_again(randomness: Random) -> Scenario:
    """A broker is away while topics are deleted and made again under their names."""
    gone = randomness.choice((Kill, Stop, LosePower))(some_seconds(randomness, 0.3, 3.0))
    step = randomness.choice(("T3b", "T5a", "T5b", "T6a", "T6b", "T7a", "T7b", "T1b", "T2a"))
    faults = [
        InjectedFault(
            AtStep(step, occurrence=randomness.choice((1, 2, 3))),
            gone,
            randomness.choice(("here", "follower", "leader")),
        )
    ]
    if randomness.random() < 0.5:
        faults.append(InjectedFault(soon(randomness), a_death(randomness), "leader"))
    chores = randomness.choice((("renew", "renew"), ("renew", "replace"), ("replace", "replace")))
    return Scenario(tuple(faults), {"faults_s": 8.0}, {"chores": chores})


def made_again_unheard(randomness: Random) -> Scenario:
    """A topic is deleted and made again under its name while its leader can't reach the register
    for a moment.  Clients reach the leader."""
    deciding = AtStep(randomness.choice(("T5a", "T5b")), "register", 1)
    unheard = Cut("register", some_seconds(randomness, 0.25, 0.4))
    faults = (
        InjectedFault(deciding, Reset("register", "membership"), "leader/0"),
        InjectedFault(AtTime(0.0, behind=True), unheard, "leader/0"),
        InjectedFault(AtTime(2.0, behind=True), Reset("client"), "leader"),
    )
    options = {"replicas": 1, "min_insync": 1, "partitions": 1, "faults_s": 8.0, **QUICK}
    load = {"chores": ("replace",), "topic_partitions": 1, "members": 0}
    return Scenario(faults, options, {**load, "pause_s": 0.01, "records": 120, "burst_count": 1})


def made_again_too_soon(randomness: Random) -> Scenario:
    """A topic is deleted and made again under its name twice.  A broker with a part of the first
    one hangs, so the deletion of that one takes long."""
    hangs = Pause(some_seconds(randomness, 0.5, 0.9))
    deciding = AtStep(randomness.choice(("T5a", "T5b")), "register", 1)
    faults = (
        InjectedFault(deciding, hangs, "leader/1"),
        InjectedFault(AtTime(2.0, behind=True), Reset("client"), "leader"),
    )
    options = {"replicas": 1, "min_insync": 1, "partitions": 2, "faults_s": 8.0, **QUICK}
    load = {"chores": ("replace_twice",), "topic_partitions": 1, "members": 0}
    return Scenario(faults, options, {**load, "pause_s": 0.01, "records": 120, "burst_count": 1})


def deleted_while_it_is_sent(randomness: Random) -> Scenario:
    """A follower acknowledges so late that it leaves the in-sync set, and its leader has more to
    send it.  Then the topic is deleted."""
    late_s = some_seconds(randomness, 0.6, 0.7)  # longer, and the connection would count as broken
    delayed = Slow("leader", 3.0, latency_s=late_s)
    faults = (
        InjectedFault(AtStep("T4", "register", 2), Pause(0.0)),  # the next one counts from here
        # By then the follower follows the new log, which gets its first message later.
        InjectedFault(AtTime(0.004, behind=True), delayed, "follower/0"),
        InjectedFault(AtTime(4.0), Reset("client"), "leader"),  # healing can't begin before this
    )
    options = {"replicas": randomness.choice((2, 3)), "min_insync": 1, "partitions": 1, **QUICK}
    load = {"chores": ("topic", "topic"), "topic_partitions": 1, "members": 0}
    return Scenario(faults, {**options, "faults_s": 8.0}, load)


def moved_there_and_back(randomness: Random) -> Scenario:
    """Replicas are moved to another broker and back at once, and a node dies meanwhile."""
    gone = randomness.choice((Kill, Stop))(some_seconds(randomness, 0.3, 2.0))
    faults = (
        InjectedFault(
            AtStep("J13a", occurrence=randomness.choice((1, 2))),
            gone,
            randomness.choice(("register", "leader", "here")),
        ),
        InjectedFault(AtTime(4.0), Reset("client"), "leader"),  # healing can't begin before this
    )
    options = {"replicas": randomness.choice((1, 2)), "min_insync": 1, "partitions": 2, **QUICK}
    load = {"chores": ("move",) * 4, "topic_partitions": 2}
    return Scenario(faults, {**options, "brokers": 4, "faults_s": 8.0}, load)


def made_again_and_forgotten(randomness: Random) -> Scenario:
    """Like `made_again`, and the register loses its disk before that broker is back."""
    away = randomness.choice(BROKERS)
    faults = (
        InjectedFault(
            AtStep("T3b", away, randomness.choice((2, 2, 3))),
            Kill(some_seconds(randomness, 3.0, 5.0)),
            away,
        ),
        InjectedFault(
            AtTime(some_seconds(randomness, 1.2, 2.4), behind=True), Wipe(0.2), "register"
        ),
        InjectedFault(AtTime(3.0, behind=True), Reset("client"), "leader"),
    )
    options = {"faults_s": 12.0, "replicas": 3, "min_insync": 1, "partitions": 1}
    return Scenario(faults, options, {"chores": ("renew", "renew"), "topic_partitions": 1})


def altered(randomness: Random) -> Scenario:
    """Topics are altered, and nodes die meanwhile."""
    step = randomness.choice(("T8a", "T8b", "T9a", "T9b", "T2a", "T2b"))
    gone = randomness.choice((Kill, Kill, Stop, LosePower))(some_seconds(randomness, 0.3, 3.0))
    faults = [
        InjectedFault(
            AtStep(step, occurrence=randomness.choice((1, 2, 3, 4))),
            gone,
            randomness.choice(("here", "follower", "leader", "register")),
        )
    ]
    if randomness.random() < 0.5:
        other = InjectedFault(
            AtTime(some_seconds(randomness, 0.1, 1.0), behind=True),
            a_death(randomness),
            randomness.choice(("leader", "follower")),
        )
        faults.append(other)
    options = {"replicas": randomness.choice((2, 3)), "min_insync": 1, "faults_s": 8.0}
    load = {"chores": ("alter", "alter", "alter"), "pause_s": 0.05, "records": 80}
    return Scenario(tuple(faults), options, load)


def altered_and_forgotten(randomness: Random) -> Scenario:
    """A broker is away while a topic is altered, and the register loses its disk before the broker
    is back; then they all report at the same time."""
    away = randomness.choice(BROKERS)
    faults = (
        InjectedFault(
            AtStep("T9a", away, randomness.choice((1, 1, 2))),
            Kill(some_seconds(randomness, 0.5, 1.5)),
            away,
        ),
        InjectedFault(
            AtTime(some_seconds(randomness, 0.2, 0.4), behind=True),
            Wipe(some_seconds(randomness, 1.0, 3.0)),
            "register",
        ),
    )
    options = {"faults_s": 12.0, "replicas": 3, "min_insync": 1, "partitions": 1}
    load = {"chores": ("alter", "alter"), "topic_partitions": 1, "pause_s": 0.05, "records": 80}
    return Scenario(faults, options, load)
