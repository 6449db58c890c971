"""What the logs of homes say about topics, and how lists of several homes are merged."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from octopi.coordination.consistent_hash import HashCircle
from octopi.identifiers import Epoch, PartitionId, TopicName
from octopi.model import StreamDefinition, TopicOptions, TopicRecord
from octopi.replication.internal_log import encode
from octopi.ring.homes import (
    HomeTopic,
    OrderNumber,
    TopicsOfPartition,
    TopicState,
    home_of,
    merged_page,
    topics_of,
)

ORDERS = TopicRecord(
    "orders", "0" * 16, [PartitionId(3), PartitionId(1)], TopicOptions(min_insync=2, hold_ms=None)
)


@pytest.mark.parametrize("state", list(TopicState))
def test_an_entry_says_all_that_is_known_of_a_topic(state: TopicState) -> None:
    streamed = TopicRecord("s", "1" * 16, [PartitionId(0)], TopicOptions(), version=4, generation=2)
    for record in (ORDERS, streamed):
        topic = HomeTopic(record, state, "alice")
        key, value = topic.entry
        assert value is not None
        encode("~topics", key, value)  # an entry can hold it
        assert topics_of({key: value}).topics == {record.topic: topic}


def test_a_stream_is_kept_with_its_topic() -> None:
    record = TopicRecord(
        "s", "1" * 16, [PartitionId(0)], TopicOptions(), stream=StreamDefinition("text/plain", 60)
    )
    key, value = HomeTopic(record, TopicState.READY).entry
    assert value is not None
    assert topics_of({key: value}).topics[TopicName("s")].topic == record


def test_later_entries_replace_earlier_ones_and_the_last_one_removes() -> None:
    content = TopicsOfPartition()
    topic = HomeTopic(ORDERS, TopicState.READY)
    deleted = HomeTopic(ORDERS, TopicState.DELETING)
    for key, value in (topic.entry, topic.hosting, OrderNumber(Epoch(3), 7).entry(PartitionId(2))):
        content.read(key, value)
    assert content.hosted == {ORDERS.topic_id: ORDERS}
    assert content.orders == {2: OrderNumber(Epoch(3), 7)}
    for key, value in (deleted.entry, deleted.hosting, deleted.removal):
        content.read(key, value)
    assert (content.topics, content.hosted) == ({}, {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("t/orders", {"topic": {}, "state": "ready", "creator": ""}),
        ("t/orders", {"state": "ready"}),
        ("h/0", {}),
        ("h/0", {"topic": {"topic": "a b", "topic_id": "0" * 16, "partitions": [0]}}),
    ],
)
def test_what_no_broker_writes_is_refused(key: str, value: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is no topic"):
        TopicsOfPartition().read(key, value)


def test_orders_of_a_later_leader_come_after_all_of_an_earlier_one() -> None:
    assert OrderNumber(Epoch(2), 9) < OrderNumber(Epoch(3), 1) < OrderNumber(Epoch(3), 2)


def test_the_home_of_a_topic_does_not_depend_on_partitions_that_are_added() -> None:
    circle = HashCircle(8)
    homes = {home_of(TopicName(f"topic-{number}"), circle) for number in range(200)}
    assert homes == set(range(8))


def page(*names: str, more: bool = False) -> tuple[list[SimpleNamespace], bool]:
    return [SimpleNamespace(topic=name) for name in names], more


@pytest.mark.parametrize(
    ("pages", "count", "names", "more"),
    [
        ([], 5, "", False),
        ([page("b", "d"), page("a", "c")], 5, "abcd", False),
        ([page("b", "d"), page("a", "c")], 3, "abc", True),
        ([page("b", "d", more=True), page("a", "z")], 9, "abd", True),
        ([page("a", more=True), page("b", "c")], 9, "a", True),
        ([page("c", more=True), page("b", "d", more=True)], 9, "bc", True),
    ],
)
def test_pages_are_merged_as_far_as_all_of_them_are_known(
    pages: list[tuple[list[SimpleNamespace], bool]], count: int, names: str, more: bool
) -> None:
    found, is_more = merged_page(pages, count)
    assert ("".join(one.topic for one in found), is_more) == (names, more)
