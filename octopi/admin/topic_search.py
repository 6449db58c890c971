"""The JSON page of topics that are searched for, sorted and counted.

A topic has one row, however many partitions it has; `octopi.admin.cluster_pages.topics_page` has
the partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from octopi.admin.cluster_pages import NAMES_LOOKED_AT_MAX, Counting, Covers, uncounted
from octopi.admin.cluster_snapshot import live_brokers, partition_state
from octopi.admin.cluster_watch import CachedSnapshot
from octopi.admin.page_writer import InSlices, Json, PageWriter, count_wanted, number_wanted
from octopi.identifiers import is_system_topic
from octopi.wire.messages import TopicInfo

_SEARCHED_IN_A_TURN: Final = 1_000

_ORDER: Final = ("ok", "under-replicated")
"""States of a partition from the best on; all others are worse."""


async def topic_search_page(
    seen: CachedSnapshot, query: Mapping[str, str], covers: Covers, counting: Counting = uncounted
) -> bytes:
    """The topics whose names contain ``contains``, sorted by ``sort`` (``name``, ``partitions``,
    ``size``, ``state`` or ``consumers``; ``descending=1`` reverses that), ``limit`` of them from
    number ``first`` on.  ``count`` says how many there are.  ``truncated``: only the first
    `NAMES_LOOKED_AT_MAX` by name were sorted and counted.  System topics are found by a search;
    without one they are not listed.  With ``messages=1``, *counting* counts the messages of the
    first `octopi.admin.message_count_watch.TOPICS_COUNTED_MAX` of the page."""
    contains = query.get("contains", "")
    found: list[TopicInfo] = []
    looked_at, truncated = 0, False
    async for info in InSlices(seen.topics, _SEARCHED_IN_A_TURN):
        if contains not in info.topic or (is_system_topic(info.topic) and not contains):
            continue
        if looked_at == NAMES_LOOKED_AT_MAX:
            truncated = True
            break
        looked_at += 1
        if covers(info.topic):
            found.append(info)
    first, count_max = number_wanted(query.get("first", "")), count_wanted(query.get("limit", ""))
    is_descending, key = query.get("descending") == "1", _SORTS.get(query.get("sort", ""))
    count = len(found)
    if key is None:  # by name, as they are: only those on the page need a row
        found = (found[::-1] if is_descending else found)[first : first + count_max]
    readers = await _readers(seen)
    live = live_brokers(seen.look.cluster)
    rows = [_row(info, seen, readers, live) async for info in InSlices(found)]
    if key is not None:
        rows = sorted(rows, key=key, reverse=is_descending)[first : first + count_max]
    if query.get("messages") == "1":
        infos = {info.topic_id: info for info in found}
        shown = [infos[row["topic_id"]] for row in rows]
        counts = await counting(shown)
        for row, info in zip(rows, shown, strict=True):
            row["messages_count"] = counts.of_topic(info)
    page = PageWriter()
    page.field("seen_at_ms", seen.seen_at_ms)
    page.field("first", first)
    page.field("count", count)
    page.field("truncated", truncated)
    await page.entries("topics", rows, lambda row: row, count_max)
    return page.body()


async def _readers(seen: CachedSnapshot) -> Counter[str]:
    """How many clients read each topic now."""
    pairs = set[tuple[str, int, str]]()
    async for broker, one in InSlices(seen.readings, _SEARCHED_IN_A_TURN):
        pairs.add((one.topic, broker, one.peer))
    return Counter(topic for topic, _, _ in pairs)


def _row(info: TopicInfo, seen: CachedSnapshot, readers: Mapping[str, int], live: set[int]) -> Json:
    leading = [
        one.log
        for place in info.partitions
        for one in seen.copies.get((info.topic_id, place.partition), [])
        if one.broker == place.leader
    ]
    states = [partition_state(one, live, info.options.min_insync) for one in info.partitions]
    return {
        "topic": info.topic,
        "topic_id": info.topic_id,
        "options": attrs.asdict(info.options),
        "partitions_count": len(info.partitions),
        "replicas_count": max((len(one.replicas) for one in info.partitions), default=0),
        "state": max(states, key=_badness, default="ok"),
        "size_bytes": sum(log.size_bytes for log in leading),
        "held_bytes": sum(log.held_bytes for log in leading),
        "log_end": sum(log.log_end for log in leading),
        "consumers_count": readers.get(info.topic, 0),
    }


def _badness(state: str) -> int:
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)


_SORTS: Final[dict[str, Callable[[Json], Any]]] = {
    "partitions": lambda row: row["partitions_count"],
    "size": lambda row: row["size_bytes"],
    "state": lambda row: _badness(row["state"]),
    "consumers": lambda row: row["consumers_count"],
}
"""Keys to sort by; equal rows keep the order of their names."""
