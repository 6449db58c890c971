"""What a client's questions are answered with, where no wire message says it well."""

from __future__ import annotations

import attrs

from octopi.identifiers import BrokerId, Offset, PartitionId, TopicId
from octopi.position import NO_ANCHOR, Anchor
from octopi.record import Message
from octopi.wire.messages import BrokerInfo, LogInfo, PartitionInfo, UnservedTopic


@attrs.frozen
class ClusterInfo:
    """The brokers and partitions of a cluster, as its register knows them."""

    cluster: str
    """Its id; empty before the register has decided anything."""
    topic_count: int
    partition_count: int
    """All of them."""
    brokers: list[BrokerInfo]
    partitions: list[PartitionInfo]
    """Those that lie on brokers: that a topic was created on."""
    learns: list[PartitionId] = attrs.field(factory=list)
    """Partitions that the register learns again from brokers, having lost what was decided about
    them: until that is done it decides nothing about them."""
    learns_from: list[BrokerId] = attrs.field(factory=list)
    """The brokers that have to join for that."""
    unserved: list[UnservedTopic] = attrs.field(factory=list)
    """Topics that brokers hold records of, and that are not served: another one of that name is in
    use, or none.  At most 1,000."""


@attrs.frozen
class BrokerLog:
    """A replica of a log, as the broker describes it that holds it."""

    broker: int
    address: str
    log: LogInfo


@attrs.frozen
class FetchResult:
    """Messages of one log, and where the log begins and ends."""

    topic_id: TopicId
    messages: list[Message]
    log_start: Offset
    highwater: Offset
    anchor: Anchor = NO_ANCHOR
    """Of every place behind the first message; without messages, of the offset asked for.  Give
    it back with the next offset, and a fetch finds out whether the log is still the same."""
