"""What followers, leaders and the register say to each other about replication.

These are the messages of the machines in `octopi.replication` and `octopi.membership`,
with the bounds that `octopi.wire.messages` uses.  None of them has a request number: every
message of a follower's stream names the session it belongs to, questions of the register
are matched by their content, and the machines at both ends ignore what is old or doubled.
"""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.limits import LIST_COUNT_MAX
from octopi.wire.messages import AtMost, Brokers, PartitionRecord, Records, Text

# --- followers and leaders -----------------------------------------------------------


@attrs.frozen
class EpochStart:
    """One row of an epoch history: where the records of *epoch* begin."""

    epoch: int
    start: int


EpochStarts = Annotated[list[EpochStart], AtMost(LIST_COUNT_MAX)]


@attrs.frozen
class Follow:
    """Follower to leader: I want to follow this log from here on.  Answer: `Followed` or
    `FollowRefused`."""

    partition: int
    epoch: int
    broker: int
    incarnation: int
    attempt: int
    """Counted up by the follower for each session; (incarnation, attempt) names a session."""
    topic_id: Text
    epochs: EpochStarts
    """Which epoch wrote what of the follower's log."""
    log_end: int


@attrs.frozen
class Followed:
    """Answer to `Follow`: where the logs part, then `Replicate` again and again."""

    partition: int
    epoch: int
    incarnation: int
    attempt: int
    topic_id: Text
    keep: int
    """The follower keeps its log below this, the end of the common prefix."""
    begin: int
    """Records come from here on; greater than `keep` where the leader's log starts later."""


@attrs.frozen
class FollowRefused:
    """Answer to `Follow`: not now, not here, or not any more."""

    partition: int
    epoch: int
    incarnation: int
    attempt: int
    topic_id: Text
    reason: Text


@attrs.frozen
class Replicate:
    """Leader to follower: records, all written in one epoch, and how far all is committed.
    Answer: `Acknowledge`, cumulative."""

    partition: int
    epoch: int
    incarnation: int
    attempt: int
    topic_id: Text
    offset: int
    """Of the first record."""
    records_epoch: int
    records: Records
    """Empty: only the highwater mark has moved."""
    highwater: int


@attrs.frozen
class Acknowledge:
    """Follower to leader: I hold the log up to `end` (exclusive)."""

    partition: int
    epoch: int
    broker: int
    incarnation: int
    attempt: int
    topic_id: Text
    end: int


# --- the register and the leadership of partitions -----------------------------------


@attrs.frozen
class AlterInSync:
    """Leader to register: replace the in-sync set, if all this still holds.  Answer:
    `InSyncAltered`."""

    partition: int
    epoch: int
    leader: int
    leader_incarnation: int
    version: int
    """Of the in-sync set that is replaced."""
    in_sync: Brokers
    joiner_incarnation: int | None
    """The life of the broker that joins; None: a broker leaves."""


@attrs.frozen
class InSyncAltered:
    """Answer to `AlterInSync`."""

    request: AlterInSync
    accepted: bool
    record: PartitionRecord
    """What is in force now."""


@attrs.frozen
class AnnounceEpoch:
    """Register to broker: a new epoch begins, stop what you do in older ones.  Answer:
    `AcceptEpoch`."""

    partition: int
    epoch: int


@attrs.frozen
class AcceptEpoch:
    """Answer to `AnnounceEpoch`: promised, durably, and this is what I hold, durably."""

    partition: int
    epoch: int
    broker: int
    incarnation: int
    last_epoch: int
    """The newest epoch that wrote a record here."""
    log_epoch: int
    """The newest epoch in which this replica led, or agreed with the leader on every log."""
    log_end: int
    """The ends of all the partition's logs, added up (bytes): for comparing replicas."""


@attrs.frozen
class Standing:
    """How a broker stands with a partition it is a replica of, when it joins."""

    partition: int
    promised: int
    """The highest epoch that it accepted or acted in."""
    intact: bool
    """Whether it still holds all that it ever acknowledged."""
