"""Scenarios of pipes, whose members and leaders fail at each step.  They are drawn by themselves:
`sim run --plans pipes`."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from octopi.simulation.faults.actions import (
    Action,
    AtStep,
    Cut,
    InjectedFault,
    Kill,
    Pause,
    Reset,
    Stop,
)
from octopi.tracing import client, durability, produce, subscriptions
from octopi.tracing.step import Step
from sim.generate.fault_patterns import a_death, an_absence, some_seconds, soon
from sim.generate.scenario import Scenario

_CODES: Final = tuple(
    one.code
    for module in (produce, durability, client, subscriptions)
    for one in vars(module).values()
    if isinstance(one, type) and issubclass(one, Step) and one.code
)


def _pipes(randomness: Random, *, count: int = 2, mode: str = "") -> dict[str, Any]:
    """The load of a scenario with a pipe."""
    return {
        **{"records": 25, "pause_s": 0.04, "reopen_count": 0, "consumers": 0, "producers": 2},
        **{"value_bytes_max": 60, "delivery_timeout_s": 30.0, "named_producers": 0},
        "members": count,
        "pipes": True,
        "member_mode": mode or randomness.choice(("exclusive", "failover")),
        "static_members": randomness.choice((0, 0, 1, count)),
        "member_pause_s": randomness.choice((0.0, 0.01, 0.05)),
        "member_stay_count": randomness.choice((0, 3, 10)),
        "chores": (),
    }


def _at_a_step(randomness: Random, *, behind: bool = False) -> AtStep:
    code = randomness.choice(_CODES)
    return AtStep(code, occurrence=randomness.choice((1, 2, 3, 5, 9, 17, 33)), behind=behind)


def _of_members(randomness: Random) -> Action:
    return randomness.choice(
        (
            Kill(some_seconds(randomness, 0.1, 2.0)),
            Kill(some_seconds(randomness, 0.1, 2.0)),
            Pause(some_seconds(randomness, 0.5, 3.0)),
            Cut("leader", some_seconds(randomness, 0.3, 2.5), randomness.choice(("both", "in"))),
            Cut("others", some_seconds(randomness, 0.3, 2.5), holds=True),
            Reset("others"),
        )
    )


def _options(randomness: Random, partitions: int) -> dict[str, Any]:
    options: dict[str, Any] = {"partitions": partitions, "kills_each": False, "min_insync": 1}
    return options | {"replicas": randomness.choice((2, 3, 3))}


def pipe_members_fail(randomness: Random) -> Scenario:
    """Members are killed, paused or cut off at any step; others go on, and the first come back."""
    count = randomness.choice((1, 2, 3))
    faults = [
        InjectedFault(
            _at_a_step(randomness, behind=number > 0),
            _of_members(randomness),
            f"member-{randomness.randint(1, count)}",
        )
        for number in range(3)
    ]
    partitions = randomness.choice((1, 2))
    load = {**_pipes(randomness, count=count), "topic_partitions": partitions}
    return Scenario(tuple(faults), _options(randomness, partitions), load)


def pipe_leaders_fail(randomness: Random) -> Scenario:
    """Leaders die or are asked to stop at any step, so what is not committed is taken back."""
    faults = [InjectedFault(_at_a_step(randomness), a_death(randomness), "leader")]
    for _ in range(randomness.choice((1, 2))):
        action = randomness.choice((a_death(randomness), an_absence(randomness), Stop(0.5)))
        place = randomness.choice((_at_a_step(randomness, behind=True), soon(randomness)))
        faults.append(InjectedFault(place, action, "leader"))
    partitions = randomness.choice((1, 2))
    load = {**_pipes(randomness), "topic_partitions": partitions}
    return Scenario(tuple(faults), _options(randomness, partitions), load)


def pipe_members_and_leaders_fail(randomness: Random) -> Scenario:
    """A member is replaced while it sends, and the leader that heard from both dies."""
    away = randomness.choice((Pause(1.5), Cut("others", 1.5, holds=True), Kill(1.0)))
    faults = (
        InjectedFault(_at_a_step(randomness), away, "member-1"),
        InjectedFault(_at_a_step(randomness, behind=True), a_death(randomness), "leader"),
        InjectedFault(soon(randomness), _of_members(randomness), "member-2"),
        InjectedFault(soon(randomness), a_death(randomness), "leader"),
    )
    load = {**_pipes(randomness), "topic_partitions": 1}
    return Scenario(faults, _options(randomness, 1), load)


PIPE_SCENARIOS: Final = (
    pipe_members_fail,
    pipe_leaders_fail,
    pipe_members_and_leaders_fail,
    pipe_members_and_leaders_fail,
)
"""Those of the plans ``pipes``."""
