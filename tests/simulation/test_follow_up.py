"""Runs that go on from where the oracle saw something, until clients see it, too."""

from __future__ import annotations

import attrs

from octopi.simulation.faults.actions import (
    STEPS,
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Wipe,
)
from octopi.simulation.kernel.world import Event, Violation
from octopi.tracing import steps
from sim.mutants.follow_up import Occurrences, aftermaths
from sim.run.plan import Plan, from_token, to_token

PLAN = Plan(3, faults=(InjectedFault(AtStep("P2b"), Kill(0.5), "leader"),), faults_s=1.0)


def event(what: str, host: str = "broker-2", at: float = 4.0) -> Event:
    return Event(1, at, host, 1, what, {})


def aftermath(what: str, host: str = "broker-2") -> list[Plan]:
    seen = event(what, host)
    counts = Occurrences()
    counts(event(what, host, 3.0))
    counts(event(what, "broker-1", 3.5))
    counts(event(steps.P4Acknowledged.text, "broker-3", 3.6))
    counts(event(steps.P4Acknowledged.text, "broker-3", 3.7))
    counts(seen)
    violation = Violation("a rule", "broker-3 has nothing there", (seen,))
    return list(aftermaths(PLAN, violation, counts.place(seen), counts.acknowledgements()))


def test_an_event_is_located_by_step_host_and_occurrence() -> None:
    counts = Occurrences()
    for host in ("broker-1", "broker-2", "broker-2"):
        counts(event(steps.P6Committing.text, host))
    assert counts.place(event(steps.P6Committing.text)) == AtStep("P6a", "broker-2", 2)
    assert counts.place(event("no step")) is None


def test_a_follow_up_repeats_the_run_to_the_violation_and_then_removes_brokers() -> None:
    plans = aftermath(steps.P6Committing.text)
    assert plans
    for plan in plans:
        assert plan.faults[:1] == PLAN.faults
        more = plan.faults[1:]
        assert more
        # The first one may be a moment before, so that something doesn't arrive any more.
        assert all(one.place.seconds > 3.99 for one in more if isinstance(one.place, AtTime))
        assert all(one.place.seconds > 4.0 for one in more[1:] if isinstance(one.place, AtTime))
        assert plan.faults_s > 4.0
        assert attrs.evolve(plan, faults=PLAN.faults, faults_s=1.0) == PLAN
        assert from_token(to_token(plan)) == plan


def test_each_broker_is_the_last_one_in_one_follow_up() -> None:
    brokers = {"broker-1", "broker-2", "broker-3"}
    left = set[str]()
    for plan in aftermath(steps.P6Committing.text):
        killed = {one.target for one in plan.faults[1:] if one.action == Kill(None)}
        if len(killed) == 2:
            left |= brokers - killed
    assert left == brokers


def test_the_host_that_broke_a_rule_is_killed_right_after_it() -> None:
    places = {one.place for plan in aftermath(steps.P6Committing.text) for one in plan.faults[1:]}
    assert AtStep("P6b", "broker-2", 2) in places
    assert STEPS["P6b"] == steps.P6Committed.text


def test_a_broker_that_is_left_may_miss_what_was_about_to_reach_it() -> None:
    seen_s = 4.0
    lags = [
        plan.faults[1]
        for plan in aftermath(steps.P6Committing.text)
        if isinstance(plan.faults[1].action, Cut) and isinstance(plan.faults[1].place, AtTime)
    ]
    assert {one.target for one in lags} == {"broker-1", "broker-3"}
    assert all(one.place.seconds < seen_s for one in lags if isinstance(one.place, AtTime))


def test_the_broker_that_the_oracle_names_misses_at_first_what_came_since_it_acknowledged() -> None:
    first, second = (plan.faults[1] for plan in aftermath(steps.P6Committing.text)[:2])
    assert first == InjectedFault(
        AtStep("P4b", "broker-3", 2), Cut("broker", 6.0, "in"), "broker-3"
    )
    assert second == attrs.evolve(first, place=AtStep("P4b", "broker-3", 1))


def test_what_a_follower_says_of_its_device_is_tried_while_that_is_slow_and_the_only_one() -> None:
    slow, lost, other, dark = aftermath(steps.P4Acknowledging.text, "broker-3")[0].faults[1:]
    assert (slow.place, slow.target) == (AtStep("P4b", "broker-3", 2), "broker-3")
    assert isinstance(slow.action, BreakDisk)
    assert {lost.target, other.target} == {"broker-1", "broker-2"}
    assert isinstance(lost.action, Wipe)
    assert isinstance(other.action, Wipe)
    assert (dark.target, dark.action) == ("broker-3", LosePower(0.05))


def test_the_register_may_miss_what_was_about_to_be_proposed() -> None:
    plans = [
        plan
        for plan in aftermath(steps.P6Committing.text)
        if any(one.target == "register" for one in plan.faults[1:])
    ]
    assert plans
    assert all(isinstance(plan.faults[1].action, Kill) for plan in plans)


def test_a_violation_without_a_host_has_follow_ups_only_if_its_time_is_known() -> None:
    assert list(aftermaths(PLAN, Violation("complaint", "a text"), None)) == []
    assert aftermath("at rest", "")
