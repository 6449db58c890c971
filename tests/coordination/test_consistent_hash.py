"""Topics spread over partitions, and few of them move when partitions are added."""

from collections import Counter

import pytest

from octopi.coordination.consistent_hash import HashCircle
from octopi.identifiers import topic_name

TOPICS = [topic_name(f"topic-{number}") for number in range(10_000)]


def test_the_same_topic_belongs_to_the_same_partition_on_every_node_and_for_ever() -> None:
    circle = HashCircle(8)
    chosen = [circle.partitions(topic_name(name), 1)[0] for name in ("orders", "clicks", "a")]
    assert chosen == [7, 0, 4]


@pytest.mark.parametrize("count", [1, 2, 7, 8, 32])
def test_a_new_partition_takes_its_share_and_no_topic_moves_between_old_ones(count: int) -> None:
    before, after = HashCircle(count), HashCircle(count + 1)
    moves = [
        (before.partitions(topic, 1)[0], after.partitions(topic, 1)[0])
        for topic in TOPICS
        if before.partitions(topic, 1) != after.partitions(topic, 1)
    ]
    assert all(new == count for _, new in moves)
    assert len(moves) <= len(TOPICS) / (count + 1) * 1.4


def test_all_partitions_get_about_as_many_topics() -> None:
    circle = HashCircle(8)
    shares = Counter(circle.partitions(topic, 1)[0] for topic in TOPICS)
    assert max(shares.values()) < 1.5 * len(TOPICS) / 8
    assert min(shares.values()) > 0.5 * len(TOPICS) / 8


def test_a_wide_topic_gets_different_partitions_beginning_with_that_of_its_hash() -> None:
    circle = HashCircle(5)
    topic = topic_name("orders")
    assert circle.partitions(topic, 5)[:1] == circle.partitions(topic, 1)
    assert sorted(circle.partitions(topic, 5)) == [0, 1, 2, 3, 4]
