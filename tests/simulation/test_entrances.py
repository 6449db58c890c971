"""Simulated clients that are told brokers, which pass on what only the register answers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.faults.actions import AtStep, InjectedFault, Kill
from sim.generate import scenario_plans, swarm
from sim.generate.scenario import Scenario
from sim.generate.scenarios_of_entrances import ENTRANCE_SCENARIOS
from sim.run.client_log import ClientLog
from sim.run.plan import Entrances, Plan, WorkloadOptions, from_token, to_token
from sim.run.simulation import simulate

EACH = dict.fromkeys(ENTRANCE_SCENARIOS)


def plan(tell: Callable[[Random], Scenario], seed: int) -> Plan:
    """A plan with this scenario."""
    scenario = tell(Random(seed))
    load = WorkloadOptions(producers=2, consumers=2, records=20, pause_s=0.02)
    return Plan(
        seed,
        partitions=2,
        faults=scenario.faults,
        workload=attrs.evolve(load, **scenario.load),
        **scenario.options,
    )


def servers(entrances: Entrances, cut_off: str = "") -> list[list[str]]:
    """What each of six clients is told."""
    load = WorkloadOptions(entrances=entrances)
    log = object.__new__(ClientLog)
    brokers = [SimpleNamespace(name=f"broker-{number}") for number in (1, 2, 3)]
    cluster = SimpleNamespace(
        addresses=["register"],
        brokers=brokers,
        address_of=lambda name: name,
        world=SimpleNamespace(random=lambda *key: Random(str(key))),
    )
    log.cluster = cast(SimulatedCluster, cluster)
    log.plan = Plan(1, workload=load, cut_off=cut_off)
    log._client_count = 0
    return [log._servers() for _ in range(6)]


def test_clients_are_told_the_nodes_that_the_plan_says() -> None:
    assert servers("register") == [["register"]] * 6
    brokers = servers("brokers")
    assert {tuple(sorted(one)) for one in brokers} == {("broker-1", "broker-2", "broker-3")}
    assert len({one[0] for one in brokers}) > 1
    some = servers("any")
    assert {one[1] for one in some} == {"register"}
    assert len({one[0] for one in some}) > 1


def test_no_client_is_told_a_broker_that_is_cut_off_for_good() -> None:
    assert all("broker-2" not in one for one in servers("brokers", "broker-2"))


def test_a_part_of_all_plans_has_brokers_as_entrances() -> None:
    drawn = [swarm.draw(seed).workload.entrances for seed in range(400)]
    for one in ("brokers", "any"):
        assert 60 <= drawn.count(one) <= 140


def test_a_plan_with_entrances_is_kept_in_its_token() -> None:
    for seed in range(20):
        for tell in EACH:
            kept = plan(tell, seed)
            assert from_token(to_token(kept)) == kept
    assert any(scenario_plans.draw(seed).workload.entrances != "register" for seed in range(300))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("tell", EACH, ids=lambda one: one.__name__)
def test_clusters_keep_their_promises_to_clients_of_brokers(
    tell: Callable[[Random], Scenario], seed: int
) -> None:
    assert simulate(plan(tell, seed)).violation is None


@pytest.mark.parametrize("step", ["T1b", "T5b", "T6b"])
def test_an_operator_at_a_broker_finds_out_what_a_register_did_that_died(step: str) -> None:
    def counts(cluster: SimulatedCluster) -> Callable[[Any], None]:
        def see(event: Any) -> None:  # noqa: ANN401
            asked.update(
                one.name
                for one in cluster.brokers
                if cluster.network.links(one.name, "register", "/v1/peer")
            )

        return see

    asked: set[str] = set()
    load = WorkloadOptions(
        producers=1, consumers=1, records=10, chores=("topic", "topic"), entrances="brokers"
    )
    faults = (InjectedFault(AtStep(step, occurrence=2), Kill(0.3), "register"),)
    verdict = simulate(Plan(7, workload=load, faults=faults), [counts])
    assert verdict.violation is None
    assert verdict.counts["fault Kill"] == 1
    assert asked
