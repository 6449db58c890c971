"""Messages between brokers and the register, which decides about partitions and topics.

Those about the leadership of a partition are matched by their content: a repetition is judged as
the first was.
"""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost, MayBeMissing, Within
from octopi.limits import LIST_COUNT_MAX, LIVES_IN_DOUBT_MAX, TOPIC_COUNT_MAX
from octopi.model import (
    BrokerNumber,
    BrokerNumbers,
    Counted,
    CountedOrNone,
    EpochNumber,
    EpochOrNone,
    Id,
    IncarnationNumber,
    Nonce,
    PartitionNumber,
    PartitionRecord,
    Place,
    RegisterGeneration,
    ReplicaReport,
    Seal,
    TopicRecord,
    TopicText,
    Verb,
)
from octopi.wire.common import BrokerInfo, LogId, NodeAddress, OptionalId, Text
from octopi.wire.declarations import (
    DECIDER_TO_MEMBER,
    MEMBER_TO_DECIDER,
    answer,
    notice,
    on_the_cluster,
    request,
)


@notice("inventory", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Inventory:
    """Partitions, topics and reports of a broker, sent in any number of messages before `Join`.

    A register that lost its disk learns from them what existed.  No answer.
    """

    partitions: Annotated[list[PartitionRecord], AtMost(1_000)]
    topics: Annotated[list[TopicRecord], AtMost(1_000)]
    standings: Annotated[list[ReplicaReport], AtMost(1_000)] = attrs.field(factory=list)
    """Reports of the partitions that the broker has replicas of."""


@request("join", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Join:
    """Register as a broker.  Answer: `Joined`."""

    request: int
    cluster: OptionalId
    """The cluster it belongs to; empty on its first start."""
    broker: BrokerNumber | None
    """Its id; None: give me one."""
    incarnation: IncarnationNumber
    nonce: Nonce
    """Random, new for each start: a copied data directory can count to the same incarnation."""
    ancestors: Annotated[list[Nonce], AtMost(LIVES_IN_DOUBT_MAX)]
    """The nonces of earlier lives that the register may know as the last: the one that it was
    last heard to let in, and those that were started since."""
    register: RegisterGeneration | None
    """The newest generation that the broker has followed; None: it never joined."""
    address: NodeAddress
    """Address for clients."""
    credential: Seal = ""
    """What the register said in `Joined` when it gave this id; empty: it never did."""


@answer("joined", DECIDER_TO_MEMBER)
@attrs.frozen
class Joined:
    """The broker is a member while this connection lives."""

    request: int
    cluster: Id
    broker: BrokerNumber
    register: RegisterGeneration
    credential: Seal = ""
    """Proves to the register, when the broker joins again, that it is the one of this id."""


@request("install_partitions", DECIDER_TO_MEMBER)
@attrs.frozen
class InstallPartitions:
    """Register to broker: take note of these decisions and act on them.

    Answer: `OrderCarriedOut`.
    """

    request: int
    partitions: Annotated[list[PartitionRecord], AtMost(1_000)]
    brokers: Annotated[list[BrokerInfo], AtMost(LIST_COUNT_MAX)]
    """Where the brokers are that the records name."""


@request("install_topics", DECIDER_TO_MEMBER)
@attrs.frozen
class InstallTopics:
    """Register to broker: keep logs for these topics in your partitions.

    Answer: `OrderCarriedOut`.
    """

    request: int
    topics: Annotated[list[TopicRecord], AtMost(1_000)]


@attrs.frozen
class RemovedTopic:
    """One creation of a topic, which was deleted."""

    topic: TopicText
    topic_id: Id


@request("remove_topics", DECIDER_TO_MEMBER)
@attrs.frozen
class RemoveTopics:
    """Register to broker: delete the logs of these creations of topics.

    Answer: `OrderCarriedOut`.
    """

    request: int
    topics: Annotated[list[RemovedTopic], AtMost(1_000)]


@attrs.frozen
class Undone:
    """A part of an order that the broker could not carry out; the register gives it again."""

    partition: PartitionNumber | None
    """Of a decision about a partition; None: the part is about a topic."""
    topic_id: OptionalId
    """Of a topic; empty: the part is about a partition."""
    reason: Text


@answer("order_carried_out", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class OrderCarriedOut:
    """Answer to `InstallPartitions`, `InstallTopics` and `RemoveTopics`: all of it is done and
    durable, but for what is named."""

    request: int
    undone: Annotated[list[Undone], AtMost(1_000)]


@attrs.frozen
class ReplicaTrouble:
    """Why a broker's replica of a partition takes no records."""

    partition: PartitionNumber
    reason: Text
    """Empty: it takes them again."""


@notice("broker_status", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class BrokerStatus:
    """Broker to register: which of its replicas take records, and how full its disk is.  Sent
    when that changes; a broker that has just joined is well but for what it says.  No answer."""

    disk_trouble: Text
    """Why no replica of this broker takes records: its disk is full; empty: it is not."""
    disk_free_bytes: int | None
    """Of the file system that the data directory lies on; None: not known."""
    disk_total_bytes: int | None
    replicas: Annotated[list[ReplicaTrouble], AtMost(1_000)]
    """Those of which something else is to be said than before."""


@notice("alter_in_sync", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class AlterInSync:
    """Leader to register: replace the in-sync set, if all this still holds.  Answer:
    `InSyncAltered`."""

    partition: PartitionNumber
    epoch: EpochNumber
    leader: BrokerNumber
    leader_incarnation: IncarnationNumber
    version: CountedOrNone
    """Of the in-sync set that is replaced."""
    in_sync: BrokerNumbers
    joiner_incarnation: Counted | None
    """The life of the broker that joins; None: a broker leaves."""


@notice("in_sync_altered", DECIDER_TO_MEMBER)
@attrs.frozen
class InSyncAltered:
    """Answer to `AlterInSync`."""

    asked: AlterInSync
    accepted: bool
    record: PartitionRecord
    """What is in force now."""


@notice("resign", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Resign:
    """Leader to register: I can't go on, have another replica lead if there is one."""

    partition: PartitionNumber
    epoch: EpochNumber
    leader: BrokerNumber
    leader_incarnation: IncarnationNumber
    reason: Text


@request("stopping", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Stopping:
    """Broker to register: I stop as soon as others lead what they can lead of mine.

    Answer: `Done`, when that is so, and when I am in sync only where too few others are."""

    request: int


@notice("brokers_stopping", DECIDER_TO_MEMBER)
@attrs.frozen
class BrokersStopping:
    """Register to broker: these and no others are about to stop.  They leave in-sync sets, and
    join none."""

    brokers: Annotated[list[BrokerNumber], AtMost(LIST_COUNT_MAX)]


@request("prepare_hand_over", DECIDER_TO_MEMBER)
@attrs.frozen
class PrepareHandOver:
    """Register to leader: the leadership of this partition is about to change.

    Answer: `Done`, when what has to be done before is done; meanwhile the leader leads."""

    request: int
    partition: PartitionNumber


@notice("goodbye", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Goodbye:
    """Broker to register: I am a member no more."""


@notice("announce_epoch", DECIDER_TO_MEMBER)
@attrs.frozen
class AnnounceEpoch:
    """Register to broker: a new epoch begins, stop what you do in older ones.  Answer:
    `AcceptEpoch`."""

    partition: PartitionNumber
    epoch: EpochNumber


@attrs.frozen
class LogEnd:
    """How far one replica holds one log."""

    topic_id: LogId
    end: Place
    """The end of what it holds, on the device (exclusive)."""
    sound: Annotated[bool, MayBeMissing()] = True
    """Whether nothing is missing of what was on the device; what only the page cache held when
    the power failed may be."""
    held_end: Annotated[Place, MayBeMissing()] = 0
    """Where the log is known to have ended on this replica, or to have been committed, if that is
    more."""


@notice("accept_epoch", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class AcceptEpoch:
    """Answer to `AnnounceEpoch`: promised, durably, and this is what I hold, durably."""

    partition: PartitionNumber
    epoch: EpochNumber
    broker: BrokerNumber
    incarnation: IncarnationNumber
    last_epoch: EpochOrNone
    """The newest epoch that wrote a record here."""
    log_epoch: EpochOrNone
    """The newest epoch in which this replica led, or agreed with the leader on every log."""
    ends: Annotated[list[LogEnd], AtMost(LIST_COUNT_MAX)]
    """The end of each of the partition's logs, in any order."""
    first: Annotated[int, Within(0, TOPIC_COUNT_MAX), MayBeMissing()] = 0
    """A partition with more logs than a list may have is told in several messages, one behind the
    other on one connection: the place of the first of `ends` among all."""
    more: Annotated[bool, MayBeMissing()] = False
    """Whether further ends follow.  The epoch is accepted when the last ones are there."""
