"""A batch of messages of one producer for one log, and its outcome."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import attrs

from octopi.conditions import Condition
from octopi.errors import (
    ConditionFailedError,
    DeliveryError,
    NotDeliveredError,
    OctopiError,
    OutcomeUnknownError,
    RefusedError,
)
from octopi.identifiers import Epoch, Offset, PartitionId, Sequence, TopicName
from octopi.record import BatchBuilder


@attrs.frozen
class Stored:
    """The outcome of a batch that is committed."""

    offset: Offset
    """The offset of its first record."""
    epoch: Epoch
    duplicate: bool
    id: bytes = b""
    """In a topic in memory: the id of its first record; empty: not known."""
    digest: bytes = b""
    """In a topic in memory: the digest of all records up to its last one; empty: not known."""


class BatchLog(Protocol):
    """The sender of a log, as far as those know it who wait for its batches."""

    topic: TopicName
    partition: PartitionId

    async def wait_settled(self, batch: Batch) -> None:
        """Return when *batch* has its outcome, or its messages were moved."""


@attrs.frozen
class MovedMessage:
    """A message that is in another batch now."""

    log: BatchLog
    batch: Batch
    number: int
    """How many messages of that batch come before it."""
    start: int
    """Where its record starts in that batch (bytes)."""
    end: int


@attrs.define(eq=False)
class Batch:
    """Messages that are sent together, and succeed or fail together."""

    deadline: float
    """The time at which it is settled at the latest."""
    begun_at: float
    """When it got its first message; it lingers from then on."""
    builder: BatchBuilder = attrs.field(factory=BatchBuilder)
    last_position: int = 0
    """Where the record of the newest message starts in the batch (bytes)."""
    sealed: bool = False
    """Whether it takes no more messages, and is to be sent without lingering."""
    urgent: bool = False
    """Whether its receipt is awaited."""
    condition: Condition | None = None
    """What has to hold of the log; such a batch is on its way alone."""
    pinned: bool = False
    """Whether the program named the partition, for all of its messages; otherwise for none."""
    moved: list[MovedMessage] | None = None
    """Where each message has gone, if the topic got other partitions before the batch was stored.
    It has no outcome then."""
    first_sequence: Sequence | None = None
    """The sequence of its first message; None while it waits to be sent."""
    maybe_stored: bool = False
    """Whether a copy was sent of which is not known whether the broker stored it."""
    sent_at: float | None = None
    """When the copy that is on its way was sent; None if none is."""
    attempt: int = 0
    """The number of that copy; answers to earlier copies are ignored."""
    outcome: Stored | DeliveryError | None = None
    """The result; None until the batch is settled."""

    def __len__(self) -> int:
        return len(self.builder)

    def drop_messages(self) -> None:
        """Drop the messages, which the session doesn't need any more.  Receipts, which refer to the
        batch, may be kept for long."""
        self.sent_at = None
        self.builder = BatchBuilder()


def refutation(log: str, batch: Batch, why: RefusedError) -> ConditionFailedError | None:
    """The outcome of *batch*, whose condition does not hold according to *why*; None: an earlier
    copy of it may be stored.

    A batch that is to be appended where the log ends can be stored at that offset only.  If the log
    has committed something else there, none of its copies ever is.
    """
    expected = None if batch.condition is None else batch.condition.expected_end
    if batch.maybe_stored and (why.offset is None or expected is None or why.offset <= expected):
        return None
    error = ConditionFailedError(f"{log}: {why}", why.offset)
    error.__cause__ = why
    return error


def verdict(log: str, batch: Batch, why: OctopiError) -> DeliveryError:
    """The outcome of *batch* if it is not sent again because of *why*."""
    unknown = batch.maybe_stored or batch.sent_at is not None
    error = (OutcomeUnknownError if unknown else NotDeliveredError)(f"{log}: {why}")
    error.__cause__ = why
    return error


def check_batches(
    unanswered: deque[Batch], waiting: deque[Batch], open_batch: Batch | None, bound: int
) -> None:
    """Assert that *unanswered* batches have growing sequences below *bound*, that one with a
    condition is alone, and that *waiting* ones have none; only the last of those is open."""
    sequence = 0
    for batch in unanswered:
        assert batch.first_sequence is not None
        assert batch.sealed
        assert batch.first_sequence >= sequence
        assert batch.condition is None or len(unanswered) == 1
        sequence = batch.first_sequence + len(batch)
    assert sequence <= bound
    for batch in waiting:
        assert batch.sent_at is None
        assert batch.first_sequence is None
        assert batch.outcome is None
        assert not batch.maybe_stored
        assert batch.sealed == (batch is not open_batch)
        assert len(batch) > 0
    assert open_batch is None or open_batch is waiting[-1]
    deadlines = [batch.deadline for batch in [*unanswered, *waiting]]
    assert deadlines == sorted(deadlines)
