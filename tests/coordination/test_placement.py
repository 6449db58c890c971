"""Replicas and leaders are spread evenly, and plans say how to get there."""

from collections import Counter

from hypothesis import given, strategies as st

from octopi.coordination.machines import Machines
from octopi.coordination.placement import (
    balance_leaders,
    next_replica,
    place,
    spread_replicas,
)
from octopi.identifiers import BrokerId
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


def test_with_loads_a_broker_that_has_less_to_do_leads_new_partitions_first() -> None:
    old = [record(0, 1, [1, 2, 3], [1]), record(1, 2, [1, 2, 3], [2])]
    placed = place([2, 3, 4, 5], 3, [1, 2, 3], old, loads={1: 4.0, 2: 0.5, 3: 0.0})
    leaders = [chosen[0] for chosen in placed.values()]
    assert leaders == [3, 2, 3, 2], "each new one counts 2.25, half of the work of two partitions"
    assert all(sorted(chosen) == [1, 2, 3] for chosen in placed.values())


def test_a_broker_whose_load_is_not_known_counts_as_the_busiest() -> None:
    placed = place([0], 1, [1, 2, 3], [], loads={2: 3.0, 3: 1.0})
    assert placed[0] == [3]
    placed = place([0], 1, [1, 2], [], loads={2: 3.0})
    assert placed[0] == [1], "as busy, and the smallest id"


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


# --- brokers that share machines ---------------------------------------------------------------

MACHINES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(
    lambda sizes: Machines(
        {
            BrokerId(10 * at + one): f"host-{at}"
            for at, size in enumerate(sizes, 1)
            for one in range(size)
        }
    )
)
"""One to four machines with one to four brokers."""


@given(st.integers(1, 20), st.integers(1, 5), MACHINES)
def test_no_two_replicas_of_a_new_partition_share_a_machine(
    partitions: int, replicas: int, machines: Machines
) -> None:
    machine_count = len(set(machines.labels.values()))
    for chosen in place(range(partitions), replicas, machines.labels, [], machines).values():
        assert len(machines.of_all(chosen)) == len(chosen) == min(replicas, machine_count)


def test_the_brokers_of_one_machine_share_its_replicas_evenly() -> None:
    machines = Machines({1: "a", 2: "a", 3: "b", 4: "b"})
    placed = place(range(8), 2, [1, 2, 3, 4], [], machines)
    held = Counter(broker for chosen in placed.values() for broker in chosen)
    assert held == {1: 4, 2: 4, 3: 4, 4: 4}


def test_one_more_replica_goes_to_a_machine_that_has_none() -> None:
    machines = Machines({1: "a", 2: "a", 3: "b"})
    records = [record(0, 1, [1], [1]), record(1, 3, [3], [3])]
    assert next_replica(records[0], [1, 2, 3], records, machines) == 3
    assert next_replica(records[1], [1, 2, 3], records, machines) == 2
    both = record(0, 1, [1, 3], [1, 3])
    assert next_replica(both, [1, 2, 3], [both], machines) is None


@given(st.data(), MACHINES)
def test_a_spread_keeps_replicas_on_different_machines_and_a_second_plan_is_empty(
    data: st.DataObject, machines: Machines
) -> None:
    brokers = sorted(machines.labels)
    by_machine = data.draw(
        st.lists(st.sets(st.sampled_from(sorted(set(machines.labels.values()))), min_size=1))
    )
    records = []
    for at, chosen in enumerate(by_machine):
        of = [[one for one in brokers if machines.of(one) == host] for host in sorted(chosen)]
        replicas = [data.draw(st.sampled_from(some)) for some in of]
        records.append(record(at, replicas[0], replicas, replicas))
    after = {one.partition: set(one.replicas) for one in records}
    for _ in range(50):
        moves = spread_replicas(
            [record(at, min(one), sorted(one), sorted(one)) for at, one in after.items()],
            brokers,
            machines,
        )
        for move in moves:
            after[move.partition] ^= {move.leaving, move.joining}
        for one in after.values():
            assert len(machines.of_all(one)) == len(one)
        if not moves:
            break
    assert moves == []


def test_a_replica_that_shares_a_machine_with_another_one_moves_to_a_free_machine() -> None:
    machines = Machines({1: "a", 2: "a", 3: "b"})
    [move] = spread_replicas([record(0, 1, [1, 2], [1, 2])], [1, 2, 3], machines)
    assert (move.leaving, move.joining) == (2, 3)
    assert spread_replicas([record(0, 1, [1, 2], [1, 2])], [1, 2], machines) == []
