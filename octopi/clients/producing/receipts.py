"""The receipts of a producer: a receipt for a committed message, and a pending one before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol, cast

import trio

from octopi.clients.news import News
from octopi.clients.producing.batches import Batch, BatchLog, Stored
from octopi.errors import DeliveryError
from octopi.identifiers import Epoch, Offset, PartitionId, TimestampMs, TopicName
from octopi.relay.message_ids import MessageId, id_behind

_UNIX_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Receipt(NamedTuple):
    """Says that a message is committed: consumers get it, and it isn't lost while the failures stay
    within those that the topic's replication tolerates."""

    topic: TopicName
    partition: PartitionId
    offset: Offset
    """Where its record starts: the message's id in its log."""
    next_offset: Offset
    """Where its record ends."""
    epoch: Epoch
    """The epoch of the leader that appended it."""
    timestamp_ms: TimestampMs
    duplicate: bool
    """Whether the broker had it from an earlier attempt.  It is stored once in any case."""
    id: bytes | None = None
    """In a topic in memory: its id, 16 bytes that sort by time.  None: it is in a log topic, or a
    repetition of which the first time is forgotten."""
    digest: bytes | None = None
    """In a topic in memory: a SHA-256 of all that lies before the end of its transaction, which are
    the messages that were sent together with it.  None as well."""

    @property
    def timestamp(self) -> datetime:
        """`timestamp_ms` as an aware datetime in UTC."""
        return _UNIX_ZERO + timedelta(milliseconds=self.timestamp_ms)


class SettlingLog(BatchLog, Protocol):
    """The interface of a log's sender for pending receipts."""

    def settling(self, batch: Batch) -> News | None:
        """What is told when *batch* has its outcome, or its messages were moved; None: it has."""

    @property
    def saw_failure(self) -> Callable[[Batch], None]:
        """To be called once for each message of a failed batch whose receipt was awaited."""


class PendingReceipt:
    """A message that was submitted.  Await it for its `Receipt`, any number of times::

        pending = await producer.submit("orders", b"value")
        receipt = await pending

    Awaiting raises `NotDeliveredError` or `OutcomeUnknownError`.  It ends at the latest with the
    producer's delivery time-out.  If it is cancelled, the message is still delivered.
    """

    __slots__ = ("_batch", "_end", "_log", "_number", "_start", "_timestamp_ms", "_was_seen")

    def __init__(
        self, log: SettlingLog, batch: Batch, number: int, start: int, end: int, timestamp_ms: int
    ) -> None:
        """*number*: how many messages of *batch* come before it.  *start*, *end*: its bytes
        there."""
        self._log = log
        self._batch = batch
        self._number = number
        self._start = start
        self._end = end
        self._timestamp_ms = timestamp_ms
        self._was_seen = False

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known, so that awaiting it doesn't wait."""
        self._follow()
        return self._batch.outcome is not None

    async def receipt(self) -> Receipt:
        """Wait until the outcome is known, and return the receipt.

        Raises:
          NotDeliveredError: the message is certainly not stored.
          OutcomeUnknownError: it may or may not be stored.
        """
        if self.is_settled:
            await trio.lowlevel.checkpoint()
        while not self.is_settled:
            await self._log.wait_settled(self._batch)
        return self._receipt()

    async def receipt_by(self, wait: Callable[[News], Awaitable[None]]) -> Receipt:
        """`receipt`, where *wait* waits for news, in whatever event loop."""
        while not self.is_settled:
            if (settling := self._log.settling(self._batch)) is not None:
                await wait(settling)
        return self._receipt()

    def _follow(self) -> None:
        """The message may be in another batch by now."""
        while (moved := self._batch.moved) is not None:
            to = moved[self._number]
            self._log = cast(SettlingLog, to.log)
            self._batch, self._number = to.batch, to.number
            self._start, self._end = to.start, to.end

    def _receipt(self) -> Receipt:
        outcome = self._batch.outcome
        if isinstance(outcome, Stored):
            return Receipt(
                self._log.topic,
                self._log.partition,
                Offset(outcome.offset + self._start),
                Offset(outcome.offset + self._end),
                outcome.epoch,
                TimestampMs(self._timestamp_ms),
                outcome.duplicate,
                id_behind(MessageId(outcome.id), self._number) if outcome.id else None,
                outcome.digest or None,
            )
        assert isinstance(outcome, DeliveryError), "a settled batch has an outcome"
        if not self._was_seen:
            self._was_seen = True
            self._log.saw_failure(self._batch)
        raise type(outcome)(*outcome.args) from outcome.__cause__

    def __await__(self) -> Generator[Any, Any, Receipt]:
        return self.receipt().__await__()


def batch_of(pending: PendingReceipt) -> Batch:
    """The messages with which that of *pending* is stored, or fails."""
    pending._follow()
    return pending._batch


async def wait_settled(log: BatchLog, batch: Batch) -> None:
    """Return when all messages that were in *batch* have an outcome."""
    while batch.outcome is None and batch.moved is None:
        await log.wait_settled(batch)
    for to in {id(one.batch): one for one in batch.moved or []}.values():
        await wait_settled(to.log, to.batch)
