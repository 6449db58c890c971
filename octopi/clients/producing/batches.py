"""A batch of messages of one producer for one log, and what becomes of it."""

from __future__ import annotations

import attrs

from octopi.errors import DeliveryError
from octopi.identifiers import Epoch, Offset, Sequence
from octopi.record import BatchBuilder


@attrs.frozen
class Stored:
    """A batch is committed."""

    offset: Offset
    """Of its first record."""
    epoch: Epoch
    duplicate: bool


@attrs.define(eq=False)
class Batch:
    """Messages that travel, and succeed or fail, together."""

    deadline: float
    """When its sender hears at the latest."""
    linger_until: float
    """When it is sent even if it isn't full."""
    builder: BatchBuilder = attrs.field(factory=BatchBuilder)
    last_position: int = 0
    """Where the record of the newest message starts in the batch (bytes)."""
    sealed: bool = False
    """Takes no more messages; to be sent at once."""
    urgent: bool = False
    """Its receipt is awaited."""
    first_sequence: Sequence | None = None
    """None while it waits."""
    maybe_stored: bool = False
    """A copy was sent whose fate is unknown."""
    sent_at: float | None = None
    """When the copy that is on its way was sent; None if none is."""
    attempt: int = 0
    """Names that copy: answers to earlier ones are ignored."""
    outcome: Stored | DeliveryError | None = None
    """None until it is settled."""

    def __len__(self) -> int:
        return len(self.builder)

    def drop_messages(self) -> None:
        """Let go of the messages, as the session needs them no more: receipts may be kept for
        long."""
        self.sent_at = None
        self.builder = BatchBuilder()
