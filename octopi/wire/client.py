"""Messages between clients and the nodes that serve them: topics, records, readings.

Offsets and lengths are bytes, ends are exclusive.  Bulk is a byte string of whole records exactly
as they lie on disk (`octopi.record`).
"""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost, MayBeMissing, MayBeNegative
from octopi.identifiers import BrokerId, Epoch, Offset, PartitionId
from octopi.limits import EVENTS_KEPT_COUNT, LIST_COUNT_MAX, UNSERVED_TOPICS_MAX
from octopi.model import TopicOptions, Verb
from octopi.wire.common import (
    Agent,
    Anchor,
    BrokerInfo,
    Brokers,
    PartitionInfo,
    Partitions,
    Records,
    Text,
    TopicInfo,
)
from octopi.wire.declarations import (
    ANY_TOKEN,
    ANYTHING_ON_ITS_TOPIC,
    CLIENT_TO_DECIDER,
    CLIENT_TO_LEADER,
    TO_CLIENT,
    answer,
    notice,
    on_its_topic,
    on_the_cluster,
    request,
)


@attrs.frozen
class UnservedTopic:
    """A topic that a broker holds records of and that the register doesn't serve."""

    topic: Text
    topic_id: Text
    broker: BrokerId
    used_id: Text
    """The id of the topic of that name that is served; empty: none is."""


@attrs.frozen
class LogInfo:
    """One log of a broker."""

    topic: Text
    topic_id: Text
    partition: PartitionId
    epoch: Epoch
    log_start: Offset
    highwater: Offset
    log_end: Offset
    size_bytes: int
    """On disk."""
    fault: Text
    """Why the log takes or gives nothing; empty if it is well."""


@attrs.frozen
class ReadingInfo:
    """An open reading, as the broker that serves it sees it."""

    peer: Text
    """Address of the consumer."""
    agent: Agent
    """Its program, as it says itself."""
    request: int
    """What it calls the reading."""
    topic: Text
    partition: PartitionId
    position: int
    """What is delivered next."""
    credit: int
    highwater: Offset


@attrs.frozen
class ClusterEvent:
    """Something that the register decided or saw; what doesn't apply is None or empty."""

    number: int
    """Counts the events of a life of the register, from 1."""
    at_ms: int
    kind: Text
    """One of `octopi.roles.register.event_log.KINDS`."""
    partition: PartitionId | None
    broker: BrokerId | None
    topic: Text
    epoch: Epoch | None
    in_sync: Brokers
    text: Text
    """The same for people."""


@request("describe_topic", CLIENT_TO_DECIDER, needs=ANYTHING_ON_ITS_TOPIC)
@attrs.frozen
class DescribeTopic:
    """Ask where a topic is.  Answer: `TopicDescription`."""

    request: int
    topic: Text
    create: bool
    """Whether a missing topic is made with default options."""


@answer("topic_description", TO_CLIENT)
@attrs.frozen
class TopicDescription:
    """Answer to `DescribeTopic` and `CreateTopic`."""

    request: int
    topic: TopicInfo


@request("create_topic", CLIENT_TO_DECIDER, needs=on_its_topic(Verb.CREATE))
@attrs.frozen
class CreateTopic:
    """Create a topic.  Answer: `TopicDescription`."""

    request: int
    topic: Text
    partition_count: int
    """How many partitions hold it, chosen by consistent hashing."""
    partitions: Partitions | None
    """Explicit partitions instead."""
    options: TopicOptions
    beside: Annotated[Text, MayBeMissing()] = ""
    """The topic whose partitions the new one gets, all of them and in its order; then
    `partition_count` is 0 or their number, and `partitions` is None."""


@request("delete_topic", CLIENT_TO_DECIDER, needs=on_its_topic(Verb.ADMIN))
@attrs.frozen
class DeleteTopic:
    """Delete a topic and its records everywhere.  Answer: `Done`."""

    request: int
    topic: Text


@request("delete_topic_by_id", CLIENT_TO_DECIDER, needs=on_the_cluster(Verb.ADMIN))
@attrs.frozen
class DeleteTopicById:
    """Delete the topic that has this id, whatever its name is; also one that brokers hold and that
    isn't served.  Answer: `Done`."""

    request: int
    topic_id: Text


@request("list_topics", CLIENT_TO_DECIDER, needs=ANY_TOKEN)
@attrs.frozen
class ListTopics:
    """Ask for topics in the order of their names.  Answer: `TopicList`."""

    request: int
    after: Text
    """Names greater than this one; empty: from the first."""
    count_max: int


@answer("topic_list", TO_CLIENT)
@attrs.frozen
class TopicList:
    """Answer to `ListTopics`."""

    request: int
    topics: Annotated[list[TopicInfo], AtMost(LIST_COUNT_MAX)]
    more: bool
    """Whether there are topics behind the last one."""


@request("describe_cluster", CLIENT_TO_DECIDER, needs=ANY_TOKEN)
@attrs.frozen
class DescribeCluster:
    """Ask for brokers and partitions.  Answer: `ClusterDescription`."""

    request: int


@answer("cluster_description", TO_CLIENT)
@attrs.frozen
class ClusterDescription:
    """Answer to `DescribeCluster`."""

    request: int
    cluster: Text
    """The cluster's id; empty before the register has decided anything."""
    topic_count: int
    partition_count: int
    """All of them; `partitions` has those that lie on brokers already."""
    brokers: Annotated[list[BrokerInfo], AtMost(LIST_COUNT_MAX)]
    partitions: Annotated[list[PartitionInfo], AtMost(LIST_COUNT_MAX)]
    learns: Annotated[list[PartitionId], AtMost(LIST_COUNT_MAX), MayBeMissing()] = attrs.field(
        factory=list
    )
    """Partitions that the register learns again from brokers, as its journal lacks what was decided
    about them: until that is done it decides nothing about them."""
    learns_from: Annotated[list[BrokerId], AtMost(LIST_COUNT_MAX), MayBeMissing()] = attrs.field(
        factory=list
    )
    """The brokers that have to join for that."""
    unserved: Annotated[list[UnservedTopic], AtMost(UNSERVED_TOPICS_MAX), MayBeMissing()] = (
        attrs.field(factory=list)
    )
    """Topics that brokers hold but do not serve, of those that the token may see."""


@request("describe_events", CLIENT_TO_DECIDER, needs=ANY_TOKEN)
@attrs.frozen
class DescribeEvents:
    """Ask what the register decided and saw lately.  Answer: `EventList`."""

    request: int
    after: int
    """Events with greater numbers."""


@answer("event_list", TO_CLIENT)
@attrs.frozen
class EventList:
    """Answer to `DescribeEvents`: the oldest first."""

    request: int
    life: Text
    """Of the register; numbers begin anew with each."""
    events: Annotated[list[ClusterEvent], AtMost(EVENTS_KEPT_COUNT)]


@request("produce", CLIENT_TO_LEADER, needs=on_its_topic(Verb.PUBLISH))
@attrs.frozen
class Produce:
    """Append records.  Answer: `Produced`, once they are committed.

    The records are all of version 1, or all of version 2 and of one producer with
    consecutive sequences.
    """

    request: int
    topic: Text
    partition: PartitionId
    records: Records


@answer("produced", TO_CLIENT)
@attrs.frozen
class Produced:
    """The records are committed, one behind the other."""

    request: int
    offset: Offset
    """Of the first record."""
    epoch: Epoch
    """Of the leader that appended them."""
    duplicate: bool
    """Whether they had been appended before; then this is the first receipt again."""


@request("find_offset", CLIENT_TO_LEADER, needs=on_its_topic(Verb.SUBSCRIBE))
@attrs.frozen
class FindOffset:
    """Ask for an offset; only a leader that knows how far its log is committed answers anything
    but ``earliest``.  Answer: `FoundOffset`."""

    request: int
    topic: Text
    partition: PartitionId
    at: Text
    """``earliest``, ``latest``, ``timestamp`` (the first record with a time stamp not below
    `value`, in ms; latest if there is none), ``last`` (`value` records before latest) or
    ``boundary`` (the last record that starts at or before offset `value`, from earliest to
    latest)."""
    value: int


@answer("found_offset", TO_CLIENT)
@attrs.frozen
class FoundOffset:
    """Answer to `FindOffset`."""

    request: int
    offset: Offset
    log_start: Offset
    highwater: Offset
    """As known to the answering broker; for ``earliest`` that may be a lagging replica."""
    anchor: Anchor = ""
    """Of `offset`."""


@request("fetch", CLIENT_TO_LEADER, needs=on_its_topic(Verb.SUBSCRIBE))
@attrs.frozen
class Fetch:
    """Ask once for records.  Answer: `Fetched`."""

    request: int
    topic: Text
    partition: PartitionId
    offset: Offset
    bytes_max: int
    """The answer has at most this many bytes of whole records, but at least one record."""
    wait_ms: int
    """How long (ms) to wait for records if there are none at the offset."""
    anchor: Anchor = ""
    """Of `offset`: where the log has another one, the answer is ``history_forked``."""


@answer("fetched", TO_CLIENT)
@attrs.frozen
class Fetched:
    """Answer to `Fetch`; without records if none came in time."""

    request: int
    topic_id: Text
    records: Records
    log_start: Offset
    highwater: Offset
    anchor: Anchor = ""
    """The anchor of every offset behind the first record; without records, of the requested
    offset."""


@request("subscribe", CLIENT_TO_LEADER, needs=on_its_topic(Verb.SUBSCRIBE))
@attrs.frozen
class Subscribe:
    """Ask for records as they come.  Answer: `Subscribed`, then `Delivery` again and again
    until `Unsubscribe` or `Failure`; all carry this request's number."""

    request: int
    topic: Text
    partition: PartitionId
    offset: Offset
    credit: int
    """Deliver records that start below this offset.  It is a position, not an amount, so
    that a grant which arrives late or twice does no harm."""
    anchor: Anchor = ""
    """Of `offset`: where the log has another one, the answer is ``history_forked``."""


@answer("subscribed", TO_CLIENT)
@attrs.frozen
class Subscribed:
    """Answer to `Subscribe`."""

    request: int
    topic_id: Text
    epoch: Epoch
    log_start: Offset
    highwater: Offset
    anchor: Anchor = ""
    """Of the offset that was asked for."""


@answer("delivery", TO_CLIENT)
@attrs.frozen
class Delivery:
    """Records of a reading, whole, one behind the other."""

    request: int
    offset: Offset
    """Of the first record."""
    records: Records
    highwater: Offset
    anchor: Anchor = ""
    """Of every place behind the first record."""


@notice("credit", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class Credit:
    """Move a reading's credit forward.  No answer; smaller than before: no effect."""

    request: int
    until: int


@notice("unsubscribe", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class Unsubscribe:
    """End a reading.  Answer: `Done`; nothing of the reading follows it."""

    request: int


@request("describe_logs", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class DescribeLogs:
    """Ask for a broker's logs.  Answer: `LogList`."""

    request: int
    topic: Text
    """Only of this topic; empty: all."""
    after_topic: Text
    after_partition: Annotated[int, MayBeNegative()]
    """Logs behind this (topic, partition), in their order; start with ``("", -1)``."""


@answer("log_list", TO_CLIENT)
@attrs.frozen
class LogList:
    """Answer to `DescribeLogs`."""

    request: int
    logs: Annotated[list[LogInfo], AtMost(1_000)]
    more: bool


@request("describe_readings", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class DescribeReadings:
    """Ask for a broker's open readings.  Answer: `ReadingList`."""

    request: int
    topic: Text
    """Only of this topic; empty: all."""


@answer("reading_list", TO_CLIENT)
@attrs.frozen
class ReadingList:
    """Answer to `DescribeReadings`."""

    request: int
    readings: Annotated[list[ReadingInfo], AtMost(LIST_COUNT_MAX)]
    more: bool
    """Whether there are more than fit."""
