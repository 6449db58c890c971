"""The effects of the machines of replication.  The shell performs each list in its order.

The order ensures that state is durable before it is visible: an acknowledgement follows the append,
and the flush if the topic asks for one; the acceptance of an epoch follows the promise on the
device.  A machine gets its next event after the effects of the event before were performed.  Some
effects are answered with an event, whose effects are performed next.
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
    offset: Offset | None = None
    """See `octopi.wire.common.Failure`."""


Answer = Callable[[CommitReceipt | Refusal], None]
"""Where the answer to one produce request goes; called once, never waits."""

# --- of one log ----------------------------------------------------------------------


@attrs.frozen
class Append:
    """Append the batch, then call the machine's `appended`.  If the batch can't be appended, the
    shell refuses it, and doesn't tell the machine."""

    records: bytes
    scan: Scan
    answer: Answer


@attrs.frozen
class FlushLog:
    """Have the log flushed, then call the machine's `flushed`."""


@attrs.frozen
class FindDuplicate:
    """Find the record that lies *skip* records behind *offset*, then call the machine's
    `found_duplicate`.  If it can't be found, the shell refuses the request."""

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
    """Append what the leader sent, then call the machine's `replicated`."""

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
    """Whether the cut records had been committed, so their bytes are kept beside the log."""


@attrs.frozen
class RefuseCut:
    """Log that the log was not cut at *keep*, because that lies below its highwater mark."""

    keep: Offset


@attrs.frozen
class SetAside:
    """Move the damaged part out of the log, keep it beside, then call the machine's `set_aside`.

    *refill*: a leader has the records, too, that are missing before the log's first segment."""

    refill: bool


@attrs.frozen
class Restart:
    """Drop all records; the log continues at *start*, the log start of the leader."""

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
    """What a replica keeps on the device, beside its logs."""

    promised: Epoch = NO_EPOCH
    """The highest epoch accepted or acted in."""
    sync_flag: bool = False
    """Whether everything that the replica ever acknowledged is on the device.  A clean shutdown
    sets it, too."""
    intact: bool = True
    """Whether the logs hold all that was ever acknowledged.  False after a power failure without
    the sync flag, until the register knows of it."""
    whole: bool = True
    """Whether the logs hold all that was noted to be on the device.  False after files were
    damaged, until the replica is in sync again, or leads."""
    log_epoch: Epoch = NO_EPOCH
    """The newest epoch in which the replica led, or agreed with the leader on every log."""
    ends: bool = False
    """Whether there is a file of ends, which lists the replica's logs and what is durable of
    them."""
    record: PartitionRecord | None = None
    """The newest partition record that the register has sent."""


@attrs.frozen
class OnLog:
    """An effect on one of the partition's logs."""

    topic_id: TopicId
    effect: Effect


@attrs.frozen
class SyncLogs:
    """Wait until all logs of the partition are durable up to their present ends, and call the
    machine's `flushed` for each."""


@attrs.frozen
class StoreState:
    """Make *state* durable, and wait for that."""

    state: ReplicaState


@attrs.frozen
class FollowLeader:
    """Open a stream to *leader*, then call the machine's `stream_opened`.  Whenever the stream
    ends, open it again."""

    leader: BrokerId


@attrs.frozen
class ToRegister:
    """Send *message* to the register."""

    message: AlterInSync | AcceptEpoch


@attrs.frozen
class ToBroker:
    """Send *message* to another replica, on the follower's stream."""

    broker: BrokerId
    message: Follow | Followed | FollowRefused | Acknowledge


PartitionEffect = OnLog | SyncLogs | StoreState | FollowLeader | ToRegister | ToBroker
