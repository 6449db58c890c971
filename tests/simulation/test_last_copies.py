"""The last copy in sync is lost: an operator orders who leads, and what is lost is told."""

from __future__ import annotations

import attrs
import pytest

from octopi.identifiers import BrokerId
from octopi.simulation.faults.actions import AtStep, AtTime, InjectedFault, Kill, Reset, Wipe
from octopi.simulation.faults.damage import Damage
from octopi.simulation.history.events import Assigned
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.invariants.recoveries import ORDERED, Accepted, best_by_order
from octopi.simulation.invariants.succession import LOST
from octopi.wire.messages import PartitionRecord
from sim.run.plan import Plan, WorkloadOptions
from sim.run.simulation import Verdict, simulate

PLAN = Plan(
    seed=1,
    partitions=1,
    flush_interval_s=0.05,
    checkpoint_bytes=1_000_000,
    faults_s=4.0,
    loses_last=True,
    workload=WorkloadOptions(
        producers=1, consumers=1, records=20, topic_partitions=1, pause_s=0.05
    ),
)
LAST = InjectedFault(AtTime(3.0), Reset("client"), "leader")
"""Nothing is healed before."""


def run(*faults: InjectedFault, replicas: int = 3) -> Verdict:
    """A run of `PLAN` with *faults*, in which no rule is broken."""
    plan = attrs.evolve(PLAN, faults=(*faults, LAST), replicas=replicas)
    verdict = simulate(plan, [Oracle])
    assert verdict.violation is None, verdict.details
    assert not verdict.counts.get("fault skipped")
    return verdict


def count(verdict: Verdict, what: str) -> int:
    return sum(event.what == what for event in verdict.events)


@pytest.mark.parametrize("part", ["tail", "directory"])
def test_a_damaged_sole_replica_goes_on_by_order_and_its_loss_is_reported(part: str) -> None:
    harm = Damage("cut" if part == "tail" else "missing", "tail" if part == "tail" else "directory")
    verdict = run(InjectedFault(AtStep("D1b", "leader", 8), harm, "here"), replicas=1)
    assert count(verdict, ORDERED) == count(verdict, LOST) == 1
    assert verdict.counts["LossTold"] == 1


def test_a_replica_that_was_out_of_sync_leads_by_order_when_the_others_lost_their_disks() -> None:
    verdict = run(
        InjectedFault(AtTime(0.5), Kill(2.0), "broker-1"),
        InjectedFault(AtTime(1.6, behind=True), Wipe(0.1), "broker-2"),
        InjectedFault(AtTime(0.0, behind=True), Wipe(0.1), "broker-3"),
    )
    assert count(verdict, ORDERED) == count(verdict, LOST) == 1


def test_records_of_absent_brokers_that_come_back_are_not_given_up() -> None:
    verdict = run(
        InjectedFault(AtStep("D1b", "broker-1", 8), Damage("cut", "tail"), "here"),
        InjectedFault(AtTime(0.0, behind=True), Kill(None), "broker-2"),
        InjectedFault(AtTime(0.0, behind=True), Kill(None), "broker-3"),
    )
    assert count(verdict, ORDERED) == count(verdict, LOST) == 0


def test_the_last_disk_with_a_replica_is_spared() -> None:
    plan = attrs.evolve(
        PLAN,
        faults=tuple(InjectedFault(AtTime(0.5), Wipe(0.1), f"broker-{one}") for one in (1, 2, 3)),
    )
    verdict = simulate(plan, [Oracle])
    assert verdict.violation is None
    assert (verdict.counts["fault Wipe"], verdict.counts["fault skipped"]) == (2, 1)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_partition_that_lost_every_disk_begins_again_empty_by_order_and_readers_are_told(
    at_once: bool,
) -> None:
    gap_s = 0.0 if at_once else 0.6
    wipes = [InjectedFault(AtTime(gap_s, behind=True), Wipe(0.1), f"broker-{n}") for n in (2, 3)]
    first = InjectedFault(AtTime(0.7), Wipe(0.1), "broker-1")
    workload = attrs.evolve(PLAN.workload, consumers=2, records=40)
    plan = attrs.evolve(
        PLAN, faults=(first, *wipes, LAST), loses_every_disk=True, workload=workload
    )
    verdict = simulate(plan, [Oracle])
    assert verdict.violation is None, verdict.details
    assert not verdict.counts.get("fault skipped")
    orders = [event.facts for event in verdict.events if event.what == ORDERED]
    assert [(one["partition"], one["empty_on"]) for one in orders] == [(0, 101)]
    [lost] = [event.facts for event in verdict.events if event.what == LOST]
    assert lost["end"] == 0
    assert verdict.counts["LossTold"] == 1
    forks = {
        one.offset for one in verdict.history.events if isinstance(one, Assigned) and one.forked
    }
    assert forks == {0}


def test_an_ordered_leader_is_chosen_by_whole_logs_then_in_sync_then_latest_epoch() -> None:
    record = PartitionRecord(0, 3, 1, 1, 1, [1, 2, 3, 4], [1, 2], [3])

    def best(**changed: Accepted) -> set[BrokerId]:
        accepted = {int(name[1:]): one for name, one in changed.items()}
        return best_by_order(record, accepted, ["id"])[0]

    whole = Accepted(1, 3, {"id": 100}, {"id": 100}, frozenset())
    older = attrs.evolve(whole, log_epoch=2)
    damaged = attrs.evolve(whole, damaged=frozenset({"id"}))
    assert best(b1=damaged, b3=whole, b4=whole) == {3}
    assert best(b1=older, b3=whole, b4=whole) == {1}
    assert best(b1=older, b2=whole) == {2}
    assert best(b1=damaged, b2=damaged, b3=damaged) == {1, 2}
    assert best(b3=damaged, b4=older) == {4}
