"""Plans with three registers: what they draw, and whom their faults strike."""

from __future__ import annotations

import attrs
import pytest

from octopi.simulation.faults.actions import AtStep, AtTime, InjectedFault, Kill, Pause, Wipe
from octopi.simulation.faults.injector import FAULT, SKIPPED
from octopi.simulation.invariants.oracle import Oracle
from octopi.tracing import steps
from sim.generate import groups, swarm
from sim.generate.scenario_plans import draw_scenario
from sim.generate.scenarios_of_groups import GROUP_SCENARIOS
from sim.run.plan import Plan, WorkloadOptions, from_token, to_token
from sim.run.simulation import Verdict, simulate

LOAD = WorkloadOptions(producers=1, records=30, consumers=1, topic_partitions=1, pause_s=0.05)


def run(*faults: InjectedFault) -> Verdict:
    """A run of three registers with *faults*, which has to break no rule."""
    plan = Plan(seed=3, partitions=1, registers=3, workload=LOAD, faults=faults)
    verdict = simulate(plan, [Oracle], events_kept=None)
    assert verdict.violation is None, verdict.violation
    return verdict


def struck(verdict: Verdict, what: str = FAULT) -> list[str]:
    """The hosts that faults befell, or did not."""
    return [event.host for event in verdict.events if event.what == what]


def test_every_other_plan_is_that_of_the_swarm_with_faults_of_registers_besides() -> None:
    for seed in (2, 4, 6, 8):
        plan, swarms = groups.draw(seed), swarm.draw(seed)
        assert plan.registers == 3
        assert plan.faults[: len(swarms.faults)] == swarms.faults
        assert plan == attrs.evolve(
            swarms, registers=3, snapshot_entries=plan.snapshot_entries, faults=plan.faults
        )
        assert from_token(to_token(plan)) == plan


def test_the_swarm_draws_no_step_of_several_registers() -> None:
    codes = {one.code for one in steps.OF_SEVERAL_REGISTERS}
    places = [fault.place for seed in range(200) for fault in swarm.draw(seed).faults]
    assert codes.isdisjoint(place.step for place in places if isinstance(place, AtStep))


@pytest.mark.parametrize("tell", dict.fromkeys(GROUP_SCENARIOS), ids=lambda one: one.__name__)
def test_each_scenario_of_registers_strikes_and_breaks_no_rule(tell: object) -> None:
    plan = draw_scenario(getattr(tell, "__name__", ""), 1)
    assert plan.registers == 3
    verdict = simulate(plan, [Oracle], events_kept=0)
    assert verdict.violation is None, verdict.violation
    assert sum(count for name, count in verdict.counts.items() if name.startswith("fault ")) > 0


def test_the_active_register_and_a_standby_are_found_when_a_fault_strikes() -> None:
    verdict = run(
        InjectedFault(AtTime(0.5), Kill(3.0), "active"),
        InjectedFault(AtStep("G3", behind=True), Pause(0.1), "here"),
        InjectedFault(AtTime(0.2, behind=True), Kill(0.1), "standby"),
        InjectedFault(AtStep("G4b", "standby", behind=True), Pause(0.1)),
    )
    first, second, third, fourth = struck(verdict)
    active = [one.host for one in verdict.events if one.what == steps.G3Active.text]
    assert active[:2] == [first, second]
    assert second not in {third, fourth}


def test_a_register_may_lose_its_disk_when_the_others_have_theirs() -> None:
    verdict = run(
        InjectedFault(AtTime(0.5), Wipe(0.1), "register"),
        InjectedFault(AtTime(0.5), Wipe(0.1), "register-2"),
        InjectedFault(AtTime(4.0), Wipe(0.1), "register-3"),
    )
    assert struck(verdict) == ["register", "register-3"]
    assert struck(verdict, SKIPPED) == ["register-2"]
