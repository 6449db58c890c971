"""What the console is told of a cluster, as JSON: from a snapshot to plain values.

Pure.  The shapes are a promise to pages: keys may be added, none changes its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, Final

import attrs

from octopi.admin.cluster_watch import Snapshot
from octopi.admin.replicas import (
    broker_state,
    live_brokers,
    partition_state,
    problems,
    replicas,
)
from octopi.clients.answers import BrokerLog
from octopi.wire.messages import PartitionInfo, TopicInfo

PAGE_COUNT_MAX: Final = 1_000
PAGE_COUNT_DEFAULT: Final = 100

Json = dict[str, Any]
Covers = Callable[[str], bool]
"""Whether who asks may know of a topic."""


def cluster_page(seen: Snapshot) -> Json:
    """Brokers and partitions."""
    cluster = seen.look.cluster
    live = live_brokers(cluster)
    found = [(one.partition, one) for one in replicas(seen.look, cluster.partitions)]
    copies = {
        partition: [one for _, one in group] for partition, group in groupby(found, lambda x: x[0])
    }
    wrong = problems(seen.look)
    return {
        "seen_at_ms": seen.seen_at_ms,
        "cluster": cluster.cluster,
        "healthy": not wrong,
        "problems": wrong,
        "topic_count": cluster.topic_count,
        "partition_count": cluster.partition_count,
        "brokers": [
            {
                "broker": one.broker,
                "address": one.address,
                "state": "silent"
                if one.broker in seen.look.silent
                else broker_state(one, cluster.partitions),
                "live": one.live,
                "incarnation": one.incarnation,
                "leads": sum(place.leader == one.broker for place in cluster.partitions),
                "replicas": sum(one.broker in place.replicas for place in cluster.partitions),
                "disk_free_bytes": one.disk_free_bytes,
                "disk_total_bytes": one.disk_total_bytes,
                "disk_trouble": one.disk_trouble,
            }
            for one in cluster.brokers
        ],
        "partitions": [
            {
                **_place(one),
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
                    for copy in copies.get(one.partition, [])
                ],
            }
            for one in cluster.partitions
        ],
    }


def topics_page(seen: Snapshot, query: Mapping[str, str], covers: Covers) -> Json:
    """A page of topics, in the order of their names."""
    after, prefix = query.get("after", ""), query.get("prefix", "")
    limit = query.get("limit", "")
    count = int(limit) if limit.isascii() and limit.isdecimal() and limit else PAGE_COUNT_DEFAULT
    count = max(1, min(count, PAGE_COUNT_MAX))
    some = [
        one
        for one in seen.topics
        if one.topic > after and one.topic.startswith(prefix) and covers(one.topic)
    ]
    logs: dict[tuple[str, int], list[BrokerLog]] = {}
    for held in seen.look.logs:
        logs.setdefault((held.log.topic_id, held.log.partition), []).append(held)
    return {
        "seen_at_ms": seen.seen_at_ms,
        "topics": [_topic(one, logs) for one in some[:count]],
        "more": len(some) > count,
    }


def _topic(info: TopicInfo, logs: dict[tuple[str, int], list[BrokerLog]]) -> Json:
    return {
        "topic": info.topic,
        "topic_id": info.topic_id,
        "options": attrs.asdict(info.options),
        "partitions": [
            _log(place, logs.get((info.topic_id, place.partition), [])) for place in info.partitions
        ],
    }


def _log(place: PartitionInfo, copies: list[BrokerLog]) -> Json:
    leader = next((one.log for one in copies if one.broker == place.leader), None)
    return {
        **_place(place),
        "log_start": leader and leader.log_start,
        "highwater": leader and leader.highwater,
        "log_end": leader and leader.log_end,
        "size_bytes": leader and leader.size_bytes,
        "copies": [
            {
                "broker": one.broker,
                "log_end": one.log.log_end,
                "highwater": one.log.highwater,
                "lag_bytes": leader and max(0, leader.log_end - one.log.log_end),
                "size_bytes": one.log.size_bytes,
                "fault": one.log.fault,
            }
            for one in copies
        ],
    }


def _place(place: PartitionInfo) -> Json:
    return {
        "partition": place.partition,
        "epoch": place.epoch,
        "leader": place.leader,
        "replicas": place.replicas,
        "in_sync": place.in_sync,
    }


def consumers_page(seen: Snapshot, query: Mapping[str, str], covers: Covers) -> Json:
    """Open subscriptions."""
    topic = query.get("topic", "")
    return {
        "seen_at_ms": seen.seen_at_ms,
        "consumers": [
            {
                "broker": broker,
                "consumer": one.peer,
                "agent": one.agent,
                "subscription": one.request,
                "topic": one.topic,
                "partition": one.partition,
                "position": one.position,
                "credit": one.credit,
                "highwater": one.highwater,
                "lag_bytes": max(0, one.highwater - one.position),
            }
            for broker, one in seen.subscriptions
            if topic in ("", one.topic) and covers(one.topic)
        ],
        "truncated": seen.truncated,
    }


def events_page(seen: Snapshot, query: Mapping[str, str], covers: Covers) -> Json:
    """What the register decided and saw."""
    after = query.get("after", "")
    number = int(after) if after.isascii() and after.isdecimal() else 0
    events = seen.events.events
    return {
        "seen_at_ms": seen.seen_at_ms,
        "life": seen.events.life,
        "newest": events[-1].number if events else 0,
        "events": [
            attrs.asdict(one)
            for one in events
            if one.number > number and (not one.topic or covers(one.topic))
        ],
    }
