"""Which partitions a new topic gets by each rule."""

from collections import Counter

from hypothesis import given, strategies as st

from octopi.coordination.topic_placement import PlacementRule, TopicPlacement, drawn

LEADERS = {0: 1, 1: 2, 2: 3}


@given(
    st.text(min_size=1, max_size=16),
    st.lists(st.floats(0.001, 1_000), min_size=1, max_size=64),
    st.data(),
)
def test_different_partitions_are_drawn_and_the_same_ones_for_the_same_id(
    topic_id: str, weights: list[float], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(weights)))
    found = drawn(topic_id, count, weights)
    assert len(set(found)) == count
    assert all(0 <= one < len(weights) for one in found)
    assert drawn(topic_id, count, weights) == found
    assert drawn(topic_id, len(weights), weights)[:count] == found


def test_partitions_are_drawn_as_often_as_their_weights_say() -> None:
    counts = Counter(drawn(f"{number:x}", 1, [1.0, 2.0, 5.0])[0] for number in range(8_000))
    assert [round(counts[one] / 1_000) for one in range(3)] == [1, 2, 5]


def test_the_hash_of_the_name_decides_unless_another_rule_is_set() -> None:
    assert TopicPlacement().weights(3, LEADERS) is None


def test_at_random_all_partitions_weigh_the_same() -> None:
    placement = TopicPlacement(PlacementRule.RANDOM, {1: 5.0})
    assert placement.weights(4, LEADERS) == [1.0] * 4


def test_a_partition_weighs_the_less_the_more_its_leader_has_to_do() -> None:
    placement = TopicPlacement(PlacementRule.LEAST_LOADED, {1: 0.99, 2: 0.09})
    # Broker 3 has not said, so it counts as the busiest; partition 3 lies nowhere yet, and will be
    # led by the broker with least to do.
    assert placement.weights(4, LEADERS) == [1.0, 10.0, 1.0, 10.0]


def test_while_no_load_is_known_all_partitions_weigh_the_same() -> None:
    assert TopicPlacement(PlacementRule.LEAST_LOADED).weights(3, LEADERS) == [1.0] * 3
