"""Makes consumers, for a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from octopi.clients.background import background_tasks
from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.consuming.consumer import Consumer
from octopi.clients.consuming.consumer_session import ConsumerSession
from octopi.clients.consuming.log_subscriber import LogSubscriber, SubscriberOptions
from octopi.clients.consuming.start_position import Start, find_starts, start_places
from octopi.clients.leader_lookup import partition_of
from octopi.identifiers import PartitionId, TopicId, TopicName
from octopi.wire.messages import TopicInfo


@asynccontextmanager
async def open_consumer(
    cluster: ClusterHandle,
    info: TopicInfo,
    start: Start,
    partitions: Sequence[int] | None,
    window_bytes: int,
    options: SubscriberOptions,
    *,
    stop_at_end: bool,
) -> AsyncIterator[Consumer]:
    """See `octopi.clients.client.Client.consumer`."""
    name, topic_id = TopicName(info.topic), TopicId(info.topic_id)
    chosen = [PartitionId(one.partition) for one in info.partitions]
    if partitions is not None:
        chosen = [PartitionId(partition_of(info, one).partition) for one in partitions]
    starts = await find_starts(
        start_places(info, start, chosen),
        partial(cluster.router.find_offset, name),
        with_end=stop_at_end,
    )
    consumer = Consumer(name, topic_id)
    subscribers = [
        LogSubscriber(
            cluster,
            ConsumerSession(
                name,
                partition,
                topic_id,
                found.place,
                window_bytes,
                end=found.end if stop_at_end else None,
            ),
            options,
            consumer,
        )
        for partition, found in starts.items()
    ]
    async with background_tasks() as nursery:
        consumer.start(subscribers, nursery)
        try:
            yield consumer
        finally:
            consumer.close()
