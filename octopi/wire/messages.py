"""The whole protocol on one page: every message, and what answers it.

A message is one binary WebSocket message holding one CBOR map.  Its first key, ``"type"``,
has the name given in ``@message``; the other keys are the fields, in any order, all of
them but those that may be missing, and no others.  Bulk is a byte string of whole records
exactly as they lie on disk (`octopi.record`).

``request`` numbers are chosen by whoever asks (any, not in use on that connection) and
come back in the answer: the message named in the docstring, or `Failure`.  Offsets and
lengths are bytes, ends are exclusive.  Bounds stand beside the fields; `octopi.wire.codec`
enforces them before anything looks at a message, `octopi.wire.endpoints` says who may
send what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, TypeVar

import attrs

from octopi.identifiers import (
    address_fault,
    id_fault,
    nonce_fault,
    optional_id_fault,
    topic_name_fault,
)
from octopi.limits import (
    ADDRESS_BYTES_MAX,
    AGENT_BYTES_MAX,
    ANCHOR_BYTES_MAX,
    BATCH_BYTES_MAX,
    BROKER_ID_MAX,
    BROKERS_MAX,
    COUNTED_MAX,
    EVENTS_KEPT_COUNT,
    HELLO_BYTES_MAX,
    ID_CHARACTERS,
    JOIN_NONCE_BYTES,
    JOIN_SECRET_BYTES,
    JOIN_SECRETS_MAX,
    LIST_COUNT_MAX,
    LIVES_IN_DOUBT_MAX,
    NONCE_BYTES_MAX,
    OFFSET_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    PRODUCERS_PER_LOG_MAX,
    RECENT_BATCHES_COUNT,
    REPLACED_TOPICS_MAX,
    REQUEST_IDS_PER_LOG_MAX,
    SEAL_BYTES_MAX,
    TEXT_BYTES_MAX,
    TOPIC_COUNT_MAX,
    TOPIC_NAME_BYTES_MAX,
    UNSERVED_TOPICS_MAX,
)
from octopi.printable import controls_fault

PROTOCOL_VERSION: Final = 1
SUBPROTOCOL: Final = "octopi.v1.cbor"


@attrs.frozen
class AtMost:
    """Upper bound of a field: bytes of a text (as UTF-8) or byte string, entries of a list."""

    size: int


@attrs.frozen
class Within:
    """Bounds of an integer field, both allowed."""

    low: int
    high: int


@attrs.frozen
class Grammar:
    """Said of a text field: which texts it may hold."""

    fault: Callable[[str], str]
    """Says what is wrong with a text; empty: nothing."""


@attrs.frozen
class MayBeNegative:
    """Said of an integer field.  All others count, number or measure something."""


@attrs.frozen
class MayBeMissing:
    """Said of a field that is not written while it has its default; a message without it has
    the default.  Such fields stand behind the others.  It is how a message gets a new field:
    peers that don't know it never see it, unless they are sent a value."""


Text = Annotated[str, AtMost(TEXT_BYTES_MAX)]
Agent = Annotated[str, AtMost(AGENT_BYTES_MAX), Grammar(controls_fault)]
Address = Annotated[str, AtMost(ADDRESS_BYTES_MAX)]
"""``ws://host:port`` or ``wss://host:port``; empty where nobody is known."""
Anchor = Annotated[str, AtMost(ANCHOR_BYTES_MAX), MayBeMissing()]
"""What stands before an offset: text that clients keep and send back as it came
(`octopi.position`).  Empty: not known, and then nothing is checked."""
Records = Annotated[bytes, AtMost(BATCH_BYTES_MAX)]
Token = Annotated[str, AtMost(HELLO_BYTES_MAX)] | None
Hash = Annotated[bytes, AtMost(JOIN_SECRET_BYTES)]
Brokers = Annotated[list[int], AtMost(BROKERS_MAX)]
Partitions = Annotated[list[int], AtMost(PARTITIONS_PER_TOPIC_MAX)]

# What nodes tell each other they store, count on from, and make file names of.  So these have
# narrower bounds than what clients send, and a message that exceeds one is refused as a whole.
TopicText = Annotated[str, AtMost(TOPIC_NAME_BYTES_MAX), Grammar(topic_name_fault)]
Id = Annotated[str, AtMost(ID_CHARACTERS), Grammar(id_fault)]
OptionalId = Annotated[str, AtMost(ID_CHARACTERS), Grammar(optional_id_fault)]
Nonce = Annotated[str, AtMost(NONCE_BYTES_MAX), Grammar(nonce_fault)]
NodeAddress = Annotated[str, AtMost(ADDRESS_BYTES_MAX), Grammar(address_fault)]
Seal = Annotated[str, AtMost(SEAL_BYTES_MAX), MayBeMissing()]
"""Proof that this cluster's register said so (`octopi.membership.seals`); empty: none."""
PartitionNumber = Annotated[int, Within(0, LIST_COUNT_MAX - 1)]
BrokerNumber = Annotated[int, Within(1, BROKER_ID_MAX)]
BrokerNumbers = Annotated[list[BrokerNumber], AtMost(BROKERS_MAX)]
Counted = Annotated[int, Within(1, COUNTED_MAX)]
CountedOrNone = Annotated[int, Within(0, COUNTED_MAX)]
"""0 where there was none yet."""
Place = Annotated[int, Within(0, OFFSET_MAX)]
"""An offset in a log."""

MESSAGES: Final[dict[str, type]] = {}
"""Type name -> message class."""

TYPE_NAMES: Final[dict[type, str]] = {}
"""Message class -> type name."""

_C = TypeVar("_C", bound=type)


def message(name: str) -> Callable[[_C], _C]:
    """Register a message class under its type *name*."""

    def register(cls: _C) -> _C:
        MESSAGES[name] = cls
        TYPE_NAMES[cls] = name
        return cls

    return register


JUDGED: Final[set[type]] = set()
"""Parts of messages whose method `fault` has to find nothing wrong."""


def judged(cls: _C) -> _C:
    """Have the codec ask each *cls* what is wrong with it as a whole."""
    JUDGED.add(cls)
    return cls


# --- parts of messages ---------------------------------------------------------------


@attrs.frozen
class TopicOptions:
    """How a topic is kept.  None: the broker's default."""

    retention_ms: int | None = None
    """Segments whose newest record is older are removed."""
    retention_bytes: int | None = None
    """The oldest segments are removed while a log is longer."""
    segment_bytes: int | None = None
    """A segment is closed beyond this."""
    flush_before_ack: bool = False
    """Whether a produce is answered only after its records are on the device."""
    min_insync: int = 1
    """Nothing is committed while fewer replicas than this are in sync."""

    def fault(self) -> str:
        """Why no topic can be kept so; empty: one can."""
        for name, value, least in (
            ("retention_ms", self.retention_ms, 1),
            ("retention_bytes", self.retention_bytes, 1),
            ("segment_bytes", self.segment_bytes, 4096),
            ("min_insync", self.min_insync, 1),
        ):
            if value is not None and value < least:
                return f"{name} is at least {least}, not {value}"
        return ""


@judged
@attrs.frozen
class TopicRecord:
    """What was decided about a topic."""

    topic: TopicText
    topic_id: Id
    partitions: Annotated[list[PartitionNumber], AtMost(PARTITIONS_PER_TOPIC_MAX)]
    """The partitions that hold its logs; a key picks one by its place in this list."""
    options: TopicOptions
    seal: Seal = attrs.field(default="", eq=False)
    replaces: Annotated[list[Id], AtMost(REPLACED_TOPICS_MAX), MayBeMissing()] = attrs.field(
        factory=list
    )
    """Topics of the same name that had been deleted when this one was made, and that some broker
    still held: proof of that for a register that lost its disk.  The newest of them."""

    def fault(self) -> str:
        """Why no register decides this; empty: one may."""
        if not self.partitions or len(set(self.partitions)) < len(self.partitions):
            return f"its partitions are {self.partitions}"
        return self.options.fault()


@judged
@attrs.frozen
class PartitionRecord:
    """What was decided about a partition; a greater (epoch, version) replaces a smaller."""

    partition: PartitionNumber
    epoch: Counted
    version: CountedOrNone
    """Counts the changes of `in_sync` within an epoch."""
    leader: BrokerNumber
    leader_incarnation: Counted
    """The life of the leader that was appointed; another life of it does not lead."""
    replicas: BrokerNumbers
    in_sync: BrokerNumbers
    lost: BrokerNumbers = attrs.field(factory=list)
    """Brokers that were in sync in this epoch until they lost some of what they held: while
    nobody is in sync, what was committed is with them, if anywhere."""
    recovered_epoch: CountedOrNone = 0
    """The newest epoch whose leader was chosen although acknowledged records may be lost: a
    replica that agreed with no leader since cuts what it knows as committed; 0: none."""
    seal: Seal = attrs.field(default="", eq=False)

    def fault(self) -> str:
        """Why no register decides this; empty: one may."""
        replicas = set(self.replicas)
        if self.recovered_epoch > self.epoch:
            return f"it is of epoch {self.epoch}, and recovered in epoch {self.recovered_epoch}"
        if not replicas or len(replicas) < len(self.replicas):
            return f"its replicas are {self.replicas}"
        if self.leader not in replicas:
            return f"its leader {self.leader} is none of its replicas {self.replicas}"
        if not replicas.issuperset(self.in_sync) or not replicas.issuperset(self.lost):
            return f"of its replicas {self.replicas}, {self.in_sync} are in sync"
        return ""


@attrs.frozen
class RegisterLife:
    """One start of a register.  Brokers that obeyed it obey none with a smaller generation any
    more, nor another one with the same."""

    generation: Counted
    """One more than that of the life before; of a register that lost its disk, one more than
    that of any which brokers told it of."""
    nonce: Nonce
    """Random: two registers can count to the same generation."""
    seal: Seal = attrs.field(default="", eq=False)


@attrs.frozen
class ReplicaTroubleAt:
    """Why the replica on *broker* takes no records."""

    broker: int
    reason: Text


@attrs.frozen
class PartitionInfo:
    """Where a partition is, for clients."""

    partition: int
    epoch: int
    leader: int | None
    """None while no broker leads."""
    leader_address: Address
    replicas: Brokers
    in_sync: Brokers
    readers: Annotated[list[Address], AtMost(1_000)]
    """Addresses of live in-sync replicas; the first is the one that this asker should use."""
    waits_for: Annotated[Brokers, MayBeMissing()] = attrs.field(factory=list)
    """While no broker leads: those without which no leader is chosen, unless an operator orders
    it."""
    is_stuck: Annotated[bool, MayBeMissing()] = False
    """Whether an operator has to order it: all have answered, and each lacks something that it had
    on its device."""
    recovered_epoch: Annotated[int, MayBeMissing()] = 0
    """The newest epoch whose leader was chosen although acknowledged records may be lost; 0: none
    was."""
    troubles: Annotated[list[ReplicaTroubleAt], AtMost(1_000), MayBeMissing()] = attrs.field(
        factory=list
    )
    """The replicas that take no records, and why."""


@attrs.frozen
class TopicInfo:
    """A topic and where its partitions are."""

    topic: Text
    topic_id: Text
    partitions: Annotated[list[PartitionInfo], AtMost(PARTITIONS_PER_TOPIC_MAX)]
    options: TopicOptions


@attrs.frozen
class BrokerInfo:
    """A broker as the register knows it."""

    broker: int
    address: Address
    incarnation: int
    live: bool
    partitions_led: int
    disk_free_bytes: Annotated[int | None, MayBeMissing()] = None
    """Of the file system that its data directory lies on, as it said last; None: not known."""
    disk_total_bytes: Annotated[int | None, MayBeMissing()] = None
    disk_trouble: Annotated[str, AtMost(TEXT_BYTES_MAX), MayBeMissing()] = ""
    """Why it takes no records; empty: its disk has space."""
    stream_key: Seal = ""
    """In `InstallPartitions`: what this broker and the one that is told know, and no other one; see
    `Follow`."""


@attrs.frozen
class UnservedTopic:
    """A topic that a broker holds records of and that the register doesn't serve."""

    topic: Text
    topic_id: Text
    broker: int
    used_id: Text
    """The id of the topic of that name that is served; empty: none is."""


@attrs.frozen
class LogInfo:
    """One log of a broker."""

    topic: Text
    topic_id: Text
    partition: int
    epoch: int
    log_start: int
    highwater: int
    log_end: int
    size_bytes: int
    """On disk."""
    fault: Text
    """Why the log takes or gives nothing; empty if it is well."""


@attrs.frozen
class SubscriptionInfo:
    """An open subscription, as the broker that serves it sees it."""

    peer: Text
    """Address of the consumer."""
    agent: Agent
    """Its program, as it says itself."""
    request: int
    """What it calls the subscription."""
    topic: Text
    partition: int
    position: int
    """What is delivered next."""
    credit: int
    highwater: int


@attrs.frozen
class ClusterEvent:
    """Something that the register decided or saw; what doesn't apply is None or empty."""

    number: int
    """Counts the events of a life of the register, from 1."""
    at_ms: int
    kind: Text
    """One of `octopi.roles.register.event_log.KINDS`."""
    partition: int | None
    broker: int | None
    topic: Text
    epoch: int | None
    in_sync: Brokers
    text: Text
    """The same for people."""


# --- any connection ------------------------------------------------------------------


@message("hello")
@attrs.frozen
class Hello:
    """The first message of whoever connected.  Answer: `Welcome`, or `Failure` and the end."""

    version: int
    """The newest protocol version that the sender speaks."""
    agent: Agent
    """Program and version, for the node's log."""
    token: Token = None
    nonce: Annotated[bytes, AtMost(JOIN_NONCE_BYTES), MayBeMissing()] = b""
    """At an endpoint for nodes alone: bytes that were never used before
    (`octopi.security.join_secret`).  The answer is `Challenge` instead, and the token is not
    shown before `Proof`."""


@message("challenge")
@attrs.frozen
class Challenge:
    """The answer to the hello of another node: prove that you are one.  Answer: `Proof`, or
    `Failure` and the end."""

    nonce: Annotated[bytes, AtMost(JOIN_NONCE_BYTES)]
    """Bytes that were never used before."""
    proofs: Annotated[list[Hash], AtMost(JOIN_SECRETS_MAX)]
    """That the sender has the join secret: one for each that it has."""


@message("proof")
@attrs.frozen
class Proof:
    """The answer to a `Challenge` with a good proof.  Answer: `Welcome`, or `Failure` and the
    end."""

    proof: Hash
    """Made with a secret that the challenger has proven to have."""
    token: Token = None


@message("welcome")
@attrs.frozen
class Welcome:
    """The connection is open."""

    version: int
    """The version that both speak from here on."""
    role: Text
    """``register`` or ``broker``."""
    agent: Agent
    heartbeat_interval_ms: int
    """Each side sends something, if need be `Heartbeat`, at least so often."""
    heartbeat_timeout_ms: int
    """Each side gives the connection up after silence for so long."""
    message_bytes_max: int
    """Longer messages end the connection."""
    expires_ms: int | None = None
    """When the connection ends unless a fresh token comes before, in ms since 1970."""


@message("heartbeat")
@attrs.frozen
class Heartbeat:
    """Nothing to say, still here.  No answer."""


@message("failure")
@attrs.frozen
class Failure:
    """A request was refused, or a subscription ended."""

    request: int | None
    """None: the connection as a whole; it is closed next."""
    status: int
    """A number of `octopi.errors.Status`."""
    reason: Text
    address: Address = ""
    """Where to go instead, if that is known."""
    epoch: Annotated[int | None, MayBeMissing()] = None
    """Of ``not_leader``: the epoch of the leader at `address`."""
    offset: Annotated[int | None, MayBeMissing()] = None
    """Of ``history_forked``: the last offset up to which the log and what was read agree.  Of
    ``condition_failed``: where the log ends."""


@message("done")
@attrs.frozen
class Done:
    """A request without a result of its own was carried out."""

    request: int


@message("authenticate")
@attrs.frozen
class Authenticate:
    """A fresh token for this connection.  Answer: `Authenticated`."""

    request: int
    token: Annotated[str, AtMost(HELLO_BYTES_MAX)]


@message("authenticated")
@attrs.frozen
class Authenticated:
    """Answer to `Authenticate`: what the token allows is allowed from here on, and no more."""

    request: int
    expires_ms: int | None
    """See `Welcome`."""


# --- clients and the register --------------------------------------------------------


@message("describe_topic")
@attrs.frozen
class DescribeTopic:
    """Ask where a topic is.  Answer: `TopicDescription`."""

    request: int
    topic: Text
    create: bool
    """Whether a missing topic is made with default options."""


@message("topic_description")
@attrs.frozen
class TopicDescription:
    """Answer to `DescribeTopic` and `CreateTopic`."""

    request: int
    topic: TopicInfo


@message("create_topic")
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


@message("delete_topic")
@attrs.frozen
class DeleteTopic:
    """Delete a topic and its records everywhere.  Answer: `Done`."""

    request: int
    topic: Text


@message("delete_topic_by_id")
@attrs.frozen
class DeleteTopicById:
    """Delete the topic that has this id, whatever its name is; also one that brokers hold and that
    isn't served.  Answer: `Done`."""

    request: int
    topic_id: Text


@message("list_topics")
@attrs.frozen
class ListTopics:
    """Ask for topics in the order of their names.  Answer: `TopicList`."""

    request: int
    after: Text
    """Names greater than this one; empty: from the first."""
    count_max: int


@message("topic_list")
@attrs.frozen
class TopicList:
    """Answer to `ListTopics`."""

    request: int
    topics: Annotated[list[TopicInfo], AtMost(LIST_COUNT_MAX)]
    more: bool
    """Whether there are topics behind the last one."""


@message("describe_cluster")
@attrs.frozen
class DescribeCluster:
    """Ask for brokers and partitions.  Answer: `ClusterDescription`."""

    request: int


@message("cluster_description")
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
    learns: Annotated[list[int], AtMost(LIST_COUNT_MAX), MayBeMissing()] = attrs.field(factory=list)
    """Partitions that the register learns again from brokers, as its journal lacks what was decided
    about them: until that is done it decides nothing about them."""
    learns_from: Annotated[list[int], AtMost(LIST_COUNT_MAX), MayBeMissing()] = attrs.field(
        factory=list
    )
    """The brokers that have to join for that."""
    unserved: Annotated[list[UnservedTopic], AtMost(UNSERVED_TOPICS_MAX), MayBeMissing()] = (
        attrs.field(factory=list)
    )
    """Topics that brokers hold and nobody is served, of those that the asker may know of."""


@message("describe_events")
@attrs.frozen
class DescribeEvents:
    """Ask what the register decided and saw lately.  Answer: `EventList`."""

    request: int
    after: int
    """Events with greater numbers."""


@message("event_list")
@attrs.frozen
class EventList:
    """Answer to `DescribeEvents`: the oldest first."""

    request: int
    life: Text
    """Of the register; numbers begin anew with each."""
    events: Annotated[list[ClusterEvent], AtMost(EVENTS_KEPT_COUNT)]


@message("drain_broker")
@attrs.frozen
class DrainBroker:
    """Have other in-sync replicas lead what *broker* leads, and give it no leadership before
    it joins anew.  Answer: `Done`, when it leads nothing."""

    request: int
    broker: int


@message("add_partitions")
@attrs.frozen
class AddPartitions:
    """Have more partitions, for topics that are created from now on.  Answer: `Done`."""

    request: int
    count: int


@message("move_replica")
@attrs.frozen
class MoveReplica:
    """Have *joining* hold a replica in the place of *leaving*.  Answer: `Done`, when it is in
    sync and the other one is out."""

    request: int
    partition: int
    leaving: int
    joining: int


@attrs.frozen
class ReplicaHolding:
    """What one replica of a partition without a leader holds."""

    broker: int
    live: bool
    was_in_sync: bool
    """Whether it was in sync last, so that it has what was flushed before it was acknowledged."""
    answered: bool
    """Whether it has said what it holds; if not, all that follows is 0."""
    sound: bool
    """Whether nothing is missing of what it had on its device."""
    log_epoch: int
    """The newest epoch in which it led, or agreed with the leader on every log."""
    log_count: int
    held_bytes: int
    """The ends of its logs, added up."""
    missing_bytes: int
    """Of what any replica that answered holds or is known to have held, log by log, it lacks this
    much."""


@attrs.frozen
class LostRange:
    """Records of one log that no leader would have."""

    topic: Text
    kept_end: int
    """The end of what is left."""
    known_end: int
    """The end of what is known to have been there."""


@message("recover_partition")
@attrs.frozen
class RecoverPartition:
    """Say what the replicas of a partition without a leader hold; with `accept_loss`, have the
    best of those that answer lead, though acknowledged records may be lost.  Refused while a
    replica in sync runs, or while waiting will do.  Answer: `PartitionRecovery`."""

    request: int
    partition: int
    accept_loss: bool
    empty_on: Annotated[int | None, MayBeMissing()] = None
    """The broker on which the partition begins again, empty, as its only replica.  Refused while
    any broker with a replica runs."""


@message("partition_recovery")
@attrs.frozen
class PartitionRecovery:
    """How a partition without a leader stands, or stood before this was ordered."""

    request: int
    partition: int
    leader: int | None
    """Who leads now; None: no broker does."""
    epoch: int
    recovered: bool
    """Whether it leads by this order."""
    candidate: int | None
    """Who leads, or would lead if that was ordered now."""
    waits_for: Brokers
    """Brokers without which no leader is chosen unless that is ordered."""
    replicas: Annotated[list[ReplicaHolding], AtMost(1_000)]
    lost: Annotated[list[LostRange], AtMost(1_000)]
    """What is known to be lost if the candidate leads: of this many logs at most."""
    lost_log_count: int
    """Of all logs with such a loss."""
    emptied: Annotated[list[Text], AtMost(1_000), MayBeMissing()] = attrs.field(factory=list)
    """Topics of which the partition keeps nothing if it begins again empty."""
    emptied_count: Annotated[int, MayBeMissing()] = 0
    """Of all such topics."""


@message("remove_broker")
@attrs.frozen
class RemoveBroker:
    """Forget *broker*, which is away for good and holds no replica; its id is never given
    again.  Answer: `Done`, also if it was removed before."""

    request: int
    broker: int


# --- clients and brokers -------------------------------------------------------------


@message("produce")
@attrs.frozen
class Produce:
    """Append records.  Answer: `Produced`, once they are committed.

    The records are all of version 1, or all of version 2 and of one producer with
    consecutive sequences.
    """

    request: int
    topic: Text
    partition: int
    records: Records


@message("produced")
@attrs.frozen
class Produced:
    """The records are committed, one behind the other."""

    request: int
    offset: int
    """Of the first record."""
    epoch: int
    """Of the leader that appended them."""
    duplicate: bool
    """Whether they had been appended before; then this is the first receipt again."""


@message("find_offset")
@attrs.frozen
class FindOffset:
    """Ask for an offset; only a leader that knows how far its log is committed answers anything
    but ``earliest``.  Answer: `FoundOffset`."""

    request: int
    topic: Text
    partition: int
    at: Text
    """``earliest``, ``latest``, ``timestamp`` (the first record with a time stamp not below
    `value`, in ms; latest if there is none), ``last`` (`value` records before latest) or
    ``boundary`` (the last record that starts at or before offset `value`, from earliest to
    latest)."""
    value: int


@message("found_offset")
@attrs.frozen
class FoundOffset:
    """Answer to `FindOffset`."""

    request: int
    offset: int
    log_start: int
    highwater: int
    """As far as who answers knows; for ``earliest`` that may be a replica which lags."""
    anchor: Anchor = ""
    """Of `offset`."""


@message("fetch")
@attrs.frozen
class Fetch:
    """Ask once for records.  Answer: `Fetched`."""

    request: int
    topic: Text
    partition: int
    offset: int
    bytes_max: int
    """Whole records up to so many bytes, but at least one."""
    wait_ms: int
    """Wait so long for records to come where there are none yet."""
    anchor: Anchor = ""
    """Of `offset`: where the log has another one, the answer is ``history_forked``."""


@message("fetched")
@attrs.frozen
class Fetched:
    """Answer to `Fetch`; no records: none came in time."""

    request: int
    topic_id: Text
    records: Records
    log_start: int
    highwater: int
    anchor: Anchor = ""
    """Of every place behind the first record; if there are no records, of the place asked for."""


@message("subscribe")
@attrs.frozen
class Subscribe:
    """Ask for records as they come.  Answer: `Subscribed`, then `Delivery` again and again
    until `Unsubscribe` or `Failure`; all carry this request's number."""

    request: int
    topic: Text
    partition: int
    offset: int
    credit: int
    """Deliver records that start below this offset.  It is a position, not an amount, so
    that a grant which arrives late or twice does no harm."""
    anchor: Anchor = ""
    """Of `offset`: where the log has another one, the answer is ``history_forked``."""


@message("subscribed")
@attrs.frozen
class Subscribed:
    """Answer to `Subscribe`."""

    request: int
    topic_id: Text
    epoch: int
    log_start: int
    highwater: int
    anchor: Anchor = ""
    """Of the offset that was asked for."""


@message("delivery")
@attrs.frozen
class Delivery:
    """Records of a subscription, whole, one behind the other."""

    request: int
    offset: int
    """Of the first record."""
    records: Records
    highwater: int
    anchor: Anchor = ""
    """Of every place behind the first record."""


@message("credit")
@attrs.frozen
class Credit:
    """Move a subscription's credit forward.  No answer; smaller than before: no effect."""

    request: int
    until: int


@message("unsubscribe")
@attrs.frozen
class Unsubscribe:
    """End a subscription.  Answer: `Done`; nothing of the subscription follows it."""

    request: int


@message("describe_logs")
@attrs.frozen
class DescribeLogs:
    """Ask for a broker's logs.  Answer: `LogList`."""

    request: int
    topic: Text
    """Only of this topic; empty: all."""
    after_topic: Text
    after_partition: Annotated[int, MayBeNegative()]
    """Logs behind this (topic, partition), in their order; start with ``("", -1)``."""


@message("log_list")
@attrs.frozen
class LogList:
    """Answer to `DescribeLogs`."""

    request: int
    logs: Annotated[list[LogInfo], AtMost(1_000)]
    more: bool


@message("describe_subscriptions")
@attrs.frozen
class DescribeSubscriptions:
    """Ask for a broker's open subscriptions.  Answer: `SubscriptionList`."""

    request: int
    topic: Text
    """Only of this topic; empty: all."""


@message("subscription_list")
@attrs.frozen
class SubscriptionList:
    """Answer to `DescribeSubscriptions`."""

    request: int
    subscriptions: Annotated[list[SubscriptionInfo], AtMost(LIST_COUNT_MAX)]
    more: bool
    """Whether there are more than fit."""


# --- brokers and the register --------------------------------------------------------


@attrs.frozen
class Standing:
    """How a broker stands with a partition it is a replica of, when it joins."""

    partition: PartitionNumber
    promised: CountedOrNone
    """The highest epoch that it accepted or acted in."""
    intact: bool
    """Whether it still holds all that it ever acknowledged."""


@message("inventory")
@attrs.frozen
class Inventory:
    """What a broker holds and was told last; any number of them, before `Join`.

    A register that lost its disk learns from these what existed.  No answer.
    """

    partitions: Annotated[list[PartitionRecord], AtMost(1_000)]
    topics: Annotated[list[TopicRecord], AtMost(1_000)]
    standings: Annotated[list[Standing], AtMost(1_000)] = attrs.field(factory=list)
    """Of the partitions that it is a replica of."""


@message("join")
@attrs.frozen
class Join:
    """Register as a broker.  Answer: `Joined`."""

    request: int
    cluster: OptionalId
    """The cluster it belongs to; empty on its first start."""
    broker: BrokerNumber | None
    """Its id; None: give me one."""
    incarnation: Counted
    nonce: Nonce
    """Random, of this life: a copy of a data directory can count to the same incarnation."""
    ancestors: Annotated[list[Nonce], AtMost(LIVES_IN_DOUBT_MAX)]
    """The nonces of earlier lives that the register may know as the last: the one that it was
    last heard to let in, and those that were started since."""
    register: RegisterLife | None
    """The newest that the broker obeyed; None: it never joined."""
    address: NodeAddress
    """Where clients reach it."""
    credential: Seal = ""
    """What the register said in `Joined` when it gave this id; empty: it never did."""


@message("joined")
@attrs.frozen
class Joined:
    """The broker is a member while this connection lives."""

    request: int
    cluster: Id
    broker: BrokerNumber
    register: RegisterLife
    credential: Seal = ""
    """Proves to the register, when the broker joins again, that it is the one of this id."""


@message("install_partitions")
@attrs.frozen
class InstallPartitions:
    """Register to broker: take note of these decisions and act on them.

    Answer: `OrderCarriedOut`.
    """

    request: int
    partitions: Annotated[list[PartitionRecord], AtMost(1_000)]
    brokers: Annotated[list[BrokerInfo], AtMost(LIST_COUNT_MAX)]
    """Where the brokers are that the records name."""


@message("install_topics")
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


@message("remove_topics")
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


@message("order_carried_out")
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


@message("broker_status")
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


# --- followers and leaders -----------------------------------------------------------
# No request numbers: every message of a follower's stream names the session it belongs to,
# and the machines at both ends (`octopi.replication`) ignore what is old or doubled.


@attrs.frozen
class EpochStart:
    """One row of an epoch history: where the records of *epoch* begin."""

    epoch: CountedOrNone
    start: Place


EpochStarts = Annotated[list[EpochStart], AtMost(LIST_COUNT_MAX)]


@message("follow")
@attrs.frozen
class Follow:
    """Follower to leader: I want to follow this log from here on.  Answer: `Followed` or
    `FollowRefused`.  A follower that has no log of the partition names none, with an empty
    `topic_id`; then its session has begun, too, if the leader has none either."""

    partition: PartitionNumber
    epoch: Counted
    broker: BrokerNumber
    incarnation: Counted
    attempt: Counted
    """Counted up by the follower for each session; (incarnation, attempt) names a session."""
    topic_id: OptionalId
    epochs: EpochStarts
    """Which epoch wrote what of the follower's log."""
    log_end: Place
    proof: Seal = ""
    """A message authentication code of the session under the `BrokerInfo.stream_key` of the two:
    who begins a session as *broker* is that broker."""


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


@message("followed")
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


@message("follow_refused")
@attrs.frozen
class FollowRefused:
    """Answer to `Follow`: not now, not here, or not any more."""

    partition: int
    epoch: int
    incarnation: int
    attempt: int
    topic_id: Text
    reason: Text


@message("replicate")
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


@message("acknowledge")
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
# Matched by their content: a repetition is judged as the first was.


@message("alter_in_sync")
@attrs.frozen
class AlterInSync:
    """Leader to register: replace the in-sync set, if all this still holds.  Answer:
    `InSyncAltered`."""

    partition: PartitionNumber
    epoch: Counted
    leader: BrokerNumber
    leader_incarnation: Counted
    version: CountedOrNone
    """Of the in-sync set that is replaced."""
    in_sync: BrokerNumbers
    joiner_incarnation: Counted | None
    """The life of the broker that joins; None: a broker leaves."""


@message("in_sync_altered")
@attrs.frozen
class InSyncAltered:
    """Answer to `AlterInSync`."""

    asked: AlterInSync
    accepted: bool
    record: PartitionRecord
    """What is in force now."""


@message("resign")
@attrs.frozen
class Resign:
    """Leader to register: I can't go on, have another replica lead if there is one."""

    partition: PartitionNumber
    epoch: Counted
    leader: BrokerNumber
    leader_incarnation: Counted
    reason: Text


@message("stopping")
@attrs.frozen
class Stopping:
    """Broker to register: I stop as soon as others lead what they can lead of mine.

    Answer: `Done`, when that is so, and when I am in sync only where too few others are."""

    request: int


@message("brokers_stopping")
@attrs.frozen
class BrokersStopping:
    """Register to broker: these and no others are about to stop.  They leave in-sync sets, and
    join none."""

    brokers: Annotated[list[BrokerNumber], AtMost(LIST_COUNT_MAX)]


@message("prepare_hand_over")
@attrs.frozen
class PrepareHandOver:
    """Register to leader: the leadership of this partition is about to change.

    Answer: `Done`, when what has to be done before is done; meanwhile the leader leads."""

    request: int
    partition: PartitionNumber


@message("goodbye")
@attrs.frozen
class Goodbye:
    """Broker to register: I am a member no more."""


@message("announce_epoch")
@attrs.frozen
class AnnounceEpoch:
    """Register to broker: a new epoch begins, stop what you do in older ones.  Answer:
    `AcceptEpoch`."""

    partition: PartitionNumber
    epoch: Counted


@attrs.frozen
class LogEnd:
    """How far one replica holds one log."""

    topic_id: Id
    end: Place
    """The end of what it holds, on the device (exclusive)."""
    sound: Annotated[bool, MayBeMissing()] = True
    """Whether nothing is missing of what was on the device; what only the page cache held when
    the power failed may be."""
    held_end: Annotated[Place, MayBeMissing()] = 0
    """Where the log is known to have ended on this replica, or to have been committed, if that is
    more."""


@message("accept_epoch")
@attrs.frozen
class AcceptEpoch:
    """Answer to `AnnounceEpoch`: promised, durably, and this is what I hold, durably."""

    partition: PartitionNumber
    epoch: Counted
    broker: BrokerNumber
    incarnation: Counted
    last_epoch: CountedOrNone
    """The newest epoch that wrote a record here."""
    log_epoch: CountedOrNone
    """The newest epoch in which this replica led, or agreed with the leader on every log."""
    ends: Annotated[list[LogEnd], AtMost(LIST_COUNT_MAX)]
    """The end of each of the partition's logs, in any order."""
    first: Annotated[int, Within(0, TOPIC_COUNT_MAX), MayBeMissing()] = 0
    """A partition with more logs than a list may have is told in several messages, one behind the
    other on one connection: the place of the first of `ends` among all."""
    more: Annotated[bool, MayBeMissing()] = False
    """Whether further ends follow.  The epoch is accepted when the last ones are there."""
