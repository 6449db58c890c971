"""The oracle knows what retention has to keep and what credit consumers grant, and finds brokers
that remove or send more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest

from octopi.identifiers import Offset
from octopi.replication.effects import PartitionEffect
from octopi.replication.partition_leader import PartitionLeader
from octopi.roles.broker.reading import Reading
from octopi.simulation.faults.actions import AtTime, InjectedFault, JumpClock, Kill
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.kernel.world import Violation
from octopi.storage import log_retention, retention
from octopi.subscriptions.known_marks import KnownMarks
from octopi.wire.messages import Follow
from sim.run.plan import Plan, WorkloadOptions
from sim.run.simulation import simulate

LOAD = WorkloadOptions(
    producers=2, records=30, consumers=1, topic_partitions=1, value_bytes_max=3000
)
AWAY = InjectedFault(AtTime(0.2), Kill(1.5), "broker-3")


def plan(*faults: InjectedFault, **options: Any) -> Plan:  # noqa: ANN401
    small = {"segment_bytes": 4096, "retention_check_interval_s": 0.05, "partitions": 1}
    return Plan(3, workload=LOAD, faults=faults, flush_interval_s=0.05, **{**small, **options})


BY_BYTES = plan(retention_bytes=12_000)
BY_AGE = plan(retention_ms=150)
BY_BOTH = plan(AWAY, retention_bytes=8000, retention_ms=150)


def broken(one: Plan) -> Violation | None:
    verdict = simulate(one, [Oracle])
    assert verdict.marks["retention removed a segment"]
    return verdict.violation


@pytest.mark.parametrize("one", [BY_BYTES, BY_AGE, BY_BOTH])
def test_brokers_that_remove_expired_segments_break_no_rule(one: Plan) -> None:
    assert broken(one) is None


def removing(more: int) -> Callable[..., int]:
    """Retention that removes so many segments *more*."""

    def expired_count(
        closed: Iterable[retention.ClosedSegment],
        **limits: Any,  # noqa: ANN401
    ) -> int:
        segments = list(closed)
        count = retention.expired_count(segments, **limits)
        return min(len(segments), count + more) if count else 0

    return expired_count


@pytest.mark.parametrize("one", [BY_BYTES, BY_AGE, BY_BOTH])
def test_a_broker_that_removes_a_segment_too_many_is_found(
    monkeypatch: pytest.MonkeyPatch, one: Plan
) -> None:
    monkeypatch.setattr(log_retention, "expired_count", removing(1))
    violation = broken(one)
    assert violation is not None
    assert violation.rule == "removed-too-early"
    assert "to be kept" in str(violation)


def test_a_broker_that_removes_segments_of_a_topic_without_retention_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_retention, "expired_count", lambda closed, **_: len(list(closed)) // 2)
    violation = broken(plan())
    assert violation is not None
    assert violation.rule == "removed-too-early"
    assert "keeps everything" in str(violation)


MEMBERS: dict[str, Any] = {"members": 1, "member_pause_s": 0.3}


def held(*faults: InjectedFault, **options: Any) -> Plan:  # noqa: ANN401
    """Retention removes at once what the slow member of a subscription need not have any more."""
    one = plan(*faults, retention_ms=10, **options)
    return attrs.evolve(one, workload=attrs.evolve(LOAD, **MEMBERS))


HELD = (held(hold_ms=60_000), held(hold_bytes=500_000), held(hold_bytes=12_000, hold_ms=300))


@pytest.mark.parametrize("one", [*HELD, held(AWAY, hold_ms=60_000)])
def test_brokers_that_wait_for_subscriptions_break_no_rule(one: Plan) -> None:
    assert simulate(one, [Oracle]).violation is None


@pytest.mark.parametrize("one", HELD)
def test_a_broker_that_forgets_a_subscription_is_found(
    monkeypatch: pytest.MonkeyPatch, one: Plan
) -> None:
    monkeypatch.setattr(KnownMarks, "slowest", lambda self, topic_id, now_ms: None)
    violation = broken(one)
    assert violation is not None
    assert violation.rule == "removed-too-early"
    assert "a subscription has yet to process what lies from" in str(violation)


def test_retention_of_a_topic_without_a_hold_waits_for_no_subscription() -> None:
    assert broken(held()) is None


def test_the_age_rule_is_not_applied_where_clocks_jumped() -> None:
    jump = InjectedFault(AtTime(0.3), JumpClock(3600.0), "broker-1")
    assert broken(plan(jump, retention_ms=60_000)) is None


def test_a_follower_that_begins_behind_the_removed_segments_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow = PartitionLeader.follow

    def begins_late(leader: PartitionLeader, message: Follow) -> list[PartitionEffect]:
        log = leader.logs.get(message.topic_id)
        if log is None or log.log.start <= message.log_end:
            return follow(leader, message)
        start, log.log.start = log.log.start, log.log.highwater
        try:
            return follow(leader, message)
        finally:
            log.log.start = start

    monkeypatch.setattr(PartitionLeader, "follow", begins_late)
    violation = broken(plan(AWAY, retention_bytes=4096))
    assert violation is not None
    assert violation.rule == "removed-too-early"
    assert "anew" in str(violation)


def test_a_leader_that_names_a_start_before_its_first_record_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow = PartitionLeader.follow

    def begins_early(leader: PartitionLeader, message: Follow) -> list[PartitionEffect]:
        log = leader.logs.get(message.topic_id)
        if log is None:
            return follow(leader, message)
        start, log.log.start = log.log.start, Offset(0)
        try:
            return follow(leader, message)
        finally:
            log.log.start = start

    monkeypatch.setattr(PartitionLeader, "follow", begins_early)
    violation = broken(plan(AWAY, retention_bytes=4096))
    assert violation is not None
    assert violation.rule == "start-forgotten"


def test_a_broker_that_sends_more_than_the_credit_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    granted = Reading.grant
    monkeypatch.setattr(Reading, "grant", lambda self, until: granted(self, until + 10_000))
    violation = simulate(plan(), [Oracle]).violation
    assert violation is not None
    assert violation.rule == "credit-passed"
    assert "granted a credit" in str(violation)
