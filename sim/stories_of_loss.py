"""More of `sim.stories`: what devices lost, and who leads then.

Damage that a broker notices when it opens its logs, failures of power that leave each replica
with another end, and a broker whose damage nobody can notice.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from octopi.simulation.damage import Damage, Harm, Part
from octopi.simulation.disk_faults import Delay, DiskFault, Fail
from octopi.simulation.failures import (
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    Fault,
    Kill,
    LosePower,
    Reset,
    Slow,
    Wipe,
)
from sim.drawing import BROKERS, some_seconds
from sim.kinds import DAMAGE, JOURNAL, POWER
from sim.story import Story

_NO_LOAD: Final[Mapping[str, Any]] = {}


def _forms_half_a_cluster(chance: Random) -> Story:
    """The register's disk takes a part of the entries with which it forms its cluster, and for a
    while nothing more, not even that this part is cut off."""
    full = Fail(errno.ENOSPC, written_fraction=chance.choice((0.5, 0.6, 0.8)))
    fault = DiskFault("", full, ".log", calls_before=chance.choice((1, 1, 1, 2)), times=8)
    return Story((Fault(AtTime(0.0), BreakDisk(fault), "register"),), {"faults_s": 8.0})


def _an_older_record_comes_last(chance: Random) -> Story:
    """A register without memory hears of the newest decision by all that it concerns, and can't
    note what the last of them says.  One that was away since before comes next, and the others
    die before it has caught up."""
    full = DiskFault(
        "append", Fail(errno.ENOSPC), ".log", calls_before=2
    )  # it forms, and one joins
    back_s = some_seconds(chance, 4.49, 4.52)  # when it has gathered brokers for two seconds
    dead = Kill(some_seconds(chance, 4.0, 4.5))  # for longer than they are waited for
    faults = [
        Fault(AtTime(0.5), Kill(back_s), "broker-3"),
        Fault(AtTime(2.2, behind=True), Wipe(0.3), "register"),
        Fault(AtTime(0.0, behind=True), BreakDisk(full), "register"),
        Fault(AtTime(2.0, behind=True), Cut("broker", 6.0), "broker-3"),
        Fault(AtStep("J4b", "broker-3", behind=True), dead, "broker-1"),
        Fault(AtTime(0.0, behind=True), dead, "broker-2"),
    ]
    return _told(faults, {"min_insync": 1, "faults_s": 12.0}, healed_s=11.0)


def _records_of_different_age(chance: Random) -> Story:
    """A register without memory hears of an older decision from a broker that was away since
    before, and of the newest one from the others.  These die before that one has caught up."""
    back_s = some_seconds(chance, 2.6, 3.6)  # it is gathering brokers by then
    dead = Kill(some_seconds(chance, 4.0, 4.5))  # for longer than they are waited for
    faults = [
        Fault(AtTime(0.5), Kill(back_s), "broker-3"),
        Fault(AtTime(2.2, behind=True), Wipe(0.3), "register"),
        Fault(AtTime(0.0, behind=True), Cut("broker", 8.0), "broker-3"),
        Fault(AtStep("J4b", "broker-3", behind=True), dead, "broker-1"),
        Fault(AtTime(0.0, behind=True), dead, "broker-2"),
    ]
    return _told(faults, {"min_insync": 1, "faults_s": 12.0}, healed_s=11.0)


def _says_so_twice(chance: Random) -> Story:
    """A broker loses its power while a register without memory learns, and says so when it is let
    in.  The register dies before it has heard of the partition from the others, and asks again.
    When all have told, these others die."""
    unlucky, *others = chance.sample(BROKERS, len(BROKERS))
    back_s = some_seconds(chance, 5.0, 6.0)  # when the register has gathered brokers twice
    dead = Kill(some_seconds(chance, 5.0, 6.0))  # for longer than they are waited for
    faults = [Fault(AtTime(some_seconds(chance, 0.6, 1.2)), Wipe(0.1), "register")]
    faults += [Fault(AtTime(0.0, behind=True), Kill(back_s), one) for one in others]
    faults.append(Fault(AtTime(0.0, behind=True), LosePower(0.2), unlucky))
    let_in = AtStep("J6", "register", behind=True)
    faults.append(Fault(let_in, Kill(0.1), "register"))
    all_told = AtStep("J5b", "register", 3, behind=True)
    faults.append(Fault(all_told, dead, others[0]))
    faults.append(Fault(AtTime(0.0, behind=True), dead, others[1]))
    options = {"min_insync": 1, "flush_interval_s": 30.0, "faults_s": 14.0}
    return _told(faults, options, healed_s=13.5)


def _nothing_is_healed_before(seconds: float) -> Fault:
    """Else that is done as soon as all messages are sent."""
    return Fault(AtTime(seconds), Reset("client"), "leader")


def _found_by_its_owner(harm: Harm, part: Part) -> Callable[[Random], Story]:
    """All brokers are killed, and one finds that some of what it had flushed is missing.  It is
    back, alone, for as long as it takes to choose a leader."""

    def tell(chance: Random) -> Story:
        damaged, *others = chance.sample(BROKERS, len(BROKERS))
        flushed = AtStep("D1b", damaged, chance.choice((3, 4, 5, 6)))
        faults = [Fault(flushed, Damage(harm, part, 0.1), damaged)]
        faults += [Fault(AtTime(0.0, behind=True), Kill(1.5), one) for one in others]
        return _told(faults, {"min_insync": 1})

    return tell


_shorter = _found_by_its_owner("cut", "tail")
_gone = _found_by_its_owner("missing", "directory")
_useless = _found_by_its_owner("cut", "checkpoint")


def _altered_and_dark(chance: Random) -> Story:
    """The same, and the machine has lost its power, too.  All that was acknowledged had been
    flushed, so it would have lost nothing; but a bit turned over in it, far from its end."""
    damaged, *others = chance.sample(BROKERS, len(BROKERS))
    faults = [
        # What was flushed is noted on the device within a second.
        Fault(AtTime(some_seconds(chance, 1.5, 1.9)), LosePower(0.1), damaged),
        Fault(AtTime(0.0, behind=True), Damage("flip", "tail", 0.1), damaged),
    ]
    faults += [Fault(AtTime(0.0, behind=True), Kill(1.5), one) for one in others]
    return _told(faults, {"min_insync": 1, "flush_before_ack": True})


def _useless_and_dark(chance: Random) -> Story:
    """The same, and what is damaged is the checkpoint of a log.  No new one is made of what is
    noted, which may be less than what was: the log is filled again."""
    damaged, *others = chance.sample(BROKERS, len(BROKERS))
    harm: Harm = chance.choice(("cut", "missing"))
    faults = [
        Fault(AtTime(some_seconds(chance, 1.5, 1.9)), LosePower(0.1), damaged),
        Fault(AtTime(0.0, behind=True), Damage(harm, "checkpoint", 0.1), damaged),
    ]
    faults += [Fault(AtTime(0.0, behind=True), Kill(1.5), one) for one in others]
    return _told(faults, {"min_insync": 1, "flush_before_ack": True})


def _told(
    faults: list[Fault],
    options: Mapping[str, Any],
    load: Mapping[str, Any] = _NO_LOAD,
    *,
    healed_s: float = 4.0,
) -> Story:
    """The story of *faults*, in a cluster of three whose logs are flushed often, and of which no
    checkpoint is stored before a log has a megabyte, so all of it is read when it is opened."""
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
    return Story(tuple(faults), {**usual, **options}, {**usual_load, **load})


def _less_leads_unnoticed(chance: Random) -> Story:
    """A broker comes back with less than it had flushed, and with an older copy of what it noted
    of that, so it can't know.  It leads before the others accept, and they know better."""
    damaged, *others = chance.sample(BROKERS, len(BROKERS))
    older = Damage("older", "ends", 0.1, taken_s=chance.choice((0.2, 0.3)))
    flushed = AtStep("D1b", damaged, chance.choice((6, 8, 10)))
    faults = [
        Fault(flushed, older, damaged),
        Fault(AtTime(0.0, behind=True), Damage("cut", "log", 0.1), damaged),
    ]
    faults += [Fault(AtTime(0.0, behind=True), Kill(1.0), one) for one in others]
    return _told(faults, {"min_insync": 2})


def _an_older_checkpoint(chance: Random) -> Story:
    """A leader died since a copy was made of a checkpoint, so another epoch has begun.  A broker
    comes back with the copy, and the others are gone for a while, or they go on."""
    taken_s = chance.choice((0.5, 0.6))
    damaged, *others = chance.sample(BROKERS, len(BROKERS))
    faults = [
        Fault(AtTime(taken_s + 0.1), Kill(0.1), "leader"),
        Fault(
            AtTime(some_seconds(chance, 0.8, 1.2), behind=True),
            Damage("older", "checkpoint", 0.1, taken_s),
            damaged,
        ),
    ]
    if chance.random() < 0.5:
        faults += [Fault(AtTime(0.0, behind=True), Kill(1.5), one) for one in others]
    options = {"min_insync": 1, "checkpoint_bytes": chance.choice((1000, 4000))}
    return _told(faults, options, {"records": 120})


def _back_one_by_one(chance: Random) -> Story:
    """All machines lose their power when one has flushed more than the others.  That one is far
    from the register, so for a while only those accept that have less."""
    best, *others = chance.sample(BROKERS, len(BROKERS))
    flushed = AtStep("D1b", best, chance.choice((3, 4, 6)), behind=True)
    faults = [_slow_sync(one, 3.0, ".log", times=1) for one in others]
    faults.append(Fault(flushed, LosePower(0.2), best))
    faults += [Fault(AtTime(0.0, behind=True), LosePower(0.0), one) for one in others]
    late = some_seconds(chance, 0.3, 0.45)
    faults.append(Fault(AtTime(0.0, behind=True), Slow("register", 3.0, latency_s=late), best))
    return _told(faults, {"min_insync": 1, "loses_all": True})


def _more_outside_the_set(chance: Random) -> Story:
    """A follower is out of sync, as what it says is held up, and has all that the leader sends it
    on its device.  Then all machines lose their power, and those in sync had flushed less."""
    outside = chance.choice(BROKERS[1:])  # the first one leads
    inside = [one for one in BROKERS if one != outside]
    faults = [_slow_sync(one, 3.0, ".log") for one in inside]
    faults.append(Fault(AtTime(1.0), Cut("leader", 6.0, "out", holds=True), outside))
    gap = AtTime(some_seconds(chance, 1.2, 1.5), behind=True)
    faults.append(Fault(gap, LosePower(0.0), inside[0]))
    faults += [Fault(AtTime(0.0, behind=True), LosePower(0.0), one) for one in (inside[1], outside)]
    return _told(faults, {"min_insync": 1, "loses_all": True}, {"records": 22})


def _many_logs_in_the_dark(chance: Random) -> Story:
    """Six logs share a partition, and all machines lose their power.  One has nothing on its
    device of the first log, and all of the others; another one lacks a little of most."""
    wide, deep, slow = order = chance.sample(BROKERS, len(BROKERS))
    faults = [
        _slow_sync(wide, 3.0, "topic-1/00000000000000000000.log"),
        _slow_sync(slow, 0.6, ".log"),
    ]
    for number in range(2, 7):
        late_s = some_seconds(chance, 0.08, 0.12)
        faults.append(_slow_sync(deep, late_s, f"topic-{number}/00000000000000000000.log"))
    faults.append(Fault(AtTime(some_seconds(chance, 1.6, 2.0)), LosePower(0.0), order[0]))
    faults += [Fault(AtTime(0.0, behind=True), LosePower(0.0), one) for one in order[1:]]
    options = {"min_insync": 1, "loses_all": True}
    return _told(faults, options, {"topics": 6, "value_bytes_max": 3000, "producers": 3})


def _killed_when_power_is_back(chance: Random) -> Story:
    """All machines lose their power, when it is on their devices that more is committed than is
    there itself.  When power is back, brokers are killed that have told what they lost."""
    first, *others = chance.sample(BROKERS, len(BROKERS))
    faults = [_slow_sync(one, 3.0, ".log", times=3) for one in BROKERS]
    faults.append(Fault(AtTime(some_seconds(chance, 2.4, 3.2)), LosePower(0.0), first))
    faults += [Fault(AtTime(0.0, behind=True), LosePower(0.0), one) for one in others]
    at = AtStep(chance.choice(("D2b", "E10b", "E10b", "E10b")), first, behind=True)
    faults.append(Fault(at, Kill(0.1), "here"))
    some = chance.sample(others, chance.choice((0, 1, 2)))
    faults += [Fault(AtTime(0.0, behind=True), Kill(0.1), one) for one in some]
    return _told(faults, {"min_insync": 1, "loses_all": True})


def _slow_sync(target: str, delay_s: float, path_end: str, times: int = 200) -> Fault:
    fault = DiskFault("sync", Delay(delay_s), path_end, times=times)
    return Fault(AtTime(0.3), BreakDisk(fault), target)


TOLD_OF_LOSS: Final[Mapping[str, tuple[Callable[[Random], Story], ...]]] = {
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
        _less_leads_unnoticed,
        _an_older_checkpoint,
    ),
    POWER: (
        _back_one_by_one,
        _many_logs_in_the_dark,
        _many_logs_in_the_dark,
        _more_outside_the_set,
        _killed_when_power_is_back,
        _killed_when_power_is_back,
    ),
}
"""By the kind of `sim.kinds` that has to be drawn."""
