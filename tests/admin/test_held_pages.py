"""What the pages of topics tell of retention that waits for durable subscriptions."""

from __future__ import annotations

import attrs

from octopi import BrokerLog
from octopi.admin.cluster_pages import topics_page
from octopi.admin.cluster_watch import CachedSnapshot
from octopi.wire import messages as m
from tests.admin.test_bounded_pages import anything, snapshot, told
from tests.admin.test_cluster_snapshot import log, place


def seen_with(*copies: BrokerLog) -> CachedSnapshot:
    """A snapshot of the topic ``orders``, which broker 1 leads."""
    where = place(1, [1, 2])
    topic = m.TopicInfo("orders", "orders", [where], m.TopicOptions())
    return attrs.evolve(
        snapshot(), topics=[topic], copies={("orders", where.partition): list(copies)}
    )


def holding(broker: int, held_bytes: int, held_for: str) -> BrokerLog:
    one = log(broker, 100)
    return attrs.evolve(one, log=attrs.evolve(one.log, held_bytes=held_bytes, held_for=held_for))


def may_consume_billing(topic: str, subscription: str) -> bool:
    return (topic, subscription) == ("orders", "billing")


async def test_what_each_copy_keeps_for_subscriptions_is_told_and_for_which() -> None:
    seen = seen_with(holding(1, 2000, "billing"), holding(2, 3000, "shipping"))
    page = told(await topics_page(seen, {}, anything, lambda topic, subscription: True))
    [[one]] = [topic["partitions"] for topic in page["topics"]]
    assert (one["held_bytes"], one["held_for"]) == (2000, "billing"), "as its leader says"
    held = [(copy["broker"], copy["held_bytes"], copy["held_for"]) for copy in one["copies"]]
    assert held == [(1, 2000, "billing"), (2, 3000, "shipping")]


async def test_a_subscription_is_named_to_who_may_consume_it() -> None:
    seen = seen_with(holding(1, 2000, "billing"), holding(2, 3000, "shipping"))
    page = told(await topics_page(seen, {}, anything, may_consume_billing))
    [[one]] = [topic["partitions"] for topic in page["topics"]]
    held = [(copy["held_bytes"], copy["held_for"]) for copy in one["copies"]]
    assert held == [(2000, "billing"), (3000, "")]
    page = told(await topics_page(seen, {}, anything))
    [[one]] = [topic["partitions"] for topic in page["topics"]]
    assert (one["held_bytes"], one["held_for"]) == (2000, "")


async def test_without_an_answer_of_its_leader_it_is_not_known_what_a_log_keeps() -> None:
    page = told(await topics_page(seen_with(), {}, anything))
    [[one]] = [topic["partitions"] for topic in page["topics"]]
    assert (one["held_bytes"], one["held_for"]) == (None, None)
