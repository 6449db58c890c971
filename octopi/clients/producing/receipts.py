"""What a producer gets for a message: a receipt, or the promise of one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

import trio

from octopi.clients.producing.batches import Batch, Stored
from octopi.errors import DeliveryError
from octopi.identifiers import Epoch, Offset, PartitionId, TimestampMs, TopicName

_UNIX_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Receipt(NamedTuple):
    """The message is committed: consumers see it, and it survives what the cluster is built
    to survive."""

    topic: TopicName
    partition: PartitionId
    offset: Offset
    """Where its record starts: the message's id in its log."""
    next_offset: Offset
    """Where its record ends."""
    epoch: Epoch
    """Of the leader that appended it."""
    timestamp_ms: TimestampMs
    duplicate: bool
    """Whether the broker had it from an earlier attempt.  It is stored once in any case."""

    @property
    def timestamp(self) -> datetime:
        """`timestamp_ms` as an aware datetime in UTC."""
        return _UNIX_ZERO + timedelta(milliseconds=self.timestamp_ms)


class SettlingLog(Protocol):
    """What a pending receipt needs of the log that its batch goes to."""

    topic: TopicName
    partition: PartitionId

    async def wait_settled(self, batch: Batch) -> None:
        """Return when *batch* has its outcome."""

    @property
    def saw_failure(self) -> Callable[[Batch], None]:
        """Told once for each message of a failed batch whose sender has learned it."""


class PendingReceipt:
    """A message that was submitted.  Await it for its `Receipt`, any number of times::

        pending = await producer.submit("orders", b"value")
        receipt = await pending

    Awaiting raises `NotDeliveredError` or `OutcomeUnknownError`.  It always ends: at the
    latest with the producer's delivery time-out.  To cancel it changes nothing about the
    message.
    """

    __slots__ = ("_batch", "_end", "_log", "_start", "_timestamp_ms", "_was_seen")

    def __init__(
        self, log: SettlingLog, batch: Batch, start: int, end: int, timestamp_ms: int
    ) -> None:
        self._log = log
        self._batch = batch
        self._start = start
        self._end = end
        self._timestamp_ms = timestamp_ms
        self._was_seen = False

    @property
    def is_settled(self) -> bool:
        """Whether awaiting it would not wait any more."""
        return self._batch.outcome is not None

    async def receipt(self) -> Receipt:
        """The receipt, once there is one.

        Raises:
          NotDeliveredError: the message is certainly not stored.
          OutcomeUnknownError: it may or may not be stored.
        """
        if self._batch.outcome is None:
            await self._log.wait_settled(self._batch)
        else:
            await trio.lowlevel.checkpoint()
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
            )
        assert isinstance(outcome, DeliveryError), "whoever waited is told an outcome"
        if not self._was_seen:
            self._was_seen = True
            self._log.saw_failure(self._batch)
        raise type(outcome)(*outcome.args) from outcome.__cause__

    def __await__(self) -> Generator[Any, Any, Receipt]:
        return self.receipt().__await__()
