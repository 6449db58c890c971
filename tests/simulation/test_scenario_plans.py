"""Faults that stand behind one another strike in that order, where the one before led to."""

from __future__ import annotations

from collections import Counter

from octopi.simulation.faults.actions import (
    AtEffect,
    AtStep,
    AtTime,
    InjectedFault,
    Kill,
    Pause,
    Reset,
)
from octopi.simulation.faults.injector import FAULT
from octopi.simulation.kernel.world import Event
from octopi.tracing import steps
from sim.generate import scenario_plans
from sim.generate.scenarios import SCENARIOS
from sim.run.plan import Plan, WorkloadOptions, from_json, from_token, to_json, to_token
from sim.run.simulation import simulate

WORKLOAD = WorkloadOptions(producers=1, records=20, consumers=1, topic_partitions=1, pause_s=0.02)


def plan(*faults: InjectedFault) -> Plan:
    """A small plan with *faults*."""
    return Plan(seed=3, partitions=1, workload=WORKLOAD, faults=faults)


def struck(*faults: InjectedFault) -> tuple[list[Event], tuple[Event, ...]]:
    """The faults of a run, which has to be sound, and all that happened in it."""
    verdict = simulate(plan(*faults), events_kept=None)
    assert verdict.violation is None
    return [event for event in verdict.events if event.what == FAULT], verdict.events


def test_a_step_behind_a_fault_is_awaited_once_that_fault_has_struck() -> None:
    faults, events = struck(
        InjectedFault(AtStep("P2b", occurrence=5), Kill(0.1)),
        InjectedFault(AtStep("E11", behind=True), Pause(0.5)),
    )
    assert [type(one.facts["action"]) for one in faults] == [Kill, Pause]
    between = [
        one
        for one in events[events.index(faults[0]) : events.index(faults[1])]
        if one.what == steps.E11Leading.text
    ]
    assert len(between) == 1


def test_a_time_behind_a_fault_counts_from_it_and_means_the_host_that_it_befell() -> None:
    first, second = struck(
        InjectedFault(AtStep("P7b", occurrence=9), Reset()),
        InjectedFault(AtTime(0.5, behind=True), Kill(0.0)),
    )[0]
    assert second.host == first.host
    assert second.at == first.at + 0.5


def test_an_effect_behind_a_fault_at_an_effect_is_another_one() -> None:
    first, second = struck(
        InjectedFault(AtEffect("sync", "after", "leader", occurrence=2), Reset()),
        InjectedFault(AtEffect("sync", "after", "leader", behind=True), Reset()),
    )[0]
    assert second.at > first.at


def test_a_fault_behind_one_that_was_skipped_strikes_all_the_same() -> None:
    faults, _ = struck(
        InjectedFault(AtTime(0.1), Kill(None), "broker-1"),
        InjectedFault(AtTime(0.2), Kill(None), "broker-1"),
        InjectedFault(AtTime(0.1, behind=True), Kill(0.1), "broker-2"),
    )
    assert [one.host for one in faults] == ["broker-1", "broker-2"]


def test_a_plan_keeps_the_order_of_its_faults() -> None:
    kept = plan(
        InjectedFault(AtTime(0.5), Kill()),
        InjectedFault(AtTime(0.5, behind=True), Kill()),
        InjectedFault(AtStep("E11", "leader", 2, behind=True), Kill()),
        InjectedFault(AtEffect("sync", "after", behind=True), Kill()),
    )
    assert from_token(to_token(kept)) == kept
    assert from_json(to_json(kept)) == kept
    assert str(kept.faults[1]) != str(kept.faults[0])


def test_each_scenario_is_drawn_once_in_a_round_of_seeds() -> None:
    count = len(SCENARIOS)
    options = [scenario_plans._ScenarioDrawing(seed).teller() for seed in range(2 * count)]
    first, second = options[:count], options[count:]
    assert first != second
    assert Counter(first) == Counter(second) == Counter(SCENARIOS)
