"""Describes the streams and readings of a relay, in pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from octopi.identifiers import TopicName
from octopi.roles.answers import tell_with_room
from octopi.roles.broker.relay.partition import RelayPartition
from octopi.roles.broker.relay.services import RelayContext
from octopi.roles.broker.relay.stream_log import StreamLog
from octopi.storage.time_slices import in_turns
from octopi.transport.services import Service
from octopi.transport.turns import another
from octopi.wire import messages as m

_STREAMS_PER_PAGE: Final = 500
_READINGS_TOLD: Final = 2_000


class RelayDescribeService(Service):
    """Lists streams and readings of the topics that the client may describe."""

    def __init__(self, context: RelayContext) -> None:
        super().__init__(
            {
                m.DescribeLogs: self._describe_streams,
                m.DescribeEvents: self._tell_no_events,
                m.CountMessages: lambda asked: self._tell_list(partial(self._counts_page, asked)),
                m.DescribeReadings: lambda asked: self._tell_list(
                    partial(self._readings_page, asked)
                ),
            }
        )
        self._serving = context.serving
        self._connection = context.connection
        self._tasks = context.tasks

    def _tell_list(self, tell: Callable[[], Awaitable[None]]) -> None:
        self._tasks.start_soon(tell_with_room, self._connection, tell)

    def _describe_streams(self, message: m.DescribeLogs) -> None:
        found, more = self._page(message)
        logs = [self._described(one) for one in found]
        self._connection.post(m.LogList(message.request, logs, more))

    def _page(self, message: m.DescribeLogs | m.CountMessages) -> tuple[list[StreamLog], bool]:
        """The streams to tell of, and whether there are more behind them."""
        serving, covers = self._serving, self._connection.grants.covers
        after = (message.after_topic, message.after_partition)
        found: list[tuple[TopicName, RelayPartition]] = []
        for name in sorted(map(TopicName, serving.links.topics)):
            partition = serving.partitions[serving.mesh.partition_of(name)]
            is_behind = (name, partition.relay_set.partition) > after
            if message.topic in {"", name} and is_behind and covers(name) and partition.member:
                found.append((name, partition))
        logs = [serving.log(*one) for one in found[:_STREAMS_PER_PAGE]]
        return logs, len(found) > _STREAMS_PER_PAGE

    def _described(self, log: StreamLog) -> m.LogInfo:
        return m.LogInfo(
            topic=log.topic,
            topic_id=log.topic_id,
            partition=log.partition,
            epoch=log.epoch,
            log_start=log.start,
            highwater=log.highwater,
            log_end=log.end,
            size_bytes=log.end - log.start,
            fault="" if log.epoch else "the relay is part of no epoch",
        )

    async def _counts_page(self, message: m.CountMessages) -> None:
        found, more = self._page(message)
        counts = [await in_turns(one.count(), another(self._connection.turn)) for one in found]
        self._connection.post(m.MessageCounts(message.request, counts, more))

    def _tell_no_events(self, message: m.DescribeEvents) -> None:
        """Relays of a static list keep no list of events."""
        self._connection.post(m.EventList(message.request, "", []))

    async def _readings_page(self, message: m.DescribeReadings) -> None:
        covers = self._connection.grants.covers
        work = self._serving.readers.describe(message.topic, _READINGS_TOLD + 1, covers)
        described = await in_turns(work, another(self._connection.turn))
        some, more = described[:_READINGS_TOLD], len(described) > _READINGS_TOLD
        self._connection.post(m.ReadingList(message.request, some, more))
