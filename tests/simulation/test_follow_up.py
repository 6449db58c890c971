"""Runs that go on from where the oracle saw something, until clients see it, too."""

from __future__ import annotations

import attrs

from octopi.simulation.faults.actions import STEPS, AtStep, AtTime, InjectedFault, Kill
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
    counts(seen)
    return list(aftermaths(PLAN, Violation("a rule", "a text", (seen,)), counts.place(seen)))


def test_the_place_of_an_event_is_its_step_on_its_host_for_the_nth_time() -> None:
    counts = Occurrences()
    for host in ("broker-1", "broker-2", "broker-2"):
        counts(event(steps.P6Committing.text, host))
    assert counts.place(event(steps.P6Committing.text)) == AtStep("P6a", "broker-2", 2)
    assert counts.place(event("no step")) is None


def test_everything_up_to_what_was_seen_stays_as_it_was_and_then_brokers_are_taken_away() -> None:
    plans = aftermath(steps.P6Committing.text)
    assert plans
    for plan in plans:
        assert plan.faults[:1] == PLAN.faults
        more = plan.faults[1:]
        assert more
        assert all(one.place.seconds >= 4.0 for one in more if isinstance(one.place, AtTime))
        assert plan.faults_s > 4.0
        assert attrs.evolve(plan, faults=PLAN.faults, faults_s=1.0) == PLAN
        assert from_token(to_token(plan)) == plan


def test_each_broker_is_once_the_only_one_that_is_left() -> None:
    brokers = {"broker-1", "broker-2", "broker-3"}
    left = set[str]()
    for plan in aftermath(steps.P6Committing.text):
        killed = {one.target for one in plan.faults[1:] if one.action == Kill(None)}
        if len(killed) == 2:
            left |= brokers - killed
    assert left == brokers


def test_who_did_it_dies_right_behind_it() -> None:
    places = {one.place for plan in aftermath(steps.P6Committing.text) for one in plan.faults[1:]}
    assert AtStep("P6b", "broker-2", 2) in places
    assert STEPS["P6b"] == steps.P6Committed.text


def test_what_nobody_did_has_an_aftermath_only_if_it_is_known_when_it_happened() -> None:
    assert list(aftermaths(PLAN, Violation("complaint", "a text"), None)) == []
    assert aftermath("at rest", "")
