"""Plans without a register: what they draw, whom their faults strike, and what is checked."""

from __future__ import annotations

import attrs
import pytest

from octopi.simulation.faults.actions import (
    AtStep,
    AtTime,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    RollBack,
    Stop,
    Wipe,
)
from octopi.simulation.faults.injector import FAULT, SKIPPED
from octopi.simulation.invariants.oracle import Oracle
from octopi.tracing import steps
from sim.generate import rings, swarm
from sim.generate.scenario_plans import draw_scenario
from sim.generate.scenarios_of_rings import FORMED_S, RING_SCENARIOS
from sim.run.plan import Plan, PlanError, WorkloadOptions, from_token, to_token
from sim.run.simulation import Verdict, simulate

LOAD = WorkloadOptions(
    producers=1, records=60, consumers=1, topic_partitions=2, pause_s=0.05, entrances="brokers"
)
PLAN = Plan(seed=3, brokers=3, founders=3, partitions=2, faults_s=FORMED_S + 6.0, workload=LOAD)


def run(*faults: InjectedFault, plan: Plan = PLAN) -> Verdict:
    """A run of *plan* with *faults*, which has to break no rule."""
    verdict = simulate(attrs.evolve(plan, faults=faults), [Oracle], events_kept=None)
    assert verdict.violation is None, verdict.violation
    return verdict


def struck(verdict: Verdict, what: str = FAULT) -> list[str]:
    """The hosts that faults befell, or did not."""
    return [event.host for event in verdict.events if event.what == what]


def test_every_other_plan_takes_the_load_of_the_swarm_as_far_as_brokers_alone_can() -> None:
    for seed in range(2, 60, 2):
        plan, swarms = rings.draw(seed), swarm.draw(seed)
        assert 3 <= plan.founders <= plan.brokers <= 9
        assert plan.workload.entrances == "brokers"
        assert not {"drain", "grow", "move", "replace"} & set(plan.workload.chores)
        assert plan.workload.producers == swarms.workload.producers
        assert not any(isinstance(one.action, Wipe | RollBack) for one in plan.faults)
        assert from_token(to_token(plan)) == plan


def test_the_swarm_draws_no_step_of_rings() -> None:
    codes = {one.code for one in steps.OF_RINGS}
    places = [fault.place for seed in range(200) for fault in swarm.draw(seed).faults]
    assert codes.isdisjoint(place.step for place in places if isinstance(place, AtStep))


def test_a_plan_has_no_more_founders_than_brokers() -> None:
    with pytest.raises(PlanError, match="founders"):
        Plan(seed=1, brokers=3, founders=4)


@pytest.mark.parametrize("tell", dict.fromkeys(RING_SCENARIOS), ids=lambda one: one.__name__)
def test_each_scenario_of_rings_breaks_no_rule(tell: object) -> None:
    plan = draw_scenario(getattr(tell, "__name__", ""), 1)
    assert plan.founders >= 3
    verdict = simulate(plan, [Oracle], events_kept=0)
    assert verdict.violation is None, verdict.violation


def test_a_run_without_a_register_is_the_same_each_time() -> None:
    plan = rings.draw(3)
    first, second = (simulate(plan, [Oracle], events_kept=0) for _ in range(2))
    assert first.digest == second.digest
    assert not any(name in first.counts for name in ("register",))


def test_a_broker_that_joins_gets_an_id_and_serves() -> None:
    verdict = run(plan=attrs.evolve(PLAN, brokers=4))
    began = {
        one.host: one.get("broker") for one in verdict.events if one.what == steps.A1Began.text
    }
    assert began == {"broker-1": 1, "broker-2": 2, "broker-3": 3, "broker-4": 4}


def test_leaders_are_found_when_a_fault_strikes_and_others_lead_then() -> None:
    verdict = run(
        InjectedFault(AtTime(FORMED_S + 0.3), Kill(2.0), "leader/0"),
        InjectedFault(AtStep("E11", behind=True), Pause(0.2)),
    )
    first, second = struck(verdict)
    led = [
        one.host
        for one in verdict.events
        if one.what == steps.E11Leading.text and one.get("partition") == 0
    ]
    assert led[:2] == [first, second]


@pytest.mark.parametrize("action", [Stop(0.5), LosePower(0.5), Cut("others", 2.0), Pause(2.0)])
def test_a_cluster_goes_on_when_a_leader_is_away(action: Stop) -> None:
    run(InjectedFault(AtTime(FORMED_S + 0.3), action, "leader/0"))


def test_disks_of_brokers_are_not_lost_where_nobody_can_replace_them() -> None:
    verdict = run(InjectedFault(AtTime(FORMED_S + 0.3), Wipe(0.1), "broker-1"))
    assert struck(verdict, SKIPPED) == ["broker-1"]
