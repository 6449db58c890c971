"""What a node holds for a peer stays within its bounds, and one that holds more is found."""

from __future__ import annotations

import gc

import attrs
import pytest

from octopi.roles.broker.services import read
from octopi.simulation.faults.actions import AtTime, InjectedFault, Kill
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.invariants.queue_bounds import BOUNDS, Sizes
from sim.run.plan import Plan, WorkloadOptions
from sim.run.simulation import simulate

PLAN = Plan(
    1,
    partitions=1,
    workload=WorkloadOptions(producers=1, records=30, topic_partitions=1, chores=("poll", "poll")),
    faults=(InjectedFault(AtTime(0.5), Kill(0.2), "follower"),),
)


@attrs.define(eq=False)
class Queue:
    """Something with fetches that wait."""

    length: int

    def sizes(self) -> dict[str, int]:
        return {"waiting fetches": self.length, "requests": 0}


def test_an_object_beyond_its_bound_is_reported_as_long_as_it_exists() -> None:
    told: list[tuple[str, int, int]] = []
    sizes = Sizes(lambda *one: told.append(one))
    bound = BOUNDS["waiting fetches"]
    first, second = Queue(bound), Queue(bound)
    sizes.watch(first)
    sizes.watch(second)
    sizes.look()
    assert told == []
    second.length += 1
    sizes.look()
    assert told == [("waiting fetches", bound + 1, bound)]
    del second
    gc.collect()
    sizes.look()
    assert len(told) == 1


def test_a_broker_that_is_asked_for_too_many_fetches_stays_within_its_bounds() -> None:
    assert simulate(PLAN, [Oracle]).violation is None


def test_a_broker_that_lets_any_number_of_fetches_wait_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read, "WAITING_FETCHES_MAX", 10**6)
    violation = simulate(PLAN, [Oracle]).violation
    assert violation is not None
    assert violation.rule == "bound-passed"
    assert "waiting fetches" in str(violation)
