"""Positions: the text form and what it refuses; partitions for keys; waits between tries."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

import octopi
from octopi.clients.producing.partitioner import StickyPartitioner, place_for_key
from octopi.identifiers import Epoch, Offset, PartitionId, TopicId, TopicName
from octopi.limits import ANCHOR_BYTES_MAX, BACKOFF_S_FIRST, BACKOFF_S_MAX
from octopi.position import DISTANCES, NO_ANCHOR, Anchor, BegunEpoch, Place, anchor_of, epochs_of
from octopi.retry import Backoff
from tests.kit.world import SeededChance

numbers = st.integers(0, 2**63 - 1)
relay_anchors = st.builds(
    lambda end, digest: f"{end}.{digest:016x}", numbers, st.integers(0, 2**64 - 1)
)
begun_epochs = st.integers(1, len(DISTANCES)).flatmap(
    lambda count: st.tuples(
        *(
            st.lists(st.integers(low, 2**63 - 1), min_size=count, max_size=count, unique=True)
            for low in (1, 0)
        )
    ).map(
        lambda both: [
            (Epoch(epoch), Offset(start))
            for epoch, start in zip(*(sorted(one, reverse=True) for one in both), strict=True)
        ]
    )
)
anchors = st.just(NO_ANCHOR) | begun_epochs.map(anchor_of) | relay_anchors.map(Anchor)
all_places = st.dictionaries(
    st.integers(0, 10**9).map(PartitionId),
    st.builds(Place, numbers.map(Offset), anchors),
    max_size=20,
)
topics = st.from_regex(r"[A-Za-z0-9._-]{1,200}", fullmatch=True).map(TopicName)
ids = st.from_regex(r"[0-9a-f]{16}", fullmatch=True).map(TopicId)


@given(topics, ids, all_places)
def test_a_position_is_the_same_after_a_round_trip_through_text(
    topic: TopicName, topic_id: TopicId, places: dict[PartitionId, Place]
) -> None:
    position = octopi.Position(topic, topic_id, places)
    assert octopi.Position.parse(str(position)) == position
    assert position.offsets == {one: place.offset for one, place in places.items()}


@given(topics, ids, all_places, st.data())
def test_each_position_has_only_one_text(
    topic: TopicName, topic_id: TopicId, places: dict[PartitionId, Place], data: st.DataObject
) -> None:
    text = str(octopi.Position(topic, topic_id, places))
    at = data.draw(st.integers(0, len(text) - 1))
    altered = text[:at] + data.draw(st.sampled_from("0123456789abcdef~=,.-:v@ ")) + text[at + 1 :]
    try:
        position = octopi.Position.parse(altered)
    except octopi.InvalidOptionError:
        return
    head, _, listed = altered.rpartition(":")
    in_order = sorted(listed.split(","), key=lambda place: int(place.split("=")[0] or -1))
    assert str(position) == f"{head}:{','.join(in_order)}"


@given(st.text(max_size=40) | st.text("v1:orders@0a=~,.-9", max_size=40))
def test_random_text_is_refused_or_the_text_of_a_position(text: str) -> None:
    for parse in (octopi.Position.parse, Place.parse):
        try:
            assert str(parse(text)) == text
        except octopi.InvalidOptionError:
            continue


@given(begun_epochs)
def test_an_anchor_of_a_log_names_epochs_and_where_they_begin(epochs: list[BegunEpoch]) -> None:
    assert epochs_of(anchor_of(epochs)) == epochs
    assert len(anchor_of(epochs)) <= ANCHOR_BYTES_MAX


def test_an_empty_history_has_no_anchor() -> None:
    assert anchor_of([]) == NO_ANCHOR
    assert epochs_of(NO_ANCHOR) == []


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "0-0",
        "07-1",
        "7-01",
        "7-1 ",
        "-7-1",
        "7-",
        "7-1.",
        "7-1.6",
        "7.9f",
        "x",
        "9223372036854775808-0",
        "7-9223372036854775808",
        "7-6.6-5.5-4.4-3.3-2.2-1.1-0",
    ],
)
def test_an_invalid_anchor_is_refused(text: str) -> None:
    with pytest.raises(octopi.InvalidOptionError, match="is no anchor"):
        epochs_of(Anchor(text))


@pytest.mark.parametrize("text", ["7-5.7-3", "7-5.8-3", "7-5.6-5", "7-5.6-6"])
def test_an_anchor_whose_epochs_are_out_of_order_is_refused(text: str) -> None:
    with pytest.raises(octopi.InvalidOptionError, match="older epochs begin earlier"):
        epochs_of(Anchor(text))


def test_an_anchor_with_a_digest_names_no_epoch() -> None:
    with pytest.raises(octopi.InvalidOptionError, match="names no epoch"):
        epochs_of(Anchor("1200.9f3a61c2aa55bb66"))


def test_the_text_of_a_position_never_changes() -> None:
    position = octopi.Position(
        TopicName("orders"),
        TopicId("0123456789abcdef"),
        {PartitionId(3): Place(Offset(99), Anchor("6-0")), PartitionId(0): Offset(1234)},
    )
    assert str(position) == "v1:orders@0123456789abcdef:0=1234,3=99~6-0"
    longer = "v1:orders@0123456789abcdef:0=1234~7-1200.6-800,3=99~6-0"
    assert str(octopi.Position.parse(longer)) == longer
    relayed = "v1:prices@77aa00c277aa00c2:0=1234~1200.9f3a61c2aa55bb66"
    assert str(octopi.Position.parse(relayed)) == relayed
    assert str(octopi.Position.parse("v1:t@0:3=99,0=1")) == "v1:t@0:0=1,3=99"


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
        "v1:orders@0123456789abcdef:0=01",
        "v1:orders@0123456789abcdef:00=1",
        "v1:orders@0123456789abcdef:0=1~",
        "v1:orders@0123456789abcdef:0=1~7",
        "v1:orders@0123456789abcdef:0=1~07-1",
        "v1:orders@0123456789abcdef:0=1~0-0",
        "v1:orders@0123456789abcdef:0=1~7-1~7-1",
        "v1:orders@0123456789abcdef:0=1~9223372036854775808-0",
        "v1:orders@0123456789abcdef:0=1~1200.9f3a61c2aa55bb6",
        "v1:orders@0123456789abcdef:0=1~1200.9F3A61C2AA55BB66",
        "v1:orders@0123456789abcdef:0=1~.9f3a61c2aa55bb66",
    ],
)
def test_an_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(octopi.InvalidOptionError):
        octopi.Position.parse(text)


def test_a_position_with_a_negative_offset_is_refused() -> None:
    with pytest.raises(octopi.InvalidOptionError, match="offset is -1"):
        octopi.Position(TopicName("orders"), TopicId("0" * 16), {PartitionId(0): Offset(-1)})


def test_a_key_has_the_partition_that_every_client_chooses_for_it() -> None:
    """CRC-32 (IEEE) of the key, modulo the number of partitions: 0xCBF43926 for 123456789."""
    assert place_for_key(b"123456789", 1000) == 0xCBF43926 % 1000
    assert place_for_key(b"", 7) == 0


def test_the_sticky_partitioner_takes_all_partitions_in_turn() -> None:
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
