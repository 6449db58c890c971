"""The marks of a subscription in the logs of its topic, and in those that the topic gets later."""

from __future__ import annotations

from octopi.clients.routing import RequestRouter
from octopi.clients.subscribing.descriptions import first_partition, partitions_of
from octopi.identifiers import PartitionId, TopicName
from octopi.model import SubscriptionDefinition, SubscriptionStart
from octopi.wire.messages import (
    CreateSubscription,
    Done,
    OpenMarks,
    SubscriptionDescription,
    TopicInfo,
)


async def open_mark(
    router: RequestRouter, definition: SubscriptionDefinition, partition: PartitionId, start: str
) -> None:
    """Have a mark in a log, at *start* unless there is one."""
    topic = TopicName(definition.topic)

    def question(request: int) -> OpenMarks:
        return OpenMarks(
            request,
            topic,
            partition,
            definition.topic_id,
            definition.sid,
            definition.name,
            definition.mode,
            definition.options,
            start,
        )

    what = f"open the mark of subscription {definition.name}"
    await router.ask_leader(what, topic, partition, question, Done, follows_generations=True)


async def extend(
    router: RequestRouter, info: TopicInfo, definition: SubscriptionDefinition
) -> None:
    """The topic got other partitions: have the subscription begin at the start of their logs.

    Raises:
      OctopiError: if that failed; it can be repeated.
    """
    partitions, first = partitions_of(info), first_partition(info)
    topic = TopicName(info.topic)
    # The marks come first: members attach as soon as the coordinator knows of the logs.
    for partition in partitions:
        if partition not in definition.partitions:
            await open_mark(router, definition, partition, SubscriptionStart.EARLIEST)
    await router.ask_leader(
        f"extend subscription {definition.name}",
        topic,
        first,
        lambda request: CreateSubscription(
            request,
            topic,
            first,
            info.topic_id,
            partitions,
            definition.name,
            definition.mode,
            definition.options,
            definition.start,
            "attach",
        ),
        SubscriptionDescription,
        follows_generations=True,
    )
