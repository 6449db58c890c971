"""The results of a client's requests, where no message of the wire is a good result itself."""

from __future__ import annotations

import attrs

from octopi.identifiers import BrokerId, Offset, PartitionId, TopicId
from octopi.position import NO_ANCHOR, Anchor
from octopi.record import Message
from octopi.wire.messages import (
    BrokerInfo,
    LogCount,
    LogInfo,
    PartitionInfo,
    ReadingInfo,
    UnservedTopic,
)


@attrs.frozen
class ClusterInfo:
    """The brokers and partitions of a cluster, as its register knows them."""

    cluster: str
    """The cluster's id; empty before the register has decided anything."""
    topic_count: int
    partition_count: int
    """The number of all partitions, also of those without topics."""
    brokers: list[BrokerInfo]
    partitions: list[PartitionInfo]
    """The partitions that lie on brokers, which are those on which topics were created."""
    learns: list[PartitionId] = attrs.field(factory=list)
    """Partitions about which the register has lost its decisions.  It learns them again from
    brokers, and decides nothing about these partitions until then."""
    learns_from: list[BrokerId] = attrs.field(factory=list)
    """The brokers that have to join before the register has learned them."""
    unserved: list[UnservedTopic] = attrs.field(factory=list)
    """Topics whose records brokers hold, but which are not served, because the register knows
    another topic of that name, or none.  At most 1,000."""
    relays: list[PartitionInfo] = attrs.field(factory=list)
    """The relay partitions, which have numbers of their own: the leader is the sequencer, and in
    sync are the members that are there."""


@attrs.frozen
class PartitionWork:
    """How much work a partition is for its leader."""

    partition: PartitionId
    load: float
    """The average over about a minute: 1 is the work of 1 MiB/s, or of 1,000 readings."""
    hot: bool
    """Whether it alone is too much for one broker."""
    topic: str
    """The topic that is most of it; empty: it has no traffic, or the token may not know the
    topic."""


@attrs.frozen
class ClusterLoads:
    """How much the brokers of a cluster have to do, as its register knows it."""

    is_on: bool
    """Whether the register moves leaderships away from brokers that have much more to do than
    others."""
    goes_by_load: bool
    """Whether it does now.  While there is next to nothing to do, it evens out the number of
    leaderships instead."""
    moved_count: int
    """How many leaderships were moved by load since the register was started."""
    brokers: dict[BrokerId, float | None]
    """The load of each broker that is up: the sum over the partitions that it leads.  None: it has
    not reported, such as one of an earlier version."""
    partitions: list[PartitionWork]


@attrs.frozen
class NodeInfo:
    """A node, as it describes itself."""

    address: str
    role: str
    """``register`` or ``broker``."""
    agent: str
    """Its program and version, such as ``octopi-node/0.1.0``."""
    protocol_version: int
    """The version of the protocol that it and this client speak with each other."""
    uptime_s: float | None
    """How long ago it began to serve (s); None: it is of a version that doesn't tell."""


@attrs.frozen
class BrokerLog:
    """A replica of a log, as its broker describes it."""

    broker: int
    address: str
    log: LogInfo


@attrs.frozen
class BrokerCount:
    """The number of messages in a replica of a log, as its broker counts them."""

    broker: int
    address: str
    log: LogCount


@attrs.frozen
class BrokerReading:
    """An open reading, as the broker that serves it describes it."""

    broker: int
    address: str
    reading: ReadingInfo


@attrs.frozen
class FetchResult:
    """Messages of one log, and where the log begins and ends."""

    topic_id: TopicId
    messages: list[Message]
    log_start: Offset
    highwater: Offset
    anchor: Anchor = NO_ANCHOR
    """The anchor of every place behind the first message; without messages, that of the requested
    offset.  Pass it with the next offset, and the fetch checks that the log is still the same."""
