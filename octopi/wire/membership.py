"""Messages between brokers and the register, which decides about partitions and topics.

Messages about the leadership of a partition have no request numbers; they are matched by their
content, so a repeated message has the same effect as the first.
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
    RelaySetRecord,
    ReplicaReport,
    Seal,
    TopicRecord,
    TopicText,
    Verb,
)
from octopi.wire.common import BrokerInfo, HostLabel, LogId, NodeAddress, OptionalId, Text
from octopi.wire.declarations import (
    BROKER_TO_BROKER,
    BROKER_TO_BROKER_BACK,
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
    """The partitions, topics and replicas of a broker, sent in any number of messages before
    `Join`.

    A register that lost its disk learns from them what existed.  No answer.
    """

    partitions: Annotated[list[PartitionRecord], AtMost(1_000)]
    topics: Annotated[list[TopicRecord], AtMost(1_000)]
    standings: Annotated[list[ReplicaReport], AtMost(1_000)] = attrs.field(factory=list)
    """Reports on the broker's replicas."""
    relay_sets: Annotated[list[RelaySetRecord], AtMost(1_000), MayBeMissing()] = attrs.field(
        factory=list
    )
    """The relay sets of which the broker is a member."""


@request("join", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Join:
    """Register as a broker.  Answer: `Joined`."""

    request: int
    cluster: OptionalId
    """The cluster that the broker belongs to; empty on its first start."""
    broker: BrokerNumber | None
    """Its id; None: it has none yet, and the register shall give it one."""
    incarnation: IncarnationNumber
    nonce: Nonce
    """Random, and new for each incarnation: two copies of a data directory can count to the same
    incarnation."""
    ancestors: Annotated[list[Nonce], AtMost(LIVES_IN_DOUBT_MAX)]
    """The nonces of the earlier incarnations of which the register may know any as the last: the
    last one that got a `Joined`, and those that were started since."""
    register: RegisterGeneration | None
    """The newest generation of the register that the broker has followed; None: it never joined."""
    address: NodeAddress
    """The address for clients."""
    credential: Seal = ""
    """The credential from the `Joined` with which the register gave this id; empty: there is
    none."""
    host: HostLabel = ""


@answer("joined", DECIDER_TO_MEMBER)
@attrs.frozen
class Joined:
    """Answer to `Join`: the broker is a member while this connection is open."""

    request: int
    cluster: Id
    broker: BrokerNumber
    register: RegisterGeneration
    credential: Seal = ""
    """With this the broker proves, when it joins again, that the id is its own."""


@request("install_partitions", DECIDER_TO_MEMBER)
@attrs.frozen
class InstallPartitions:
    """Register to broker: store these decisions, and act on them.

    Answer: `OrderCarriedOut`.
    """

    request: int
    partitions: Annotated[list[PartitionRecord], AtMost(1_000)]
    brokers: Annotated[list[BrokerInfo], AtMost(LIST_COUNT_MAX)]
    """The brokers that the records name."""


@request("install_topics", DECIDER_TO_MEMBER)
@attrs.frozen
class InstallTopics:
    """Register to broker: keep logs for these topics in the broker's partitions.

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
    """A part of an order that the broker could not carry out; the register sends it again."""

    partition: PartitionNumber | None
    """The partition that the part is about; None: it is about a topic."""
    topic_id: OptionalId
    """The id of the topic that the part is about; empty: it is about a partition."""
    reason: Text


@answer("order_carried_out", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class OrderCarriedOut:
    """Answer to `InstallPartitions`, `InstallTopics` and `RemoveTopics`: all parts of the order but
    those in `undone` are carried out, durably."""

    request: int
    undone: Annotated[list[Undone], AtMost(1_000)]


@attrs.frozen
class ReplicaTrouble:
    """Why a broker's replica of a partition accepts no records."""

    partition: PartitionNumber
    reason: Text
    """The reason; empty: it accepts them again."""


@notice("broker_status", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class BrokerStatus:
    """Broker to register: which of its replicas accept records, and how full its disk is.  Sent
    when that changes.  When a broker has just joined, all its replicas are taken to accept records
    until it reports otherwise.  No answer."""

    disk_trouble: Text
    """Why no replica of this broker accepts records: its disk is full; empty: it has space."""
    disk_free_bytes: int | None
    """The free space of the file system with the data directory; None: not known."""
    disk_total_bytes: int | None
    replicas: Annotated[list[ReplicaTrouble], AtMost(1_000)]
    """The replicas whose state has changed since the last report."""


@notice("stream_expired", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class StreamExpired:
    """Leader to register: a topic has expired, as its `StreamDefinition` says: delete it.  Repeated
    until the topic is gone.  No answer."""

    topic_id: Id


@notice("alter_in_sync", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class AlterInSync:
    """Leader to register: replace the in-sync set, if epoch, leader, version and incarnations are
    still the present ones.  Answer: `InSyncAltered`."""

    partition: PartitionNumber
    epoch: EpochNumber
    leader: BrokerNumber
    leader_incarnation: IncarnationNumber
    version: CountedOrNone
    """The version of the in-sync set that is replaced."""
    in_sync: BrokerNumbers
    joiner_incarnation: Counted | None
    """The incarnation of the broker that joins the in-sync set; None: a broker leaves it."""


@notice("in_sync_altered", DECIDER_TO_MEMBER)
@attrs.frozen
class InSyncAltered:
    """Answer to `AlterInSync`."""

    asked: AlterInSync
    accepted: bool
    record: PartitionRecord
    """The partition record that is in force now."""


@notice("resign", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Resign:
    """Leader to register: it can't lead any more; have another replica lead, if there is one."""

    partition: PartitionNumber
    epoch: EpochNumber
    leader: BrokerNumber
    leader_incarnation: IncarnationNumber
    reason: Text


@request("stopping", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Stopping:
    """Broker to register: it stops as soon as other brokers lead its partitions, where they can.

    Answer: `Done`, when they do, and when the broker has left all in-sync sets but those that
    would become too small without it."""

    request: int


@notice("brokers_stopping", DECIDER_TO_MEMBER)
@attrs.frozen
class BrokersStopping:
    """Register to broker: exactly these brokers are about to stop.  They leave in-sync sets, and
    join none."""

    brokers: Annotated[list[BrokerNumber], AtMost(LIST_COUNT_MAX)]


@request("prepare_hand_over", DECIDER_TO_MEMBER)
@attrs.frozen
class PrepareHandOver:
    """Register to leader: the leadership of this partition is about to change.

    Answer: `Done`, when the leader has prepared; until the change it still leads."""

    request: int
    partition: PartitionNumber


@attrs.frozen
class WishedSequencer:
    """Who is to put things in order in a relay partition, if it can."""

    partition: PartitionNumber
    broker: BrokerNumber


@request("install_relay_sets", DECIDER_TO_MEMBER, since=2)
@attrs.frozen
class InstallRelaySets:
    """Register to broker: these relay partitions have these members, and these topics.  A broker
    that is a member holds the partition in memory; one that is none once the set is in force gives
    it up.

    Answer: `OrderCarriedOut`."""

    request: int
    sets: Annotated[list[RelaySetRecord], AtMost(1_000)]
    topics: Annotated[list[TopicRecord], AtMost(1_000)]
    brokers: Annotated[list[BrokerInfo], AtMost(LIST_COUNT_MAX)]
    """The members, with their addresses."""
    sequencers: Annotated[list[WishedSequencer], AtMost(1_000), MayBeMissing()] = attrs.field(
        factory=list
    )
    """Who is to be the sequencer, of partitions of which that is not known yet, or was another
    one."""


@notice("relay_report", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE), since=2)
@attrs.frozen
class RelayReport:
    """Sequencer of a relay partition to register: an epoch has begun, and a majority of that set is
    part of it.  Repeated when the broker joins.  No answer."""

    partition: PartitionNumber
    version: Counted
    """Of the set that is in force."""
    epoch: Place
    """As clients know it."""


@notice("goodbye", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class Goodbye:
    """Broker to register: it is no longer a member."""


@notice("announce_epoch", DECIDER_TO_MEMBER, BROKER_TO_BROKER, needs=on_the_cluster(Verb.REPLICATE))
@attrs.frozen
class AnnounceEpoch:
    """Register to broker, or the broker that holds an election to the replicas: a new epoch begins;
    stop leading and following in older ones.  Answer: `AcceptEpoch`."""

    partition: PartitionNumber
    epoch: EpochNumber


@attrs.frozen
class LogEnd:
    """How far one replica holds one log."""

    topic_id: LogId
    end: Place
    """The end of its log on the device (exclusive)."""
    sound: Annotated[bool, MayBeMissing()] = True
    """Whether it still has all records that were on the device.  Records that only the page cache
    held when the power failed may be missing."""
    held_end: Annotated[Place, MayBeMissing()] = 0
    """The end, or the highwater mark, that the log is known to have had on this replica, if that is
    greater than `end`; otherwise 0."""


@notice(
    "accept_epoch",
    MEMBER_TO_DECIDER,
    BROKER_TO_BROKER_BACK,
    needs=on_the_cluster(Verb.REPLICATE),
)
@attrs.frozen
class AcceptEpoch:
    """Answer to `AnnounceEpoch`: the replica has stored its promise to act in no older epoch, and
    reports what it has on its device."""

    partition: PartitionNumber
    epoch: EpochNumber
    broker: BrokerNumber
    incarnation: IncarnationNumber
    last_epoch: EpochOrNone
    """The newest epoch of any record in the replica."""
    log_epoch: EpochOrNone
    """The newest epoch in which this replica led, or agreed with the leader on every log."""
    ends: Annotated[list[LogEnd], AtMost(LIST_COUNT_MAX)]
    """The end of each of the partition's logs, in any order."""
    first: Annotated[int, Within(0, TOPIC_COUNT_MAX), MayBeMissing()] = 0
    """The index of the first of `ends` among all ends.  If a partition has more logs than a list
    may have entries, several messages follow one another on one connection."""
    more: Annotated[bool, MayBeMissing()] = False
    """Whether a message with further ends follows.  The epoch is accepted with the last one."""
