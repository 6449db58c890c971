"""The end of a log that a client is told lies behind everything acknowledged before."""

from __future__ import annotations

import pytest

from octopi.identifiers import Offset
from octopi.replication.log_leader import LogLeader
from octopi.simulation.disk.faults import Delay, DiskFault
from octopi.simulation.faults.actions import AtStep, AtTime, BreakDisk, InjectedFault, Kill
from sim.run.plan import Plan, WorkloadOptions
from sim.run.simulation import simulate

SLOW = BreakDisk(DiskFault("sync", Delay(0.2), times=200))
PLAN = Plan(
    seed=6,
    partitions=1,
    workload=WorkloadOptions(
        producers=2, records=60, topic_partitions=1, pause_s=0.03, chores=("end", "end", "end")
    ),
    faults=(
        *(InjectedFault(AtTime(0.4), SLOW, f"broker-{number}") for number in (1, 2, 3)),
        InjectedFault(AtStep("P7b", "any", 3, behind=True), Kill(0.5), "leader"),
        InjectedFault(AtStep("P7b", "any", 3, behind=True), Kill(0.5), "leader"),
    ),
)
"""Leaders die while the devices of the others take their time, and a client asks for the ends."""


def test_no_log_end_is_told_that_lies_before_an_acknowledged_record() -> None:
    verdict = simulate(PLAN)
    assert verdict.violation is None, verdict.details
    assert verdict.counts["fault Kill"] == 2


def test_a_new_leader_that_tells_an_unpublished_end_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_its_own_mark(leader: LogLeader, highwater: Offset) -> bool:
        return leader.log.highwater >= leader.started_at

    monkeypatch.setattr(LogLeader, "knows_end", by_its_own_mark)
    verdict = simulate(PLAN)
    assert verdict.rule == "complaint"
    assert "had been acknowledged" in str(verdict.violation)
