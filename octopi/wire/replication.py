"""Messages between the follower and the leader of a partition.

They have no request numbers: every message names the session that it belongs to, and the machines
at both ends (`octopi.replication`) ignore what is old or doubled.
"""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost
from octopi.limits import (
    LIST_COUNT_MAX,
    PRODUCERS_PER_LOG_MAX,
    RECENT_BATCHES_COUNT,
    REQUEST_IDS_PER_LOG_MAX,
)
from octopi.model import BrokerNumber, Counted, CountedOrNone, PartitionNumber, Place, Seal, Verb
from octopi.wire.common import OptionalId, Records, Text
from octopi.wire.declarations import FOLLOWER_TO_LEADER, LEADER_TO_FOLLOWER, notice, on_the_cluster


@attrs.frozen
class EpochStart:
    """One row of an epoch history: where the records of *epoch* begin."""

    epoch: CountedOrNone
    start: Place


EpochStarts = Annotated[list[EpochStart], AtMost(LIST_COUNT_MAX)]


@notice("follow", FOLLOWER_TO_LEADER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Follow:
    """Follower to leader: begin to follow this log.  Answer: `Followed` or `FollowRefused`.

    A follower without a log of the partition sends an empty `topic_id`; if the leader has no log
    either, the session begins with it."""

    partition: PartitionNumber
    epoch: Counted
    broker: BrokerNumber
    incarnation: Counted
    attempt: Counted
    """Incremented by the follower for each session; (incarnation, attempt) identifies a session."""
    topic_id: OptionalId
    epochs: EpochStarts
    """The epoch history of the follower's log."""
    log_end: Place
    proof: Seal = ""
    """A message authentication code of the session under the `BrokerInfo.stream_key` of the two.
    It proves that *broker* begins the session."""


_Batches = Annotated[list[int], AtMost(RECENT_BATCHES_COUNT)]


@attrs.frozen
class KnownProducer:
    """What a log knows of a producer, to detect its duplicates."""

    producer_id: Annotated[bytes, AtMost(16)]
    epoch: int
    next_sequence: int
    first_sequences: _Batches
    """Of the batches that may still be sent again, oldest first."""
    offsets: _Batches
    """Where each of them begins."""


@attrs.frozen
class KnownRequest:
    """A version 1 record that a log holds or held, to detect its repetition."""

    request_id: Annotated[bytes, AtMost(32)]
    offset: int


@notice("followed", LEADER_TO_FOLLOWER)
@attrs.frozen
class Followed:
    """Answer to `Follow`: where the logs part, then `Replicate` again and again."""

    partition: PartitionNumber
    epoch: Counted
    incarnation: Counted
    attempt: Counted
    topic_id: OptionalId
    keep: Place
    """The follower keeps its log below this, the end of the common prefix."""
    begin: Place
    """Records come from here on; greater than `keep` where the leader's log starts later."""
    epochs: EpochStarts = attrs.Factory(list)
    """Then: which epoch wrote what before `begin`; the follower won't see it any more."""
    producers: Annotated[list[KnownProducer], AtMost(PRODUCERS_PER_LOG_MAX)] = attrs.Factory(list)
    """And which producer."""
    requests: Annotated[list[KnownRequest], AtMost(REQUEST_IDS_PER_LOG_MAX)] = attrs.Factory(list)
    """And, of version 1 records, which request."""


@notice("follow_refused", LEADER_TO_FOLLOWER)
@attrs.frozen
class FollowRefused:
    """Answer to `Follow`: not now, not here, or not any more."""

    partition: int
    epoch: int
    incarnation: int
    attempt: int
    topic_id: Text
    reason: Text


@notice("replicate", LEADER_TO_FOLLOWER)
@attrs.frozen
class Replicate:
    """Leader to follower: records of one epoch, and the highwater mark.  Answer: `Acknowledge`,
    cumulative."""

    partition: int
    epoch: int
    incarnation: int
    attempt: int
    topic_id: Text
    offset: int
    """Offset of the first record."""
    records_epoch: int
    records: Records
    """Empty: only the highwater mark has moved."""
    highwater: int


@notice("acknowledge", FOLLOWER_TO_LEADER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Acknowledge:
    """Follower to leader: the follower has the log up to `end` (exclusive)."""

    partition: int
    epoch: int
    broker: int
    incarnation: int
    attempt: int
    topic_id: Text
    end: int
