"""Which brokers are members of which relay sets, and how sets change."""

from __future__ import annotations

from collections import Counter
from random import Random

import attrs
import pytest

from octopi.coordination.machines import Machines
from octopi.coordination.relay_sets import (
    RelayBrokers,
    balancing_set,
    new_set,
    next_set,
    step_towards,
)
from octopi.errors import RefusedError, Status
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import RELAY_BUFFER_BYTES_MAX, RELAY_BUFFER_BYTES_MIN
from octopi.model import RelaySetRecord, TopicOptions

P = PartitionId(0)


def ids(*numbers: int) -> list[BrokerId]:
    return [BrokerId(one) for one in numbers]


def brokers(
    *willing: int,
    gone: tuple[int, ...] = (),
    leaving: tuple[int, ...] = (),
    hosts: dict[int, str] | None = None,
) -> RelayBrokers:
    labels = {BrokerId(one): host for one, host in (hosts or {}).items()}
    return RelayBrokers(ids(*willing), ids(*gone), ids(*leaving), Machines(labels))


def relay_set(*members: int, version: int = 1, size: int = 3) -> RelaySetRecord:
    return RelaySetRecord(P, version, ids(*members), in_force=True, size=size)


def after(record: RelaySetRecord, there: RelayBrokers) -> list[list[BrokerId]]:
    """The members after each change, until there is none."""
    found: list[list[BrokerId]] = []
    while (step := next_set(record, there, [record])) is not None:
        assert step.version == record.version + 1
        assert not step.in_force
        assert len({*step.members} ^ {*record.members}) == 1
        assert next_set(step, there, [step]) is None, "it waits until it is in force"
        found.append(step.members)
        record = attrs.evolve(step, in_force=True)
        assert len(found) < 9
    return found


def test_a_new_set_has_the_brokers_that_are_in_the_fewest_sets_on_different_hosts() -> None:
    first = new_set(P, 3, brokers(1, 2, 3, 4, 5), {})
    assert first.members == ids(1, 2, 3)
    second = new_set(PartitionId(1), 3, brokers(1, 2, 3, 4, 5), {P: first})
    assert second.members == ids(1, 4, 5)
    hosts = {1: "a", 2: "a", 3: "b", 4: "c"}
    assert new_set(P, 3, brokers(1, 2, 3, 4, hosts=hosts), {}).members == ids(1, 3, 4)
    assert new_set(P, 1, brokers(1, 2, 3), {}).size == 3
    assert new_set(P, 5, brokers(1, 2, 3, 4), {}).members == ids(1, 2, 3, 4)


def test_fewer_than_three_hosts_hold_no_topic_in_memory() -> None:
    hosts = {1: "a", 2: "a", 3: "b"}
    with pytest.raises(RefusedError, match="3 brokers at least") as refused:
        new_set(P, 3, brokers(1, 2, 3, hosts=hosts), {})
    assert refused.value.status == Status.INVALID_OPTION


def test_a_member_that_is_gone_is_removed_before_another_one_takes_its_place() -> None:
    assert after(relay_set(1, 2, 3), brokers(1, 2, 4, gone=(3,))) == [ids(1, 2), ids(1, 2, 4)]
    assert after(relay_set(1, 2, 3), brokers(1, 2, gone=(3,))) == [ids(1, 2)]
    assert after(relay_set(1, 2, 3), brokers(1, gone=(2, 3))) == [ids(1, 3)]


def test_a_member_that_is_drained_leaves_when_its_successor_has_joined() -> None:
    there = brokers(1, 2, 4, leaving=(3,))
    assert after(relay_set(1, 2, 3), there) == [ids(1, 2, 3, 4), ids(1, 2, 4)]
    assert after(relay_set(1, 2, 3), brokers(1, 2, leaving=(3,))) == []
    hosts = {3: "c", 4: "c"}
    there = brokers(1, 2, 4, leaving=(3,), hosts=hosts)
    assert after(relay_set(1, 2, 3), there)[-1] == ids(1, 2, 4), "it takes over its host"


def test_a_whole_set_stays_as_it_is() -> None:
    assert after(relay_set(1, 2, 3), brokers(1, 2, 3, 4, 5)) == []
    assert after(relay_set(1, 2, 3, 4, 5, size=5), brokers(1, 2, 3, 4, 5)) == []
    assert after(relay_set(1, 2, 3, 4), brokers(1, 2, 3, 4)) == [ids(2, 3, 4)]


def numbered(*sets: list[int], pinned: tuple[int, ...] = ()) -> dict[PartitionId, RelaySetRecord]:
    """Relay partitions from 0 that have these members."""
    return {
        PartitionId(number): RelaySetRecord(
            PartitionId(number), 1, ids(*of), True, size=len(of), pinned=number in pinned
        )
        for number, of in enumerate(sets)
    }


def spread(
    sets: dict[PartitionId, RelaySetRecord], there: RelayBrokers
) -> tuple[dict[PartitionId, RelaySetRecord], int]:
    """The sets in the end, and how many members have moved."""
    moves = 0
    while (step := balancing_set(there, sets.values())) is not None:
        sets = sets | {step.partition: step}
        assert balancing_set(there, sets.values()) is None, "one change at a time"
        sets[step.partition] = attrs.evolve(step, in_force=True)
        left = next_set(sets[step.partition], there, sets.values())
        assert left is not None, "one leaves when the other one has joined"
        assert len(left.members) == left.size
        sets[step.partition] = attrs.evolve(left, in_force=True)
        assert next_set(sets[step.partition], there, sets.values()) is None
        moves += 1
        assert moves < 500
    return sets, moves


def test_a_broker_that_joins_takes_sets_of_those_that_are_in_most() -> None:
    sets, moves = spread(numbered(*[[1, 2, 3]] * 8), brokers(1, 2, 3, 4))
    held = Counter(one for record in sets.values() for one in record.members)
    assert sorted(held.values()) == [6, 6, 6, 6]
    assert moves == 6, "none moves more than it has to"


def test_sets_of_any_brokers_are_spread_by_moves_that_end() -> None:
    random = Random(11)
    for _ in range(100):
        names = range(1, random.randint(4, 9))
        drawn = [random.sample(names, 3) for _ in range(random.randint(1, 40))]
        sets, _ = spread(numbered(*drawn), brokers(*names))
        held = Counter(one for record in sets.values() for one in record.members)
        counts = [held[BrokerId(one)] for one in names]
        assert max(counts) - min(counts) <= 1
        assert all(len(set(one.members)) == 3 for one in sets.values())


def test_no_move_puts_two_members_on_one_host_or_moves_a_set_that_was_ordered() -> None:
    hosts = {3: "c", 4: "c"}
    there = brokers(1, 2, 3, 4, hosts=hosts)
    sets, _ = spread(numbered(*[[1, 2, 3]] * 4), there)
    held = Counter(one for record in sets.values() for one in record.members)
    assert (held[BrokerId(3)], held[BrokerId(4)]) == (2, 2), "it takes the place of its neighbour"
    assert (held[BrokerId(1)], held[BrokerId(2)]) == (4, 4)
    pinned = numbered(*[[1, 2, 3]] * 4, pinned=(0, 1, 2, 3))
    assert spread(pinned, brokers(1, 2, 3, 4)) == (pinned, 0)


def test_nothing_is_spread_while_a_member_is_replaced() -> None:
    sets = numbered(*[[1, 2, 3]] * 4)
    assert balancing_set(brokers(1, 2, 4, 5, leaving=(3,)), sets.values()) is None
    assert balancing_set(brokers(1, 2, 4, 5, gone=(3,)), sets.values()) is None
    assert balancing_set(brokers(1, 2, 3, 4), sets.values()) is not None


def test_of_two_members_on_one_host_the_one_that_is_drained_leaves() -> None:
    hosts = {3: "c", 4: "c"}
    there = brokers(1, 2, 4, leaving=(1, 3), hosts=hosts)
    record = attrs.evolve(relay_set(1, 2, 3, 4), size=3)
    assert after(record, there)[0] == ids(1, 2, 4)


def test_an_order_adds_and_removes_one_member_after_the_other() -> None:
    record, found = relay_set(1, 2, 3), []
    while (step := step_towards(record, ids(3, 4, 5))) is not None:
        found.append(step.members)
        record = step
    assert found == [ids(1, 2, 3, 4), ids(1, 2, 3, 4, 5), ids(2, 3, 4, 5), ids(3, 4, 5)]


def test_the_buffer_of_a_topic_in_memory_has_bounds() -> None:
    for size in (RELAY_BUFFER_BYTES_MIN, RELAY_BUFFER_BYTES_MAX):
        assert not TopicOptions(buffer_bytes=size).fault_as("relay")
    for size in (RELAY_BUFFER_BYTES_MIN - 1, RELAY_BUFFER_BYTES_MAX + 1):
        assert "buffer_bytes must be at" in TopicOptions(buffer_bytes=size).fault_as("relay")
    assert "option of relay topics" in TopicOptions(buffer_count=3).fault_as("log")
    assert "option of log topics" in TopicOptions(min_insync=2).fault_as("relay")
