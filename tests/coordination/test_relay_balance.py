"""Which members of relay partitions are wished to be their sequencers."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from octopi.coordination.relay_balance import wished_sequencers
from octopi.identifiers import BrokerId, PartitionId


def sets(*members: list[int]) -> dict[PartitionId, list[BrokerId]]:
    return {PartitionId(number): [BrokerId(one) for one in of] for number, of in enumerate(members)}


@pytest.mark.parametrize("count", range(1, 13))
def test_partitions_of_the_same_members_are_shared_evenly(count: int) -> None:
    wished = wished_sequencers(sets(*[[1, 2, 3]] * count))
    counts = [Counter(wished.values())[BrokerId(one)] for one in (1, 2, 3)]
    assert sum(counts) == count
    assert max(counts) - min(counts) <= 1


def test_a_member_that_is_in_few_sets_takes_one_from_who_has_too_many() -> None:
    wished = wished_sequencers(sets([1, 2], [1, 2], [1, 2], [1, 3], [1, 4]))
    counts = Counter(wished.values())
    assert counts[BrokerId(1)] + counts[BrokerId(2)] == 3
    assert (counts[BrokerId(3)], counts[BrokerId(4)]) == (1, 1)


def test_no_member_has_two_more_than_another_of_the_same_set_and_each_is_a_member() -> None:
    random = Random(7)
    for _ in range(300):
        brokers = range(1, random.randint(4, 9))
        drawn = sets(*(random.sample(brokers, 3) for _ in range(random.randint(1, 64))))
        wished = wished_sequencers(drawn)
        counts = Counter(wished.values())
        for number, members in drawn.items():
            assert wished[number] in members
            assert counts[wished[number]] - min(counts[one] for one in members) <= 1


def test_a_partition_without_members_that_may_be_it_has_none() -> None:
    assert wished_sequencers(sets([], [2])) == {PartitionId(1): BrokerId(2)}
