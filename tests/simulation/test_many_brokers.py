"""A cluster of fifty brokers with clients, many of which fail."""

from __future__ import annotations

from typing import Final

from octopi.simulation.faults.actions import AtTime, InjectedFault, Kill
from octopi.simulation.invariants.oracle import Oracle
from sim.run.plan import Plan, WorkloadOptions
from sim.run.simulation import simulate

BROKERS: Final = 50


def test_fifty_brokers_with_clients_lose_nothing_while_many_of_them_fail() -> None:
    faults = [
        InjectedFault(AtTime(0.25 * number), Kill(1.0), f"broker-{number * 7 % BROKERS + 1}")
        for number in range(1, 9)
    ]
    plan = Plan(
        5,
        brokers=BROKERS,
        partitions=20,
        workload=WorkloadOptions(
            producers=10, records=30, consumers=5, topics=2, topic_partitions=10
        ),
        faults=tuple(faults),
        faults_s=3.0,
    )
    verdict = simulate(plan, [Oracle])
    assert not verdict.rule, verdict.violation
    assert verdict.counts["fault Kill"] == len(faults)
    assert verdict.counts["Acknowledged"] >= 10 * 30
