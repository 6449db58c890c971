"""Topics are searched for, sorted and counted, for those who may know of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from octopi.admin.cluster_pages import NAMES_SHOWN_MAX, cluster_page, events_page, topics_page
from octopi.admin.cluster_watch import CachedSnapshot
from octopi.admin.message_counts import TopicCounts
from octopi.admin.topic_search import topic_search_page
from octopi.clients.answers import BrokerCount, BrokerLog
from octopi.identifiers import BrokerId, Epoch, Incarnation, Offset, PartitionId
from octopi.limits import PAGE_BYTES_MAX
from octopi.wire import messages as m
from tests.admin.test_bounded_pages import anything, nothing, reading, snapshot, told

SIZES = {"carts": 5, "orders": 30, "orders.eu": 20, "payments": 40}


def place(number: int, *in_sync: int) -> m.PartitionInfo:
    leader = BrokerId(1)
    replicas = [BrokerId(1), BrokerId(2)]
    held = [BrokerId(one) for one in in_sync]
    return m.PartitionInfo(PartitionId(number), Epoch(1), leader, "ws://a:1", replicas, held, [])


def seen() -> CachedSnapshot:
    """Four topics, each in a partition of its own; both brokers live."""
    found = snapshot()
    topics = []
    copies: dict[tuple[str, int], list[BrokerLog]] = {}
    for number, (name, size) in enumerate(SIZES.items()):
        where = place(number, 1, *([2] if name != "orders" else []))
        topics.append(m.TopicInfo(name, name, [where], m.TopicOptions(retention_ms=1_000)))
        log = m.LogInfo(
            name, name, where.partition, Epoch(1), Offset(0), Offset(size), Offset(size), size, ""
        )
        copies[name, where.partition] = [BrokerLog(broker, "ws://a:1", log) for broker in (1, 2)]
    brokers = [m.BrokerInfo(BrokerId(one), "ws://a:1", Incarnation(1), True, 0) for one in (1, 2)]
    cluster = attrs.evolve(found.look.cluster, brokers=brokers)
    look = attrs.evolve(found.look, cluster=cluster)
    readings = [(1, attrs.evolve(reading(one), topic="carts")) for one in (1, 1, 2)]
    return attrs.evolve(found, look=look, topics=topics, copies=copies, readings=readings)


async def asked(**query: str) -> dict[str, Any]:
    return told(await topic_search_page(seen(), query, anything))


def names(page: dict[str, Any]) -> list[str]:
    return [one["topic"] for one in page["topics"]]


async def test_any_part_of_a_name_is_found() -> None:
    assert names(await asked(contains="rder")) == ["orders", "orders.eu"]
    assert names(await asked(contains=".")) == ["orders.eu"]
    assert names(await asked(contains="x")) == []
    assert (await asked(contains="x"))["count"] == 0


async def test_topics_are_sorted_by_name_size_state_and_consumers() -> None:
    assert names(await asked()) == sorted(SIZES)
    assert names(await asked(descending="1")) == sorted(SIZES, reverse=True)
    by_size = sorted(SIZES, key=lambda name: SIZES[name])
    assert names(await asked(sort="size")) == by_size
    assert names(await asked(sort="size", descending="1")) == by_size[::-1]
    assert names(await asked(sort="state", descending="1"))[0] == "orders"
    assert names(await asked(sort="consumers", descending="1"))[0] == "carts"
    assert names(await asked(sort="nonsense")) == sorted(SIZES)


async def test_a_page_begins_where_it_is_asked_to_and_says_how_many_there_are() -> None:
    page = await asked(first="1", limit="2")
    assert names(page) == ["orders", "orders.eu"]
    assert (page["first"], page["count"], page["truncated"]) == (1, 4, False)
    assert names(await asked(first="9")) == []


async def test_a_row_has_the_state_the_size_the_options_and_the_readers_of_a_topic() -> None:
    carts, orders, *_ = (await asked())["topics"]
    assert (carts["state"], orders["state"]) == ("ok", "under-replicated")
    assert (carts["partitions_count"], carts["replicas_count"]) == (1, 2)
    assert (carts["size_bytes"], carts["log_end"]) == (5, 5)
    assert carts["consumers_count"] == 2  # of three readings, two are of one client
    assert carts["options"]["retention_ms"] == 1_000


async def test_topics_that_a_token_may_not_know_of_are_neither_shown_nor_counted() -> None:
    page = told(await topic_search_page(seen(), {}, lambda topic: topic == "carts"))
    assert (names(page), page["count"]) == (["carts"], 1)


async def test_a_search_sorts_a_bounded_number_of_topics_and_says_so() -> None:
    many = snapshot(topics=25_000)
    body = await topic_search_page(many, {"limit": "1000000"}, anything)
    assert len(body) <= PAGE_BYTES_MAX + 1_000
    page = told(body)
    assert (page["count"], page["truncated"]) == (10_000, True)
    page = told(await topic_search_page(many, {"contains": "24999"}, anything))
    assert (names(page), page["truncated"]) == (["t-0024999"], False)


async def test_partitions_and_their_events_have_the_names_of_a_few_of_their_topics() -> None:
    event = attrs.evolve(snapshot().events.events[0], partition=PartitionId(0), topic="")
    found = attrs.evolve(
        snapshot(partitions=1),
        topics_of={PartitionId(0): [f"t-{one}" for one in range(60)]},
        min_insync={PartitionId(0): 2},
        events=m.EventList(0, "life", [event]),
    )
    for covers, expected in (
        (anything, [f"t-{one}" for one in range(NAMES_SHOWN_MAX)]),
        (lambda topic: topic == "t-7", ["t-7"]),
        (nothing, []),
    ):
        [partition] = told(await cluster_page(found, {}, covers))["partitions"]
        [shown] = told(await events_page(found, {}, covers))["events"]
        for one in (partition, shown):
            assert (one["topics"], one["topics_count"]) == (expected, 60)
        assert partition["min_insync"] == 2


async def test_messages_are_counted_of_the_topics_on_the_page_if_that_is_asked_for() -> None:
    asked_for: list[str] = []

    async def counting(topics: Sequence[m.TopicInfo]) -> TopicCounts:
        asked_for.extend(one.topic for one in topics)
        logs = [
            m.LogCount(one.topic, one.topic_id, place.partition, Offset(0), Offset(9), 7)
            for one in topics
            if one.topic != "orders"
            for place in one.partitions
        ]
        return TopicCounts([BrokerCount(1, "ws://a:1", log) for log in logs])

    query = {"sort": "size", "descending": "1", "first": "1", "limit": "2", "messages": "1"}
    page = told(await topic_search_page(seen(), query, anything, counting))
    assert names(page) == asked_for == ["orders", "orders.eu"]
    assert [one["messages_count"] for one in page["topics"]] == [None, 7]
    asked_for.clear()
    page = told(await topic_search_page(seen(), {}, anything, counting))
    assert not asked_for
    assert "messages_count" not in page["topics"][0]

    one = told(await topics_page(seen(), {"prefix": "pay", **query}, anything, counting=counting))
    assert asked_for == ["payments"]
    assert [place["messages_count"] for place in one["topics"][0]["partitions"]] == [7]
