"""Scenarios in which devices lose data, and the elections that follow.

A broker notices damage when it opens its logs, or can't notice it; or a power failure leaves
replicas with different ends.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

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
    Wipe,
)
from octopi.simulation.faults.damage import Damage, Harm, Part
from sim.generate.fault_kinds import DAMAGE, JOURNAL, POWER
from sim.generate.fault_patterns import BROKERS, QUICK, some_seconds, when_producing
from sim.generate.scenario import PIPELINED, Scenario

_NO_LOAD: Final[Mapping[str, Any]] = {}


def _forms_half_a_cluster(randomness: Random) -> Scenario:
    """The register's disk takes a part of the entries with which it forms its cluster.  For a while
    it takes nothing more, and that part can't even be cut off."""
    full = Fail(errno.ENOSPC, written_fraction=randomness.choice((0.5, 0.6, 0.8)))
    fault = DiskFault("", full, ".log", calls_before=randomness.choice((1, 1, 1, 2)), times=8)
    return Scenario((InjectedFault(AtTime(0.0), BreakDisk(fault), "register"),), {"faults_s": 8.0})


def _an_older_record_comes_last(randomness: Random) -> Scenario:
    """A register that has lost its journal learns the newest decision from all replicas, but can't
    note the report of the last one.  Then a replica comes back that was away since before that
    decision, and the others die before it has caught up."""
    full = DiskFault(
        "append", Fail(errno.ENOSPC), ".log", calls_before=2
    )  # it forms, and one broker joins
    back_s = some_seconds(randomness, 4.49, 4.52)  # when it has gathered brokers for two seconds
    dead = Kill(some_seconds(randomness, 4.0, 4.5))  # for longer than they are waited for
    faults = [
        InjectedFault(AtTime(0.5), Kill(back_s), "broker-3"),
        InjectedFault(AtTime(2.2, behind=True), Wipe(0.3), "register"),
        InjectedFault(AtTime(0.0, behind=True), BreakDisk(full), "register"),
        InjectedFault(AtTime(2.0, behind=True), Cut("broker", 6.0), "broker-3"),
        InjectedFault(AtStep("J4b", "broker-3", behind=True), dead, "broker-1"),
        InjectedFault(AtTime(0.0, behind=True), dead, "broker-2"),
    ]
    return _told(faults, {"min_insync": 1, "faults_s": 12.0}, healed_s=11.0)


def _records_of_different_age(randomness: Random) -> Scenario:
    """A register that has lost its journal learns an older decision from a broker that was away,
    and the newest one from the others.  These die before that broker has caught up."""
    back_s = some_seconds(randomness, 2.6, 3.6)  # it is gathering brokers by then
    dead = Kill(some_seconds(randomness, 4.0, 4.5))  # for longer than they are waited for
    faults = [
        InjectedFault(AtTime(0.5), Kill(back_s), "broker-3"),
        InjectedFault(AtTime(2.2, behind=True), Wipe(0.3), "register"),
        InjectedFault(AtTime(0.0, behind=True), Cut("broker", 8.0), "broker-3"),
        InjectedFault(AtStep("J4b", "broker-3", behind=True), dead, "broker-1"),
        InjectedFault(AtTime(0.0, behind=True), dead, "broker-2"),
    ]
    return _told(faults, {"min_insync": 1, "faults_s": 12.0}, healed_s=11.0)


def _says_so_twice(randomness: Random) -> Scenario:
    """While a register that has lost its journal learns, a broker loses its power, and reports that
    when it joins.  The register dies before the other brokers have reported the partition, and
    starts again.  When all have reported, these other brokers die."""
    unlucky, *others = randomness.sample(BROKERS, len(BROKERS))
    back_s = some_seconds(randomness, 5.0, 6.0)  # when the register has gathered brokers twice
    dead = Kill(some_seconds(randomness, 5.0, 6.0))  # for longer than they are waited for
    faults = [InjectedFault(AtTime(some_seconds(randomness, 0.6, 1.2)), Wipe(0.1), "register")]
    faults += [InjectedFault(AtTime(0.0, behind=True), Kill(back_s), one) for one in others]
    faults.append(InjectedFault(AtTime(0.0, behind=True), LosePower(0.2), unlucky))
    let_in = AtStep("J6", "register", behind=True)
    faults.append(InjectedFault(let_in, Kill(0.1), "register"))
    all_told = AtStep("J5b", "register", 3, behind=True)
    faults.append(InjectedFault(all_told, dead, others[0]))
    faults.append(InjectedFault(AtTime(0.0, behind=True), dead, others[1]))
    options = {"min_insync": 1, "flush_interval_s": 30.0, "faults_s": 14.0}
    return _told(faults, options, healed_s=13.5)


def joins_while_more_comes(randomness: Random) -> Scenario:
    """The register hears late that a follower may join the in-sync set.  Meanwhile the follower
    gets nothing more, and producers send.  When it is in the set, the leader dies."""
    slow = Slow("register", 2.0, latency_s=some_seconds(randomness, 0.2, 0.4))
    away = some_seconds(randomness, 0.1, 0.4)
    faults = (
        InjectedFault(when_producing(randomness), Kill(away), "follower/0"),
        InjectedFault(AtStep("J9b", behind=True), slow, "leader/0"),
        InjectedFault(AtStep("J11", behind=True), Cut("broker", 3.0, "in"), "follower/0"),
        InjectedFault(AtStep("E17b", behind=True), Kill(3.0), "leader/0"),
    )
    options = {"replicas": 2, "min_insync": 1, "partitions": 1, "flush_before_ack": False}
    load = {"pause_s": 0.02, "records": 60, "topic_partitions": 1}
    return Scenario(faults, {**options, "flush_interval_s": 1.0, **QUICK}, load)


def _joins_with_less(randomness: Random) -> Scenario:
    """A replica leaves the in-sync set, and the leader dies as soon as it has committed records
    without it.  The next leader has them all, and doesn't know that they are committed while the
    other replica in sync hangs.  The replica that left reports its end, and is slow to flush what
    it lacked.  Then all fail, and it is the only one that comes back soon."""
    first, leader, other, behind = *BROKERS, "broker-4"
    dead = Kill(6.0)
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.2, 0.4)), times=40))
    faults = [
        InjectedFault(AtTime(some_seconds(randomness, 0.4, 0.8)), Cut("leader", 2.5), behind),
        InjectedFault(AtStep("E18", first, behind=True), Pause(0.0)),  # it leads on without it
        InjectedFault(AtStep(randomness.choice(("P6b", "P7b")), first, behind=True), dead, first),
        InjectedFault(AtStep("E11", leader, behind=True), Pause(0.9), other),
        InjectedFault(AtStep("P4a", behind, behind=True), slow),  # of the log of subscriptions
        InjectedFault(AtStep("J12", leader, behind=True), dead, leader),
        InjectedFault(AtTime(0.0, behind=True), dead, other),
        InjectedFault(AtTime(0.0, behind=True), LosePower(0.1), behind),
    ]
    options = {"brokers": 4, "replicas": 4, "min_insync": 1, "faults_s": 10.0}
    return _told(faults, options, {"members": 0, "chores": ()}, healed_s=7.0)


def _too_few_for_what_waits(randomness: Random) -> Scenario:
    """With two of two replicas required, a follower loses its power, and messages wait for it.  As
    soon as it has reported that it lacks records, so it is not in sync, it dies."""
    faults = [
        InjectedFault(AtTime(some_seconds(randomness, 0.8, 1.6)), LosePower(1.2), "follower/0"),
        InjectedFault(AtStep("J5b", "register", behind=True), Pause(0.0)),  # counts from here
        # The register has told it, and tells the leader.
        InjectedFault(AtStep("E9a", "register", 2, behind=True), Kill(2.0), "follower/0"),
    ]
    options = {"brokers": 2, "replicas": 2, "min_insync": 2, "kills_each": False}
    load = {"producers": 4, "pause_s": 0.2, "records": 30}
    return _told(faults, {**options, "latency_s": 0.02, "flush_interval_s": 1.0}, load)


def _nothing_is_healed_before(seconds: float) -> InjectedFault:
    """A small fault after *seconds*.  Healing begins when all messages are sent and all timed
    faults were injected, so it begins no earlier."""
    return InjectedFault(AtTime(seconds), Reset("client"), "leader")


def _found_by_its_owner(randomness: Random, harm: Harm, part: Part) -> Scenario:
    """All brokers are killed, and one finds that flushed records are missing.  It is back, alone,
    for as long as an election takes."""
    damaged, *others = randomness.sample(BROKERS, len(BROKERS))
    flushed = AtStep("D1b", damaged, randomness.choice((3, 4, 5, 6)))
    faults = [InjectedFault(flushed, Damage(harm, part, 0.1), damaged)]
    faults += [InjectedFault(AtTime(0.0, behind=True), Kill(1.5), one) for one in others]
    return _told(faults, {"min_insync": 1})


def _shorter(randomness: Random) -> Scenario:
    """The owner of a log finds that its tail is missing."""
    return _found_by_its_owner(randomness, "cut", "tail")


def _gone(randomness: Random) -> Scenario:
    """The owner of a log finds that the directory of the log is missing."""
    return _found_by_its_owner(randomness, "missing", "directory")


def _useless(randomness: Random) -> Scenario:
    """The owner of a log finds that the checkpoint of the log is cut."""
    return _found_by_its_owner(randomness, "cut", "checkpoint")


def _altered_and_dark(randomness: Random) -> Scenario:
    """Like `_found_by_its_owner`, and the machine has lost its power, too.  It had flushed all that
    it acknowledged, so it would have lost nothing; but a bit has flipped, far from the end."""
    damaged, *others = randomness.sample(BROKERS, len(BROKERS))
    faults = [
        # Within a second the file of ends, which notes what was flushed, is on the device.
        InjectedFault(AtTime(some_seconds(randomness, 1.5, 1.9)), LosePower(0.1), damaged),
        InjectedFault(AtTime(0.0, behind=True), Damage("flip", "tail", 0.1), damaged),
    ]
    faults += [InjectedFault(AtTime(0.0, behind=True), Kill(1.5), one) for one in others]
    return _told(faults, {"min_insync": 1, "flush_before_ack": True})


def _useless_and_dark(randomness: Random) -> Scenario:
    """Like `_altered_and_dark`, but the checkpoint of a log is damaged.  It can't be rebuilt from
    the noted facts, which may be older than the checkpoint, so the log is copied again."""
    damaged, *others = randomness.sample(BROKERS, len(BROKERS))
    harm: Harm = randomness.choice(("cut", "missing"))
    faults = [
        InjectedFault(AtTime(some_seconds(randomness, 1.5, 1.9)), LosePower(0.1), damaged),
        InjectedFault(AtTime(0.0, behind=True), Damage(harm, "checkpoint", 0.1), damaged),
    ]
    faults += [InjectedFault(AtTime(0.0, behind=True), Kill(1.5), one) for one in others]
    return _told(faults, {"min_insync": 1, "flush_before_ack": True})


def _told(
    faults: list[InjectedFault],
    options: Mapping[str, Any],
    load: Mapping[str, Any] = _NO_LOAD,
    *,
    healed_s: float = 4.0,
) -> Scenario:
    """The scenario of *faults*, in a cluster of three whose logs are flushed often.  A checkpoint
    is stored only after a megabyte, so a whole log is read when it is opened."""
    faults.append(_nothing_is_healed_before(healed_s))
    usual = {
        "latency_s": 0.0005,
        "jitter_s": 0.0005,
        "segment_bytes": None,
        "partitions": 1,
        "replicas": 3,
        "flush_before_ack": False,
        "flush_interval_s": 0.05,
        "checkpoint_bytes": 1_000_000,
        "faults_s": 8.0,
    }
    usual_load = {
        "pause_s": 0.04,
        "records": 80,
        "burst_count": 1,
        "topic_partitions": 1,
        "value_bytes_max": 400,
        "delivery_timeout_s": 30.0,
    }
    return Scenario(tuple(faults), {**usual, **options}, {**usual_load, **load})


def _unheard_and_altered(randomness: Random) -> Scenario:
    """A leader flushes records that its followers don't get, and stores a checkpoint behind them.
    A bit of them flips while it is down, and it is back, alone, before it left the in-sync set."""
    faults = [
        InjectedFault(AtTime(some_seconds(randomness, 0.3, 0.4)), Cut("others", 5.0), one)
        for one in BROKERS[1:]  # the first broker leads
    ]
    flip = Damage("flip", "unheard", 0.05)
    late = AtTime(some_seconds(randomness, 0.4, 0.6), behind=True)
    faults.append(InjectedFault(late, flip, "broker-1"))
    load = {"value_bytes_max": 40, "burst_count": 12, "producers": 2, **PIPELINED}
    return _told(faults, {"min_insync": 1, "checkpoint_bytes": 300}, load, healed_s=6.0)


def _less_leads_unnoticed(randomness: Random) -> Scenario:
    """A broker comes back with fewer records than it had flushed, and with an older copy of the
    file of ends, so it can't notice.  It leads before the others, which have more, can accept."""
    damaged, *others = randomness.sample(BROKERS, len(BROKERS))
    older = Damage("older", "ends", 0.1, taken_s=randomness.choice((0.2, 0.3)))
    flushed = AtStep("D1b", damaged, randomness.choice((6, 8, 10)))
    faults = [
        InjectedFault(flushed, older, damaged),
        InjectedFault(AtTime(0.0, behind=True), Damage("cut", "log", 0.1), damaged),
    ]
    faults += [InjectedFault(AtTime(0.0, behind=True), Kill(1.0), one) for one in others]
    return _told(faults, {"min_insync": 2})


def _an_older_checkpoint(randomness: Random) -> Scenario:
    """Since a copy of a checkpoint was made, a leader has died, so another epoch has begun.  A
    broker comes back with the copy; the others are away for a while, or continue."""
    taken_s = randomness.choice((0.5, 0.6))
    damaged, *others = randomness.sample(BROKERS, len(BROKERS))
    faults = [
        InjectedFault(AtTime(taken_s + 0.1), Kill(0.1), "leader"),
        InjectedFault(
            AtTime(some_seconds(randomness, 0.8, 1.2), behind=True),
            Damage("older", "checkpoint", 0.1, taken_s),
            damaged,
        ),
    ]
    if randomness.random() < 0.5:
        faults += [InjectedFault(AtTime(0.0, behind=True), Kill(1.5), one) for one in others]
    options = {"min_insync": 1, "checkpoint_bytes": randomness.choice((1000, 4000))}
    return _told(faults, options, {"records": 120})


def _back_one_by_one(randomness: Random) -> Scenario:
    """All machines lose their power when one has flushed more than the others.  That one is slow to
    reach the register, so for a while only replicas with less have accepted."""
    best, *others = randomness.sample(BROKERS, len(BROKERS))
    flushed = AtStep("D1b", best, randomness.choice((3, 4, 6)), behind=True)
    faults = [_slow_sync(one, 3.0, ".log", times=1) for one in others]
    faults.append(InjectedFault(flushed, LosePower(0.2), best))
    faults += [InjectedFault(AtTime(0.0, behind=True), LosePower(0.0), one) for one in others]
    late = some_seconds(randomness, 0.3, 0.45)
    faults.append(
        InjectedFault(AtTime(0.0, behind=True), Slow("register", 3.0, latency_s=late), best)
    )
    return _told(faults, {"min_insync": 1, "loses_all": True})


def _more_outside_the_set(randomness: Random) -> Scenario:
    """A follower is out of sync, because its messages are delayed, but has all records on its
    device.  Then all machines lose their power, and the replicas in sync had flushed less."""
    outside = randomness.choice(BROKERS[1:])  # the first broker leads
    inside = [one for one in BROKERS if one != outside]
    faults = [_slow_sync(one, 3.0, ".log") for one in inside]
    faults.append(InjectedFault(AtTime(1.0), Cut("leader", 6.0, "out", holds=True), outside))
    gap = AtTime(some_seconds(randomness, 1.2, 1.5), behind=True)
    faults.append(InjectedFault(gap, LosePower(0.0), inside[0]))
    faults += [
        InjectedFault(AtTime(0.0, behind=True), LosePower(0.0), one) for one in (inside[1], outside)
    ]
    return _told(faults, {"min_insync": 1, "loses_all": True}, {"records": 22})


def _many_logs_in_the_dark(randomness: Random) -> Scenario:
    """Six logs share a partition, and all machines lose their power.  One broker has on its device
    nothing of the first log, and all of the others; another one lacks a little of most logs."""
    wide, deep, slow = order = randomness.sample(BROKERS, len(BROKERS))
    faults = [
        _slow_sync(wide, 3.0, "topic-1/00000000000000000000.log"),
        _slow_sync(slow, 0.6, ".log"),
    ]
    for number in range(2, 7):
        late_s = some_seconds(randomness, 0.08, 0.12)
        faults.append(_slow_sync(deep, late_s, f"topic-{number}/00000000000000000000.log"))
    faults.append(
        InjectedFault(AtTime(some_seconds(randomness, 1.6, 2.0)), LosePower(0.0), order[0])
    )
    faults += [InjectedFault(AtTime(0.0, behind=True), LosePower(0.0), one) for one in order[1:]]
    options = {"min_insync": 1, "loses_all": True}
    return _told(faults, options, {"topics": 6, "value_bytes_max": 3000, "producers": 3})


def _killed_when_power_is_back(randomness: Random) -> Scenario:
    """All machines lose their power when a highwater mark is on their devices, but not all records
    before it.  When power is back, brokers are killed that have reported what they lost."""
    first, *others = randomness.sample(BROKERS, len(BROKERS))
    faults = [_slow_sync(one, 3.0, ".log", times=3) for one in BROKERS]
    faults.append(InjectedFault(AtTime(some_seconds(randomness, 2.4, 3.2)), LosePower(0.0), first))
    faults += [InjectedFault(AtTime(0.0, behind=True), LosePower(0.0), one) for one in others]
    at = AtStep(randomness.choice(("D2b", "E10b", "E10b", "E10b")), first, behind=True)
    faults.append(InjectedFault(at, Kill(0.1), "here"))
    some = randomness.sample(others, randomness.choice((0, 1, 2)))
    faults += [InjectedFault(AtTime(0.0, behind=True), Kill(0.1), one) for one in some]
    return _told(faults, {"min_insync": 1, "loses_all": True})


def _slow_sync(target: str, delay_s: float, path_end: str, times: int = 200) -> InjectedFault:
    fault = DiskFault("sync", Delay(delay_s), path_end, times=times)
    return InjectedFault(AtTime(0.3), BreakDisk(fault), target)


LOSS_SCENARIOS: Final[Mapping[str, tuple[Callable[[Random], Scenario], ...]]] = {
    JOURNAL: (
        _forms_half_a_cluster,
        _an_older_record_comes_last,
        _records_of_different_age,
        _says_so_twice,
    ),
    DAMAGE: (
        _shorter,
        _gone,
        _useless,
        _useless_and_dark,
        _altered_and_dark,
        _unheard_and_altered,
        _less_leads_unnoticed,
        _an_older_checkpoint,
        _joins_with_less,
    ),
    POWER: (
        _back_one_by_one,
        _too_few_for_what_waits,
        _many_logs_in_the_dark,
        _many_logs_in_the_dark,
        _more_outside_the_set,
        _killed_when_power_is_back,
        _killed_when_power_is_back,
    ),
}
"""The scenarios, by the kind of `sim.generate.fault_kinds` that has to be switched on."""
