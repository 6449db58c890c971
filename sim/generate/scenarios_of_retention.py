"""Scenarios of retention and of large logs: retention removes records that followers and consumers
still need, and long reads of a log must not delay other requests."""

from __future__ import annotations

import errno
from random import Random
from typing import Any, get_args

import attrs

from octopi.simulation.disk.faults import Delay, DiskFault, Fail
from octopi.simulation.faults.actions import AtStep, AtTime, BreakDisk, InjectedFault, Kill, Slow
from octopi.simulation.faults.damage import Damage, Harm
from sim.generate.fault_patterns import a_death, an_absence, late, some_seconds, soon
from sim.generate.scenario import Scenario


def retention_strikes(randomness: Random) -> Scenario:
    """Retention by bytes, by age, or by both, with producers that go on for some time.  In some
    plans a follower or consumer is away for so long that its next records were removed."""
    faults = [
        InjectedFault(
            AtTime(some_seconds(randomness, 0.2, 1.0)),
            randomness.choice((an_absence, a_death))(randomness),
            randomness.choice(("follower", "follower", "leader", "consumer-1")),
        )
    ]
    if randomness.random() < 0.5:
        place = randomness.choice((soon, late))(randomness)
        faults.append(
            InjectedFault(place, a_death(randomness), randomness.choice(("leader", "follower")))
        )
    by = randomness.choice(("bytes", "age", "age", "both"))
    options: dict[str, Any] = {
        "segment_bytes": 4096,
        "retention_bytes": None if by == "age" else randomness.choice((4096, 12_000)),
        "retention_ms": None if by == "bytes" else randomness.choice((200, 600, 1500)),
        "retention_check_interval_s": randomness.choice((0.02, 0.1, 0.3)),
        "flush_interval_s": randomness.choice((0.05, 0.3)),
    }
    load = {"value_bytes_max": 3_000, "records": 30, "pause_s": 0.05}
    return Scenario(tuple(faults), options, load)


def removals_fail(randomness: Random) -> Scenario:
    """A leader's disk fails in the middle of removing segments, and a follower or consumer that was
    away asks for what is removed."""
    told = retention_strikes(randomness)
    fault = DiskFault(
        "remove",
        Fail(),
        calls_before=randomness.choice((1, 2, 3, 4)),
        times=randomness.choice((1, 9)),
    )
    faults = (
        InjectedFault(AtTime(some_seconds(randomness, 0.3, 0.8)), Kill(1.5), "follower"),
        InjectedFault(
            AtTime(some_seconds(randomness, 0.0, 0.6), behind=True), BreakDisk(fault), "leader"
        ),
    )
    return attrs.evolve(
        told, faults=faults, options={**told.options, "retention_check_interval_s": 0.3}
    )


def restarts_fail(randomness: Random) -> Scenario:
    """A follower was away for so long that its log has to begin anew, and its disk fails then."""
    told = retention_strikes(randomness)
    operation = randomness.choice(("append", "remove", "replace_file", "open", ""))
    fault = DiskFault(operation, Fail(errno.ENOSPC), times=randomness.choice((3, 10, 40)))
    faults = (
        InjectedFault(AtTime(some_seconds(randomness, 0.3, 0.8)), Kill(1.5), "follower"),
        InjectedFault(AtStep("J10", behind=True), BreakDisk(fault)),
    )
    options = {**told.options, "retention_check_interval_s": 0.02}
    return attrs.evolve(told, faults=faults, options=options)


def retention_waits(randomness: Random) -> Scenario:
    """Retention that waits for the members of a subscription, up to a bound.  They are slow, go
    and come back; their marks are set back, or they are gone with the subscription; and leaders and
    followers end."""
    faults = [
        InjectedFault(
            AtTime(some_seconds(randomness, 0.2, 1.5)),
            randomness.choice((an_absence, a_death))(randomness),
            randomness.choice(("follower", "leader", "leader", "member-1")),
        )
    ]
    if randomness.random() < 0.5:
        place = randomness.choice((soon, late))(randomness)
        faults.append(
            InjectedFault(place, a_death(randomness), randomness.choice(("leader", "follower")))
        )
    by = randomness.choice(("bytes", "age", "both"))
    bound = randomness.choice(("bytes", "age", "both"))
    options: dict[str, Any] = {
        "segment_bytes": 4096,
        "retention_bytes": None if by == "age" else randomness.choice((1, 4096)),
        "retention_ms": None if by == "bytes" else randomness.choice((50, 200)),
        "hold_bytes": None if bound == "age" else randomness.choice((8_000, 30_000, 500_000)),
        "hold_ms": None if bound == "bytes" else randomness.choice((300, 2_000, 60_000)),
        "retention_check_interval_s": randomness.choice((0.02, 0.1)),
        "flush_interval_s": 0.05,
    }
    count = randomness.choice((1, 2))
    load = {
        "value_bytes_max": 3_000,
        "records": 30,
        "pause_s": 0.05,
        "members": count,
        "member_mode": randomness.choice(("exclusive", "failover")),
        "static_members": randomness.choice((0, count)),
        "member_pause_s": randomness.choice((0.01, 0.05, 0.3)),
        "member_stay_count": randomness.choice((0, 5, 20)),
        "chores": randomness.choice(((), (), ("reset",), ("reset", "reset"), ("delete",))),
    }
    return Scenario(tuple(faults), options, load)


def large_log(randomness: Random) -> Scenario:
    """A log of megabytes, in segments whose indexes are damaged while their broker is down, and
    look-ups that have to read all of it."""
    places = (
        AtTime(some_seconds(randomness, 1.2, 1.8)),
        late(randomness),
    )  # another broker leads then
    harms: tuple[Harm, ...] = ("missing", "missing", *get_args(Harm))
    faults = [
        InjectedFault(
            place,
            Damage(randomness.choice(harms), "index", some_seconds(randomness, 0.1, 0.4)),
            randomness.choice(("leader", "leader", "follower")),
        )
        for place in places
    ]
    if randomness.random() < 0.5:
        slow = Slow("client", 2.0, latency_s=0.05, bytes_per_s=2_000_000.0)
        faults.append(InjectedFault(AtTime(some_seconds(randomness, 0.2, 3.0)), slow, "leader"))
    options: dict[str, Any] = {
        "partitions": 1,
        "segment_bytes": 4_500_000,
        "flush_interval_s": 0.05,
        "checkpoint_bytes": 1_000_000,
        "faults_s": 8.0,
        "latency_s": 0.0005,
        "jitter_s": 0.0005,
        "min_insync": 1,
    }
    load: dict[str, Any] = {
        "producers": 4,
        "records": 60,
        "consumers": 2,
        "topic_partitions": 1,
        "value_bytes_max": 150_000,
        "pause_s": 0.05,
        "burst_count": 4,
        "starts_late": randomness.random() < 0.3,
        "reopen_count": randomness.choice((0, 20)),
        "chores": ("ask",) * 16,
    }
    return Scenario(tuple(faults), options, load)


def many_large_logs(randomness: Random) -> Scenario:
    """A follower that was away lacks much of each of many logs."""
    away = InjectedFault(AtTime(0.3), Kill(some_seconds(randomness, 1.5, 2.5)), "follower")
    narrow = Slow("others", 4.0, latency_s=0.001, bytes_per_s=3_000_000.0)
    told = large_log(randomness)
    load = {**told.load, "topics": 8, "value_bytes_max": 250_000, "records": 60, "pause_s": 0.02}
    options = {**told.options, "replicas": randomness.choice((2, 3))}
    return Scenario((away, InjectedFault(AtTime(1.5), narrow, "leader")), options, load)


def slow_to_acknowledge(randomness: Random) -> Scenario:
    """A follower that was away lacks more of a log than may be on its way to it.  Its device is
    slow, and it acknowledges records only when they are durable."""
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 1.0, 2.5)), ".log", times=4))
    faults = (
        InjectedFault(AtTime(0.1), Kill(some_seconds(randomness, 3.0, 4.0)), "follower"),
        InjectedFault(AtStep("E12", behind=True), slow, "here"),
    )
    told = large_log(randomness)
    options = {**told.options, "replicas": 2, "flush_before_ack": True}
    load = {
        "records": 90,
        "value_bytes_max": 250_000,
        "pause_s": 0.01,
        "consumers": 1,
        "chores": (),
    }
    return Scenario(faults, options, {**told.load, **load})


def many_fetches(randomness: Random) -> Scenario:
    """More fetches wait for records on a connection than a broker takes."""
    faults = [
        InjectedFault(AtTime(some_seconds(randomness, 0.3, 1.5)), a_death(randomness), "follower")
    ]
    return Scenario(tuple(faults), {}, {"chores": ("poll",) * randomness.randint(1, 3)})
