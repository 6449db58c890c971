"""Scenarios of queues: of the leaders that deal their messages, and of the members that work them
off."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from octopi.simulation.disk.faults import Delay, DiskFault
from octopi.simulation.faults.actions import (
    Action,
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    DriftClock,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Reset,
    Stop,
)
from sim.generate.fault_patterns import (
    INTERNAL_SEGMENT,
    a_death,
    an_absence,
    lose_power,
    some_seconds,
    soon,
)
from sim.generate.scenario import Scenario

_CODES: Final = (
    *("S6a", "S6b", "S6c", "S6d", "S7a", "S7b", "S7c", "S7d"),
    *("S9a", "S9b", "S10a", "S10b", "S14a", "S14b", "S14c", "S14d", "S14b", "S14c"),
)
"""Steps at which queues deal, hear answers, store, and write dead letters."""
_LOADS: Final[Mapping[str, Any]] = {"records": 30, "pause_s": 0.05, "reopen_count": 0}


def _queue(randomness: Random, *, count: int = 2, mode: str = "") -> dict[str, Any]:
    """The load of a scenario with a queue."""
    return {
        **_LOADS,
        "members": count,
        "member_mode": mode or randomness.choice(("shared", "key_shared")),
        "static_members": 0,
        "member_pause_s": randomness.choice((0.0, 0.01, 0.05)),
        "member_stay_count": randomness.choice((0, 3, 10)),
        "queue_attempts": randomness.choice((1, 1, 2, 3)),
        "queue_window": randomness.choice((2, 5, 20)),
        "queue_ack_timeout_s": 1.0,
        "queue_prefetch": randomness.choice((1, 3, 10)),
        "chores": randomness.choice(((), (), (), (), ("reset",), ("delete",))),
    }


def _at_a_step(randomness: Random, *, behind: bool = False) -> AtStep:
    """At a step of queues, an early or a later one."""
    code = randomness.choice(_CODES)
    return AtStep(code, occurrence=randomness.choice((1, 1, 2, 3, 5, 9)), behind=behind)


def dealing_leaders_die(randomness: Random) -> Scenario:
    """A leader ends at a step of queues; perhaps another one does soon."""
    faults = [InjectedFault(_at_a_step(randomness), a_death(randomness))]
    for _ in range(randomness.choice((0, 1, 2))):
        place = randomness.choice((_at_a_step(randomness, behind=True), soon(randomness)))
        faults.append(InjectedFault(place, a_death(randomness), "leader"))
    partitions = randomness.choice((1, 2))
    options = {"partitions": partitions, "flush_before_ack": randomness.random() < 0.3}
    load = {**_queue(randomness, count=randomness.choice((1, 2, 3)))}
    return Scenario(tuple(faults), options, {**load, "topic_partitions": partitions})


def letter_writers_die(randomness: Random) -> Scenario:
    """Most messages become dead letters, and leaders end meanwhile, one after the other."""
    faults = []
    for number in range(3):
        code = randomness.choice(("S14a", "S14b", "S14b", "S14c", "S14d", "S9b", "S10a"))
        place = AtStep(code, occurrence=randomness.choice((1, 2, 3)), behind=number > 0)
        faults.append(InjectedFault(place, Kill(some_seconds(randomness, 0.0, 0.5))))
    load = _queue(randomness)
    load |= {"queue_attempts": 1, "chores": ()}
    return Scenario(tuple(faults), {"partitions": 1}, {**load, "topic_partitions": 1})


def dealing_leaders_are_moved(randomness: Random) -> Scenario:
    """Leaders stop in good order, or are drained, while members answer."""
    faults = [
        InjectedFault(_at_a_step(randomness), Stop(some_seconds(randomness, 0.1, 1.0)), "leader"),
        InjectedFault(soon(randomness), Stop(some_seconds(randomness, 0.1, 1.0)), "leader"),
    ]
    load = _queue(randomness)
    load["chores"] = randomness.choice((("drain",), ("drain", "move"), ("reset", "drain")))
    return Scenario(tuple(faults), {"min_insync": 1}, load)


def workers_die(randomness: Random) -> Scenario:
    """Members end, hang or can't be heard while they work; others get their messages."""

    def trouble() -> Action:
        return randomness.choice(
            (
                Kill(some_seconds(randomness, 0.1, 2.5)),
                Pause(some_seconds(randomness, 0.3, 3.5)),
                Pause(some_seconds(randomness, 0.9, 1.5)),
                Cut(
                    "leader", some_seconds(randomness, 0.3, 3.0), randomness.choice(("both", "in"))
                ),
                Cut("others", some_seconds(randomness, 0.3, 3.0), holds=True),
                Reset("others"),
                DriftClock(randomness.choice((0.9, 1.1)), 3.0),
            )
        )

    count = randomness.choice((2, 3))
    faults = [
        InjectedFault(_at_a_step(randomness, behind=number > 0), trouble(), f"member-{who}")
        for number, who in enumerate(randomness.choices(range(1, count + 1), k=3))
    ]
    partitions = randomness.choice((1, 2))
    load = {**_queue(randomness, count=count), "topic_partitions": partitions}
    return Scenario(tuple(faults), {"partitions": partitions, "kills_each": False}, load)


def workers_and_leaders_fail(randomness: Random) -> Scenario:
    """A member is away with messages when the leader ends that dealt them."""
    away = randomness.choice(
        (Pause(some_seconds(randomness, 0.5, 3.0)), Cut("leader", 2.0), Kill(1.5))
    )
    faults = (
        InjectedFault(_at_a_step(randomness), away, "member-1"),
        InjectedFault(_at_a_step(randomness, behind=True), an_absence(randomness), "leader"),
        InjectedFault(soon(randomness), randomness.choice((Kill(0.3), LosePower(0.3))), "leader"),
    )
    return Scenario(faults, {"min_insync": 1}, _queue(randomness, count=2))


def resets_are_asked_for_again(randomness: Random) -> Scenario:
    """The operator doesn't hear that a queue's mark was set, and asks for it again, while members
    settle what is behind the mark."""
    deaf = Cut("leader", some_seconds(randomness, 0.9, 2.5), "in", resets=True)
    faults = (
        InjectedFault(AtStep("S11b"), Reset("others"), "member-1"),
        InjectedFault(
            AtStep("S9b", occurrence=randomness.choice((1, 2)), behind=True),
            deaf,
            "operator",
        ),
    )
    load = _queue(randomness, count=randomness.choice((1, 2)))
    load |= {"records": 60, "chores": ("reset",), "member_stay_count": 0, "topic_partitions": 1}
    load["queue_attempts"] = randomness.choice((2, 2, 3))
    return Scenario(faults, {"partitions": 1, "kills_each": False}, load)


def retention_takes_what_is_dealt(randomness: Random) -> Scenario:
    """Retention removes messages of a queue whose members are slow, also those that were dealt and
    not sent yet."""
    load = _queue(randomness, count=randomness.choice((1, 2)))
    load |= {"value_bytes_max": 3_000, "member_pause_s": 0.05, "chores": (), "queue_window": 20}
    load |= {"queue_prefetch": 10, "records": 60, "topic_partitions": 1}
    options = {
        "partitions": 1,
        "segment_bytes": 4096,
        "retention_bytes": randomness.choice((1, 4096)),
        "retention_check_interval_s": 0.02,
        "flush_interval_s": 0.05,
    }
    who = randomness.choice(("member-1", "leader"))
    away = Pause(some_seconds(randomness, 0.3, 1.0))
    faults = (InjectedFault(_at_a_step(randomness), away, who),)
    return Scenario(faults, options, load)


def letters_are_lost(randomness: Random) -> Scenario:
    """Most messages become dead letters.  Then all machines lose their power, and the queue knows
    less of its letters than their log does, because the device is slow for internal logs."""
    slow = BreakDisk(DiskFault("sync", Delay(3.0), INTERNAL_SEGMENT, times=200))
    begins = AtStep(randomness.choice(("S6b", "S14a")), occurrence=randomness.choice((1, 2)))
    faults = [
        InjectedFault(begins, slow, "broker-1"),
        InjectedFault(AtTime(0.0, behind=True), slow, "broker-2"),
        InjectedFault(AtTime(0.0, behind=True), slow, "broker-3"),
    ]
    faults.append(InjectedFault(AtStep("S14d", behind=True), Kill(0.0)))  # a sequence begins anew
    place = AtStep("S14d", occurrence=randomness.choice((1, 2)), behind=True)
    faults.append(InjectedFault(place, Pause(0.0)))  # the following ones count from here
    faults += lose_power(AtTime(some_seconds(randomness, 0.1, 0.5), behind=True))
    load = _queue(randomness)
    load |= {"queue_attempts": 1, "chores": ()}
    options: dict[str, Any] = {"partitions": randomness.choice((2, 3)), "replicas": 1}
    options |= {"loses_all": True, "faults_s": 8.0, "flush_before_ack": False, "min_insync": 1}
    return Scenario(tuple(faults), {**options, "flush_interval_s": 0.05}, load)


def workers_are_late(randomness: Random) -> Scenario:
    """Members work on messages, and keep others waiting, for longer than the ack timeout, and
    answer all the same, while other members have the messages."""
    load = _queue(randomness, count=randomness.choice((2, 3)), mode="shared")
    load |= {"queue_attempts": None, "queue_window": 20}
    load |= {"member_pause_s": some_seconds(randomness, 0.3, 0.6), "member_stay_count": 0}
    load |= {"queue_prefetch": randomness.choice((3, 5)), "records": 15, "chores": ()}
    return Scenario((), load=load)


QUEUE_SCENARIOS: Final = (
    *(dealing_leaders_die, dealing_leaders_die, dealing_leaders_die),
    *(letter_writers_die, letter_writers_die),
    dealing_leaders_are_moved,
    *(workers_die, workers_die),
    workers_and_leaders_fail,
    workers_are_late,
    *(resets_are_asked_for_again, resets_are_asked_for_again),
    retention_takes_what_is_dealt,
    letters_are_lost,
)
