"""Plans with topics in memory: what they draw, whom their faults strike, and what is checked."""

from __future__ import annotations

import attrs
import pytest

from octopi.simulation.faults.actions import AtStep, AtTime, Cut, InjectedFault, Kill, Pause, Wipe
from octopi.simulation.faults.injector import FAULT, HEALED
from octopi.simulation.history.events import Acknowledged, LossTold
from octopi.simulation.invariants.oracle import Oracle
from octopi.tracing import steps
from sim.generate import relays, swarm
from sim.generate.scenario_plans import draw_scenario
from sim.generate.scenarios_of_relays import FORMED_S, RELAY_SCENARIOS
from sim.run.plan import Plan, PlanError, WorkloadOptions, from_token, to_token
from sim.run.simulation import Verdict, simulate
from sim.search.exhaust_runs import SCENARIOS

LOAD = WorkloadOptions(
    producers=1, records=40, consumers=2, topic_partitions=1, pause_s=0.05, relay_topics=1
)
PLAN = Plan(seed=3, brokers=3, partitions=1, faults_s=FORMED_S + 6.0, workload=LOAD)
WORKING = AtTime(FORMED_S + 0.5)


def run(*faults: InjectedFault, plan: Plan = PLAN) -> Verdict:
    """A run of *plan* with *faults*, which has to break no rule."""
    verdict = simulate(attrs.evolve(plan, faults=faults), [Oracle], events_kept=None)
    assert verdict.violation is None, verdict.violation
    return verdict


def losses(verdict: Verdict) -> list[LossTold]:
    return [one for one in verdict.history.events if isinstance(one, LossTold)]


def test_every_other_plan_takes_the_load_of_the_swarm_beside_topics_in_memory() -> None:
    for seed in range(2, 60, 2):
        plan, swarms = relays.draw(seed), swarm.draw(seed)
        assert 3 <= plan.brokers <= 5
        assert plan.workload.relay_topics >= 1
        assert plan.workload.named_producers == 0
        assert plan.workload.producers == swarms.workload.producers
        assert not plan.may_lose
        assert from_token(to_token(plan)) == plan


def test_no_other_plan_has_topics_in_memory_or_faults_at_steps_of_relays() -> None:
    codes = {one.code for one in steps.OF_RELAYS}
    plans = [swarm.draw(seed) for seed in range(200)]
    places = [fault.place for plan in plans for fault in plan.faults]
    assert codes.isdisjoint(place.step for place in places if isinstance(place, AtStep))
    assert not any(plan.workload.relay_topics for plan in plans)


def test_topics_in_memory_take_a_register_and_three_brokers() -> None:
    for options in ({"brokers": 2}, {"brokers": 3, "founders": 3}):
        with pytest.raises(PlanError, match="in memory"):
            Plan(seed=1, workload=LOAD, **options)


@pytest.mark.parametrize("tell", dict.fromkeys(RELAY_SCENARIOS), ids=lambda one: one.__name__)
def test_each_scenario_of_relays_breaks_no_rule(tell: object) -> None:
    plan = draw_scenario(getattr(tell, "__name__", ""), 1)
    assert plan.workload.relay_topics >= 1
    verdict = simulate(plan, [Oracle], events_kept=0)
    assert verdict.violation is None, verdict.violation


def test_all_steps_of_relays_come_before_the_faults_end_in_two_small_runs() -> None:
    seen: set[str] = set()
    for name in ("relays", "timelines"):
        verdict = simulate(SCENARIOS[name], [Oracle], events_kept=None)
        assert verdict.violation is None, verdict.violation
        healed = next(one.number for one in verdict.events if one.what == HEALED)
        seen |= {one.what for one in verdict.events if one.number < healed}
    assert {one.text for one in steps.OF_RELAYS} <= seen


def test_a_message_goes_through_the_steps_of_relays_in_their_order() -> None:
    """Appended and published, written by a quorum, then acknowledged."""
    verdict = run()
    first: dict[str, int] = {}
    for one in verdict.events:
        first.setdefault(one.what.partition(" ")[0], one.number)
    order = ("M1", "M2a", "M3a", "M3b", "M5a", "M6", "M7a", "M7b")
    assert [first[one] for one in order] == sorted(first[one] for one in order)
    assert first["M5a"] < first["M8"]


def test_a_run_with_topics_in_memory_is_the_same_each_time() -> None:
    plan = attrs.evolve(PLAN, faults=(InjectedFault(WORKING, Kill(0.3), "sequencer"),))
    first, second = (simulate(plan, [Oracle], events_kept=0) for _ in range(2))
    assert first.digest == second.digest


def test_the_sequencer_and_other_relays_are_found_when_a_fault_strikes() -> None:
    verdict = run(
        InjectedFault(WORKING, Pause(0.2), "sequencer"),
        InjectedFault(AtTime(0.1, behind=True), Kill(0.2), "relay"),
    )
    published = {one.host for one in verdict.events if isinstance(one.about, steps.M3Publishing)}
    paused, killed = [one.host for one in verdict.events if one.what == FAULT]
    assert paused in published
    assert killed != paused


def test_one_relay_that_dies_costs_no_message() -> None:
    verdict = run(InjectedFault(WORKING, Kill(0.3), "sequencer"))
    assert losses(verdict) == []
    assert any(
        isinstance(one, Acknowledged) and one.log.topic == "memory-1"
        for one in verdict.history.events
    )


def test_readers_are_told_what_is_lost_when_all_relays_restart_at_once() -> None:
    names = ("broker-1", "broker-2", "broker-3")
    faults = [
        InjectedFault(WORKING if not at else AtTime(0.0, behind=True), Kill(0.3), name)
        for at, name in enumerate(names)
    ]
    [loss] = losses(run(*faults))
    assert loss.log.topic == "memory-1"
    assert loss.end == 0


def test_what_two_of_three_relays_lose_may_be_lost_and_what_the_third_has_is_not() -> None:
    """The third one is cut off before the last messages, and has the best history then."""
    load = attrs.evolve(LOAD, producers=4, burst_count=5)
    plan = attrs.evolve(PLAN, workload=load)
    verdict = run(
        InjectedFault(WORKING, Cut("others", 1.5), "broker-3"),
        InjectedFault(AtTime(1.0, behind=True), Kill(0.2), "broker-1"),
        InjectedFault(AtTime(0.0, behind=True), Kill(0.2), "broker-2"),
        plan=plan,
    )
    [loss] = losses(verdict)
    assert loss.end > 0


def test_another_broker_takes_the_place_of_a_relay_that_lost_its_disk() -> None:
    verdict = run(InjectedFault(WORKING, Wipe(0.3), "relay"))
    entered = [one.about for one in verdict.events if isinstance(one.about, steps.M9Entered)]
    assert max(max(one.members) for one in entered) > 10, "it has another id"


def test_an_operator_gives_relay_partitions_other_members() -> None:
    load = attrs.evolve(LOAD, chores=("relays", "relays"))
    verdict = run(plan=attrs.evolve(PLAN, brokers=4, workload=load))
    versions = {
        one.about.version for one in verdict.events if isinstance(one.about, steps.M9Entered)
    }
    assert len(versions) > 1
