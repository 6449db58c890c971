"""Asks coordinators and leaders what they know of durable subscriptions, and changes nothing."""

from __future__ import annotations

from octopi.clients.described_generations import generations_of
from octopi.clients.routing import RequestRouter
from octopi.generation_gates import all_partitions
from octopi.identifiers import PartitionId, TopicName
from octopi.model import SubscriptionDefinition
from octopi.wire.messages import (
    DescribeMarks,
    DescribeSubscription,
    ListSubscriptions,
    MarksDescription,
    SubscriptionDescription,
    SubscriptionList,
    TopicInfo,
)


def first_partition(info: TopicInfo) -> PartitionId:
    """The partition whose leader is the coordinator of a topic's subscriptions."""
    return partitions_of(info)[0]


def partitions_of(info: TopicInfo) -> list[PartitionId]:
    """All partitions that have logs of a topic, those of its first list first."""
    return all_partitions(generations_of(info))


async def list_subscriptions(
    router: RequestRouter, info: TopicInfo, after: str, count_max: int
) -> SubscriptionList:
    """The definitions of at most *count_max* subscriptions of a topic, in the order of their names,
    from the first name behind *after* on."""
    topic, first = TopicName(info.topic), first_partition(info)
    return await router.ask_leader(
        f"list the subscriptions of {topic}",
        topic,
        first,
        lambda request: ListSubscriptions(request, topic, first, after, count_max),
        SubscriptionList,
        follows_generations=True,
    )


async def describe_subscription(
    router: RequestRouter, info: TopicInfo, name: str
) -> SubscriptionDescription:
    """What the coordinator knows of a subscription: its definition, members and assignments.

    Raises:
      UnknownSubscriptionError: if the topic has no such subscription.
    """
    topic, first = TopicName(info.topic), first_partition(info)
    return await router.ask_leader(
        f"describe subscription {name}",
        topic,
        first,
        lambda request: DescribeSubscription(request, topic, first, name),
        SubscriptionDescription,
        follows_generations=True,
    )


async def describe_marks(
    router: RequestRouter,
    definition: SubscriptionDefinition,
    partition: PartitionId,
    *,
    confirmed: bool = False,
) -> MarksDescription:
    """What the leader of a log knows of a subscription there: its mark, its lag and its member.
    *confirmed*: wait until that mark is committed."""
    topic = TopicName(definition.topic)
    return await router.ask_leader(
        f"describe subscription {definition.name}",
        topic,
        partition,
        lambda request: DescribeMarks(request, topic, partition, definition.sid, confirmed),
        MarksDescription,
        follows_generations=True,
    )
