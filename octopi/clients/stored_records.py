"""Access to encoded records, which are not decoded to messages.

This is for programs that handle logs by the megabyte and know the record format: they read and
append whole records, one behind the other, and check them themselves.  The appended records contain
producer id, epoch and sequences.  So a program that was killed can append the same records again,
and the broker recognises the duplicates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from octopi.clients.background import background_tasks
from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.consuming.consumer_session import Chunk, ConsumerSession
from octopi.clients.consuming.log_subscriber import LogSubscriber, SubscriberOptions
from octopi.clients.news import News
from octopi.errors import HistoryForkedError, HistoryLostError, OctopiError, RefusedError, Status
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.position import Place
from octopi.record import whole_records_end
from octopi.wire.messages import Fetch, Fetched, FoundOffset, Produce, Produced


class StoredRecords:
    """A client's access to logs as encoded records.  Made by `Client.stored_records`."""

    def __init__(self, cluster: ClusterHandle) -> None:
        self._cluster = cluster

    async def find(
        self, topic: TopicName, partition: PartitionId, at: str, value: int = 0
    ) -> FoundOffset:
        """The answer to `octopi.wire.client.FindOffset`.

        Raises:
          UnknownTopicError, RefusedError: UNKNOWN_PARTITION: if there is no such log.
        """
        return await self._cluster.router.find_offset(topic, partition, at, value)

    @asynccontextmanager
    async def read(
        self,
        topic: TopicName,
        topic_id: TopicId,
        partition: PartitionId,
        start: Place,
        end: Offset,
        *,
        window_bytes: int,
        skip_gaps: bool,
        generation: int = 0,
    ) -> AsyncIterator[RecordReader]:
        """Read the records from *start* to *end*, both of which are boundaries of records, while
        the block lasts.

        The records come from any in-sync replica, and from another one if that fails.  If the log
        has another history before *start* than the anchor of *start* says, the reader raises
        `HistoryForkedError`.  *window_bytes*: the size of the records held or on their way.
        *skip_gaps*: continue behind records that retention has removed.  *generation*: the newest
        one of the topic whose logs the caller reads; 0: only ever the first.
        """
        reader = RecordReader(start.offset)
        subscriber = LogSubscriber(
            self._cluster,
            ConsumerSession(topic, partition, topic_id, start, window_bytes, end=end),
            SubscriberOptions(
                reconnect_timeout_s=self._cluster.request_timeout_s,
                skip_gaps=skip_gaps,
                resume_forks=False,
            ),
            reader,
            generation,
        )
        async with background_tasks() as nursery:
            nursery.start_soon(subscriber.run)
            yield reader

    async def _check_place(
        self, topic: TopicName, partition: PartitionId, place: Place, *, generation: int = 0
    ) -> None:
        """Have the log's leader compare the anchor of *place* with the log.  *generation*: see
        `read`.

        Raises:
          HistoryForkedError: if the log has another history there; its `offset` is the last one up
              to which both agree.
          OffsetOutOfRangeError: if the log doesn't have that place any more, or not yet.
        """
        await self._cluster.router.ask_leader(
            f"look at {topic}/{partition}",
            topic,
            partition,
            lambda request: Fetch(
                request, topic, partition, place.offset, 1, 0, place.anchor, generation
            ),
            Fetched,
            follows_generations=bool(generation),
        )

    async def append(self, topic: TopicName, partition: PartitionId, records: bytes) -> None:
        """Append *records* to the log, unless it has them already, from this client or another.

        The records are of version 2, of one producer, with consecutive sequences.  To repeat this
        is harmless while that producer has begun no newer epoch.

        Raises:
          UnknownTopicError, RefusedError: UNKNOWN_PARTITION: if there is no such log;
              PRODUCER_FENCED: if a newer epoch of the producer has begun; SEQUENCE_GAP or
              UNKNOWN_PRODUCER: if records before them are missing.
          ConnectionLostError, UnreachableError: if there was no answer in time; repeat it.
        """
        try:
            await self._cluster.router.ask_leader(
                f"append to {topic}/{partition}",
                topic,
                partition,
                lambda request: Produce(request, topic, partition, records),
                Produced,
            )
        except RefusedError as error:
            if error.status is Status.RECEIPT_FORGOTTEN:
                return  # they are stored; their offset isn't needed here
            middle = _middle(records)
            if error.status is not Status.SEQUENCE_GAP or not middle:
                raise
            # After a change of the leader the log may have only the first of these records.  Then
            # the whole is neither a duplicate nor new, so append its halves.
            await self.append(topic, partition, records[:middle])
            await self.append(topic, partition, records[middle:])


class RecordReader:
    """Hands out the records that a `LogSubscriber` reads."""

    def __init__(self, start: Offset) -> None:
        self._dealt = self._handed = start
        """The offsets behind the records of earlier calls of `chunks`, and of the last one."""
        self._ready: deque[tuple[LogSubscriber, Chunk]] = deque()
        self.news: News = News()
        """Told when there may be something for `chunks_nowait`."""
        self._error: OctopiError | None = None
        self._is_finished = False
        self.gaps: list[HistoryLostError] = []
        """The gaps that were skipped, oldest first."""

    async def chunks(self) -> list[Chunk]:
        """The records that arrived since the last call, at least one chunk; empty at the end.

        Raises:
          OctopiError: the reason why the rest can't be read, once everything before it was
              returned.
        """
        self._dealt = self._handed
        await trio.lowlevel.checkpoint()
        return await self.news.taken(self.chunks_nowait)

    def chunks_nowait(self) -> list[Chunk]:
        """`chunks` from synchronous code.

        Raises:
          trio.WouldBlock: if it would wait.
          Also the errors of `chunks`.
        """
        self._dealt = self._handed
        if not self._ready:
            if self._error is not None:
                raise self._error
            if not self._is_finished:
                raise trio.WouldBlock
        taken = list(self._ready)
        self._ready.clear()
        for subscriber, chunk in taken:
            subscriber.took(chunk)
            self._handed = Offset(chunk.offset + len(chunk.records))
        return [chunk for _, chunk in taken]

    def take_chunk(self, subscriber: LogSubscriber, chunk: Chunk) -> None:
        """Records arrived."""
        self._ready.append((subscriber, chunk))
        self.news.tell()

    def dealt(self, subscriber: LogSubscriber) -> Offset:
        """See `octopi.clients.consuming.log_subscriber.SubscriberListener`."""
        return self._dealt

    def take_gap(self, gap: HistoryLostError) -> None:
        """Records were skipped that retention had removed."""
        self.gaps.append(gap)

    def take_fork(self, session: ConsumerSession, fork: HistoryForkedError) -> None:
        """Never called: this reader doesn't resume after a fork."""

    def take_end(self, subscriber: LogSubscriber, why: OctopiError | None) -> None:
        """Everything arrived; or the rest can't be read, because of *why*."""
        self._error = why
        self._is_finished = True
        self.news.tell()


def _middle(records: bytes) -> int:
    """The boundary of a record near the middle of *records*; 0 if they are only one."""
    middle = whole_records_end(records, len(records) // 2)
    return middle if middle < len(records) else 0
