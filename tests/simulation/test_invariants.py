"""In a simulated run every machine's invariants are looked at after each of its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from octopi.clients.consuming.consumer_session import ConsumerSession
from octopi.clients.producing.producer_session import ProducerSession
from octopi.coordination.controller import Controller
from octopi.replication.log_follower import LogFollower
from octopi.replication.log_leader import LogLeader
from octopi.replication.log_state import LogState
from octopi.replication.partition_replica import PartitionReplica
from sim.run.plan import Plan, WorkloadOptions
from sim.run.simulation import simulate

MACHINES = (
    PartitionReplica,
    LogLeader,
    LogFollower,
    LogState,
    Controller,
    ProducerSession,
    ConsumerSession,
)
PLAN = Plan(
    seed=1, partitions=1, workload=WorkloadOptions(producers=1, records=10, topic_partitions=1)
)


def test_the_invariants_of_every_machine_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[type] = Counter()

    def counting(machine: type, check: Callable[[Any], None]) -> Callable[[object], None]:
        def counted(self: object) -> None:
            seen[machine] += 1
            check(self)

        return counted

    for machine in MACHINES:
        monkeypatch.setattr(
            machine, "check_invariants", counting(machine, machine.check_invariants)
        )
    assert simulate(PLAN).violation is None
    assert all(seen[machine] >= 4 for machine in MACHINES), seen


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_that_broke_an_invariant_fails_the_run(
    machine: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [4]

    def broken(_: object) -> None:
        left[0] -= 1
        assert left[0], "the invariant is broken"

    monkeypatch.setattr(machine, "check_invariants", broken)
    verdict = simulate(PLAN)
    # Where a peer asked, the node answers and says in its log what it met.
    assert verdict.rule in {"exception", "complaint"}
    assert "the invariant is broken" in f"{verdict.violation} {verdict.details}"
