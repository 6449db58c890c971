"""More of `sim.stories`: the last copy in sync is damaged, or its disk lost.

Nothing is decided by itself then.  An operator orders that the best of the replicas that are left
leads, and what that one lacks is lost, and told to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from octopi.simulation.damage import Damage, Harm, Part
from octopi.simulation.failures import AtStep, AtTime, Cut, Fault, Kill, Place, Reset, Wipe
from sim.drawing import BROKERS, some_seconds
from sim.kinds import LAST
from sim.story import Story

_NO_LOAD: Final[Mapping[str, Any]] = {}
_DAMAGES: Final[tuple[tuple[Harm, Part], ...]] = (
    ("cut", "tail"),
    ("cut", "log"),
    ("flip", "tail"),
    ("missing", "log"),
    ("missing", "directory"),
    ("cut", "checkpoint"),
)
"""What a broker notices when it opens its logs."""


def _some_damage(chance: Random, restart_s: float | None = 0.1) -> Damage:
    harm, part = chance.choice(_DAMAGES)
    return Damage(harm, part, restart_s)


def _told(
    faults: list[Fault],
    options: Mapping[str, Any],
    load: Mapping[str, Any] = _NO_LOAD,
) -> Story:
    """The story of *faults*, in a cluster whose logs are flushed often, while there is always
    something to send."""
    # Else all is healed as soon as all messages are sent.
    faults.append(Fault(AtTime(5.0), Reset("client"), "leader"))
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
    return Story(tuple(faults), {**usual, **options}, {**usual_load, **load})


def _sole_replica_damaged(chance: Random) -> Story:
    """The only replica finds that some of what it had flushed is missing.  It serves what lies
    before that, and takes nothing, until the rest is given up."""
    flushed = AtStep("D1b", "leader", chance.choice((4, 8, 15)))
    faults = [Fault(flushed, _some_damage(chance, chance.choice((0.1, 1.0))), "here")]
    options = {
        "replicas": 1,
        "segment_bytes": chance.choice((None, 4096)),
        "flush_before_ack": chance.random() < 0.3,
        "checkpoint_bytes": chance.choice((2000, 1_000_000)),
    }
    return _told(faults, options)


def _left_behind_and_all_that_is_left(chance: Random) -> Story:
    """Followers fall out of the in-sync set, one after the other.  Then the leader, alone in sync,
    loses its disk: of those that are left the one that left the set last has most."""
    leader, *others = chance.sample(BROKERS, len(BROKERS))
    away_s = some_seconds(chance, 3.5, 4.5)
    faults = [
        Fault(AtTime(some_seconds(chance, 0.4, 0.8)), Kill(0.2), one) for one in others
    ]  # so that the third one leads
    first, second = chance.sample(others, len(others))
    faults += [
        Fault(AtTime(some_seconds(chance, 1.0, 1.4), behind=True), Kill(away_s), first),
        Fault(AtTime(some_seconds(chance, 0.2, 0.8), behind=True), Kill(away_s), second),
        Fault(AtTime(some_seconds(chance, 0.6, 1.2), behind=True), Wipe(0.2), leader),
    ]
    return _told(faults, {"faults_s": 9.0})


def _all_in_sync_wiped(chance: Random) -> Story:
    """One broker is away for longer than it is waited for, and those in sync lose their disks; or
    one of them finds a damaged file."""
    away, *others = chance.sample(BROKERS, len(BROKERS))
    back_s = chance.choice((2.0, 3.0, None))
    absence = chance.choice((Kill(back_s), Cut("others", 3.0, resets=True)))
    faults = [Fault(AtTime(some_seconds(chance, 0.5, 1.0)), absence, away)]
    gap = AtTime(some_seconds(chance, 1.3, 1.8), behind=True)
    faults.append(Fault(gap, Wipe(chance.choice((0.1, 0.5))), others[0]))
    loss = chance.choice((Wipe(0.1), _some_damage(chance)))
    faults.append(Fault(AtTime(chance.choice((0.0, 0.1)), behind=True), loss, others[1]))
    return _told(faults, {"flush_before_ack": chance.random() < 0.3})


def _two_wiped_and_one_damaged(chance: Random) -> Story:
    """All are in sync when two disks are lost at once, and a file of the third one is damaged."""
    damaged, *others = chance.sample(BROKERS, len(BROKERS))
    flushed = AtStep("D1b", damaged, chance.choice((4, 6, 10)))
    faults = [Fault(flushed, _some_damage(chance, chance.choice((0.1, 0.5))), damaged)]
    faults += [Fault(AtTime(0.0, behind=True), Wipe(0.2), one) for one in others]
    return _told(faults, {"segment_bytes": chance.choice((None, 4096))})


def _all_damaged(chance: Random) -> Story:
    """A file of each replica is damaged, and all of them come back: each lacks something."""
    first, *others = chance.sample(BROKERS, len(BROKERS))
    flushed = AtStep("D1b", first, chance.choice((4, 6, 10)))
    faults = [Fault(flushed, _some_damage(chance), first)]
    for one in others:
        back_s = chance.choice((0.1, 0.4, None))
        faults.append(Fault(AtTime(0.0, behind=True), _some_damage(chance, back_s), one))
    load = {"topics": chance.choice((1, 1, 2))}
    return _told(faults, {}, load)


def _damaged_while_one_is_filled_again(chance: Random) -> Story:
    """A replica in sync says that it is damaged, before its leader can say that it is behind.  It
    has set the damage aside, and is to be sent that again, when files of the others are damaged,
    too."""
    leader, *others = BROKERS
    damaged, other = chance.sample(others, len(others))
    flushed = AtStep("D1b", damaged, chance.choice((6, 10, 15)))
    faults = [
        Fault(flushed, Cut("register", 0.3, holds=True), leader),
        Fault(AtTime(0.0, behind=True), Damage("cut", "tail", 0.02), damaged),
    ]
    place: Place = AtStep("D6b", damaged, behind=True)
    for one in (leader, other):
        harm, part = chance.choice(_DAMAGES[:-1])
        faults.append(Fault(place, Damage(harm, part, chance.choice((0.1, 0.4))), one))
        place = AtTime(0.0, behind=True)
    return _told(faults, {})


def _whole_ones_may_come_back(chance: Random) -> Story:
    """A file of one replica is damaged, and those in sync with it are away for long: they have
    everything, so nothing may be decided before one of them is back."""
    damaged, *others = chance.sample(BROKERS, len(BROKERS))
    flushed = AtStep("D1b", damaged, chance.choice((4, 6, 10)))
    faults = [Fault(flushed, _some_damage(chance), damaged)]
    faults += [Fault(AtTime(0.0, behind=True), Kill(None), one) for one in others]
    return _told(faults, {})


TOLD_OF_LAST_COPIES: Final[Mapping[str, tuple[Callable[[Random], Story], ...]]] = {
    LAST: (
        _sole_replica_damaged,
        _sole_replica_damaged,
        _left_behind_and_all_that_is_left,
        _all_in_sync_wiped,
        _two_wiped_and_one_damaged,
        _all_damaged,
        _damaged_while_one_is_filled_again,
        _whole_ones_may_come_back,
    ),
}
"""By the kind of `sim.kinds` that has to be drawn."""
