"""Positions: the text form and what it refuses; partitions for keys; waits between tries."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

import octopi
from octopi.clients.backoff import Backoff
from octopi.clients.partitioner import StickyPartitioner, place_for_key
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.limits import BACKOFF_S_FIRST, BACKOFF_S_MAX
from tests.clients.world import SeededChance

offsets = st.dictionaries(
    st.integers(0, 10**9).map(PartitionId), st.integers(0, 2**63 - 1).map(Offset), max_size=20
)
topics = st.from_regex(r"[A-Za-z0-9._-]{1,200}", fullmatch=True).map(TopicName)
ids = st.from_regex(r"[0-9a-f]{16}", fullmatch=True).map(TopicId)


@given(topics, ids, offsets)
def test_a_position_survives_being_text(
    topic: TopicName, topic_id: TopicId, places: dict[PartitionId, Offset]
) -> None:
    position = octopi.Position(topic, topic_id, places)
    assert octopi.Position.parse(str(position)) == position


def test_the_text_of_a_position_is_this_one_for_ever() -> None:
    position = octopi.Position(
        TopicName("orders"),
        TopicId("0123456789abcdef"),
        {PartitionId(3): Offset(99), PartitionId(0): Offset(1234)},
    )
    assert str(position) == "v1:orders@0123456789abcdef:0=1234,3=99"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "v2:orders@0123456789abcdef:0=1",
        "v1:orders:0=1",
        "v1:orders@0123456789abcdef",
        "v1:orders@0123456789abcdef:0=1,",
        "v1:orders@0123456789abcdef:,0=1",
        "v1:orders@0123456789abcdef:0=1,0=2",
        "v1:orders@0123456789abcdef:0=-1",
        "v1:orders@0123456789abcdef:0=9223372036854775808",
        "v1:orders@0123456789abcdef:0=1 ",
        "v1:orders@0123456789abcdef:0=\u0661",
        "v1:a/b@0123456789abcdef:0=1",
        "v1:orders@0123456789ABCDEF:0=1",
        "v1:orders@0123456789abcdef:0=1\n",
    ],
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(octopi.InvalidOptionError):
        octopi.Position.parse(text)


def test_no_position_is_before_the_beginning() -> None:
    with pytest.raises(octopi.InvalidOptionError, match="offset is -1"):
        octopi.Position(TopicName("orders"), TopicId("0" * 16), {PartitionId(0): Offset(-1)})


def test_keys_go_where_any_other_client_would_put_them() -> None:
    """CRC-32 (IEEE) of the key, modulo the number of partitions: 0xCBF43926 for 123456789."""
    assert place_for_key(b"123456789", 1000) == 0xCBF43926 % 1000
    assert place_for_key(b"", 7) == 0


def test_sticky_places_go_round() -> None:
    partitioner = StickyPartitioner(3, 4)
    assert [partitioner.place] + [partitioner.move_on() for _ in range(3)] == [1, 2, 0, 1]


def test_waits_are_random_below_a_bound_that_doubles_up_to_a_maximum() -> None:
    backoff = Backoff(SeededChance(1))
    for attempt in range(100):
        bound_s = min(BACKOFF_S_MAX, BACKOFF_S_FIRST * 2**attempt)
        assert 0 <= backoff.next_s() < bound_s
    assert max(backoff.next_s() for _ in range(100)) > 0.9 * BACKOFF_S_MAX
    backoff.reset()
    assert backoff.next_s() < BACKOFF_S_FIRST
