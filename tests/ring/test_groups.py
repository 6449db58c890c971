"""Who keeps a partition, and what a broker that joins or leaves moves (T21)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from octopi.identifiers import BrokerId, PartitionId
from octopi.ring.groups import acceptor_count, candidates, replica_group
from octopi.ring.points import RING_SIZE, distance, partition_key
from octopi.wire.ring import RingNode
from tests.ring.nodes import node

POINTS = st.integers(0, RING_SIZE - 1)
PARTITIONS = st.integers(0, 10_000).map(PartitionId)


def rings(hosts: st.SearchStrategy[str]) -> st.SearchStrategy[list[RingNode]]:
    """Rings of up to 12 brokers on machines of *hosts*."""
    pairs = st.lists(
        st.tuples(POINTS, hosts), min_size=2, max_size=12, unique_by=lambda one: one[0]
    )
    return pairs.map(
        lambda made: [
            node(number, point=point, host=host) for number, (point, host) in enumerate(made, 1)
        ]
    )


ALONE = rings(st.just(""))
SHARED = rings(st.sampled_from(["", "a", "b", "c"]))


@pytest.mark.parametrize(
    ("replicas", "brokers", "acceptors"),
    [(1, 1, 1), (1, 9, 1), (2, 2, 1), (2, 3, 3), (3, 3, 3), (3, 4, 3), (3, 5, 5), (3, 99, 5)],
)
def test_acceptors_are_twice_the_replicas_less_one_or_the_largest_odd_number(
    replicas: int, brokers: int, acceptors: int
) -> None:
    assert acceptor_count(replicas, brokers) == acceptors


@given(ALONE, PARTITIONS)
def test_a_group_is_the_first_brokers_from_the_key_on(
    ring: list[RingNode], partition: PartitionId
) -> None:
    key = partition_key(partition)
    order = candidates(partition, ring)
    ways = [distance(key, one.point) for one in order]
    assert ways == sorted(ways)
    assert set(order) == set(ring)
    replicas, acceptors = replica_group(partition, 3, ring)
    assert replicas == order[:3]
    assert acceptors == order[: len(acceptors)]
    assert len(acceptors) == min(5, len(ring) - 1 + len(ring) % 2)


@given(SHARED, PARTITIONS)
def test_no_two_of_a_group_are_on_one_machine_while_there_are_others(
    ring: list[RingNode], partition: PartitionId
) -> None:
    hosts = [one.host or str(one.broker) for one in candidates(partition, ring)]
    distinct = len(set(hosts))
    assert len(set(hosts[:distinct])) == distinct


@given(SHARED, PARTITIONS, st.sets(st.integers(1, 12).map(BrokerId)))
def test_drained_brokers_are_as_good_as_gone_while_there_are_others(
    ring: list[RingNode], partition: PartitionId, draining: set[BrokerId]
) -> None:
    left = [one for one in ring if one.broker not in draining]
    order = candidates(partition, ring, draining)
    assert order[: len(left)] == candidates(partition, left)
    assert set(order) == set(ring)


def test_where_too_few_others_are_there_a_drained_broker_keeps_what_it_has() -> None:
    ring = [node(one, point=one) for one in (1, 2, 3)]
    replicas, acceptors = replica_group(PartitionId(0), 3, ring, {BrokerId(1)})
    assert [one.broker for one in replicas] == [2, 3, 1]
    assert acceptors == replicas


def test_a_group_of_nobody_is_empty() -> None:
    assert replica_group(PartitionId(0), 3, []) == ([], [])


@given(SHARED, PARTITIONS, st.integers(1, 5), st.data())
def test_a_broker_that_joins_or_leaves_changes_a_group_by_one_member(
    ring: list[RingNode], partition: PartitionId, replicas: int, data: st.DataObject
) -> None:
    one = data.draw(st.sampled_from(ring))
    others = [other for other in ring if other != one]
    with_it = set(candidates(partition, ring)[:replicas])
    without_it = set(candidates(partition, others)[:replicas])
    assert without_it >= with_it - {one}
    assert len(without_it - with_it) <= 1
    if one not in with_it:
        assert with_it == without_it


@given(ALONE, st.integers(1, 5), st.data())
def test_a_broker_that_joins_or_leaves_moves_only_the_keys_near_it(
    ring: list[RingNode], replicas: int, data: st.DataObject
) -> None:
    """Only keys between the n-th broker before it and it itself, for groups of n."""
    one = data.draw(st.sampled_from(ring))
    others = [other for other in ring if other != one]
    before = sorted(distance(other.point, one.point) for other in others)
    reach = before[replicas - 1] if replicas <= len(before) else RING_SIZE
    for number in range(40):
        partition = PartitionId(number)
        with_it = candidates(partition, ring)[:replicas]
        without_it = candidates(partition, others)[:replicas]
        near = distance(partition_key(partition), one.point) < reach
        assert (with_it != without_it) == near
        holder_moved = distance(partition_key(partition), one.point) < before[0]
        assert (with_it[0] != without_it[0]) == holder_moved
