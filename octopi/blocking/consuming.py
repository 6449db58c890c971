"""Consumers and readers of stored records for blocking programs.

What arrives is carried to the program's thread a batch at a time.  The messages of a batch are
handed out there one by one, without a change of threads (`Consumer.next_at_hand`): only calls of
the program change what that uses, so the position and what counts as dealt with follow the program,
message by message.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from octopi.blocking.wrapping import BlockingWrapper, calling, opening
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


class BlockingConsumer(BlockingWrapper[Consumer]):
    """Reads messages; see `octopi.Consumer`, whose methods these are.  Made by
    `octopi.blocking.Client.consumer`; for one thread at a time."""

    __slots__ = ()

    @property
    def position(self) -> Position:
        """The position behind the last message (or batch) that was handed out."""
        return self._inner.position  # only the program's own calls change it

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

    def __iter__(self) -> BlockingConsumer:
        return self

    def __next__(self) -> Message:
        message = self._inner.next_at_hand()
        if message is None:
            message = self._thread.call(partial(_next, self._inner))
            if message is None:
                raise StopIteration
        return message

    def batches(self) -> Iterator[MessageBatch]:
        """The messages in batches, each of one partition, as they arrive.  This is the fastest
        way."""
        return _BlockingBatches(self)

    def next_batch(self) -> MessageBatch | None:
        """The next one of `batches`; None at the end."""
        return self._thread.call(self._inner.next_batch)


class BlockingMultiTopicConsumer(BlockingWrapper[MultiTopicConsumer]):
    """Reads messages of several topics; see `octopi.MultiTopicConsumer`, whose methods these are.
    Made by `octopi.blocking.Client.consumer`; for one thread at a time."""

    __slots__ = ()

    @property
    def topics(self) -> list[TopicName]:
        """The topics that are read now, in the order of their names."""
        return self._thread.ask(lambda: self._inner.topics)

    @property
    def positions(self) -> Positions:
        """For each topic that is read, the position behind the last message (or batch) that was
        handed out."""
        return self._thread.ask(lambda: self._inner.positions)

    @property
    def lag_bytes(self) -> int:
        """How far the positions are behind the newest highwater marks that brokers have sent."""
        return self._thread.ask(lambda: self._inner.lag_bytes)

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

    def __iter__(self) -> BlockingMultiTopicConsumer:
        return self

    def __next__(self) -> Message:
        message = self._inner.next_at_hand()
        if message is None:
            message = self._thread.call(partial(_next, self._inner))
            if message is None:
                raise StopIteration
        return message

    def batches(self) -> Iterator[MessageBatch]:
        """The messages in batches, each of one partition of one topic, as they arrive."""
        return _BlockingBatches(self)

    def next_batch(self) -> MessageBatch | None:
        """The next one of `batches`; None at the end."""
        return self._thread.call(self._inner.next_batch)


async def _next(consumer: Consumer | MultiTopicConsumer) -> Message | None:
    """The next message, with those that came together with it; None at the end."""
    return await anext(consumer, None)


class _BlockingBatches:
    """An iterator and not a generator, so a loop over it may end early without clean-up."""

    def __init__(self, consumer: BlockingConsumer | BlockingMultiTopicConsumer) -> None:
        self._consumer = consumer

    def __iter__(self) -> _BlockingBatches:
        return self

    def __next__(self) -> MessageBatch:
        batch = self._consumer.next_batch()
        if batch is None:
            raise StopIteration
        return batch


class BlockingRecordReader(BlockingWrapper[RecordReader]):
    """Hands out stored records; see `octopi.RecordReader`."""

    __slots__ = ()

    @property
    def gaps(self) -> list[HistoryLostError]:
        """The gaps that were skipped, oldest first."""
        return self._inner.gaps

    def chunks(self) -> list[Chunk]:
        """The records that arrived since the last call, at least one chunk; empty at the end."""
        return self._thread.call(self._inner.chunks)


class BlockingStoredRecords(BlockingWrapper[StoredRecords]):
    """A client's access to logs as encoded records; see `octopi.StoredRecords`."""

    __slots__ = ()

    find = calling(StoredRecords.find)
    read = opening(StoredRecords.read, BlockingRecordReader)
    append = calling(StoredRecords.append)
