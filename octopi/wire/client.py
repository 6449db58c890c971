"""Messages between clients and the nodes that serve them: topics, records, readings.

Offsets and lengths are in bytes; ends are exclusive.  Records travel as a byte string of whole
records, encoded as in the log files (`octopi.record`).
"""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost, MayBeMissing, MayBeNegative
from octopi.generation_record import GenerationOrNone
from octopi.identifiers import BrokerId, Epoch, Offset, PartitionId
from octopi.limits import ASK_TIMEOUT_S, EVENTS_KEPT_COUNT, LIST_COUNT_MAX, UNSERVED_TOPICS_MAX
from octopi.model import KindText, StreamDefinition, TopicKind, TopicOptions, Verb
from octopi.wire.common import (
    Agent,
    Anchor,
    BrokerInfo,
    Brokers,
    ConnectionName,
    PartitionInfo,
    Partitions,
    ReceivedRecords,
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
from octopi.wire.proofs import PROOF_BYTES_MAX


@attrs.frozen
class UnservedTopic:
    """A topic whose records a broker holds, but which the register doesn't serve."""

    topic: Text
    topic_id: Text
    broker: BrokerId
    used_id: Text
    """The id of the served topic with the same name; empty: there is none."""


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
    """The size of its files."""
    fault: Text
    """Why the log can't be written or read; empty if it can."""
    held_bytes: Annotated[int, MayBeMissing()] = 0
    """How much of it retention would have removed, if it waited for no subscription."""
    held_for: Annotated[Text, MayBeMissing()] = ""
    """The slowest subscription that it waits for.  Empty: it waits for none, or this broker doesn't
    know the marks, or the client may not know of that subscription."""
    kind: KindText = TopicKind.LOG
    """That of its topic.  A stream in memory has no files; `size_bytes` is what it holds."""


@attrs.frozen
class ReadingInfo:
    """An open reading, as the broker that serves it sees it."""

    peer: Text
    """The address of the consumer."""
    agent: Agent
    """The consumer's program and version, as it said in its `Hello`."""
    request: int
    """The request number of the reading's `Subscribe`."""
    topic: Text
    partition: PartitionId
    position: int
    """The offset of the next record to deliver."""
    credit: int
    highwater: Offset
    dealt: Annotated[Offset | None, MayBeMissing()] = None
    """The program has dealt with the messages below this offset, as it reported
    (`ReportPosition`); not less than the log's start.  None: it has reported nothing."""
    name: ConnectionName = ""

    @property
    def sent_lag_bytes(self) -> int:
        """The bytes that are committed and were not sent to the consumer yet."""
        return max(0, self.highwater - self.position)

    @property
    def lag_bytes(self) -> int | None:
        """The bytes that are committed and that the program has not dealt with; None: it has
        reported nothing."""
        return None if self.dealt is None else max(0, self.highwater - self.dealt)

    @property
    def least_lag_bytes(self) -> int:
        """`lag_bytes` if that is known, else `sent_lag_bytes`, which is never more."""
        lag = self.lag_bytes
        return self.sent_lag_bytes if lag is None else lag


@attrs.frozen
class ClusterEvent:
    """Something that a register or a broker noted.  Fields that don't apply are None or empty."""

    number: int
    """Counts the events of one life of the node that is asked, from 1."""
    at_ms: int
    kind: Text
    """One of `octopi.roles.noted_events.KINDS`."""
    partition: PartitionId | None
    broker: BrokerId | None
    topic: Text
    epoch: Epoch | None
    in_sync: Brokers
    text: Text
    """A description of the event, for people."""
    origin: Annotated[Text, MayBeMissing()] = ""
    """The life of the broker that noted it, "/", and its number there; empty: a register did."""


@request("describe_topic", CLIENT_TO_DECIDER, needs=ANYTHING_ON_ITS_TOPIC, asked_s=ASK_TIMEOUT_S)
@attrs.frozen
class DescribeTopic:
    """Ask where a topic is.  Answer: `TopicDescription`."""

    request: int
    topic: Text
    create: bool
    """Whether a missing topic is created, with default options."""


@answer("topic_description", TO_CLIENT)
@attrs.frozen
class TopicDescription:
    """Answer to `DescribeTopic` and `CreateTopic`."""

    request: int
    topic: TopicInfo


@request("create_topic", CLIENT_TO_DECIDER, needs=on_its_topic(Verb.CREATE), asked_s=ASK_TIMEOUT_S)
@attrs.frozen
class CreateTopic:
    """Create a topic.  Answer: `TopicDescription`."""

    request: int
    topic: Text
    partition_count: int
    """The number of its partitions, which consistent hashing chooses."""
    partitions: Partitions | None
    """The partitions to use, instead of chosen ones; None: choose them."""
    options: TopicOptions
    beside: Annotated[Text, MayBeMissing()] = ""
    """A topic whose partitions the new topic gets, all of them and in the same order; then
    `partition_count` is 0 or their number, and `partitions` is None."""
    stream: Annotated[StreamDefinition | None, MayBeMissing()] = None
    """What the topic is as a stream over HTTP; None: nothing in particular."""
    kind: KindText = TopicKind.LOG
    """Where its messages are: a `octopi.model.TopicKind`."""


@request("delete_topic", CLIENT_TO_DECIDER, needs=on_its_topic(Verb.ADMIN), asked_s=ASK_TIMEOUT_S)
@attrs.frozen
class DeleteTopic:
    """Delete a topic, and its records on all brokers.  Answer: `Done`."""

    request: int
    topic: Text


@request(
    "delete_topic_by_id", CLIENT_TO_DECIDER, needs=on_the_cluster(Verb.ADMIN), asked_s=ASK_TIMEOUT_S
)
@attrs.frozen
class DeleteTopicById:
    """Delete the topic that has this id.  Its name need not be legal, and it may be a topic that
    brokers hold but the register doesn't serve.  Answer: `Done`."""

    request: int
    topic_id: Text


@request("list_topics", CLIENT_TO_DECIDER, needs=ANY_TOKEN, asked_s=ASK_TIMEOUT_S)
@attrs.frozen
class ListTopics:
    """Ask for topics in the order of their names.  Answer: `TopicList`."""

    request: int
    after: Text
    """List topics with greater names than this; empty: begin with the first topic."""
    count_max: int


@answer("topic_list", TO_CLIENT)
@attrs.frozen
class TopicList:
    """Answer to `ListTopics`."""

    request: int
    topics: Annotated[list[TopicInfo], AtMost(LIST_COUNT_MAX)]
    more: bool
    """Whether there are topics behind the last one."""


@request("describe_cluster", CLIENT_TO_DECIDER, needs=ANY_TOKEN, asked_s=ASK_TIMEOUT_S)
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
    """The number of all partitions; `partitions` has those that lie on brokers already."""
    brokers: Annotated[list[BrokerInfo], AtMost(LIST_COUNT_MAX)]
    partitions: Annotated[list[PartitionInfo], AtMost(LIST_COUNT_MAX)]
    learns: Annotated[list[PartitionId], AtMost(LIST_COUNT_MAX), MayBeMissing()] = attrs.field(
        factory=list
    )
    """Partitions whose decisions are missing in the register's journal.  It learns them again from
    brokers, and decides nothing about these partitions until then."""
    learns_from: Annotated[list[BrokerId], AtMost(LIST_COUNT_MAX), MayBeMissing()] = attrs.field(
        factory=list
    )
    """The brokers that have to join before the register has learned them."""
    unserved: Annotated[list[UnservedTopic], AtMost(UNSERVED_TOPICS_MAX), MayBeMissing()] = (
        attrs.field(factory=list)
    )
    """Topics that brokers hold but the register doesn't serve, as far as the token may see them."""
    relays: Annotated[list[PartitionInfo], AtMost(LIST_COUNT_MAX), MayBeMissing()] = attrs.field(
        factory=list
    )
    """The relay partitions, which have numbers of their own."""


@request("describe_events", CLIENT_TO_DECIDER, needs=ANY_TOKEN, asked_s=ASK_TIMEOUT_S)
@attrs.frozen
class DescribeEvents:
    """Ask what the register decided and saw lately.  Answer: `EventList`."""

    request: int
    after: int
    """List events with greater numbers than this."""


@answer("event_list", TO_CLIENT)
@attrs.frozen
class EventList:
    """Answer to `DescribeEvents`: the oldest first."""

    request: int
    life: Text
    """The nonce of the node's life in which the numbers began; empty before it has a cluster."""
    events: Annotated[list[ClusterEvent], AtMost(EVENTS_KEPT_COUNT)]


@request("find_offset", CLIENT_TO_LEADER, needs=on_its_topic(Verb.SUBSCRIBE))
@attrs.frozen
class FindOffset:
    """Ask for an offset.  Any broker that serves the log answers ``earliest``; only a leader that
    knows how far its log is committed answers the others.  Answer: `FoundOffset`."""

    request: int
    topic: Text
    partition: PartitionId
    at: Text
    """``earliest``, ``latest``, ``timestamp`` (the first record with a time stamp not below
    `value`, in ms; latest if there is none), ``last`` (`value` records before latest),
    ``boundary`` (the last record that starts at or before offset `value`, from earliest to
    latest) or ``message`` (just behind the record of a relay topic that has `id`)."""
    value: int
    id: Annotated[bytes, AtMost(16), MayBeMissing()] = b""
    """Of a message: 16 bytes; empty unless `at` is ``message``."""


@answer("found_offset", TO_CLIENT)
@attrs.frozen
class FoundOffset:
    """Answer to `FindOffset`."""

    request: int
    offset: Offset
    log_start: Offset
    highwater: Offset
    """As the answering broker knows it; for ``earliest`` that may be a replica that lags."""
    anchor: Anchor = ""
    """The anchor of `offset`."""


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
    """The anchor of `offset`; if the log has another one, the request is refused with
    ``history_forked``."""
    generation: Annotated[GenerationOrNone, MayBeMissing()] = 0
    """See `Subscribe.generation`: behind that the request is refused with ``stale_route``."""


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
    """Ask for records as they come.  Answer: `Subscribed`, then any number of `Delivery` until
    `Unsubscribe` or `Failure`; all of them have this request's number."""

    request: int
    topic: Text
    partition: PartitionId
    offset: Offset
    credit: int
    """Deliver records that start below this offset.  Credit is a position and not an amount, so
    a `Credit` that arrives late or twice does no harm."""
    anchor: Anchor = ""
    """The anchor of `offset`; if the log has another one, the request is refused with
    ``history_forked``."""
    proven: Annotated[bool, MayBeMissing()] = False
    """Have each `Delivery` carry what is needed to compute the digests of a relay topic; of a topic
    in logs the request is refused with ``wrong_kind``."""
    generation: Annotated[GenerationOrNone, MayBeMissing()] = 0
    """The newest generation of the topic whose partitions the reader knows.  If a later one is in
    force, the reading ends at the end of this one in the log, with ``stale_route``: look the topic
    up.  0: the reader goes by the first list of partitions alone."""


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
    """The anchor of the requested offset."""


@answer("delivery", TO_CLIENT)
@attrs.frozen
class Delivery:
    """The next records of a reading; they are whole, and lie one behind the other in the log."""

    request: int
    offset: Offset
    """The offset of the first record."""
    records: ReceivedRecords
    highwater: Offset
    anchor: Anchor = ""
    """The anchor of every place behind the first record."""
    proof: Annotated[bytes, AtMost(PROOF_BYTES_MAX), MayBeMissing()] = b""
    """See `octopi.wire.proofs`; empty: it was not asked for."""


@notice("credit", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class Credit:
    """Move a reading's credit forward.  A smaller credit than before has no effect.  No answer."""

    request: int
    until: int


@notice("report_position", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class ReportPosition:
    """Report how far the program of a reading is, so that people can see its lag.  A client sends
    it at most once a second, and only when the position has changed.  No answer.  The broker
    ignores a position in a reading that is not open, a position beyond what it sent, and one that
    is not greater than the last."""

    request: int
    offset: Offset
    """The program has dealt with the messages below this offset.  The message that it works on is
    not among them."""


@notice("unsubscribe", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class Unsubscribe:
    """End a reading.  Answer: `Done`; no message of the reading follows it."""

    request: int


@request("describe_logs", CLIENT_TO_LEADER, needs=ANY_TOKEN)
@attrs.frozen
class DescribeLogs:
    """Ask for a broker's logs.  Answer: `LogList`."""

    request: int
    topic: Text
    """List only logs of this topic; empty: of all topics."""
    after_topic: Text
    after_partition: Annotated[int, MayBeNegative()]
    """List logs behind (`after_topic`, `after_partition`), in the order of topic and partition;
    ``("", -1)``: begin with the first log."""


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
    """List only readings of this topic; empty: of all topics."""


@answer("reading_list", TO_CLIENT)
@attrs.frozen
class ReadingList:
    """Answer to `DescribeReadings`."""

    request: int
    readings: Annotated[list[ReadingInfo], AtMost(LIST_COUNT_MAX)]
    more: bool
    """Whether there are more readings than fit in the list."""
