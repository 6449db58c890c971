"""Records as they are stored, without making messages of them.

For programs that handle logs by the megabyte and know the record format: they read and
append whole records, one behind the other, and check them themselves.  Who appends says in
the records who it is (producer id, epoch and sequences), so that a program that was killed can
do the same again and have the broker recognise it.
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
from octopi.errors import HistoryForkedError, HistoryLostError, OctopiError, RefusedError, Status
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.position import Place
from octopi.record import whole_records_end
from octopi.wire.messages import FoundOffset, Produce, Produced


class StoredRecords:
    """A client's access to logs in their stored form.  Made by `Client.stored_records`."""

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
    ) -> AsyncIterator[RecordReader]:
        """The records from *start* to *end*, both of them boundaries, while the block lasts.

        They come from any replica in sync, and from another one when that fails; if the log has
        something else before *start* than was read there, `HistoryForkedError` comes instead.
        *window_bytes*: held or on their way.  *skip_gaps*: go on behind what retention removed.
        """
        reader = RecordReader()
        subscriber = LogSubscriber(
            self._cluster,
            ConsumerSession(topic, partition, topic_id, start, window_bytes, end=end),
            SubscriberOptions(
                reconnect_timeout_s=self._cluster.request_timeout_s,
                skip_gaps=skip_gaps,
                resume_forks=False,
            ),
            reader,
        )
        async with background_tasks() as nursery:
            nursery.start_soon(subscriber.run)
            yield reader

    async def append(self, topic: TopicName, partition: PartitionId, records: bytes) -> None:
        """Have *records* in the log once, whichever client appended them and however often.

        They are of version 2, of one producer, with consecutive sequences.  To do it again is
        harmless as long as that producer begins no newer epoch.

        Raises:
          UnknownTopicError, RefusedError: UNKNOWN_PARTITION: if there is no such log;
              PRODUCER_FENCED: if a newer epoch of the producer has begun; SEQUENCE_GAP or
              UNKNOWN_PRODUCER: if records before them are missing.
          ConnectionLostError, UnreachableError: in time there was no answer; do it again.
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
                return  # they are stored, and nobody here asks where
            middle = _middle(records)
            if error.status is not Status.SEQUENCE_GAP or not middle:
                raise
            # A leader that died may have left the first of them to the next one, which takes
            # the whole neither for stored nor for new.
            await self.append(topic, partition, records[:middle])
            await self.append(topic, partition, records[middle:])


class RecordReader:
    """Hands out what a `LogSubscriber` reads."""

    def __init__(self) -> None:
        self._ready: deque[tuple[LogSubscriber, Chunk]] = deque()
        self._arrived = trio.lowlevel.ParkingLot()
        self._error: OctopiError | None = None
        self._is_finished = False
        self.gaps: list[HistoryLostError] = []
        """What was skipped, oldest first."""

    async def chunks(self) -> list[Chunk]:
        """What has arrived since, at least something; nothing at the end.

        Raises:
          OctopiError: why the rest can't be read, after everything before it.
        """
        await trio.lowlevel.checkpoint()
        while not self._ready and self._error is None and not self._is_finished:
            await self._arrived.park()
        if not self._ready and self._error is not None:
            raise self._error
        taken = list(self._ready)
        self._ready.clear()
        for subscriber, chunk in taken:
            subscriber.took(chunk)
        return [chunk for _, chunk in taken]

    def take_chunk(self, subscriber: LogSubscriber, chunk: Chunk) -> None:
        """Records arrived."""
        self._ready.append((subscriber, chunk))
        self._arrived.unpark_all()

    def take_gap(self, gap: HistoryLostError) -> None:
        """Some were skipped."""
        self.gaps.append(gap)

    def take_fork(self, session: ConsumerSession, fork: HistoryForkedError) -> None:
        """Never called: this reader doesn't resume after a fork."""

    def take_end(self, why: OctopiError | None) -> None:
        """Everything arrived, or *why* not."""
        self._error = why
        self._is_finished = True
        self._arrived.unpark_all()


def _middle(records: bytes) -> int:
    """A boundary about in the middle; 0 if there is only one record."""
    middle = whole_records_end(records, len(records) // 2)
    return middle if middle < len(records) else 0
