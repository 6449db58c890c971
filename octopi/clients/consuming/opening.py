"""Makes consumers of one topic, for a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Literal, TypeAlias

import attrs

from octopi.clients.background import background_tasks
from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.consuming.consumer import Consumer
from octopi.clients.consuming.generation_follower import GenerationFollower
from octopi.clients.consuming.log_subscriber import SubscriberOptions
from octopi.clients.consuming.start_position import Start, find_starts, start_places
from octopi.clients.consuming.waiting import find_topic
from octopi.clients.described_generations import sealed_for_good
from octopi.clients.leader_lookup import place_of
from octopi.clients.options import one_of, within
from octopi.errors import InvalidTopicError
from octopi.identifiers import PartitionId, TopicId, TopicName, topic_name
from octopi.limits import CONSUMER_WINDOW_BYTES, RECONNECT_TIMEOUT_S
from octopi.wire.messages import FoundOffset, TopicInfo

_WINDOW_BYTES_MAX: Final = 2**40
_WAIT_S_MAX: Final = 86_400 * 365

FindOffsetIn: TypeAlias = Callable[
    [TopicName, PartitionId, str, int | bytes], Awaitable[FoundOffset]
]
"""As `octopi.clients.routing.RequestRouter.find_offset`."""


@attrs.frozen(kw_only=True)
class ConsumerOptions:
    """What a consumer of any number of topics is made with.

    Raises:
      InvalidOptionError: if one is out of its range.
    """

    window_bytes: int = CONSUMER_WINDOW_BYTES
    on_gap: Literal["raise", "skip"] = "raise"
    on_fork: Literal["raise", "resume"] = "raise"
    stop_at_end: bool = False
    reconnect_timeout_s: float | None = RECONNECT_TIMEOUT_S
    wait_for_topic: float | None = None
    create: bool = False
    proven: bool = False

    def __attrs_post_init__(self) -> None:
        within("window_bytes", self.window_bytes, 1, _WINDOW_BYTES_MAX)
        one_of("on_gap", self.on_gap, "raise", "skip")
        one_of("on_fork", self.on_fork, "raise", "resume")
        if self.reconnect_timeout_s is not None:
            within("reconnect_timeout_s", self.reconnect_timeout_s, 0, _WAIT_S_MAX)
        if self.wait_for_topic is not None:
            within("wait_for_topic", self.wait_for_topic, 0, _WAIT_S_MAX)

    @property
    def of_subscribers(self) -> SubscriberOptions:
        """The part of them that concerns each log."""
        return SubscriberOptions(
            reconnect_timeout_s=self.reconnect_timeout_s,
            skip_gaps=self.on_gap == "skip",
            resume_forks=self.on_fork == "resume",
            proven=self.proven,
        )


@asynccontextmanager
async def open_topic(
    cluster: ClusterHandle,
    topic: str,
    start: Start,
    partitions: Sequence[int] | None,
    options: ConsumerOptions,
) -> AsyncIterator[Consumer]:
    """A consumer of *topic*; see `octopi.clients.client.Client.consumer`."""
    if "*" in topic:
        raise InvalidTopicError(
            f"{topic[:80]!r} is a pattern, and no topic: give it in a list, as in "
            f"consumer([{topic[:80]!r}])"
        )
    found = await find_topic(
        cluster, topic_name(topic), options.wait_for_topic, create=options.create
    )
    async with open_consumer(
        cluster, found.info, found.start(start), partitions, options
    ) as consumer:
        yield consumer


@asynccontextmanager
async def open_consumer(
    cluster: ClusterHandle,
    info: TopicInfo,
    start: Start,
    partitions: Sequence[int] | None,
    options: ConsumerOptions,
    *,
    find: FindOffsetIn | None = None,
) -> AsyncIterator[Consumer]:
    """A consumer of a topic that was found.  *find*: asks logs for offsets; None: the usual way."""
    name, topic_id = TopicName(info.topic), TopicId(info.topic_id)
    places = (*info.partitions, *info.sealed_partitions)
    chosen = [PartitionId(one.partition) for one in places]
    if partitions is not None:
        chosen = [PartitionId(place_of(info, one).partition) for one in partitions]
    starts = await find_starts(
        start_places(info, start, chosen),
        partial(find or cluster.router.find_offset, name),
        with_end=options.stop_at_end,
        sealed=sealed_for_good(info),
    )
    consumer = Consumer(name, topic_id)
    follower = GenerationFollower(
        cluster,
        info,
        {partition: found.place for partition, found in starts.items()},
        window_bytes=options.window_bytes,
        options=options.of_subscribers,
        listener=consumer,
        ends={one: log.end for one, log in starts.items()} if options.stop_at_end else None,
        partitions=None if partitions is None else chosen,
    )
    async with background_tasks() as nursery:
        consumer.start(follower, nursery)
        try:
            yield consumer
        finally:
            consumer.close()
