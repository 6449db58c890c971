"""What the console is told of durable subscriptions, as JSON.

The shapes are a promise to pages, as those of `octopi.admin.cluster_pages`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import TypeAlias

import attrs

from octopi.admin.cluster_pages import NAMES_LOOKED_AT_MAX
from octopi.admin.cluster_watch import CachedSnapshot
from octopi.admin.page_writer import PAGE_COUNT_MAX, InSlices, Json, PageWriter
from octopi.admin.subscription_watch import (
    TOPICS_LOOKED_AT_MAX,
    SeenLog,
    SeenSubscription,
    SubscriptionWatch,
)
from octopi.errors import UnknownSubscriptionError, UnknownTopicError
from octopi.model import QUEUE_MODES
from octopi.security.grants import Grants, Verb
from octopi.wire.messages import MarksDescription, SubscriptionMember, TopicInfo

Query: TypeAlias = Mapping[str, str]


async def subscriptions_page(
    seen: CachedSnapshot, watch: SubscriptionWatch, query: Query, grants: Grants
) -> bytes:
    """The subscriptions of one ``topic``, those behind the name ``after``; or else of some topics:
    those behind the name ``after`` that begin with ``prefix``.  ``continued`` names topics that
    have more than the page has, ``silent`` those whose subscriptions are not known now."""
    after, topic = query.get("after", ""), query.get("topic", "")
    following = ""
    if topic:
        found = await watch.of_topics([topic_of(seen, topic, grants)], after)
    else:
        some, following = await _some_topics(seen, after, query.get("prefix", ""), grants)
        found = await watch.of_topics(some)
    page = PageWriter()
    page.field("seen_at_ms", found.seen_at_ms)
    page.field("silent", [{"topic": one, "why": why} for one, why in found.silent.items()])

    def shape(one: SeenSubscription) -> Json | None:
        may = grants.allows(Verb.CONSUME, one.definition.topic, one.definition.name)
        return _summary(one) if may else None

    last = await page.entries("subscriptions", found.subscriptions, shape, PAGE_COUNT_MAX)
    continued = set(found.after)
    if topic:
        following = found.after.get(topic, "") if last is None else last.definition.name
    elif last is not None:
        following = last.definition.topic
        continued.add(following)
    page.field("continued", sorted(continued))
    page.field("more", bool(following))
    page.field("next", following or None)
    return page.body()


async def subscription_page(
    seen: CachedSnapshot, watch: SubscriptionWatch, query: Query, grants: Grants
) -> bytes:
    """The subscription ``name`` of ``topic``: its members, and how far it is in each log."""
    topic, name = query.get("topic", ""), query.get("name", "")
    info = topic_of(seen, topic, grants)
    if not grants.allows(Verb.CONSUME, topic, name):
        raise UnknownSubscriptionError(f"topic {topic[:300]} has no subscription {name[:300]}")
    found = await watch.of_name(info, name)
    page = PageWriter()
    for key, value in _summary(found).items():
        page.field(key, value)
    page.field("options", attrs.asdict(found.definition.options))
    members = await page.entries("members", found.members, _member, PAGE_COUNT_MAX)
    logs = await page.entries("logs", found.logs, _log, PAGE_COUNT_MAX)
    page.field("more", members is not None or logs is not None)
    return page.body()


def topic_of(seen: CachedSnapshot, name: str, grants: Grants) -> TopicInfo:
    """The topic *name*, if who asks may know of it.

    Raises:
      UnknownTopicError: else.
    """
    at = bisect_left(seen.topics, name, key=_name)
    if at < len(seen.topics) and seen.topics[at].topic == name and grants.covers(name):
        return seen.topics[at]
    raise UnknownTopicError(f"there is no topic {name[:300]}")


def _name(info: TopicInfo) -> str:
    return info.topic


async def _some_topics(
    seen: CachedSnapshot, after: str, prefix: str, grants: Grants
) -> tuple[list[TopicInfo], str]:
    """Topics whose subscriptions are looked at, and the name behind which the next ones come;
    empty: there are no others."""
    topics, some, looked_at = seen.topics, list[TopicInfo](), 0
    first = max(bisect_right(topics, after, key=_name), bisect_left(topics, prefix, key=_name))
    async for info in InSlices(topics[first : first + NAMES_LOOKED_AT_MAX], 500):
        if not info.topic.startswith(prefix):
            return some, ""
        if len(some) == TOPICS_LOOKED_AT_MAX:
            return some, some[-1].topic
        looked_at += 1
        if grants.covers(info.topic):
            some.append(info)
    is_all = first + looked_at >= len(topics)
    return some, "" if is_all else topics[first + looked_at - 1].topic


def _summary(seen: SeenSubscription) -> Json:
    one, logs = seen.definition, [log.marks for log in seen.logs if log.marks is not None]
    is_queue = one.mode in QUEUE_MODES
    holders = [log.member or (is_queue and log.marks and log.marks.member) for log in seen.logs]
    return {
        "topic": one.topic,
        "subscription": one.name,
        "id": one.sid,
        "mode": one.mode,
        "state": one.state,
        "created_ms": one.created_ms,
        "used_ms": one.used_ms,
        "members_count": len(seen.members) if seen.is_complete else None,
        "logs_count": len(one.partitions),
        "logs_known": len(logs),
        "logs_without_member": sum(not holder for holder in holders) if seen.is_complete else None,
        "lag_bytes": sum(log.lag_bytes for log in logs) if logs else None,
        "lag_ms": max(log.lag_ms for log in logs) if logs else None,
        "open_count": sum(log.open_count for log in logs),
        "waiting_count": sum(log.waiting_count for log in logs),
        "dead_count": sum(log.dead_count for log in logs),
        "held_bytes": sum(log.held_bytes for log in logs),
        "lost_bytes": sum(end - begin for log in logs for begin, end in _lost(log)),
    }


def _member(one: SubscriptionMember) -> Json:
    return {
        "member": one.member,
        "static": one.static,
        "name": one.name,
        "agent": one.agent,
        "subject": one.subject,
        "logs_count": one.log_count,
    }


def _log(log: SeenLog) -> Json:
    found: Json = {
        "partition": log.partition,
        "state": log.phase,
        "member": log.member,
        "claim": log.claim,
        "why_unknown": log.why,
    }
    if (marks := log.marks) is not None:
        found |= {
            "attached": marks.member,
            "mark": marks.mark,
            "claim": max(log.claim, marks.claim),
            "highwater": marks.highwater,
            "lag_bytes": marks.lag_bytes,
            "lag_ms": marks.lag_ms,
            "changed_ms": marks.changed_ms,
            "open_count": marks.open_count,
            "waiting_count": marks.waiting_count,
            "dead_count": marks.dead_count,
            "letter_fault": marks.letter_fault,
            "lost": _lost(marks),
            "held_bytes": marks.held_bytes,
        }
    return found


def _lost(marks: MarksDescription) -> list[tuple[int, int]]:
    """What the log has no more, the newest last."""
    spans = [*marks.skipped, *([] if marks.lost is None else [marks.lost])]
    return [(one.begin, one.end) for one in spans]
