"""Replicas and leaders are spread evenly, and plans say how to get there."""

from collections import Counter

from hypothesis import given, strategies as st

from octopi.coordination.placement import balance_leaders, place, spread_replicas
from octopi.wire.messages import PartitionRecord


def record(partition: int, leader: int, replicas: list[int], in_sync: list[int]) -> PartitionRecord:
    return PartitionRecord(partition, 1, 0, leader, 1, replicas, in_sync)


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 9))
def test_new_partitions_are_spread_evenly(partitions: int, replicas: int, brokers: int) -> None:
    placed = place(range(partitions), replicas, range(1, brokers + 1), [])
    for chosen in placed.values():
        assert len(set(chosen)) == len(chosen) == min(replicas, brokers)
    leaders = Counter(dict.fromkeys(range(1, brokers + 1), 0))
    leaders.update(chosen[0] for chosen in placed.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1
    held = Counter(dict.fromkeys(range(1, brokers + 1), 0))
    held.update(broker for chosen in placed.values() for broker in chosen)
    assert max(held.values()) - min(held.values()) <= 2


def test_a_new_broker_gets_new_partitions_first() -> None:
    old = [record(one, 1, [1, 2], [1, 2]) for one in range(4)]
    placed = place([4, 5], 2, [1, 2, 3], old)
    assert {chosen[0] for chosen in placed.values()} == {2, 3}


def test_leaderships_move_by_way_of_a_third_broker_where_no_direct_move_helps() -> None:
    # 1 leads three; only 2 can take from it, and 2 can give to 3.
    records = [
        record(0, 1, [1, 2], [1, 2]),
        record(1, 1, [1, 2], [1, 2]),
        record(2, 1, [1, 2], [1, 2]),
        record(3, 2, [2, 3], [2, 3]),
    ]
    moves = balance_leaders(records, [1, 2, 3])
    after = {one.partition: one.leader for one in records}
    after |= {move.partition: move.leader for move in moves}
    assert sorted(Counter(after.values()).values()) == [1, 1, 2]
    assert after[3] == 3


RECORDS = st.lists(
    st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True), max_size=15
).map(lambda sets: [record(at, in_sync[0], in_sync, in_sync) for at, in_sync in enumerate(sets)])


@given(RECORDS, st.sets(st.integers(1, 5)))
def test_leaderships_move_to_live_in_sync_replicas_and_a_second_plan_is_empty(
    records: list[PartitionRecord], live: set[int]
) -> None:
    moves = {one.partition: one.leader for one in balance_leaders(records, live)}
    for one in records:
        assert moves.get(one.partition, one.leader) in one.in_sync
        assert one.partition not in moves or moves[one.partition] in live
    after = [
        record(one.partition, moves.get(one.partition, one.leader), one.replicas, one.in_sync)
        for one in records
    ]
    assert balance_leaders(after, live) == []


def test_if_all_replicas_are_in_sync_the_leaderships_of_brokers_differ_by_at_most_one() -> None:
    records = [record(one, 1, [1, 2, 3], [1, 2, 3]) for one in range(8)]
    moves = {one.partition: one.leader for one in balance_leaders(records, [1, 2, 3])}
    led = Counter(moves.get(one.partition, one.leader) for one in records)
    assert sorted(led.values()) == [2, 3, 3]


def test_a_broker_that_is_added_takes_its_share_of_replicas() -> None:
    records = [record(one, 1 + one % 2, [1, 2], [1, 2]) for one in range(6)]
    moves = spread_replicas(records, [1, 2, 3])
    assert {move.joining for move in moves} == {3}
    assert len(moves) == 4
    held = Counter({1: 6, 2: 6, 3: 0})
    for move in moves:
        held[move.leaving] -= 1
        held[move.joining] += 1
        assert records[move.partition].leader != move.leaving, "followers move"
    assert sorted(held.values()) == [4, 4, 4]
    assert spread_replicas([], [1, 2]) == []
