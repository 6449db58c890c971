"""Scenarios in which clients are told brokers, which pass on what only the register answers."""

from __future__ import annotations

from math import inf
from random import Random
from typing import Final

from octopi.simulation.faults.actions import (
    AtStep,
    AtTime,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Reset,
    Stop,
)
from sim.generate.fault_patterns import BROKERS, a_death, some_seconds, soon, when_producing
from sim.generate.scenario import Scenario

_DECIDING: Final = ("T1a", "T1b", "T2b", "T4", "T5a", "T5b", "T6a", "T6b", "T7b")


def asked_through_brokers(randomness: Random) -> Scenario:
    """The register dies, or loses its connections, while it does what an operator ordered through
    a broker: the answer is lost, and the operator finds out what was done."""
    faults: list[InjectedFault] = []
    for _ in range(randomness.choice((1, 2, 2, 3))):
        step = AtStep(
            randomness.choice(_DECIDING),
            occurrence=randomness.choice((1, 1, 2, 3, 4)),
            behind=bool(faults),
        )
        death = randomness.choice((Kill, Kill, LosePower))(randomness.choice((0.0, 0.1, 0.6)))
        what = randomness.choice((death, death, Reset(), Pause(some_seconds(randomness, 0.5, 2.0))))
        faults.append(InjectedFault(step, what, "register"))
    if randomness.random() < 0.3:
        faults.append(InjectedFault(soon(randomness), a_death(randomness), "leader"))
    load = {
        "entrances": randomness.choice(("brokers", "brokers", "any")),
        "chores": randomness.choice(
            (("renew", "replace"), ("topic", "renew"), ("topic", "topic"), ("replace", "replace"))
        ),
        "records": 20,
    }
    return Scenario(tuple(faults), {"faults_s": 8.0}, load)


def entrance_goes(randomness: Random) -> Scenario:
    """A broker that clients were told first stops answering, for a while or for good."""
    away = randomness.choice(BROKERS)
    gone = randomness.choice(
        (Kill(inf), Stop(inf), Kill(some_seconds(randomness, 1.0, 4.0)), Pause(3.0), Pause(3.0))
    )
    at = randomness.choice((AtTime(some_seconds(randomness, 0.3, 1.5)), when_producing(randomness)))
    faults = [InjectedFault(at, gone, away)]
    if randomness.random() < 0.5:
        what = randomness.choice((Kill(0.6), Reset(), Pause(2.0)))
        faults.append(InjectedFault(soon(randomness), what, "register"))
    options = {"replicas": 3, "min_insync": 1}
    load = {
        "entrances": randomness.choice(("brokers", "any")),
        "chores": randomness.choice((("topic",), ("grow", "topic"), ("drain",), ())),
        "consumers": 2,
    }
    return Scenario(tuple(faults), options, load)


ENTRANCE_SCENARIOS: Final = (
    asked_through_brokers,
    asked_through_brokers,
    asked_through_brokers,
    entrance_goes,
    entrance_goes,
)
"""All scenarios; one that is listed twice is drawn more often."""
