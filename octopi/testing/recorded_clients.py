"""Clients that record their operations and results in a history, for the checker.

The values in a history must differ from each other, but programs may send a value twice.  So each
value gets a tag in front of it before it is sent, which is removed before a consumer returns it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import attrs
import trio

from octopi.clients.answers import FetchResult
from octopi.clients.client import Client
from octopi.clients.consuming.consumer import Consumer
from octopi.clients.consuming.message_batch import MessageBatch
from octopi.clients.consuming.multi_topic_consumer import MultiTopicConsumer
from octopi.clients.producing.producer import Producer
from octopi.clients.producing.receipts import PendingReceipt, Receipt
from octopi.errors import NotDeliveredError, OctopiError
from octopi.identifiers import Offset, PartitionId
from octopi.record import NO_HEADERS, Message
from octopi.simulation.history.events import (
    Assigned,
    Delivered,
    FinalLog,
    History,
    Invoked,
    LogName,
    ReachedEnd,
    StartMoved,
    StoredMessage,
    TopicCreation,
    TopicRemoval,
    unique_value,
)
from octopi.simulation.history.outcomes import outcome_of
from octopi.wire.messages import TopicInfo

_TAG: Final = re.compile(rb"[^|]*-\d+\|")


class HistoryRecorder:
    """Records the operations and results of clients in *history*; *now* returns the time."""

    def __init__(self, history: History, now: Callable[[], float]) -> None:
        self.history = history
        self.now = now
        self._tasks: dict[tuple[str, trio.lowlevel.Task], str] = {}
        self._sent_count = 0
        self._name_count = 0

    def name(self, host: str) -> str:
        """An unused name for a producer or consumer of *host*."""
        self._name_count += 1
        return f"{host}.{self._name_count}"

    def sender(self, producer: str) -> str:
        """The name for a task that uses *producer* to send one message after another."""
        key = producer, trio.lowlevel.current_task()
        if key not in self._tasks:
            count = sum(name == producer for name, _ in self._tasks)
            self._tasks[key] = f"{producer}.{count + 1}" if count else producer
        return self._tasks[key]

    def invoked(
        self,
        producer: str,
        topic: str,
        value: bytes,
        partition: int | None,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
    ) -> bytes:
        """Note that *value* is about to be sent; return it with its tag."""
        sender = self.sender(producer)
        self._sent_count += 1
        tagged = unique_value(sender, self._sent_count) + value
        chosen = None if partition is None else PartitionId(partition)
        event = Invoked(self.now(), sender, topic, chosen, tagged, key, headers or NO_HEADERS)
        self.history.note(event)
        return tagged

    def settled(self, tagged: bytes, outcome: Receipt | OctopiError) -> None:
        """Note the outcome of a message."""
        self.history.note(outcome_of(self.now(), tagged, outcome))

    def delivered(self, consumer: str, message: Message) -> Message:
        """Note that *consumer* gets *message*; return it without the tag of its value."""
        log = LogName(message.topic, message.partition)
        self.history.note(
            Delivered(
                self.now(),
                consumer,
                log,
                message.offset,
                message.next_offset,
                message.value,
                message.key,
                message.headers,
            )
        )
        return untagged(message)

    def note_final(self, log: LogName, messages: list[Message]) -> None:
        """Note the final messages of *log*."""
        if messages and messages[0].offset:
            self.history.note(StartMoved(self.now(), log, messages[0].offset))
        stored = tuple(
            StoredMessage(one.offset, one.next_offset, one.value, one.key, one.headers)
            for one in messages
        )
        self.history.note(FinalLog(self.now(), log, stored))


def untagged(message: Message) -> Message:
    """*message* as it was sent."""
    tag = _TAG.match(message.value)
    return message if tag is None else message._replace(value=message.value[tag.end() :])


@asynccontextmanager
async def recorded(
    opened: AbstractAsyncContextManager[Client], host: str, scribe: HistoryRecorder
) -> AsyncIterator[Client]:
    """The client that *opened* opens on *host*, recorded."""
    async with opened as client:
        yield RecordedClient(client, host, scribe)


class RecordedClient(Client):
    """Makes producers and consumers that are recorded."""

    def __init__(self, client: Client, host: str, scribe: HistoryRecorder) -> None:
        vars(self).update(vars(client))  # the attributes of a client never change
        self._client = client
        self._host = host
        self._scribe = scribe

    async def create_topic(self, name: str, *args: Any, **options: Any) -> TopicInfo:  # noqa: ANN401
        info = await self._client.create_topic(name, *args, **options)
        self._scribe.history.note(TopicCreation(self._scribe.now(), name))
        return info

    async def delete_topic(self, name: str) -> None:
        self._scribe.history.note(TopicRemoval(self._scribe.now(), name))
        await self._client.delete_topic(name)

    async def fetch(self, *args: Any, **options: Any) -> FetchResult:  # noqa: ANN401
        found = await self._client.fetch(*args, **options)
        return attrs.evolve(found, messages=[untagged(one) for one in found.messages])

    @asynccontextmanager
    async def producer(self, **options: Any) -> AsyncIterator[Producer]:  # noqa: ANN401
        async with self._client.producer(**options) as producer:
            recorded = RecordedProducer(producer, self._scribe.name(self._host), self._scribe)
            yield recorded
            await recorded.flush()

    def consumer(self, topic: Any, **options: Any) -> AbstractAsyncContextManager[Any]:  # noqa: ANN401
        if isinstance(topic, str):
            return self._consumer(topic, **options)
        return self._multi_topic_consumer(topic, **options)

    @asynccontextmanager
    async def _consumer(self, topic: str, **options: Any) -> AsyncIterator[Consumer]:  # noqa: ANN401
        began = self._scribe.now()
        async with self._client.consumer(topic, **options) as consumer:
            yield RecordedConsumer(consumer, self._scribe.name(self._host), self._scribe, began)

    @asynccontextmanager
    async def _multi_topic_consumer(
        self,
        topics: list[str],
        **options: Any,  # noqa: ANN401
    ) -> AsyncIterator[MultiTopicConsumer]:
        async with self._client.consumer(topics, **options) as consumer:
            yield UntaggedTopics(consumer)


class RecordedProducer(Producer):
    """Delegates to *producer*, and records its operations."""

    def __init__(self, producer: Producer, name: str, scribe: HistoryRecorder) -> None:
        self._producer = producer
        self._name = name
        self._scribe = scribe
        self._open: dict[RecordedReceipt, None] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._producer, name)

    async def send(self, topic: str, value: bytes, **options: Any) -> Receipt:  # noqa: ANN401
        tagged = self._invoked(topic, value, options)
        try:
            receipt = await self._producer.send(topic, tagged, **options)
        except OctopiError as error:
            self._scribe.settled(tagged, error)
            raise
        self._scribe.settled(tagged, receipt)
        return receipt

    async def submit(self, topic: str, value: bytes, **options: Any) -> PendingReceipt:  # noqa: ANN401
        tagged = self._invoked(topic, value, options)
        try:
            pending = await self._producer.submit(topic, tagged, **options)
        except OctopiError as error:
            self._scribe.settled(tagged, error)
            raise
        return self._opened(pending, tagged)

    def submit_nowait(self, topic: str, value: bytes, **options: Any) -> PendingReceipt:  # noqa: ANN401
        tagged = self._invoked(topic, value, options)
        try:
            pending = self._producer.submit_nowait(topic, tagged, **options)
        except (OctopiError, trio.WouldBlock) as error:
            self._scribe.settled(tagged, NotDeliveredError(str(error)))
            raise
        return self._opened(pending, tagged)

    async def flush(self) -> None:
        await self._producer.flush()
        for pending in list(self._open):
            await pending.receipt()

    def close(self) -> None:
        self._producer.close()

    def _invoked(self, topic: str, value: bytes, options: dict[str, Any]) -> bytes:
        names = ("partition", "key", "headers")
        return self._scribe.invoked(self._name, topic, value, *map(options.get, names))

    def _opened(self, pending: PendingReceipt, tagged: bytes) -> PendingReceipt:
        receipt = RecordedReceipt(
            pending, lambda: self._open.pop(receipt, None), self._scribe, tagged
        )
        self._open[receipt] = None
        return receipt


class RecordedReceipt(PendingReceipt):
    """Delegates to *pending*, and records the outcome."""

    __slots__ = ("_closed", "_is_noted", "_pending", "_scribe", "_tagged")

    def __init__(
        self,
        pending: PendingReceipt,
        closed: Callable[[], object],
        scribe: HistoryRecorder,
        tagged: bytes,
    ) -> None:
        self._pending = pending
        self._closed = closed
        self._scribe = scribe
        self._tagged = tagged
        self._is_noted = False

    @property
    def is_settled(self) -> bool:
        return self._pending.is_settled

    async def receipt(self) -> Receipt:
        try:
            receipt = await self._pending.receipt()
        except OctopiError as error:
            self._note(error)
            raise
        self._note(receipt)
        return receipt

    def _note(self, outcome: Receipt | OctopiError) -> None:
        if not self._is_noted:
            self._is_noted = True
            self._closed()
            self._scribe.settled(self._tagged, outcome)


class RecordedConsumer(Consumer):
    """Delegates to *consumer*, and records its operations."""

    def __init__(
        self, consumer: Consumer, name: str, scribe: HistoryRecorder, began: float
    ) -> None:
        self._consumer = consumer
        self._name = name
        self._scribe = scribe
        self._began = began
        self._gap_count = 0
        for log, offset in self._offsets_of():
            self._assigned(log, offset)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._consumer, name)

    async def __anext__(self) -> Message:
        try:
            message = await self._consumer.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise
        self._note_gaps()
        return self._scribe.delivered(self._name, message)

    async def next_batch(self) -> MessageBatch | None:
        batch = await self._consumer.next_batch()
        if batch is None:
            self._ended()
            return None
        self._note_gaps()
        return batch.rest([self._scribe.delivered(self._name, message) for message in batch])

    def close(self) -> None:
        self._consumer.close()

    def _offsets_of(self) -> list[tuple[LogName, int]]:
        position = self._consumer.position
        return [(LogName(position.topic, one), end) for one, end in position.offsets.items()]

    def _assigned(self, log: LogName, offset: int) -> None:
        self._scribe.history.note(Assigned(self._scribe.now(), self._name, log, Offset(offset)))

    def _note_gaps(self) -> None:
        for gap in self._consumer.gaps[self._gap_count :]:
            self._assigned(LogName(gap.topic, PartitionId(gap.partition)), gap.available_from)
        self._gap_count = len(self._consumer.gaps)

    def _ended(self) -> None:
        for log, offset in self._offsets_of():
            now = self._scribe.now()
            self._scribe.history.note(ReachedEnd(now, self._name, log, Offset(offset), self._began))


class UntaggedTopics(MultiTopicConsumer):
    """Delegates to *consumer*, and removes the tags of values.  What it hands out is not recorded:
    the history of a consumer is that of logs that are known when it begins."""

    def __init__(self, consumer: MultiTopicConsumer) -> None:
        self._consumer = consumer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._consumer, name)

    async def __anext__(self) -> Message:
        return untagged(await self._consumer.__anext__())

    async def next_batch(self) -> MessageBatch | None:
        batch = await self._consumer.next_batch()
        return None if batch is None else batch.rest([untagged(one) for one in batch])

    def close(self) -> None:
        self._consumer.close()
