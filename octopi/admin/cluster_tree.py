"""All metadata of a cluster as one tree, for `octopi-node status --tree`.

The cluster is the root.  Below it are its brokers, and its topics with the partitions on which they
lie and their durable subscriptions with the mark in each log.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from octopi.admin.cluster_snapshot import broker_state, loads_of
from octopi.errors import OctopiError, UnknownSubscriptionError, UnknownTopicError

if TYPE_CHECKING:
    from octopi import (
        Client,
        ClusterInfo,
        ClusterLoads,
        SubscriptionStatus,
        TopicInfo,
    )


@attrs.frozen
class TreeTopic:
    """A topic and its durable subscriptions."""

    info: TopicInfo
    subscriptions: list[SubscriptionStatus] = attrs.field(factory=list)
    problem: str = ""
    """Why nothing, or not all, is known of its subscriptions; empty: all is."""


@attrs.frozen
class ClusterTree:
    """The metadata of a cluster.  It was asked for topic by topic, so it is not of one moment."""

    cluster: ClusterInfo
    loads: ClusterLoads | None
    topics: list[TreeTopic]


async def look_at_all(client: Client) -> ClusterTree:
    """Request the brokers, all topics and all durable subscriptions.  A topic or subscription that
    is deleted meanwhile is left out.  Marks are with the leaders of their logs; where these can't
    be asked, the topic says so.

    Raises:
      OctopiError: if nobody answers who knows the brokers and topics.
    """
    cluster, loads = await client.admin.describe_cluster(), await loads_of(client)
    found: list[TreeTopic] = []
    for info in await client.topics():
        # If a leader is gone, that takes the time of a request, once: the next topics are asked for
        # anew, and then the register has missed it.
        is_old = any(one.problem for one in found)
        topic = await (_look_anew(client, info.topic) if is_old else _look_at(client, info))
        found += [] if topic is None else [topic]
    return ClusterTree(cluster, loads, found)


async def _look_anew(client: Client, topic: str) -> TreeTopic | None:
    """A topic, as it is now, with its subscriptions; None: it is deleted."""
    try:
        info = await client.describe_topic(topic)
    except UnknownTopicError:
        return None
    return await _look_at(client, info)


async def _look_at(client: Client, info: TopicInfo) -> TreeTopic | None:
    """A topic with its subscriptions; None: it is deleted."""
    if info.is_relay:
        return TreeTopic(info)  # it has none
    if not all(one.leader_address for one in info.partitions):
        return TreeTopic(info, problem="marks are not known while a partition has no leader")
    found: list[SubscriptionStatus] = []
    try:
        for one in await client.admin.subscriptions(info.topic):
            with suppress(UnknownSubscriptionError):  # it was deleted meanwhile
                found.append(await client.admin.describe_subscription(info.topic, one.name))
    except UnknownTopicError:
        return None
    except OctopiError as error:
        return TreeTopic(info, found, f"not all marks are known: {error}")
    return TreeTopic(info, found)


def tree_json(tree: ClusterTree) -> dict[str, Any]:
    """The tree as JSON: objects whose keys are ids and names, as deep as the tree."""
    loads = {} if tree.loads is None else tree.loads.brokers
    partitions = [*tree.cluster.partitions, *tree.cluster.relays]
    return {
        "cluster": tree.cluster.cluster,
        "brokers": {
            str(one.broker): {
                "address": one.address,
                "host": one.host,
                "state": broker_state(one, partitions),
                "leads": sum(place.leader == one.broker for place in tree.cluster.partitions),
                "load": loads.get(one.broker),
            }
            for one in tree.cluster.brokers
        },
        "topics": {one.info.topic: _topic_json(one) for one in tree.topics},
    }


def _topic_json(topic: TreeTopic) -> dict[str, Any]:
    info = topic.info
    return {
        "id": info.topic_id,
        "kind": info.kind,
        "partitions": {
            str(one.partition): {
                "leader": one.leader,
                "address": one.leader_address,
                "epoch": one.epoch,
                "replicas": one.replicas,
                "in_sync": one.in_sync,
            }
            for one in info.partitions
        },
        "subscriptions": {
            one.definition.name: {
                "mode": one.definition.mode,
                "members": [member.member for member in one.members],
                "marks": {
                    str(log.partition): {
                        "mark": log.mark,
                        "highwater": log.highwater,
                        "member": log.member,
                    }
                    for log in one.logs
                },
            }
            for one in topic.subscriptions
        },
        "problem": topic.problem or None,
    }


def tree_lines(tree: ClusterTree) -> list[str]:
    """The tree as lines of text, each level two spaces further to the right."""
    shown = tree_json(tree)
    lines = [f"cluster {shown['cluster'] or '(not formed yet)'}", "  brokers"]
    for broker, one in shown["brokers"].items():
        facts = [one["state"], f"leads {one['leads']}"]
        facts += [f"load {one['load']:.2f}"] if one["load"] is not None else []
        facts += [f"host {one['host']}"] if one["host"] else []
        lines.append(f"    {broker}  {one['address']}  {', '.join(facts)}")
    lines.append("  topics")
    for name, topic in shown["topics"].items():
        lines.append(f"    {name}  id {topic['id']}, {topic['kind']}")
        for partition, one in topic["partitions"].items():
            leads = f"led by {one['leader']}" if one["address"] else "no leader"
            in_sync = ", ".join(str(broker) for broker in one["in_sync"])
            lines.append(f"      {partition}  {leads} in epoch {one['epoch']}, in sync {in_sync}")
        for subscription, one in topic["subscriptions"].items():
            members = f", members {', '.join(one['members'])}" if one["members"] else ""
            lines.append(f"      subscription {subscription}  {one['mode']}{members}")
            for partition, log in one["marks"].items():
                has = f", {log['member']} has it" if log["member"] else ""
                lines.append(f"        {partition}  mark {log['mark']} of {log['highwater']}{has}")
        lines += [f"      {topic['problem']}"] if topic["problem"] else []
    return lines
