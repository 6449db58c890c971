"""Producers and receipts for blocking programs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import datetime
from functools import partial, wraps
from types import TracebackType
from typing import Concatenate, Final, ParamSpec, TypeVar

import trio

from octopi.blocking.blocks import BlockingBlock
from octopi.blocking.direct_sender import DirectSender
from octopi.blocking.submit_queue import Submission, SubmitQueue
from octopi.blocking.trio_thread import TrioThread
from octopi.blocking.wrapping import BlockingWrapper
from octopi.clients.background import background_tasks
from octopi.clients.client import Client
from octopi.clients.leader_lookup import generation_of
from octopi.clients.producing.arguments import (
    as_bytes,
    check_one_log,
    condition_of,
    milliseconds,
)
from octopi.clients.producing.partitioner import StickyPartitioner, place_for_key
from octopi.clients.producing.producer import Producer
from octopi.clients.producing.receipts import Receipt
from octopi.clients.producing.topic_route import check_partition
from octopi.identifiers import PartitionId, TopicName
from octopi.limits import CLIENT_BATCH_BYTES, KIB
from octopi.record import NO_HEADERS, BatchBuilder
from octopi.wire.messages import TopicInfo

_P = ParamSpec("_P")
_T = TypeVar("_T")

_SMALL_BYTES: Final = 64 * KIB
"""A message without headers that is smaller fits the record format."""


class BlockingPendingReceipt:
    """A message that was submitted.  `receipt` waits for its `Receipt`, any number of times; see
    `octopi.PendingReceipt`."""

    __slots__ = ("_queue", "_submission", "_thread")

    def __init__(self, thread: TrioThread, queue: SubmitQueue, submission: Submission) -> None:
        self._thread = thread
        self._queue = queue
        self._submission = submission

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known, so that `receipt` doesn't wait."""
        pending = self._submission.pending
        return self._submission.error is not None or (pending is not None and pending.is_settled)

    def receipt(self) -> Receipt:
        """Wait until the outcome is known, and return the receipt.

        Raises:
          NotDeliveredError: the message is certainly not stored.
          OutcomeUnknownError: it may or may not be stored.
          Also the errors of `octopi.Producer.submit`.
        """
        return self._thread.call(self._receipt)

    async def _receipt(self) -> Receipt:
        submission = self._submission
        await self._queue.taken(submission)
        if submission.pending is not None:
            return await submission.pending.receipt()
        assert submission.error is not None, "it was taken, or not"
        submission.is_error_told = True
        raise submission.error


class _DirectTopic:
    """How messages of one topic are spread, as long as its partitions stay."""

    def __init__(self, info: TopicInfo, first: int) -> None:
        self.info = info
        self.generation: Final = generation_of(info)
        self.partitions: Final = [one.partition for one in info.partitions]
        self._partitioner = StickyPartitioner(len(self.partitions), first)
        self._left_bytes = CLIENT_BATCH_BYTES
        """Until messages without a key go to another partition."""

    def partition_for(self, key: bytes | None, size_bytes: int) -> PartitionId:
        """The partition of the next message."""
        if key is not None:
            return PartitionId(self.partitions[place_for_key(key, len(self.partitions))])
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            self._left_bytes = CLIENT_BATCH_BYTES
            self._partitioner.move_on()
        return PartitionId(self.partitions[self._partitioner.place])


class BlockingProducer(BlockingWrapper[Producer]):
    """Sends messages; see `octopi.Producer`, whose methods these are.  Made by
    `octopi.blocking.Client.producer`; use it from any number of threads.

    Messages that one thread submits to one log are stored in the order of submission, each once.
    """

    __slots__ = ("_direct", "_queue", "_topics")

    def __init__(
        self, thread: TrioThread, inner: Producer, direct: DirectSender, queue: SubmitQueue
    ) -> None:
        super().__init__(thread, inner)
        self._direct = direct
        self._queue = queue
        self._topics: dict[str, _DirectTopic] = {}

    @property
    def acknowledged_count(self) -> int:
        """The number of messages that are known to be committed."""
        return self._inner.acknowledged_count + self._direct.acknowledged_count

    def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
        expected_end: int | None = None,
    ) -> Receipt:
        """Send a message and wait until it is committed; see `octopi.Producer.send`.

        One thread that sends message by message does so on a connection of its own, without a
        change of threads, unless the producer has a name, or the message an *expected_end*.

        If it is interrupted while it waits for the receipt (by Ctrl-C or a `timeout`), the message
        stays queued and will be delivered; if that fails, `flush` (or the end of the producer's
        block) reports it.
        """
        self._thread.check()
        inner = self._inner
        is_quiet = self._queue.is_empty and self._direct.is_ready and inner.is_idle
        if is_quiet and not inner.is_named and expected_end is None:
            receipt = self._send_directly(topic, value, key, headers, timestamp, partition)
            if receipt is not None:
                return receipt
        send = partial(
            inner.send,
            topic,
            value,
            key=key,
            headers=headers,
            timestamp=timestamp,
            partition=partition,
            expected_end=expected_end,
        )
        return self._thread.call(partial(self._after_queue, send))

    def submit(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
        expected_end: int | None = None,
    ) -> BlockingPendingReceipt:
        """Queue a message.  Call `receipt` of the returned object, if you need it; see
        `octopi.Producer.submit`."""
        self._thread.check()
        if self._inner.description(topic) is None:
            self._thread.call(partial(self._inner.prepare, topic))
        submission = self._submission(topic, value, key, headers, timestamp, partition)
        if expected_end is not None:
            condition_of(expected_end)
            if (info := self._inner.description(topic)) is not None:
                check_one_log(info, submission.key, partition)
            submission.expected_end = expected_end
        self._queue.put(submission)
        return BlockingPendingReceipt(self._thread, self._queue, submission)

    def submit_nowait(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
        expected_end: int | None = None,
    ) -> BlockingPendingReceipt:
        """`submit` without waiting; see `octopi.Producer.submit_nowait`.

        Raises:
          trio.WouldBlock: if `submit` would wait; the message was not taken.
        """
        if self._inner.description(topic) is None or self._queue.is_full:
            self._inner.check_open()
            raise trio.WouldBlock
        return self.submit(
            topic,
            value,
            key=key,
            headers=headers,
            timestamp=timestamp,
            partition=partition,
            expected_end=expected_end,
        )

    def submit_many(
        self,
        topic: str,
        values: list[bytes],
        *,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> None:
        """Queue many messages without keys, all with the same headers and time stamp; see
        `octopi.Producer.submit_many`."""
        submit = partial(self._inner.submit_many, topic, values, headers=headers)
        self._thread.call(
            partial(self._after_queue, partial(submit, timestamp=timestamp, partition=partition))
        )

    def flush(self) -> None:
        """Send all queued messages without lingering, and wait until every message that was
        submitted before has its outcome; see `octopi.Producer.flush`."""
        self._direct.wait_for_senders()
        self._thread.call(partial(self._after_queue, self._inner.flush))
        self._queue.report()

    def wait_for_senders(self) -> None:
        """Wait until what other threads send just now is committed, or queued."""
        self._direct.wait_for_senders()

    # --- within ------------------------------------------------------------------------

    async def _after_queue(self, act: Callable[[], Awaitable[_T]]) -> _T:
        """In the thread of Trio: do *act* when the messages before are with the producer."""
        if not self._queue.is_empty or not self._inner.lent.is_settled:
            await self._queue.drained()
        return await act()

    def _submission(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        timestamp: datetime | None,
        partition: int | None,
    ) -> Submission:
        """A message that the producer will take: its faults are raised here."""
        inner = self._inner
        inner.check_open()
        value = value if type(value) is bytes else as_bytes("value", value)
        key = key if key is None or type(key) is bytes else as_bytes("key", key)
        headers = dict(headers) if headers else None  # the program may change its own meanwhile
        timestamp_ms = 0 if timestamp is None else milliseconds(timestamp)
        if headers or len(value) + len(key or b"") > _SMALL_BYTES or timestamp_ms:
            BatchBuilder().add(value, key, headers or NO_HEADERS, timestamp_ms)
        info = inner.description(topic)
        if partition is not None and info is not None:
            check_partition(info, partition)
        return Submission(topic, value, key, headers, timestamp, partition)

    def _send_directly(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        timestamp: datetime | None,
        partition: int | None,
    ) -> Receipt | None:
        """`send` on a connection of its own; None: that isn't possible now, and the message was not
        taken."""
        inner = self._inner
        info = inner.description(topic)
        if info is None:
            self._thread.call(partial(inner.prepare, topic))
            info = inner.description(topic)
            if info is None:
                return None
        way = self._topics.get(topic)
        if way is None or way.info is not info:
            way = self._topics[topic] = _DirectTopic(info, inner.first_place(info))
        if type(value) is not bytes:
            value = as_bytes("value", value)
        if key is not None and type(key) is not bytes:
            key = as_bytes("key", key)
        if partition is None:
            log = way.partition_for(key, len(value))
        elif partition in way.partitions:
            log = PartitionId(partition)
        else:
            return None
        timestamp_ms = inner.wall_ms() if timestamp is None else milliseconds(timestamp)
        return self._direct.send(
            TopicName(topic),
            log,
            value,
            key,
            headers or NO_HEADERS,
            timestamp_ms,
            generation=way.generation,
            pinned=partition is not None,
        )


def producing(
    method: Callable[Concatenate[Client, _P], AbstractAsyncContextManager[Producer]],
) -> Callable[Concatenate[BlockingWrapper[Client], _P], AbstractContextManager[BlockingProducer]]:
    """`octopi.Client.producer`, for blocking programs."""

    @wraps(method)
    def call(
        self: BlockingWrapper[Client], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> AbstractContextManager[BlockingProducer]:
        block = partial(method, self._inner, *args, **kwargs)
        return _ProducerBlock(self._thread, lambda: _opened(self._thread, block()))

    return call


@asynccontextmanager
async def _opened(
    thread: TrioThread, block: AbstractAsyncContextManager[Producer]
) -> AsyncIterator[BlockingProducer]:
    async with block as inner, background_tasks() as nursery:
        direct, queue = DirectSender(thread, inner.lent), SubmitQueue(thread, inner)
        nursery.start_soon(direct.keep_alive)
        nursery.start_soon(queue.run)
        try:
            yield BlockingProducer(thread, inner, direct, queue)
            await queue.drained()
            queue.report()
        finally:
            direct.close()
            queue.close()


class _ProducerBlock(BlockingBlock[BlockingProducer, BlockingProducer]):
    """The block of a producer."""

    def __init__(
        self,
        thread: TrioThread,
        open_block: Callable[[], AbstractAsyncContextManager[BlockingProducer]],
    ) -> None:
        super().__init__(thread, open_block, lambda _, producer: producer)

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None and self._thread.is_usable:
            try:
                self._given[0].wait_for_senders()
            except BaseException as interruption:
                super().__exit__(type(interruption), interruption, interruption.__traceback__)
                raise
        return super().__exit__(cls, error, traceback)
