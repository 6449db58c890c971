"""Scenarios in which the last replica in sync is damaged, or its disk is lost.

The register elects no leader by itself then.  An operator orders the best of the remaining replicas
to lead; the records that this replica lacks are lost, and are reported as lost.  If the disks of
all replicas are lost, the operator orders the partition to begin again empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import attrs

from octopi.simulation.faults.actions import (
    AtStep,
    AtTime,
    Cut,
    InjectedFault,
    Kill,
    Place,
    Reset,
    Wipe,
)
from octopi.simulation.faults.damage import Damage, Harm, Part
from sim.generate.fault_kinds import EVERY_DISK, LAST
from sim.generate.fault_patterns import BROKERS, some_seconds
from sim.generate.scenario import Scenario

_NO_LOAD: Final[Mapping[str, Any]] = {}
_DAMAGES: Final[tuple[tuple[Harm, Part], ...]] = (
    ("cut", "tail"),
    ("cut", "log"),
    ("flip", "tail"),
    ("missing", "log"),
    ("missing", "directory"),
    ("cut", "checkpoint"),
)
"""Kinds of damage that a broker notices when it opens its logs."""


def _some_damage(randomness: Random, restart_s: float | None = 0.1) -> Damage:
    harm, part = randomness.choice(_DAMAGES)
    return Damage(harm, part, restart_s)


def _told(
    faults: list[InjectedFault],
    options: Mapping[str, Any],
    load: Mapping[str, Any] = _NO_LOAD,
) -> Scenario:
    """The scenario of *faults*, in a cluster whose logs are flushed often, while there is always
    something to send."""
    # Otherwise healing would begin as soon as all messages are sent.
    faults.append(InjectedFault(AtTime(5.0), Reset("client"), "leader"))
    usual = {
        "latency_s": 0.0005,
        "jitter_s": 0.0005,
        "partitions": 1,
        "replicas": 3,
        "min_insync": 1,
        "flush_interval_s": 0.05,
        "checkpoint_bytes": 1_000_000,
        "faults_s": 8.0,
        "loses_last": True,
    }
    usual_load = {
        "pause_s": 0.04,
        "records": 60,
        "burst_count": 1,
        "topic_partitions": 1,
        "value_bytes_max": 400,
        "delivery_timeout_s": 30.0,
    }
    return Scenario(tuple(faults), {**usual, **options}, {**usual_load, **load})


def _sole_replica_damaged(randomness: Random) -> Scenario:
    """The only replica finds that flushed records are missing.  It serves the records before these,
    and takes none until the operator gives the rest up."""
    flushed = AtStep("D1b", "leader", randomness.choice((4, 8, 15)))
    faults = [
        InjectedFault(flushed, _some_damage(randomness, randomness.choice((0.1, 1.0))), "here")
    ]
    options = {
        "replicas": 1,
        "segment_bytes": randomness.choice((None, 4096)),
        "flush_before_ack": randomness.random() < 0.3,
        "checkpoint_bytes": randomness.choice((2000, 1_000_000)),
    }
    return _told(faults, options)


def _sole_replica_of_members_damaged(randomness: Random) -> Scenario:
    """As before, and members of a subscription read the log.  The damage ends none of them: they
    go on when the operator has repaired the log."""
    damaged = _sole_replica_damaged(randomness)
    group = {
        "members": randomness.choice((1, 2)),
        "member_mode": randomness.choice(("exclusive", "failover", "shared", "key_shared")),
        "member_pause_s": randomness.choice((0.0, 0.01, 0.05)),
        "member_stay_count": randomness.choice((0, 5, 20)),
        "chores": randomness.choice(((), ("reset",), ("reset", "delete"))),
    }
    return attrs.evolve(damaged, load={**damaged.load, **group})


def _left_behind_and_all_that_is_left(randomness: Random) -> Scenario:
    """Followers leave the in-sync set one after the other.  Then the leader, alone in sync, loses
    its disk: the follower that left the set last has most records."""
    leader, *others = randomness.sample(BROKERS, len(BROKERS))
    away_s = some_seconds(randomness, 3.5, 4.5)
    faults = [
        InjectedFault(AtTime(some_seconds(randomness, 0.4, 0.8)), Kill(0.2), one) for one in others
    ]  # so the third broker leads
    first, second = randomness.sample(others, len(others))
    faults += [
        InjectedFault(AtTime(some_seconds(randomness, 1.0, 1.4), behind=True), Kill(away_s), first),
        InjectedFault(
            AtTime(some_seconds(randomness, 0.2, 0.8), behind=True), Kill(away_s), second
        ),
        InjectedFault(AtTime(some_seconds(randomness, 0.6, 1.2), behind=True), Wipe(0.2), leader),
    ]
    return _told(faults, {"faults_s": 9.0})


def _all_in_sync_wiped(randomness: Random) -> Scenario:
    """One broker is away for so long that it leaves the in-sync set.  Then the replicas in sync
    lose their disks, or one of them finds a damaged file."""
    away, *others = randomness.sample(BROKERS, len(BROKERS))
    back_s = randomness.choice((2.0, 3.0, None))
    absence = randomness.choice((Kill(back_s), Cut("others", 3.0, resets=True)))
    faults = [InjectedFault(AtTime(some_seconds(randomness, 0.5, 1.0)), absence, away)]
    gap = AtTime(some_seconds(randomness, 1.3, 1.8), behind=True)
    faults.append(InjectedFault(gap, Wipe(randomness.choice((0.1, 0.5))), others[0]))
    loss = randomness.choice((Wipe(0.1), _some_damage(randomness)))
    faults.append(
        InjectedFault(AtTime(randomness.choice((0.0, 0.1)), behind=True), loss, others[1])
    )
    return _told(faults, {"flush_before_ack": randomness.random() < 0.3})


def _two_wiped_and_one_damaged(randomness: Random) -> Scenario:
    """All are in sync when two disks are lost at once, and a file of the third one is damaged."""
    damaged, *others = randomness.sample(BROKERS, len(BROKERS))
    flushed = AtStep("D1b", damaged, randomness.choice((4, 6, 10)))
    faults = [
        InjectedFault(flushed, _some_damage(randomness, randomness.choice((0.1, 0.5))), damaged)
    ]
    faults += [InjectedFault(AtTime(0.0, behind=True), Wipe(0.2), one) for one in others]
    return _told(faults, {"segment_bytes": randomness.choice((None, 4096))})


def _all_damaged(randomness: Random) -> Scenario:
    """A file of each replica is damaged, and all of them come back, so each lacks records."""
    first, *others = randomness.sample(BROKERS, len(BROKERS))
    flushed = AtStep("D1b", first, randomness.choice((4, 6, 10)))
    faults = [InjectedFault(flushed, _some_damage(randomness), first)]
    for one in others:
        back_s = randomness.choice((0.1, 0.4, None))
        faults.append(
            InjectedFault(AtTime(0.0, behind=True), _some_damage(randomness, back_s), one)
        )
    load = {"topics": randomness.choice((1, 1, 2))}
    return _told(faults, {}, load)


def _damaged_while_one_is_filled_again(randomness: Random) -> Scenario:
    """A replica in sync reports damage before its leader can report that it lags.  When it has set
    the damage aside and waits for the records, files of the other replicas are damaged, too."""
    leader, *others = BROKERS
    damaged, other = randomness.sample(others, len(others))
    flushed = AtStep("D1b", damaged, randomness.choice((6, 10, 15)))
    faults = [
        InjectedFault(flushed, Cut("register", 0.3, holds=True), leader),
        InjectedFault(AtTime(0.0, behind=True), Damage("cut", "tail", 0.02), damaged),
    ]
    place: Place = AtStep("D6b", damaged, behind=True)
    for one in (leader, other):
        harm, part = randomness.choice(_DAMAGES[:-1])
        faults.append(InjectedFault(place, Damage(harm, part, randomness.choice((0.1, 0.4))), one))
        place = AtTime(0.0, behind=True)
    return _told(faults, {})


def _whole_ones_may_come_back(randomness: Random) -> Scenario:
    """A file of one replica is damaged, and the others in sync are away for long.  They have all
    records, so no leader may be elected before one of them is back."""
    damaged, *others = randomness.sample(BROKERS, len(BROKERS))
    flushed = AtStep("D1b", damaged, randomness.choice((4, 6, 10)))
    faults = [InjectedFault(flushed, _some_damage(randomness), damaged)]
    faults += [InjectedFault(AtTime(0.0, behind=True), Kill(None), one) for one in others]
    return _told(faults, {})


def _every_disk_lost(randomness: Random) -> Scenario:
    """All brokers lose their disks: at once, or one after the other, while the remaining ones take
    messages.  In some plans the register is down meanwhile."""
    order = randomness.sample(BROKERS, len(BROKERS))
    back_s = randomness.choice((0.1, 0.5, None))
    place = AtTime(some_seconds(randomness, 0.6, 1.6))
    faults = []
    if randomness.random() < 0.3:
        dead = Kill(some_seconds(randomness, 0.2, 2.0))
        faults.append(InjectedFault(place, dead, "register"))
        place = AtTime(some_seconds(randomness, 0.0, 0.3), behind=True)
    for one in order:
        faults.append(InjectedFault(place, Wipe(back_s), one))
        gap_s = randomness.choice((0.0, 0.0, 0.1, some_seconds(randomness, 0.6, 1.5)))
        place = AtTime(gap_s, behind=True)
    options = {
        "partitions": randomness.choice((1, 2)),
        "segment_bytes": randomness.choice((None, 4096)),
        "flush_before_ack": randomness.random() < 0.3,
    }
    return _begun_again(randomness, faults, options)


def _every_disk_of_members_lost(randomness: Random) -> Scenario:
    """Like `_every_disk_lost`, and members of a subscription read the logs.  What the cluster knew
    of the subscription is gone, too, and they go on."""
    lost = randomness.choice((_every_disk_lost, _only_disk_lost))(randomness)
    group = {
        "members": randomness.choice((1, 2)),
        "member_mode": randomness.choice(("exclusive", "failover", "shared", "key_shared")),
        "member_pause_s": 0.01,
        "member_stay_count": randomness.choice((0, 5, 20)),
        "chores": (),
    }
    return attrs.evolve(lost, load={**lost.load, **group})


def _only_disk_lost(randomness: Random) -> Scenario:
    """Partitions have one replica each, and the broker with one or more of them loses its disk."""
    flushed = AtStep("D1b", "leader", randomness.choice((4, 8, 15)))
    faults = [InjectedFault(flushed, Wipe(randomness.choice((0.1, 0.5, None))), "here")]
    return _begun_again(
        randomness, faults, {"replicas": 1, "partitions": randomness.choice((1, 3))}
    )


def _most_disks_lost(randomness: Random) -> Scenario:
    """Three of four brokers lose their disks.  Partitions with a replica on the fourth one continue
    there; others have no replica left."""
    brokers = [*BROKERS, "broker-4"]
    lost = randomness.sample(brokers, 3)
    place = AtTime(some_seconds(randomness, 0.6, 1.6))
    faults = []
    for one in lost:
        faults.append(InjectedFault(place, Wipe(randomness.choice((0.1, 0.5))), one))
        place = AtTime(randomness.choice((0.0, 0.0, 0.2)), behind=True)
    return _begun_again(randomness, faults, {"brokers": 4, "replicas": 2, "partitions": 4})


def _begun_again(
    randomness: Random, faults: list[InjectedFault], options: Mapping[str, Any]
) -> Scenario:
    """The scenario of *faults*, which let partitions lose the disks of all their replicas."""
    more = {"rebalance_interval_s": randomness.choice((0.7, 5.0)), "loses_every_disk": True}
    load = {
        "consumers": 2,  # one skips the gap, the other gets an exception
        "topics": randomness.choice((1, 1, 2)),
        "topic_partitions": options["partitions"],
        "reopen_count": randomness.choice((0, 8)),
    }
    return _told(faults, {**more, **options}, load)


def _leads_with_what_nobody_heard(randomness: Random) -> Scenario:
    """A leader gets records that no follower gets, and dies.  Its successor takes others, which
    consumers read, and loses its disk.  So by order the first one leads again, and what consumers
    read parts from its log before its own last records.  One of them starts again meanwhile."""
    cut_s = some_seconds(randomness, 1.2, 1.6)
    faults = [
        InjectedFault(
            AtTime(some_seconds(randomness, 0.4, 0.8)),
            Cut("broker", cut_s, resets=True),
            "broker-1",
        ),
        InjectedFault(AtTime(0.0, behind=True), Cut("register", cut_s, resets=True), "broker-1"),
        InjectedFault(AtTime(cut_s - 0.1, behind=True), Kill(None), "broker-1"),
        InjectedFault(
            AtTime(some_seconds(randomness, 0.8, 1.2), behind=True), Wipe(0.1), "broker-2"
        ),
        InjectedFault(AtTime(0.0, behind=True), Kill(None), "consumer-1"),
    ]
    load = {"consumers": 2, "producers": 2, "records": 90, "reopen_count": 0}
    return _told(faults, {"replicas": 2}, load)


LAST_COPIES_SCENARIOS: Final[Mapping[str, tuple[Callable[[Random], Scenario], ...]]] = {
    LAST: (
        _sole_replica_damaged,
        _sole_replica_damaged,
        _sole_replica_of_members_damaged,
        _left_behind_and_all_that_is_left,
        _all_in_sync_wiped,
        _two_wiped_and_one_damaged,
        _all_damaged,
        _damaged_while_one_is_filled_again,
        _whole_ones_may_come_back,
        _leads_with_what_nobody_heard,
    ),
    EVERY_DISK: (
        _every_disk_lost,
        _every_disk_lost,
        _only_disk_lost,
        _most_disks_lost,
        _every_disk_of_members_lost,
    ),
}
"""The scenarios, by the kind of `sim.generate.fault_kinds` that has to be switched on."""
