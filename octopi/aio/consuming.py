"""Consumers and readers of stored records for asyncio programs."""

from __future__ import annotations

from collections.abc import AsyncIterator

from octopi.aio.wrapping import Wrapper, calling, opening
from octopi.clients.consuming.consumer import Consumer
from octopi.clients.consuming.consumer_session import Chunk
from octopi.clients.consuming.message_batch import MessageBatch
from octopi.clients.consuming.multi_topic_consumer import LeftTopic, MultiTopicConsumer
from octopi.clients.consuming.positions import Positions
from octopi.clients.stored_records import RecordReader, StoredRecords
from octopi.errors import HistoryForkedError, HistoryLostError
from octopi.identifiers import TopicName
from octopi.position import Position
from octopi.record import Message


class AsyncioConsumer(Wrapper[Consumer]):
    """Reads messages; see `octopi.Consumer`, whose methods these are.  Made by
    `octopi.aio.Client.consumer`; for one task at a time."""

    __slots__ = ()

    @property
    def position(self) -> Position:
        """The position behind the last message (or batch) that was handed out."""
        return self._inner.position

    @property
    def lag_bytes(self) -> int:
        """How far the position is behind the newest highwater marks that brokers have sent."""
        return self._inner.lag_bytes

    @property
    def gaps(self) -> list[HistoryLostError]:
        """The gaps that were skipped with ``on_gap="skip"``, oldest first."""
        return self._inner.gaps

    @property
    def forks(self) -> list[HistoryForkedError]:
        """The forks behind which reading was resumed, oldest first."""
        return self._inner.forks

    def __aiter__(self) -> AsyncioConsumer:
        return self

    async def __anext__(self) -> Message:
        message = self._inner.next_at_hand()
        if message is None:
            message = await self._run.taken(self._inner.next_nowait, self._inner.news)
            if message is None:
                raise StopAsyncIteration
        return message

    def batches(self) -> AsyncIterator[MessageBatch]:
        """The messages in batches, each of one partition, as they arrive.  This is the fastest
        way."""
        return _AsyncioBatches(self)

    async def next_batch(self) -> MessageBatch | None:
        """The next one of `batches`; None at the end."""
        return await self._run.taken(self._inner.next_batch_nowait, self._inner.news)


class AsyncioMultiTopicConsumer(Wrapper[MultiTopicConsumer]):
    """Reads messages of several topics; see `octopi.MultiTopicConsumer`, whose methods these are.
    Made by `octopi.aio.Client.consumer`; for one task at a time."""

    __slots__ = ()

    @property
    def topics(self) -> list[TopicName]:
        """The topics that are read now, in the order of their names."""
        return self._inner.topics

    @property
    def positions(self) -> Positions:
        """For each topic that is read, the position behind the last message (or batch) that was
        handed out."""
        return self._inner.positions

    @property
    def lag_bytes(self) -> int:
        """How far the positions are behind the newest highwater marks that brokers have sent."""
        return self._inner.lag_bytes

    @property
    def gaps(self) -> list[HistoryLostError]:
        """The gaps that were skipped with ``on_gap="skip"``, oldest first."""
        return self._inner.gaps

    @property
    def forks(self) -> list[HistoryForkedError]:
        """The forks behind which reading was resumed, oldest first."""
        return self._inner.forks

    @property
    def left(self) -> list[LeftTopic]:
        """The topics that matched a pattern and were left, oldest first."""
        return self._inner.left

    def __aiter__(self) -> AsyncioMultiTopicConsumer:
        return self

    async def __anext__(self) -> Message:
        message = self._inner.next_at_hand()
        if message is None:
            message = await self._run.taken(self._inner.next_nowait, self._inner.news)
            if message is None:
                raise StopAsyncIteration
        return message

    def batches(self) -> AsyncIterator[MessageBatch]:
        """The messages in batches, each of one partition of one topic, as they arrive."""
        return _AsyncioBatches(self)

    async def next_batch(self) -> MessageBatch | None:
        """The next one of `batches`; None at the end."""
        return await self._run.taken(self._inner.next_batch_nowait, self._inner.news)


class _AsyncioBatches:
    """An iterator and not a generator, so a loop over it may end early without clean-up."""

    def __init__(self, consumer: AsyncioConsumer | AsyncioMultiTopicConsumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> _AsyncioBatches:
        return self

    async def __anext__(self) -> MessageBatch:
        batch = await self._consumer.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch


class AsyncioRecordReader(Wrapper[RecordReader]):
    """Hands out stored records; see `octopi.RecordReader`."""

    __slots__ = ()

    @property
    def gaps(self) -> list[HistoryLostError]:
        """The gaps that were skipped, oldest first."""
        return self._inner.gaps

    async def chunks(self) -> list[Chunk]:
        """The records that arrived since the last call, at least one chunk; empty at the end."""
        return await self._run.taken(self._inner.chunks_nowait, self._inner.news)


class AsyncioStoredRecords(Wrapper[StoredRecords]):
    """A client's access to logs as encoded records; see `octopi.StoredRecords`."""

    __slots__ = ()

    find = calling(StoredRecords.find)
    read = opening(StoredRecords.read, AsyncioRecordReader)
    append = calling(StoredRecords.append)
