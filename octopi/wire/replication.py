"""Messages between the follower and the leader of a partition.

They have no request numbers.  Every message names the session that it belongs to, and the machines
at both ends (`octopi.replication`) ignore messages of old sessions, and repeated ones.
"""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost, MayBeMissing
from octopi.generation_record import GenerationOrNone
from octopi.identifiers import BrokerId, Epoch, Incarnation, Offset, PartitionId
from octopi.limits import (
    LIST_COUNT_MAX,
    PRODUCERS_PER_LOG_MAX,
    RECENT_BATCHES_COUNT,
    REQUEST_IDS_PER_LOG_MAX,
)
from octopi.model import (
    BrokerNumber,
    Counted,
    EpochNumber,
    EpochOrNone,
    IncarnationNumber,
    PartitionNumber,
    Place,
    Seal,
    Verb,
)
from octopi.wire.common import OptionalLogId, Records, Text
from octopi.wire.declarations import FOLLOWER_TO_LEADER, LEADER_TO_FOLLOWER, notice, on_the_cluster


@attrs.frozen
class EpochStart:
    """One row of an epoch history: where the records of *epoch* begin."""

    epoch: EpochOrNone
    start: Place


EpochStarts = Annotated[list[EpochStart], AtMost(LIST_COUNT_MAX)]


@notice("follow", FOLLOWER_TO_LEADER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Follow:
    """Follower to leader: begin to follow this log.  Answer: `Followed` or `FollowRefused`.

    A follower without a log of the partition sends an empty `topic_id`; if the leader has no log
    either, the session begins with it."""

    partition: PartitionNumber
    epoch: EpochNumber
    broker: BrokerNumber
    incarnation: IncarnationNumber
    attempt: Counted
    """Incremented by the follower for each session; (incarnation, attempt) identifies a session."""
    topic_id: OptionalLogId
    epochs: EpochStarts
    """The epoch history of the follower's log."""
    log_end: Place
    proof: Seal = ""
    """A message authentication code of the session under the `BrokerInfo.stream_key` of the two.
    It proves that *broker* begins the session."""


_Batches = Annotated[list[int], AtMost(RECENT_BATCHES_COUNT)]


@attrs.frozen
class KnownProducer:
    """What a log's replicas know of a producer, to detect its duplicates."""

    producer_id: Annotated[bytes, AtMost(16)]
    epoch: Epoch
    next_sequence: int
    first_sequences: _Batches
    """The first sequences of the batches that may still be sent again, oldest first."""
    offsets: _Batches
    """The offset of each of these batches."""


@attrs.frozen
class KnownRequest:
    """A version 1 record that a log has or had, to detect its repetition."""

    request_id: Annotated[bytes, AtMost(32)]
    offset: Offset


@notice("followed", LEADER_TO_FOLLOWER)
@attrs.frozen
class Followed:
    """Answer to `Follow`: the end of the common prefix of both logs.  Any number of `Replicate`
    follow."""

    partition: PartitionNumber
    epoch: EpochNumber
    incarnation: IncarnationNumber
    attempt: Counted
    topic_id: OptionalLogId
    keep: Place
    """The end of the common prefix: the follower keeps its log before this."""
    begin: Place
    """The offset of the first record to come; greater than `keep` if the leader's log starts behind
    `keep`.  In that case the following fields describe the records before `begin`, which the
    follower doesn't get."""
    epochs: EpochStarts = attrs.Factory(list)
    """The epoch history of these records."""
    producers: Annotated[list[KnownProducer], AtMost(PRODUCERS_PER_LOG_MAX)] = attrs.Factory(list)
    """The producers of these records."""
    requests: Annotated[list[KnownRequest], AtMost(REQUEST_IDS_PER_LOG_MAX)] = attrs.Factory(list)
    """The requests of these records, as far as they are of version 1."""


@notice("follow_refused", LEADER_TO_FOLLOWER)
@attrs.frozen
class FollowRefused:
    """Answer to `Follow`: the broker doesn't lead the log, or can't begin the session now."""

    partition: PartitionId
    epoch: Epoch
    incarnation: Incarnation
    attempt: int
    topic_id: Text
    reason: Text


@notice("replicate", LEADER_TO_FOLLOWER)
@attrs.frozen
class Replicate:
    """Leader to follower: records of one epoch, and the highwater mark.  Answer: `Acknowledge`, one
    of which may answer several of these."""

    partition: PartitionId
    epoch: Epoch
    incarnation: Incarnation
    attempt: int
    topic_id: Text
    offset: Offset
    """The offset of the first record."""
    records_epoch: Epoch
    records: Records
    """Empty: only the highwater mark has moved."""
    highwater: Offset
    generation: Annotated[GenerationOrNone, MayBeMissing()] = 0
    """The generation of the topic that the leader knows to be in force, and of which the records
    may be; 0: there never was another one than the first.  A follower that doesn't know it yet
    shows readers no records from here on."""


@notice("acknowledge", FOLLOWER_TO_LEADER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Acknowledge:
    """Follower to leader: the follower has the log up to `end` (exclusive)."""

    partition: PartitionId
    epoch: Epoch
    broker: BrokerId
    incarnation: Incarnation
    attempt: int
    topic_id: Text
    end: int
