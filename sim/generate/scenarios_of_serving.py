"""Scenarios of brokers that serve with a full disk, of producers without a register, and of
consumers whose log has forked."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from math import inf
from random import Random
from typing import Any, Final

from octopi.simulation.disk.faults import Delay, DiskFault, Fail
from octopi.simulation.faults.actions import (
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    FillDisk,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Reset,
    Stop,
)
from sim.generate.fault_kinds import ALONE, FULL, POWER, STOPS
from sim.generate.fault_patterns import BROKERS, QUICK, a_death, some_seconds, soon, when_producing
from sim.generate.scenario import Scenario


def _no_space_for(randomness: Random, operation: str, path_end: str = "") -> BreakDisk:
    """The disk has no space for the next few calls of *operation*; other operations succeed."""
    fault = DiskFault(operation, Fail(errno.ENOSPC), path_end, times=randomness.choice((1, 1, 2)))
    return BreakDisk(fault)


def _told_with_a_full_disk(randomness: Random) -> Scenario:
    """A broker that comes back can't store the first decisions that the register sends it."""
    who = randomness.choice(BROKERS)
    gone = randomness.choice((Kill, Kill, Stop, LosePower))(some_seconds(randomness, 0.3, 2.5))
    full = randomness.choice(
        (
            FillDisk(some_seconds(randomness, 0.2, 1.5)),
            _no_space_for(randomness, "replace_file", "partitions"),
            _no_space_for(randomness, "replace_file", "partitions"),
        )
    )
    faults = (
        InjectedFault(when_producing(randomness), gone, who),
        InjectedFault(AtStep("E10a", who, behind=True), full),
    )
    return Scenario(faults, {"faults_s": 8.0, "kills_each": False}, {"pause_s": 0.1})


def _appointed_with_a_full_disk(randomness: Random) -> Scenario:
    """A leader ends for ever, and its successor can't store its appointment."""
    ends = randomness.choice((Stop, Kill, Kill))(inf)
    times = randomness.choice((1, 1, 2, 3))
    full = BreakDisk(DiskFault("replace_file", Fail(errno.ENOSPC), "partitions", times=times))
    faults = (
        InjectedFault(when_producing(randomness), ends, "leader/0"),
        InjectedFault(
            AtStep("E8b", behind=True),
            full,
            randomness.choice(("leader/0", "leader/0", "follower/0")),
        ),
    )
    options = {"replicas": randomness.choice((2, 3)), "min_insync": 1, "kills_each": False}
    return Scenario(faults, {**options, "faults_s": 6.0}, {"pause_s": 0.1})


def _ordered_with_a_full_disk(randomness: Random) -> Scenario:
    """A broker can't create the log of a new topic."""
    operation = randomness.choice(("make_directory", "append", "open", "replace_file"))
    full = randomness.choice(
        (_no_space_for(randomness, operation), FillDisk(some_seconds(randomness, 0.1, 1.5)))
    )
    faults = [InjectedFault(AtStep("T3a", "any", randomness.choice((1, 2, 2, 3, 3, 4))), full)]
    if randomness.random() < 0.3:
        faults.append(
            InjectedFault(
                soon(randomness), a_death(randomness), randomness.choice(("leader", "follower"))
            )
        )
    chores = randomness.choice(((), (), ("topic",), ("renew",), ("move",)))
    return Scenario(tuple(faults), {"faults_s": 8.0, "kills_each": False}, {"chores": chores})


def _full_in_the_end(randomness: Random) -> Scenario:
    """After healing, the disk of one broker after the other is full for a while, or fails once."""
    faults = []
    if randomness.random() < 0.3:
        faults.append(InjectedFault(when_producing(randomness), a_death(randomness), "leader"))
    partitions = randomness.choice((1, 3))
    options = {"replicas": randomness.choice((2, 3)), "min_insync": 1, "spoils_disks": True}
    load = {"topic_partitions": partitions, "records": 15}
    return Scenario(tuple(faults), {**options, "partitions": partitions}, load)


def _finds_its_way(randomness: Random) -> Scenario:
    """Leaders change while producers are silent, and then the register is down."""
    faults = []
    if randomness.random() < 0.3:
        faults.append(InjectedFault(when_producing(randomness), a_death(randomness), "leader"))
    options: dict[str, Any] = {"without_register": True, "min_insync": 1}
    options["replicas"] = randomness.choice((1, 2, 3))
    options["kills_each"] = randomness.random() < 0.7
    options["flush_before_ack"] = True
    load = {"reopen_count": 0, "delivery_timeout_s": randomness.choice((30.0, 5.0)), "chores": ()}
    return Scenario(tuple(faults), options, {**load, "records": 15})


def _given_up_while_nobody_leads(randomness: Random) -> Scenario:
    """All replicas end, so the last that producers hear from the register is that nobody leads.
    They give their last messages up.  Later the register is down, and other brokers lead."""
    place = AtStep("P7b", "leader", randomness.choice((2, 3, 5)))
    dead = randomness.choice((Kill, Kill, Stop))(None)
    faults = [InjectedFault(place, dead, BROKERS[0])]
    faults += [InjectedFault(AtTime(0.0, behind=True), dead, one) for one in BROKERS[1:]]
    options: dict[str, Any] = {"without_register": True, "min_insync": 1, "partitions": 1, **QUICK}
    options |= {"replicas": randomness.choice((1, 2)), "flush_before_ack": True, "faults_s": 8.0}
    options["kills_each"] = False
    load: dict[str, Any] = {"delivery_timeout_s": 0.6, "pause_s": 0.02, "records": 8}
    load |= {"topic_partitions": 1, "reopen_count": 0, "named_producers": 0}
    load |= {"chores": (), "members": 0}
    return Scenario(tuple(faults), options, load)


def _stops_beside_a_sleeper(randomness: Random) -> Scenario:
    """A leader is asked to stop while a follower hangs, or its messages don't arrive."""
    hangs = randomness.choice(
        (
            Pause(some_seconds(randomness, 1.0, 3.0)),
            Cut("leader", some_seconds(randomness, 1.0, 3.0), randomness.choice(("both", "out"))),
            BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.3, 1.5)), times=20)),
        )
    )
    faults = [
        InjectedFault(when_producing(randomness), hangs, "follower/0"),
        InjectedFault(
            AtTime(some_seconds(randomness, 0.0, 1.2), behind=True), Stop(0.5), "leader/0"
        ),
    ]
    if randomness.random() < 0.5:
        slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.3, 1.0)), times=9))
        faults.insert(1, InjectedFault(AtTime(0.0, behind=True), slow, "register"))
    options = {"replicas": randomness.choice((2, 3)), "min_insync": 1}
    return Scenario(tuple(faults), options, {"pause_s": 0.05})


def _stops_when_a_follower_dies(randomness: Random) -> Scenario:
    """A leader was asked to stop, and waits for the register, which hangs for a moment, when a
    follower dies."""
    faults = (
        InjectedFault(
            AtStep("P6b", "leader", randomness.choice((2, 5, 12))), Stop(0.5), "leader/0"
        ),
        InjectedFault(
            AtStep("E21b", behind=True), Pause(some_seconds(randomness, 0.4, 0.8)), "register"
        ),
        InjectedFault(
            AtTime(0.0, behind=True), Kill(some_seconds(randomness, 1.0, 2.0)), "follower/0"
        ),
    )
    options = {"replicas": randomness.choice((2, 3)), "min_insync": 1, "partitions": 1}
    return Scenario(faults, options, {"pause_s": 0.05, "topic_partitions": 1})


def _stops_in_the_end(randomness: Random) -> Scenario:
    """After healing, one broker after the other is asked to stop when another one dies."""
    options: dict[str, Any] = {"replicas": 2, "min_insync": 1, "stops_each": True}
    options["partitions"] = randomness.choice((1, 2, 3))
    load = {"topic_partitions": 1, "records": 15}
    return Scenario((), {**options, "kills_each": False}, load)


def _stops_while_it_decides(randomness: Random) -> Scenario:
    """A follower dies, and its leader, which has decided to go on without it, is asked to stop
    while the device delays the proposal.  The register hangs meanwhile."""
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.05, 0.25)), times=20))
    faults = (
        InjectedFault(AtStep("P6b", "leader", randomness.choice((2, 5, 12))), slow, "leader/0"),
        InjectedFault(AtTime(0.0, behind=True), Kill(3.0), "follower/0"),
        InjectedFault(AtStep("D2a", "leader", behind=True), Stop(0.5), "leader/0"),
        InjectedFault(AtTime(0.0, behind=True), Pause(0.8), "register"),
    )
    options: dict[str, Any] = {"replicas": 2, "min_insync": 1, "partitions": 1, **QUICK}
    options |= {"flush_before_ack": False, "flush_interval_s": 2.5}
    return Scenario(faults, options, {"pause_s": 0.05, "records": 60, "topic_partitions": 1})


def _polls(randomness: Random) -> Scenario:
    """Many fetches wait for records on the connections of producers."""
    faults = []
    if randomness.random() < 0.5:
        faults.append(InjectedFault(when_producing(randomness), a_death(randomness), "leader"))
    load = {"polls": randomness.choice((64, 100)), "records": 15, "delivery_timeout_s": 30.0}
    return Scenario(tuple(faults), {"min_insync": 1}, load)


def _asks_twice(randomness: Random) -> Scenario:
    """A producer of version 1 records gets no answer for a record, and sends it again."""
    place = AtStep(
        randomness.choice(("P2b", "P5a", "P6b", "P7a")), "leader", randomness.randint(1, 12)
    )
    loss = randomness.choice((Reset("client"), Reset("client"), a_death(randomness)))
    faults = [InjectedFault(place, loss, "leader")]
    for _ in range(randomness.randint(0, 2)):
        again = AtStep(randomness.choice(("P2b", "P6b", "P7a")), "leader", 2, behind=True)
        faults.append(InjectedFault(again, Reset("client"), "leader"))
    load = {"opaque_records": 20, "producers": 1, "records": 15, "pause_s": 0.05}
    return Scenario(tuple(faults), {"flush_before_ack": randomness.random() < 0.5}, load)


def _goes_on_differently(randomness: Random) -> Scenario:
    """The only replica loses records that were not on its device, and gets others of the same sizes
    in their place, while new consumers continue from stored positions."""
    back_s = randomness.choice((0.0, 0.1, 0.5))
    at = AtTime(some_seconds(randomness, 0.3, 1.5))
    faults = [InjectedFault(at, LosePower(back_s), "leader/0")]
    if randomness.random() < 0.5:
        # The consumer comes back before the log has its former length again, or when it is longer.
        away_s = round(back_s + some_seconds(randomness, 0.0, 2.5), 2)
        faults.insert(0, InjectedFault(at, Kill(away_s), "consumer-1"))
    options: dict[str, Any] = {"replicas": 1, "min_insync": 1, "partitions": 1, "loses_all": True}
    options |= {"flush_before_ack": False, "flush_interval_s": randomness.choice((0.3, 1.0, 2.5))}
    options |= {"faults_s": 8.0, "checkpoint_bytes": randomness.choice((2000, 1_000_000))}
    load: dict[str, Any] = {"value_bytes_max": 30, "topic_partitions": 1, "consumers": 2}
    load |= {"records": 60, "pause_s": randomness.choice((0.01, 0.03)), "burst_count": 1}
    load["reopen_count"] = randomness.choice((0, 4, 8))
    return Scenario(tuple(faults), options, load)


def _refuses_beside_a_sleeper(randomness: Random) -> Scenario:
    """The disk of a leader takes no records while its followers hang."""
    hangs = Pause(some_seconds(randomness, 1.5, 3.0))
    who = "broker-2", "broker-3"  # the first broker leads
    faults = [InjectedFault(AtTime(some_seconds(randomness, 0.4, 1.0)), hangs, who[0])]
    faults.append(InjectedFault(AtTime(0.0, behind=True), hangs, who[1]))
    full = FillDisk(some_seconds(randomness, 1.5, 3.0))
    faults.append(
        InjectedFault(AtTime(some_seconds(randomness, 0.0, 0.5), behind=True), full, "broker-1")
    )
    options = {"replicas": randomness.choice((2, 3)), "min_insync": 1, "kills_each": False}
    return Scenario(tuple(faults), options, {"pause_s": 0.05, "records": 60})


def _full_beside_sleepers(randomness: Random) -> Scenario:
    """After healing, the disk of one broker after the other is full for a while.  When it begins,
    all others hang, and one of them dies.  There are members of a subscription, so a leader has to
    store something before another one is elected."""
    options: dict[str, Any] = {"min_insync": 1, "partitions": 1, "kills_each": False, **QUICK}
    options |= {"replicas": 3, "spoils_disks": True, "others_hang": True}
    load = {
        "topic_partitions": 1,
        "records": 15,
        "chores": (),
        "members": 2,
        "member_pause_s": 0.05,
        "member_mode": randomness.choice(("failover", "exclusive")),
    }
    return Scenario((), options, load)


SERVING_SCENARIOS: Final[Mapping[str, tuple[Callable[[Random], Scenario], ...]]] = {
    FULL: (
        _told_with_a_full_disk,
        _appointed_with_a_full_disk,
        _ordered_with_a_full_disk,
        _full_in_the_end,
        _full_in_the_end,
        _full_beside_sleepers,
        _refuses_beside_a_sleeper,
    ),
    ALONE: (_finds_its_way, _given_up_while_nobody_leads),
    STOPS: (
        *(_stops_beside_a_sleeper, _stops_when_a_follower_dies, _stops_while_it_decides),
        _stops_in_the_end,
    ),
    POWER: (_goes_on_differently, _goes_on_differently),
}
"""The scenarios, by the kind of `sim.generate.fault_kinds` that has to be switched on."""
ALWAYS_SERVING: Final = (_polls, _asks_twice)
