"""Brokers that decide about a partition keep the rules under faults of every kind, and known
mistakes in what they do are noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from octopi.agreement import lease
from octopi.identifiers import NO_EPOCH
from octopi.ring import lease_grants
from octopi.ring.partition import RingPartition
from tests.replication.cluster import ViolationError
from tests.ring import partition_world, test_partition
from tests.ring.partition_walks import lease_walk, walk

Plant = Callable[[pytest.MonkeyPatch], None]


def test_random_walks_keep_the_rules_and_come_to_something() -> None:
    worlds = [walk(seed, 300) for seed in range(5)]
    assert sum(one.decided.epoch for one in worlds) > 5
    assert sum(len(rows) for one in worlds for rows in one.committed.values()) > 5
    assert sum(len({value.acceptors for value in one.chosen.values()}) for one in worlds) > 5


def test_leaders_that_are_replaced_all_the_time_lose_the_right_to_lead_before() -> None:
    # The last one found a leader that carried another broker's announcement along.
    worlds = [lease_walk(seed, 400) for seed in (0, 1, 10, 26, 39)]
    assert sum(one.decided.epoch for one in worlds) > 5


@pytest.mark.parametrize("seed", range(2))
def test_when_the_faults_end_the_partition_has_a_leader_that_commits(seed: int) -> None:
    world = walk(seed, 200)
    world.cut = frozenset()
    for host in world.hosts.values():
        if host.partition is None:
            host.start()
    world.settle(8.0)
    assert world.produced()
    leader = world.leader()
    assert leader is not None
    assert leader.has_right()


def acceptors_take_any_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_world, "may_accept", lambda *values: True)


def who_accepted_an_epoch_still_grants(patch: pytest.MonkeyPatch) -> None:
    granted = lease_grants.granted
    patch.setattr(partition_world, "granted", lambda accepted, chosen: granted(None, chosen))


def a_leader_that_asks_for_another_one_keeps_its_right(patch: pytest.MonkeyPatch) -> None:
    may_act = RingPartition.may_act

    def keeps(self: RingPartition, *asked: object) -> bool:
        self.given_up = NO_EPOCH
        return may_act(self, *asked)  # type: ignore[arg-type]

    patch.setattr(RingPartition, "may_act", keeps)


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (acceptors_take_any_epoch, 1),
        (who_accepted_an_epoch_still_grants, 19),
        (a_leader_that_asks_for_another_one_keeps_its_right, 2),
    ],
)
def test_a_mistake_with_the_right_to_lead_is_noticed_by_a_walk(
    plant: Plant, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(ViolationError, match="has the right to lead"):
        lease_walk(seed, 400)


def test_a_right_that_lasts_longer_than_the_patience_of_others_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease, "FENCE_S", 1.7)
    with pytest.raises(AssertionError):
        test_partition.test_a_leader_that_is_cut_off_loses_its_right_before_another_one_is_chosen()
