"""What the machines of replication want done, in this order and no other.

"Durable before visible" is a property of the list: an acknowledgement stands behind the
append, and behind the flush where the topic asks for one; an accepted epoch stands behind
the promise on the device.  A machine gets its next event when the effects of the one
before have been performed; some are answered by an event, whose effects come right behind.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from octopi.errors import Status
from octopi.identifiers import NO_EPOCH, BrokerId, Epoch, Offset, TopicId
from octopi.record import Scan
from octopi.wire.messages import (
    AcceptEpoch,
    Acknowledge,
    AlterInSync,
    Follow,
    Followed,
    FollowRefused,
    PartitionRecord,
)


@attrs.frozen
class CommitReceipt:
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


Answer = Callable[[CommitReceipt | Refusal], None]
"""Where the answer to one produce request goes; called once, never waits."""

# --- of one log ----------------------------------------------------------------------


@attrs.frozen
class Append:
    """Append the batch, then call the machine's `appended`; a batch that could not be appended
    is refused by the caller, and the machine hears nothing of it."""

    records: bytes
    scan: Scan
    answer: Answer


@attrs.frozen
class FlushLog:
    """See to it that the log becomes durable, then tell the machine: `flushed`."""


@attrs.frozen
class FindDuplicate:
    """Answer with the receipt of the record that lies *skip* records behind *offset*."""

    offset: Offset
    skip: int
    answer: Answer


@attrs.frozen
class Forward:
    """Let the followers' streams read below *end* (step 2)."""

    end: Offset


@attrs.frozen
class PublishHighwater:
    """Let consumers read below *offset*."""

    offset: Offset


@attrs.frozen
class Reply:
    """Answer one produce request."""

    answer: Answer
    content: CommitReceipt | Refusal


@attrs.frozen
class StoreEpochs:
    """Make the log's epoch history durable."""


@attrs.frozen
class AppendReplicated:
    """Append what the leader sent, then tell the machine: `replicated`."""

    records: bytes
    scan: Scan


@attrs.frozen
class AcknowledgeEnd:
    """Tell the leader that this log is held up to *end*."""

    end: Offset


@attrs.frozen
class Truncate:
    """Cut the log at *end*, and rebuild the producers' sequences from what is left."""

    end: Offset
    keeps: bool = False
    """Whether what is cut was committed once, and its bytes are to be kept beside the log."""


@attrs.frozen
class RefuseCut:
    """Tell people that the log was not cut at *keep*, as that lies below its highwater mark."""

    keep: Offset


@attrs.frozen
class SetAside:
    """Take what is damaged out of the log, keep it beside, then tell the machine: `set_aside`.

    *refill*: a leader has what is missing before the log's first segment, too."""

    refill: bool


@attrs.frozen
class Restart:
    """Drop all records; the log goes on at *start*, where the leader's log starts."""

    start: Offset


Effect = (
    Append
    | FlushLog
    | FindDuplicate
    | Forward
    | PublishHighwater
    | Reply
    | StoreEpochs
    | AppendReplicated
    | AcknowledgeEnd
    | Truncate
    | RefuseCut
    | SetAside
    | Restart
)

# --- of one partition ----------------------------------------------------------------


@attrs.frozen
class ReplicaState:
    """What a replica must remember through any failure, beside its logs."""

    promised: Epoch = NO_EPOCH
    """The highest epoch accepted or acted in."""
    sync_flag: bool = False
    """"All that I ever acknowledged is on the device."  A clean shutdown sets it as well."""
    intact: bool = True
    """Whether the logs hold all that was ever acknowledged; false after a power loss without
    the sync flag, until the register has heard of it."""
    whole: bool = True
    """Whether nothing is missing of what was on the device, as far as that was noted; false after
    files were damaged, until the replica is in sync again, or leads."""
    log_epoch: Epoch = NO_EPOCH
    """The newest epoch in which it led, or agreed with the leader on every log."""
    ends: bool = False
    """Whether a file lists the replica's logs and what is durable of them."""
    record: PartitionRecord | None = None
    """The newest record it was told."""


@attrs.frozen
class OnLog:
    """An effect on one of the partition's logs."""

    topic_id: TopicId
    effect: Effect


@attrs.frozen
class SyncLogs:
    """Wait until all logs of the partition are durable up to their present ends, telling
    the machine: `flushed`."""


@attrs.frozen
class StoreState:
    """Make the state durable, and wait for that."""

    state: ReplicaState


@attrs.frozen
class FollowLeader:
    """Open a stream to that broker, then tell the machine: `stream_opened`; again whenever
    the stream ended."""

    leader: BrokerId


@attrs.frozen
class ToRegister:
    """Send it to the register."""

    message: AlterInSync | AcceptEpoch


@attrs.frozen
class ToBroker:
    """Send it to another replica, on the follower's stream."""

    broker: BrokerId
    message: Follow | Followed | FollowRefused | Acknowledge


PartitionEffect = OnLog | SyncLogs | StoreState | FollowLeader | ToRegister | ToBroker
