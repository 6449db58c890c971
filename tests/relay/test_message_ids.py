"""Ids of messages in relay topics (R15, R16, R44)."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given, strategies as st

from octopi.identifiers import BrokerId, Incarnation
from octopi.limits import RECORDS_PER_PRODUCE_MAX
from octopi.relay.message_ids import (
    MessageIds,
    id_behind,
    id_sequence,
    id_time_ms,
    message_id,
    node_name,
)

NODE = node_name(BrokerId(7), Incarnation(3))


def test_an_id_has_time_node_and_sequence_in_this_order() -> None:
    assert message_id(0x0123456789AB, bytes(range(6)), 0x0102).hex() == (
        "00000123456789ab" + "000102030405" + "0102"
    )
    assert id_time_ms(message_id(17, NODE, 5)) == 17
    assert id_sequence(message_id(17, NODE, 5)) == 5


def test_a_node_is_named_by_broker_and_incarnation() -> None:
    content = bytes.fromhex("0000000000000007" + "0000000000000003")
    assert sha256(content).digest()[:6] == NODE
    assert NODE.hex() == "4258d21fa8b0"
    assert node_name(BrokerId(7), Incarnation(4)) != NODE


def test_a_million_ids_of_two_brokers_in_one_millisecond_are_different() -> None:
    one = MessageIds(node_name(BrokerId(1), Incarnation(1)))
    two = MessageIds(node_name(BrokerId(2), Incarnation(1)))
    taken = {ids.take(1, 1_000) for ids in (one, two) for _ in range(500_000)}
    assert len(taken) == 1_000_000


def test_a_full_millisecond_is_followed_by_the_next_one() -> None:
    ids = MessageIds(NODE)
    first = ids.take(60_000, 1_000)
    second = ids.take(RECORDS_PER_PRODUCE_MAX, 1_000)
    assert (id_time_ms(first), id_sequence(first)) == (1_000, 0)
    assert (id_time_ms(second), id_sequence(second)) == (1_001, 0)
    assert ids.take(1, 1_000) > second


def test_a_restart_in_the_same_millisecond_gives_other_ids() -> None:
    before = MessageIds(node_name(BrokerId(1), Incarnation(1))).take(1, 1_000)
    after = MessageIds(node_name(BrokerId(1), Incarnation(2))).take(1, 1_000)
    assert before != after


@given(
    st.lists(st.tuples(st.integers(1, RECORDS_PER_PRODUCE_MAX), st.integers(0, 50)), max_size=40)
)
def test_ids_of_one_life_grow_and_never_overlap_whatever_the_clock_does(
    takes: list[tuple[int, int]],
) -> None:
    ids = MessageIds(NODE)
    last = b""
    for count, wall_ms in takes:
        first = ids.take(count, wall_ms)
        assert first > last
        assert id_time_ms(first) >= wall_ms
        last = id_behind(first, count - 1)
        assert last[:14] == first[:14], "the ids of a transaction follow one another"


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(-3, 3)), max_size=60))
def test_two_ids_are_in_the_wrong_order_by_no_more_than_clocks_differ(
    takes: list[tuple[int, int, int]],
) -> None:
    """Each broker's clock is off by at most 3 ms."""
    both = [MessageIds(node_name(BrokerId(one), Incarnation(1))) for one in (1, 2)]
    real_ms, given_ids = 100, []
    for which, passed_ms, off_ms in takes:
        real_ms += passed_ms
        given_ids.append((real_ms, both[which].take(1, real_ms + off_ms)))
    for index, (early, one) in enumerate(given_ids):
        for late, two in given_ids[index + 1 :]:
            if two < one:
                assert late - early <= 6
