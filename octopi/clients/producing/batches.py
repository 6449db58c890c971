"""A batch of messages of one producer for one log, and its outcome."""

from __future__ import annotations

import attrs

from octopi.errors import DeliveryError
from octopi.identifiers import Epoch, Offset, Sequence
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
