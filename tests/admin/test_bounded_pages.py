"""Pages about a cluster are bounded and made in turns, however large the cluster is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio

from octopi.admin.cluster_pages import cluster_page, consumers_page, events_page, topics_page
from octopi.admin.cluster_snapshot import ClusterSnapshot
from octopi.admin.cluster_watch import PROBLEMS_SHOWN_MAX, CachedSnapshot, some_of
from octopi.admin.http_access import HttpAccessPolicy
from octopi.admin.page_writer import PAGE_COUNT_MAX
from octopi.admin.site import Site
from octopi.admin.subscription_pages import subscriptions_page
from octopi.admin.subscription_watch import (
    SeenSubscription,
    SeenSubscriptions,
    SubscriptionWatch,
)
from octopi.clients.answers import ClusterInfo
from octopi.identifiers import (
    BrokerId,
    Epoch,
    Offset,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TimestampMs,
)
from octopi.limits import (
    AGENT_BYTES_MAX,
    CONNECTION_NAME_BYTES_MAX,
    PAGE_BYTES_MAX,
    PAGE_SLICE_COUNT,
    PAGES_AT_A_TIME_MAX,
)
from octopi.model import (
    SubscriptionDefinition,
    SubscriptionMode,
    SubscriptionOptions,
    SubscriptionStart,
    SubscriptionState,
)
from octopi.operating_system import SystemClock
from octopi.security.authenticator import Authenticator, TokenLimits
from octopi.security.grants import EVERYTHING
from octopi.transport.http_requests import Asker, HttpAnswer, HttpRequest, plain
from octopi.wire import messages as m
from tests.security.test_authenticator import HandClock
from tests.security.tokens import key_ring, token

ENTRY_BYTES_MAX = 8 * 1024
TURNS_MIN = 20
"""Of another task while a page of the largest cluster is made."""


def reading(number: int) -> m.ReadingInfo:
    agent = "é" * (AGENT_BYTES_MAX // 2)  # six bytes each in JSON
    return m.ReadingInfo(
        f"10.0.0.1:{number}",
        agent,
        number,
        "orders",
        PartitionId(0),
        0,
        0,
        Offset(number),
        name="é" * (CONNECTION_NAME_BYTES_MAX // 2),
    )


def snapshot(readings: int = 0, topics: int = 0, partitions: int = 0) -> CachedSnapshot:
    places = [
        m.PartitionInfo(
            PartitionId(one), Epoch(1), BrokerId(1), "ws://a:1", [BrokerId(1)], [BrokerId(1)], []
        )
        for one in range(partitions)
    ]
    cluster = ClusterInfo("c", topics, partitions, [], places)
    options = m.TopicOptions()
    events = [_event(number) for number in range(1, 1001)]
    return CachedSnapshot(
        1,
        ClusterSnapshot(cluster, [], {}),
        [m.TopicInfo(f"t-{one:07}", f"{one:016x}", places[:1], options) for one in range(topics)],
        [(1, reading(one)) for one in range(readings)],
        False,
        m.EventList(0, "life", events),
        {},
        {},
        [],
    )


def _event(number: int) -> m.ClusterEvent:
    return m.ClusterEvent(number, 0, "leader", None, None, "", None, [], "e" * 1000)


def anything(topic: str) -> bool:
    return True


def nothing(topic: str) -> bool:
    return False


def told(body: bytes) -> dict[str, Any]:
    found = json.loads(body)
    assert isinstance(found, dict)
    return found


@attrs.define
class Turns:
    """Counts the turns that another task has."""

    count: int = 0

    async def take(self) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            self.count += 1


async def test_40_000_readings_are_a_page_of_half_a_megabyte_made_in_turns() -> None:
    seen = snapshot(readings=40_000)
    turns = Turns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.take)
        body = await consumers_page(seen, {"limit": "100000"}, anything)
        nursery.cancel_scope.cancel()
    assert len(body) <= PAGE_BYTES_MAX + ENTRY_BYTES_MAX
    assert turns.count >= TURNS_MIN
    page = told(body)
    assert page["count"] == 40_000
    assert page["more"]
    assert len(page["consumers"]) <= PAGE_COUNT_MAX


class LargeWatch(SubscriptionWatch):
    """Sees so many subscriptions of each topic."""

    def __init__(self, count: int) -> None:
        self.count = count

    async def of_topics(self, topics: Sequence[m.TopicInfo], after: str = "") -> SeenSubscriptions:
        found = [
            SeenSubscription(definition(info, f"program-{number:04}"), [], [])
            for info in topics
            for number in range(self.count)
        ]
        behind = [one for one in found if one.definition.name > after]
        return SeenSubscriptions(1, behind, {}, {})


def definition(info: m.TopicInfo, name: str) -> SubscriptionDefinition:
    return SubscriptionDefinition(
        sid=SubscriptionId("a" * 16),
        name=SubscriptionName(name),
        topic=info.topic,
        topic_id=info.topic_id,
        partitions=[one.partition for one in info.partitions],
        mode=SubscriptionMode.EXCLUSIVE,
        options=SubscriptionOptions(),
        start=SubscriptionStart.EARLIEST,
        state=SubscriptionState.READY,
        created_ms=TimestampMs(0),
        used_ms=TimestampMs(0),
    )


async def test_subscriptions_beyond_a_page_are_found_topic_by_topic() -> None:
    seen, watch = snapshot(topics=3, partitions=1), LargeWatch(600)
    page = told(await subscriptions_page(seen, watch, {}, EVERYTHING))
    assert len(page["subscriptions"]) == PAGE_COUNT_MAX
    cut = page["subscriptions"][-1]["topic"]
    assert (page["continued"], page["more"], page["next"]) == ([cut], True, cut)
    names, after = [], ""
    while after is not None:
        query = {"topic": cut, "after": after}
        page = told(await subscriptions_page(seen, watch, query, EVERYTHING))
        names += [one["subscription"] for one in page["subscriptions"]]
        after = page["next"]
    assert names == [f"program-{number:04}" for number in range(600)]


async def test_the_subscriptions_of_many_topics_come_in_pages_of_topics() -> None:
    seen, watch = snapshot(topics=120, partitions=1), LargeWatch(1)
    topics, after, pages = [], "", 0
    while after is not None:
        page = told(await subscriptions_page(seen, watch, {"after": after}, EVERYTHING))
        topics += [one["topic"] for one in page["subscriptions"]]
        after, pages = page["next"], pages + 1
    assert (topics, pages) == ([one.topic for one in seen.topics], 3)


async def test_other_tasks_have_their_turn_while_a_page_is_made() -> None:
    turns = Turns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.take)
        page = told(await events_page(snapshot(), {"limit": "1000"}, anything))
        nursery.cancel_scope.cancel()
    assert turns.count >= len(page["events"]) // (2 * PAGE_SLICE_COUNT) >= 4


async def test_consumers_come_in_pages_those_that_are_farthest_behind_first() -> None:
    seen = snapshot(readings=250)
    numbers, after, pages = [], "", 0
    while after is not None:
        page = told(await consumers_page(seen, {"limit": "100", "after": after}, anything))
        numbers += [one["reading"] for one in page["consumers"]]
        after, pages = page["next"], pages + 1
        assert page["more"] == (after is not None)
        assert page["count"] == 250
    assert numbers == list(reversed(range(250)))
    assert pages == 3
    assert told(await consumers_page(seen, {"topic": "other"}, anything))["consumers"] == []
    assert told(await consumers_page(seen, {}, nothing))["count"] == 0


async def test_a_consumer_that_reports_nothing_ranks_by_what_was_not_sent() -> None:
    seen = snapshot(readings=3)  # lags of 0, 1 and 2 bytes; nothing was sent, or reported
    (_, first), *others = seen.readings
    dealt = attrs.evolve(first, position=100, dealt=Offset(60), highwater=Offset(100))
    seen.readings[:] = [(1, dealt), *others]
    found = told(await consumers_page(seen, {}, anything))["consumers"]
    assert [one["reading"] for one in found] == [0, 2, 1]
    assert [one["lag_bytes"] for one in found] == [40, None, None]
    assert [one["sent_lag_bytes"] for one in found] == [0, 2, 1]


@pytest.mark.parametrize("after", ["x", "-", "1-x", "9" * 30, "-1", "\x00", "1-" + "9" * 5000])
async def test_an_invalid_position_or_limit_is_answered_with_a_page(after: str) -> None:
    seen = snapshot(readings=3, topics=3, partitions=3)
    query = {"after": after, "limit": after}
    for body in (
        await consumers_page(seen, query, anything),
        await topics_page(seen, query, anything),
        await events_page(seen, query, anything),
        await cluster_page(seen, query),
    ):
        assert len(body) <= PAGE_BYTES_MAX + ENTRY_BYTES_MAX
        told(body)


async def test_a_page_checks_a_bounded_number_of_topics_for_a_client_that_may_see_none() -> None:
    seen = snapshot(topics=25_000)
    looked_at: list[str] = []

    def covers(topic: str) -> bool:
        looked_at.append(topic)
        return topic.endswith("24999")

    page = told(await topics_page(seen, {}, covers))
    assert len(looked_at) == 10_000
    assert (page["topics"], page["more"]) == ([], True)
    found = []
    while page["more"]:
        page = told(await topics_page(seen, {"after": page["next"]}, covers))
        found += [one["topic"] for one in page["topics"]]
    assert found == ["t-0024999"]
    assert len(looked_at) == 25_000


@pytest.mark.parametrize(
    ("name", "key", "count"),
    [("topics", "topic", 2_500), ("events", "number", 1_000), ("partitions", "partition", 5_000)],
)
async def test_lists_come_in_bounded_pages_and_each_entry_comes_once(
    name: str, key: str, count: int
) -> None:
    seen = snapshot(topics=2_500, partitions=5_000)
    found: list[object] = []
    after: str | None = ""
    while after is not None:
        query = {"after": after, "limit": "1000"}
        match name:
            case "topics":
                body = await topics_page(seen, query, anything)
            case "events":
                body = await events_page(seen, query, anything)
            case _:
                body = await cluster_page(seen, query)
        assert len(body) <= PAGE_BYTES_MAX + ENTRY_BYTES_MAX
        page = told(body)
        found += [one[key] for one in page[name]]
        after = page["next"]
    assert len(found) == len(set(found)) == count


def test_a_long_list_of_problems_is_cut_and_ends_with_the_number_left_out() -> None:
    lines = [f"broker {one} is away" for one in range(5_000)]
    assert some_of(lines)[-1] == "and 4,900 more"
    assert len(some_of(lines)) == PROBLEMS_SHOWN_MAX + 1
    assert some_of(lines[:3]) == lines[:3]


def asked(path: str, **headers: str) -> HttpRequest:
    return HttpRequest("GET", path, {}, {"host": "127.0.0.1", **headers}, Asker("test"))


def console(request: HttpRequest) -> HttpAnswer:
    return plain(200, "console")


async def test_a_node_holds_a_bounded_number_of_unread_pages() -> None:
    site = Site(SystemClock(), console, HttpAccessPolicy())
    unread = [await site.answer(asked("/api/v1/status")) for _ in range(PAGES_AT_A_TIME_MAX)]
    refused = await site.answer(asked("/api/v1/status"))
    assert refused.status == 503
    assert dict(refused.headers)["retry-after"] == "1"
    assert json.loads(refused.body)["error"]["status"] == "over_limit"
    assert (await site.answer(asked("/healthz"))).status == 200
    assert unread[0].done is not None
    unread[0].done()
    assert (await site.answer(asked("/api/v1/status"))).status == 200


async def test_pages_count_against_the_byte_rate_of_a_token() -> None:
    clock = HandClock()
    ring = key_ring()
    authenticator = Authenticator(ring, clock, TokenLimits(bytes_per_s=100))
    site = Site(SystemClock(), console, HttpAccessPolicy(authenticator))
    mine = {"authorization": f"Bearer {token(subject='shop', subscribe='orders')}"}
    others = {"authorization": f"Bearer {token(subject='other', subscribe='orders')}"}
    answers = [await site.answer(asked("/api/v1/topics", **mine)) for _ in range(3)]
    assert [one.status for one in answers] == [503, 503, 429]  # 503: no node is there to ask
    assert int(dict(answers[-1].headers)["retry-after"]) >= 1
    assert (await site.answer(asked("/api/v1/topics", **others))).status == 503
    clock.at += 10
    assert (await site.answer(asked("/api/v1/topics", **mine))).status == 503
