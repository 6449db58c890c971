"""Bugs that the exhaustive search found, each in the scenario that shows it."""

from __future__ import annotations

import attrs
import pytest

from octopi.simulation.disk.faults import DiskFault, Fail
from octopi.simulation.faults.actions import (
    Action,
    AtEffect,
    AtStep,
    BreakDisk,
    InjectedFault,
    JumpClock,
    Kill,
    LosePower,
    Place,
)
from octopi.simulation.invariants.oracle import Oracle
from sim.run.simulation import simulate
from sim.search.exhaust_runs import SCENARIOS


def survives(scenario: str, action: Action, *places: Place) -> None:
    """The scenario goes well although that happens, which it does; the last of *places* may
    count from the one before it."""
    plan = SCENARIOS[scenario]
    anchors = [InjectedFault(place, JumpClock(0.0)) for place in places[:-1]]
    faults = (*plan.faults, *anchors, InjectedFault(places[-1], action))
    verdict = simulate(attrs.evolve(plan, faults=faults), [Oracle])
    assert verdict.violation is None, f"{verdict.violation}\n{verdict.details}"
    struck = [event.facts["action"] for event in verdict.events if event.what == "fault"]
    assert any(one is action for one in struck)


@pytest.mark.parametrize("action", [Kill(), LosePower()], ids=str)
@pytest.mark.parametrize(
    "place",
    [
        AtEffect("rename", "after", "broker-3", behind=True),
        AtEffect("remove", "after", "broker-3", behind=True),
        AtStep("E14b", "broker-3", behind=True),
    ],
    ids=str,
)
def test_a_follower_that_dies_while_it_drops_its_log_follows_when_it_is_back(
    place: Place, action: Action
) -> None:
    survives("retention", action, AtStep("E14a", "broker-3"), place)


@pytest.mark.parametrize("edge", ["before", "after"])
@pytest.mark.parametrize("operation", ["rename", "list_directory", "remove", "remove_directory"])
def test_a_register_whose_disk_fails_while_it_folds_its_journal_goes_on(
    operation: str, edge: str
) -> None:
    failure = BreakDisk(DiskFault(operation, Fail(done=edge == "after")))
    place = AtEffect(operation, "before", "register", behind=True)
    survives("snapshot", failure, AtStep("R4a", "register"), place)


def test_a_broker_that_can_not_list_its_logs_says_so_and_is_started_again() -> None:
    place = AtEffect("list_directory", "before", "broker-1", 2, behind=True)
    failure = BreakDisk(DiskFault("list_directory"))
    survives("register", failure, AtEffect("lock_directory", "before", "broker-1"), place)
