"""What the machine of a log wants done, in this order and no other.

"Durable before visible" is a property of the list: an acknowledgement stands behind the
append, and behind the flush where the topic asks for one.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from octopi.errors import Status
from octopi.identifiers import Epoch, Offset
from octopi.record import Scan


@attrs.frozen
class Receipt:
    """Records are committed."""

    offset: Offset
    epoch: Epoch
    duplicate: bool


@attrs.frozen
class Refusal:
    """Records were refused.  With any status but UNCOMMITTED, LOG_READ_ONLY, LOG_CORRUPT,
    INTERNAL and RECEIPT_FORGOTTEN, nothing of them was appended by this request."""

    status: Status
    reason: str


Answer = Callable[[Receipt | Refusal], None]
"""Where the answer to one produce request goes; called once, never waits."""


@attrs.frozen
class Append:
    """Append the batch, then tell the machine: `appended` or `append_failed`."""

    records: bytes
    scan: Scan
    answer: Answer


@attrs.frozen
class Flush:
    """See to it that the log becomes durable, then tell the machine: `flushed`."""


@attrs.frozen
class FindDuplicate:
    """Answer with the receipt of the record that lies *skip* records behind *offset*."""

    offset: Offset
    skip: int
    answer: Answer


@attrs.frozen
class PublishHighwater:
    """Let consumers read below *offset*."""

    offset: Offset


@attrs.frozen
class Reply:
    """Answer one produce request."""

    answer: Answer
    content: Receipt | Refusal


Effect = Append | Flush | FindDuplicate | PublishHighwater | Reply
