"""Scenarios of members of a durable subscription, and of the leaders that keep their marks."""

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
from octopi.tracing import subscriptions
from octopi.tracing.step import Step
from sim.generate.fault_patterns import (
    INTERNAL_SEGMENT,
    a_death,
    an_absence,
    lose_power,
    some_seconds,
    soon,
)
from sim.generate.scenario import Scenario

_CODES: Final = tuple(
    one.code
    for one in vars(subscriptions).values()
    if isinstance(one, type) and issubclass(one, Step) and one.code
)
_LOADS: Final[Mapping[str, Any]] = {"records": 30, "pause_s": 0.05, "reopen_count": 0}


def _group(randomness: Random, *, count: int = 2, mode: str = "") -> dict[str, Any]:
    """The load of a scenario with members."""
    return {
        **_LOADS,
        "members": count,
        "member_mode": mode or randomness.choice(("exclusive", "failover")),
        "static_members": randomness.choice((0, 0, 1, count)),
        "member_pause_s": randomness.choice((0.01, 0.05, 0.3)),
        "member_stay_count": randomness.choice((0, 3, 10)),
        "chores": randomness.choice(((), (), ("reset",), ("reset", "reset"), ("delete",))),
    }


def _at_a_step(randomness: Random, *, behind: bool = False) -> AtStep:
    """A place at an early or a later step of subscriptions."""
    code = randomness.choice(_CODES)
    return AtStep(code, occurrence=randomness.choice((1, 1, 2, 3, 5, 9)), behind=behind)


def leaders_die_with_marks(randomness: Random) -> Scenario:
    """A leader dies at a step of subscriptions; perhaps others die soon after."""
    faults = [InjectedFault(_at_a_step(randomness), a_death(randomness))]
    for _ in range(randomness.choice((0, 1, 2))):
        place = randomness.choice((_at_a_step(randomness, behind=True), soon(randomness)))
        faults.append(InjectedFault(place, a_death(randomness), "leader"))
    partitions = randomness.choice((1, 2, 3))
    options = {"partitions": partitions, "flush_before_ack": randomness.random() < 0.3}
    load = {
        **_group(randomness, count=randomness.choice((1, 2, 3))),
        "topic_partitions": partitions,
    }
    return Scenario(tuple(faults), options, load)


def leaders_are_moved_from_marks(randomness: Random) -> Scenario:
    """Leaders are asked to stop, or are drained, while members mark."""
    faults = [
        InjectedFault(_at_a_step(randomness), Stop(some_seconds(randomness, 0.1, 1.0)), "leader"),
        InjectedFault(soon(randomness), Stop(some_seconds(randomness, 0.1, 1.0)), "leader"),
    ]
    load = _group(randomness)
    load["chores"] = randomness.choice((("drain",), ("drain", "move"), ("reset", "drain")))
    return Scenario(tuple(faults), {"min_insync": 1}, load)


def members_die(randomness: Random) -> Scenario:
    """Members die, hang or are cut off while they work; others get their logs."""

    def trouble() -> Action:
        return randomness.choice(
            (
                Kill(some_seconds(randomness, 0.1, 2.5)),
                Pause(some_seconds(randomness, 0.3, 3.5)),
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
    partitions = randomness.choice((1, 2, 4))
    load = {**_group(randomness, count=count), "topic_partitions": partitions}
    return Scenario(tuple(faults), {"partitions": partitions, "kills_each": False}, load)


def replaced_members_come_back(randomness: Random) -> Scenario:
    """Members are cut off or paused for longer than the session timeout, and others get their logs.
    Then the first ones come back, with claims that are over."""
    faults = []
    for number in range(4):
        seconds = some_seconds(randomness, 1.2, 2.5)
        away = randomness.choice((Cut("leader", seconds), Cut("others", seconds), Pause(seconds)))
        place = _at_a_step(randomness, behind=number > 0)
        faults.append(InjectedFault(place, away, f"member-{randomness.choice((1, 2))}"))
    load = _group(randomness, mode="exclusive")
    load |= {"static_members": 0, "member_stay_count": 0, "member_pause_s": 0.05}
    options = {"partitions": 4, "kills_each": False}
    return Scenario(tuple(faults), options, {**load, "topic_partitions": 4})


def members_and_leaders_fail(randomness: Random) -> Scenario:
    """A member is away when the leader that knew its marks dies."""
    away = randomness.choice(
        (Pause(some_seconds(randomness, 0.5, 3.0)), Cut("leader", 2.0), Kill(1.5))
    )
    faults = (
        InjectedFault(_at_a_step(randomness), away, "member-1"),
        InjectedFault(_at_a_step(randomness, behind=True), an_absence(randomness), "leader"),
        InjectedFault(soon(randomness), randomness.choice((Kill(0.3), LosePower(0.3))), "leader"),
    )
    return Scenario(faults, {"min_insync": 1}, _group(randomness, count=2))


def creations_are_lost(randomness: Random) -> Scenario:
    """All replicas lose their power, and with it that a subscription was created to the end, which
    they had begun to store: the device is slow from then on."""
    slow = BreakDisk(DiskFault("sync", Delay(3.0), INTERNAL_SEGMENT, times=200))
    begins = AtStep("S2b")
    faults = [
        InjectedFault(begins, slow, "broker-1"),
        InjectedFault(AtTime(0.0, behind=True), slow, "broker-2"),
        InjectedFault(AtTime(0.0, behind=True), slow, "broker-3"),
        InjectedFault(AtStep("S5b", behind=True), Pause(0.0)),  # the following ones count from here
        *lose_power(AtTime(some_seconds(randomness, 0.0, 0.3), behind=True)),
    ]
    partitions = randomness.choice((1, 2, 3))
    options: dict[str, Any] = {"replicas": 1, "min_insync": 1, "partitions": partitions}
    options |= {"loses_all": True, "faults_s": 8.0, "flush_before_ack": False}
    options |= {"flush_interval_s": 0.01, "latency_s": 0.02, "jitter_s": 0.005}
    load = {**_group(randomness), "chores": (), "topic_partitions": partitions}
    return Scenario(tuple(faults), options, load)


SUBSCRIPTION_SCENARIOS: Final = (
    *(leaders_die_with_marks, leaders_die_with_marks, leaders_die_with_marks),
    leaders_are_moved_from_marks,
    *(members_die, members_die),
    *(replaced_members_come_back, replaced_members_come_back, replaced_members_come_back),
    members_and_leaders_fail,
    creations_are_lost,
)
