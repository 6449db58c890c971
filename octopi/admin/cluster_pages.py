"""The JSON pages of the console about a cluster, made from a snapshot.

The shapes of the pages are stable: keys may be added, but no key changes its meaning.  Each list is
bounded (`octopi.admin.page_writer`).  ``more`` says that the list continues.  If there is ``next``,
a request with that value as ``after`` returns the next entries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from heapq import heappush, heappushpop
from itertools import islice
from typing import Final

import attrs

from octopi.admin.cluster_snapshot import live_brokers, partition_state
from octopi.admin.cluster_watch import CachedSnapshot
from octopi.admin.message_counts import TopicCounts
from octopi.admin.page_writer import (
    PAGE_COUNT_MAX,
    InSlices,
    Json,
    PageWriter,
    count_wanted,
    number_wanted,
)
from octopi.admin.relay_look import relay_page
from octopi.admin.ring_look import ring_page
from octopi.clients.answers import BrokerLog, NodeInfo
from octopi.identifiers import SYSTEM_PREFIX, PartitionId
from octopi.wire.messages import (
    BrokerInfo,
    ClusterEvent,
    LogInfo,
    PartitionInfo,
    ReadingInfo,
    TopicInfo,
)

NAMES_LOOKED_AT_MAX: Final = 10_000
"""How many topics one request examines to find those that its token may describe."""

CONSUMERS_DEFAULT: Final = 200
"""The number that the console shows."""

NAMES_SHOWN_MAX: Final = 3
"""Of the topics of a partition."""

NAMES_TRIED_MAX: Final = 20
"""Names of a partition's topics that are checked to find those to show, so that the pages of 1,000
partitions stay cheap for tokens that cover few topics."""

REASON_CHARACTERS_MAX: Final = 500

_RANKED_IN_A_TURN: Final = 1_000
_LAST_CHARACTER: Final = "\U0010ffff"

Covers = Callable[[str], bool]
"""Whether the requester may describe a topic."""

MayConsume = Callable[[str, str], bool]
"""Whether the requester may consume a topic's subscription, and so may know of it."""

Counting = Callable[[Sequence[TopicInfo]], Awaitable[TopicCounts]]
"""Counts the messages of topics, as far as brokers tell at present."""


async def uncounted(_topics: Sequence[TopicInfo]) -> TopicCounts:
    """Count nothing."""
    return TopicCounts(())


_Ranked = tuple[int, int, int, ReadingInfo]
"""Least lag, place in the snapshot (negative, so of two readings with equal lag the first one ranks
higher), broker, and reading."""


def _of_no_topic(_topic: str) -> bool:
    return False


async def cluster_page(
    seen: CachedSnapshot, query: Mapping[str, str], covers: Covers = _of_no_topic
) -> bytes:
    """The page of brokers and partitions.

    ``topics`` of a partition are the names of a few of its topics, of those that the requester may
    describe, and ``topics_count`` is the number of all.  ``topic_count`` leaves out system topics,
    as lists of topics do."""
    cluster = seen.look.cluster
    live = live_brokers(cluster)
    page = PageWriter()
    page.field("seen_at_ms", seen.seen_at_ms)
    page.field("cluster", cluster.cluster)
    page.field("healthy", not seen.problems)
    page.field("problems", seen.problems)
    first = bisect_left(seen.topics, SYSTEM_PREFIX, key=_name)
    system = bisect_left(seen.topics, f"{SYSTEM_PREFIX}{_LAST_CHARACTER}", key=_name) - first
    page.field("topic_count", cluster.topic_count - system)
    page.field("partition_count", cluster.partition_count)
    asked = seen.look.asked
    page.field(
        "register", _program(asked if asked is not None and asked.role == "register" else None)
    )
    page.field("broker_count", len(cluster.brokers))
    page.field("unserved_topic_count", len(cluster.unserved))
    page.field("register_heard_at_ms", seen.register_heard_at_ms)
    page.field("register_trouble", seen.register_trouble[:REASON_CHARACTERS_MAX])
    page.field("ring", None if seen.ring is None else ring_page(seen.ring))
    page.field("relays", None if seen.relays is None else relay_page(seen.relays, covers))
    left_at = {one.broker: one.at_ms for one in seen.events.events if one.kind == "broker_left"}
    leads: dict[int | None, int] = {}
    holds: dict[int, int] = {}
    async for place in InSlices(cluster.partitions):
        leads[place.leader] = leads.get(place.leader, 0) + 1
        for broker in place.replicas:
            holds[broker] = holds.get(broker, 0) + 1

    def broker_entry(one: BrokerInfo) -> Json:
        missed = not cluster.partitions or one.broker in holds
        state = "up" if one.live else "away" if missed else "retired"
        return {
            "broker": one.broker,
            "address": one.address,
            "state": "silent" if one.broker in seen.look.silent else state,
            "live": one.live,
            "drained": one.drained,
            "leaving": one.leaving,
            "incarnation": one.incarnation,
            "leads": leads.get(one.broker, 0),
            "replicas": holds.get(one.broker, 0),
            "disk_free_bytes": one.disk_free_bytes,
            "disk_total_bytes": one.disk_total_bytes,
            "disk_trouble": one.disk_trouble,
            **_program(seen.look.nodes.get(one.broker)),
            "left_at_ms": None if one.live else left_at.get(one.broker),
        }

    await page.entries("brokers", cluster.brokers, broker_entry, PAGE_COUNT_MAX)
    after = query.get("after", "")
    behind = number_wanted(after) if after else -1
    some = (one for one in cluster.partitions if one.partition > behind)
    last = await page.entries(
        "partitions",
        some,
        partial(_partition, seen, live, covers),
        count_wanted(query.get("limit", ""), PAGE_COUNT_MAX),
    )
    page.field("more", last is not None)
    page.field("next", None if last is None else str(last.partition))
    return page.body()


def _program(node: NodeInfo | None) -> Json:
    """The version of a node and its uptime; None where they are not known."""
    return {
        "agent": None if node is None else node.agent,
        "uptime_s": None if node is None else node.uptime_s,
    }


def _partition(seen: CachedSnapshot, live: set[int], covers: Covers, one: PartitionInfo) -> Json:
    return {
        **_place(one),
        **_topics_of(seen, one.partition, covers),
        "min_insync": seen.min_insync.get(one.partition, 1),
        "leader_address": one.leader_address,
        "state": partition_state(one, live),
        "troubles": [attrs.asdict(trouble) for trouble in one.troubles],
        "copies": [
            {
                "broker": copy.broker,
                "role": copy.role,
                "in_sync": copy.broker in one.in_sync,
                "log_count": copy.log_count,
                "log_end": copy.log_end,
                "highwater": copy.highwater,
                "lag_bytes": copy.lag_bytes,
                "size_bytes": copy.size_bytes,
            }
            for copy in seen.replicas.get(one.partition, [])
        ],
    }


def _topics_of(seen: CachedSnapshot, partition: PartitionId, covers: Covers) -> Json:
    """Names of a few topics of *partition*, and the number of all."""
    names = seen.topics_of.get(partition, [])
    shown = islice(filter(covers, names[:NAMES_TRIED_MAX]), NAMES_SHOWN_MAX)
    return {"topics": list(shown), "topics_count": len(names)}


def _of_none(_topic: str, _subscription: str) -> bool:
    return False


async def topics_page(
    seen: CachedSnapshot,
    query: Mapping[str, str],
    covers: Covers,
    may_consume: MayConsume = _of_none,
    counting: Counting = uncounted,
) -> bytes:
    """A page of topics, in the order of their names.

    With ``messages=1``, *counting* counts the messages in each log of the first
    `octopi.admin.message_count_watch.TOPICS_COUNTED_MAX` topics that are looked at.

    ``held_bytes`` of a log or of one copy is what its retention keeps for durable subscriptions
    alone, and ``held_for`` the slowest of them; empty: the requester may not know of it, or it is
    not known."""
    after, prefix = query.get("after", ""), query.get("prefix", "")
    topics = seen.topics
    first = max(bisect_right(topics, after, key=_name), bisect_left(topics, prefix, key=_name))
    behind = bisect_left(topics, f"{prefix}{_LAST_CHARACTER}", key=_name)
    looked_at_end = min(behind, first + NAMES_LOOKED_AT_MAX)

    some = topics[first:looked_at_end]
    count_max = count_wanted(query.get("limit", ""))
    counts = TopicCounts(())
    if query.get("messages") == "1":
        counts = await counting([*islice((one for one in some if covers(one.topic)), count_max)])

    def shape(info: TopicInfo) -> Json | None:
        return _topic(info, seen.copies, may_consume, counts) if covers(info.topic) else None

    page = PageWriter()
    page.field("seen_at_ms", seen.seen_at_ms)
    last = await page.entries("topics", some, shape, count_max)
    if last is None and looked_at_end < behind:
        last = topics[looked_at_end - 1]
    page.field("more", last is not None)
    page.field("next", None if last is None else last.topic)
    return page.body()


def _name(info: TopicInfo) -> str:
    return info.topic


def _topic(
    info: TopicInfo,
    copies: Mapping[tuple[str, int], list[BrokerLog]],
    may_consume: MayConsume,
    counts: TopicCounts,
) -> Json:
    return {
        "topic": info.topic,
        "topic_id": info.topic_id,
        "options": attrs.asdict(info.options),
        "partitions": [
            {
                **_log(place, copies.get((info.topic_id, place.partition), []), may_consume),
                "messages_count": counts.of_log(info.topic_id, place.partition),
            }
            for place in info.partitions
        ],
    }


def _log(place: PartitionInfo, copies: list[BrokerLog], may_consume: MayConsume) -> Json:
    leader = next((one.log for one in copies if one.broker == place.leader), None)
    return {
        **_place(place),
        "log_start": leader and leader.log_start,
        "highwater": leader and leader.highwater,
        "log_end": leader and leader.log_end,
        "size_bytes": leader and leader.size_bytes,
        "held_bytes": leader and leader.held_bytes,
        "held_for": leader and _held_for(leader, may_consume),
        "copies": [
            {
                "broker": one.broker,
                "log_end": one.log.log_end,
                "highwater": one.log.highwater,
                "lag_bytes": leader and max(0, leader.log_end - one.log.log_end),
                "size_bytes": one.log.size_bytes,
                "fault": one.log.fault,
                "held_bytes": one.log.held_bytes,
                "held_for": _held_for(one.log, may_consume),
            }
            for one in sorted(copies, key=lambda one: one.broker)
        ],
    }


def _held_for(log: LogInfo, may_consume: MayConsume) -> str:
    return log.held_for if log.held_for and may_consume(log.topic, log.held_for) else ""


def _place(place: PartitionInfo) -> Json:
    return {
        "partition": place.partition,
        "epoch": place.epoch,
        "leader": place.leader,
        "replicas": place.replicas,
        "in_sync": place.in_sync,
    }


async def consumers_page(seen: CachedSnapshot, query: Mapping[str, str], covers: Covers) -> bytes:
    """A page of open readings, those with the most lag first."""
    topic, after = query.get("topic", ""), _rank_of(query.get("after", ""))
    count_max = count_wanted(query.get("limit", ""), CONSUMERS_DEFAULT)
    known: dict[str, bool] = {}
    best: list[_Ranked] = []
    count = 0
    async for place, (broker, one) in InSlices(enumerate(seen.readings), _RANKED_IN_A_TURN):
        if topic not in ("", one.topic):
            continue
        may = known.get(one.topic)
        if may is None:
            may = known[one.topic] = covers(one.topic)
        if not may:
            continue
        count += 1
        ranked = (one.least_lag_bytes, -place, broker, one)
        if after is not None and ranked[:2] >= after:
            continue
        if len(best) <= count_max:  # one more than asked for shows that there are more
            heappush(best, ranked)
        else:
            heappushpop(best, ranked)
    best.sort(reverse=True)
    page = PageWriter()
    page.field("seen_at_ms", seen.seen_at_ms)
    last = await page.entries("consumers", best, _consumer, count_max)
    page.field("count", count)
    page.field("truncated", seen.truncated)
    page.field("more", last is not None)
    page.field("next", None if last is None else f"{last[0]}-{-last[1]}")
    return page.body()


def _rank_of(text: str) -> tuple[int, int] | None:
    """Lag and place in the ``next`` of a page; None if *text* isn't one."""
    lag, dash, place = text.partition("-")
    return (number_wanted(lag), -number_wanted(place)) if dash else None


def _consumer(ranked: _Ranked) -> Json:
    _, _, broker, one = ranked
    return consumer_entry(broker, one)


def consumer_entry(broker: int, one: ReadingInfo) -> Json:
    """A reading that the broker *broker* serves."""
    return {
        "broker": broker,
        "consumer": one.peer,
        "name": one.name,
        "agent": one.agent,
        "reading": one.request,
        "topic": one.topic,
        "partition": one.partition,
        "position": one.position,
        "dealt": one.dealt,
        "credit": one.credit,
        "highwater": one.highwater,
        "sent_lag_bytes": one.sent_lag_bytes,
        "lag_bytes": one.lag_bytes,
    }


async def events_page(seen: CachedSnapshot, query: Mapping[str, str], covers: Covers) -> bytes:
    """What the register decided and observed, the oldest first.  Events of a partition have the
    names of a few of its topics, as in `cluster_page`."""
    number = number_wanted(query.get("after", ""))
    events = seen.events.events

    known: dict[PartitionId, Json] = {}

    def shape(one: ClusterEvent) -> Json | None:
        if one.topic and not covers(one.topic):
            return None
        if one.partition is None:
            return attrs.asdict(one)
        if one.partition not in known:
            known[one.partition] = _topics_of(seen, one.partition, covers)
        return {**attrs.asdict(one), **known[one.partition]}

    page = PageWriter()
    page.field("seen_at_ms", seen.seen_at_ms)
    page.field("life", seen.events.life)
    page.field("newest", events[-1].number if events else 0)
    last = await page.entries(
        "events",
        (one for one in events if one.number > number),
        shape,
        count_wanted(query.get("limit", ""), PAGE_COUNT_MAX),
    )
    page.field("more", last is not None)
    page.field("next", None if last is None else str(last.number))
    return page.body()
