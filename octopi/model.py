"""The structures that a cluster decides and stores: topics, partitions, generations of the
register, and durable subscriptions.

The register decides topics and partitions, writes them to its journal and sends them to brokers,
which store them in their checkpoints.  Coordinators decide subscriptions.  The wire encodes these
structures as parts of messages (`octopi.wire`); `octopi.stored` has their disk format.  This module
knows no format.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Annotated, Final

import attrs

from octopi.field_bounds import AtMost, Grammar, MayBeMissing, Within, judged
from octopi.generation_record import Generation, generations_fault
from octopi.identifiers import (
    NO_EPOCH,
    BrokerId,
    Epoch,
    Incarnation,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TimestampMs,
    consumer_name_fault,
    id_fault,
    nonce_fault,
    topic_name_fault,
)
from octopi.limits import (
    ATTEMPTS_MAX,
    BROKER_ID_MAX,
    BROKERS_MAX,
    CONTENT_TYPE_BYTES_MAX,
    COUNTED_MAX,
    DELAY_MS_MAX,
    GENERATIONS_MAX,
    ID_CHARACTERS,
    LIST_COUNT_MAX,
    NONCE_BYTES_MAX,
    OFFSET_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    QUEUE_WINDOW_MAX,
    RELAY_BUFFER_BYTES_MAX,
    RELAY_BUFFER_BYTES_MIN,
    RELAYS_MAX,
    RELAYS_MIN,
    REPLACED_TOPICS_MAX,
    SEAL_BYTES_MAX,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
    TEXT_BYTES_MAX,
    TOPIC_NAME_BYTES_MAX,
    WALL_MS_MAX,
)

TopicText = Annotated[str, AtMost(TOPIC_NAME_BYTES_MAX), Grammar(topic_name_fault)]
Id = Annotated[str, AtMost(ID_CHARACTERS), Grammar(id_fault)]
Nonce = Annotated[str, AtMost(NONCE_BYTES_MAX), Grammar(nonce_fault)]
Seal = Annotated[str, AtMost(SEAL_BYTES_MAX), MayBeMissing()]
"""The register's seal (`octopi.coordination.seals`); empty: there is none."""
PartitionNumber = Annotated[PartitionId, Within(0, LIST_COUNT_MAX - 1)]
BrokerNumber = Annotated[BrokerId, Within(1, BROKER_ID_MAX)]
BrokerNumbers = Annotated[list[BrokerNumber], AtMost(BROKERS_MAX)]
Counted = Annotated[int, Within(1, COUNTED_MAX)]
EpochNumber = Annotated[Epoch, Within(1, COUNTED_MAX)]
EpochOrNone = Annotated[Epoch, Within(0, COUNTED_MAX)]
"""0: there was none yet."""
IncarnationNumber = Annotated[Incarnation, Within(1, COUNTED_MAX)]
CountedOrNone = Annotated[int, Within(0, COUNTED_MAX)]
"""0: there was none yet."""
WallTime = Annotated[int, Within(0, WALL_MS_MAX)]
"""Milliseconds since 1970-01-01 UTC."""
Place = Annotated[int, Within(0, OFFSET_MAX)]
"""An offset in a log."""


@unique
class TopicKind(StrEnum):
    """Where the messages of a topic are.  The names are stored on disk."""

    LOG = "log"
    """In logs on the disks of brokers."""
    RELAY = "relay"
    """In the memory of the brokers of a relay set (`octopi.relay`)."""


def topic_kind_fault(text: str) -> str:
    """Why *text* is no kind of a topic; empty if it is one."""
    return "" if text in set(TopicKind) else f"there are {', '.join(TopicKind)}"


KindText = Annotated[str, AtMost(16), Grammar(topic_kind_fault), MayBeMissing()]
"""A `TopicKind`."""


@attrs.frozen
class TopicOptions:
    """The options of a topic.  None: the broker's default."""

    retention_ms: int | None = None
    """Segments whose newest record is older than this are removed."""
    retention_bytes: int | None = None
    """The oldest segments are removed while a log is longer than this."""
    segment_bytes: int | None = None
    """A segment takes no records that would make it longer than this.  It is longer only if records
    that are appended together are: one batch, or what a follower is sent in one message."""
    flush_before_ack: bool = False
    """Whether a produce is answered only after its records are on the device."""
    min_insync: int = 1
    """Nothing is committed while fewer replicas than this are in sync."""
    hold_ms: Annotated[int | None, MayBeMissing()] = None
    """Retention waits for durable subscriptions until the newest record of a segment is older than
    `retention_ms` (0 without it) and this; None: its age is no bound.  If `hold_bytes` is None,
    too, retention waits for no subscription."""
    hold_bytes: Annotated[int | None, MayBeMissing()] = None
    """Retention waits for durable subscriptions while a log has less than this beyond what it keeps
    anyway; None: the size is no bound."""
    buffer_bytes: Annotated[int | None, MayBeMissing()] = None
    """Of a topic in memory: how many bytes its stream keeps."""
    buffer_count: Annotated[int | None, MayBeMissing()] = None
    """Of a topic in memory: how many transactions its stream keeps."""
    buffer_age_ms: Annotated[int | None, MayBeMissing()] = None
    """Of a topic in memory: its stream keeps nothing that is older."""

    @property
    def holds(self) -> bool:
        """Whether retention waits for durable subscriptions."""
        return self.hold_ms is not None or self.hold_bytes is not None

    def fault(self) -> str:
        """Why no topic can have these options; empty if one can."""
        for name, value, least in (
            ("retention_ms", self.retention_ms, 1),
            ("retention_bytes", self.retention_bytes, 1),
            ("segment_bytes", self.segment_bytes, 4096),
            ("min_insync", self.min_insync, 1),
            ("hold_ms", self.hold_ms, 1),
            ("hold_bytes", self.hold_bytes, 1),
            ("buffer_bytes", self.buffer_bytes, RELAY_BUFFER_BYTES_MIN),
            ("buffer_count", self.buffer_count, 1),
            ("buffer_age_ms", self.buffer_age_ms, 1),
        ):
            if value is not None and value < least:
                return f"{name} must be at least {least}, not {value}"
        if self.holds and self.retention_ms is None and self.retention_bytes is None:
            return "hold_ms and hold_bytes are for topics with retention_ms or retention_bytes"
        if self.buffer_bytes is not None and self.buffer_bytes > RELAY_BUFFER_BYTES_MAX:
            return f"buffer_bytes must be at most {RELAY_BUFFER_BYTES_MAX}, not {self.buffer_bytes}"
        return ""

    def fault_as(self, kind: str) -> str:
        """Why no topic of that kind can have these options; empty if one can."""
        usual = TopicOptions()
        is_relay = kind == TopicKind.RELAY
        for one in attrs.fields(TopicOptions):
            is_bound = one.name.startswith("buffer_")
            if is_bound != is_relay and getattr(self, one.name) != getattr(usual, one.name):
                return f"{one.name} is an option of {'log' if is_relay else 'relay'} topics"
        return self.fault()


_OPTION_NAMES: Final = tuple(one.name for one in attrs.fields(TopicOptions))
OPTION_COUNT: Final = len(_OPTION_NAMES)


def option_name_fault(name: str) -> str:
    """Why *name* is no option of a topic; empty if it is one."""
    return "" if name in _OPTION_NAMES else f"there are {', '.join(_OPTION_NAMES)}"


OptionName = Annotated[str, AtMost(32), Grammar(option_name_fault)]
"""The name of an option of a topic."""


@judged
@attrs.frozen
class StreamDefinition:
    """What a topic is as a stream over HTTP, beside its records.  None: a stream of bytes that
    never expires."""

    content_type: Annotated[str, AtMost(CONTENT_TYPE_BYTES_MAX)] = ""
    """The media type of its content; empty: ``application/octet-stream``."""
    ttl_s: Annotated[CountedOrNone | None, MayBeMissing()] = None
    """The stream expires when it was neither read nor written for so long (s)."""
    expires_at_ms: Annotated[WallTime | None, MayBeMissing()] = None
    """The stream expires at this time (ms since 1970-01-01 UTC)."""
    forked_from: Annotated[str, AtMost(TEXT_BYTES_MAX), MayBeMissing()] = ""
    """The stream whose content this one began with, the place in that, and the streams that that
    one began with (`octopi.streams.forks`); empty: it began without content."""

    @property
    def ancestors(self) -> list[str]:
        """The streams whose content this one began with, the nearest first."""
        words = self.forked_from.split()
        return words[:1] + words[3:]

    @property
    def can_expire(self) -> bool:
        """Whether it expires at some time."""
        return self.ttl_s is not None or self.expires_at_ms is not None

    def fault(self) -> str:
        """Why no stream can be defined so; empty if one can."""
        if self.ttl_s is not None and self.expires_at_ms is not None:
            return "a stream has ttl_s or expires_at_ms, not both"
        if not (self.content_type.isascii() and self.content_type.isprintable()):
            return "content_type has to be printable ASCII"
        return ""


@judged
@attrs.frozen
class TopicRecord:
    """The register's decision about a topic."""

    topic: TopicText
    topic_id: Id
    partitions: Annotated[list[PartitionNumber], AtMost(PARTITIONS_PER_TOPIC_MAX)]
    """Those that take its messages; a key chooses one by its index in this list."""
    options: TopicOptions
    seal: Seal = attrs.field(default="", eq=False)
    replaces: Annotated[list[Id], AtMost(REPLACED_TOPICS_MAX), MayBeMissing()] = attrs.field(
        factory=list
    )
    """The newest topics of the same name that had been deleted when this topic was created, while
    some broker still held them.  They prove to a register that lost its disk that this topic is the
    newer one."""
    stream: Annotated[StreamDefinition | None, MayBeMissing()] = None
    """What the topic is as a stream over HTTP; None: nobody said."""
    generation: Annotated[CountedOrNone, MayBeMissing()] = 0
    """The generation of the register that altered the options last; 0: they were never altered."""
    version: Annotated[CountedOrNone, MayBeMissing()] = 0
    """Counts the alterations of the options."""
    kind: KindText = TopicKind.LOG
    """A `TopicKind`.  The partitions of a relay topic are relay partitions, which have numbers of
    their own."""
    generations: Annotated[list[Generation], AtMost(GENERATIONS_MAX), MayBeMissing()] = attrs.field(
        factory=list
    )
    """All of them, by number, from 1 on (`octopi.coordination.generations`).  Empty: the topic has
    only ever had `partitions`, which are generation 1."""

    @property
    def log_partitions(self) -> list[PartitionId]:
        """The partitions that have its logs, also those that don't take messages."""
        later = [number for one in self.generations for number in one.partitions]
        return list(dict.fromkeys([*self.partitions, *later])) if later else self.partitions

    @property
    def is_relay(self) -> bool:
        """Whether it is in memory."""
        return self.kind == TopicKind.RELAY

    @property
    def alteration(self) -> tuple[int, int]:
        """Of two records of one topic, the one in which this is greater has the newer options."""
        return self.generation, self.version

    def fault(self) -> str:
        """Why no register can decide this; empty if one can."""
        if not self.partitions or len(set(self.partitions)) < len(self.partitions):
            return f"its partitions are none, or not all different: {self.partitions}"
        if fault := generations_fault(self.generations, self.partitions):
            return fault
        return self.options.fault_as(self.kind)


@judged
@attrs.frozen
class RelaySetRecord:
    """The register's decision about the members of a relay partition; a greater version replaces a
    smaller one.  The members themselves bring it into force."""

    partition: PartitionNumber
    version: Counted
    """Counts the sets of the partition, each of which has one member more or less."""
    members: BrokerNumbers
    in_force: bool = False
    """Whether an epoch has begun with these members."""
    size: Annotated[int, Within(0, RELAYS_MAX)] = RELAYS_MIN
    """How many members the partition should have."""
    pinned: Annotated[bool, MayBeMissing()] = False
    """Whether an operator has named the members, so that none is moved to spread sets."""

    @property
    def number(self) -> tuple[int, bool]:
        """Of two records of a partition, the one in which this is greater is the newer one."""
        return self.version, self.in_force

    def fault(self) -> str:
        """Why no register can decide this; empty if one can."""
        if not 0 < len(set(self.members)) == len(self.members) <= RELAYS_MAX:
            return f"its members are none, too many, or not all different: {self.members}"
        return ""


@judged
@attrs.frozen
class PartitionRecord:
    """The register's decision about a partition; a greater (epoch, version) replaces a smaller."""

    partition: PartitionNumber
    epoch: EpochNumber
    version: CountedOrNone
    """Counts the changes of `in_sync` within an epoch."""
    leader: BrokerNumber
    leader_incarnation: IncarnationNumber
    """The incarnation of the leader that was appointed; its other incarnations don't lead."""
    replicas: BrokerNumbers
    in_sync: BrokerNumbers
    lost: BrokerNumbers = attrs.field(factory=list)
    """Brokers that were in sync in this epoch until they lost some of their records.  While no
    replica is in sync, only they may have all committed records."""
    recovered_epoch: EpochOrNone = NO_EPOCH
    """The newest epoch whose leader was chosen although acknowledged records may be lost; 0: there
    was none.  A replica that has agreed with no leader since then cuts its log even below its
    highwater mark."""
    seal: Seal = attrs.field(default="", eq=False)

    def fault(self) -> str:
        """Why no register can decide this; empty if one can."""
        replicas = set(self.replicas)
        if self.recovered_epoch > self.epoch:
            return f"its epoch {self.epoch} is before its recovered epoch {self.recovered_epoch}"
        if not replicas or len(replicas) < len(self.replicas):
            return f"its replicas are none, or not all different: {self.replicas}"
        if self.leader not in replicas:
            return f"its leader {self.leader} is not among its replicas {self.replicas}"
        if not replicas.issuperset(self.in_sync) or not replicas.issuperset(self.lost):
            return f"brokers that are in sync or lost are not among its replicas {self.replicas}"
        return ""


@attrs.frozen
class RegisterGeneration:
    """One start of a register.  A broker that has joined it no longer joins a register with a
    smaller generation, nor another register with the same generation."""

    generation: Counted
    """One more than the generation before; in a register that lost its disk, one more than the
    greatest generation that brokers reported."""
    nonce: Nonce
    """Random, since two registers can count to the same generation."""
    seal: Seal = attrs.field(default="", eq=False)


@attrs.frozen
class ReplicaReport:
    """A broker's report on one of its replicas, when the broker joins."""

    partition: PartitionNumber
    promised: EpochOrNone
    """The highest epoch that the replica has accepted or acted in."""
    intact: bool
    """Whether the replica still has everything that it ever acknowledged."""


@unique
class SubscriptionMode(StrEnum):
    """How the members of a durable subscription share its messages.  The names are stored on
    disk."""

    EXCLUSIVE = "exclusive"
    """There is one member, and it has all logs."""
    FAILOVER = "failover"
    """Each log has one member; the logs are spread over the members."""
    SHARED = "shared"
    """Messages are dealt one by one, each to one member."""
    KEY_SHARED = "key_shared"
    """The same, and the messages of one key stay in order."""


QUEUE_MODES: Final = frozenset({SubscriptionMode.SHARED, SubscriptionMode.KEY_SHARED})
"""The modes of queues, whose messages are dealt one by one."""


@unique
class SubscriptionState(StrEnum):
    """The state of a durable subscription.  The names are stored on disk."""

    CREATING = "creating"
    """Its creation is decided, but not every log has its mark yet."""
    READY = "ready"
    DELETING = "deleting"
    """Its deletion is decided: it has no members, but some logs may still have its mark."""


@unique
class SubscriptionStart(StrEnum):
    """Where a durable subscription begins in each log that exists when it is created."""

    EARLIEST = "earliest"
    LATEST = "latest"


def _one_of(names: type[StrEnum]) -> Grammar:
    def fault(text: str) -> str:
        return "" if text in set(names) else f"there are {', '.join(names)}"

    return Grammar(fault)


_WORD_BYTES_MAX: Final = 16

ConsumerText = Annotated[str, AtMost(TOPIC_NAME_BYTES_MAX), Grammar(consumer_name_fault)]
"""The name of a durable subscription, or of a member of one."""
ModeText = Annotated[str, AtMost(_WORD_BYTES_MAX), _one_of(SubscriptionMode)]
"""A `SubscriptionMode`."""
StateText = Annotated[str, AtMost(_WORD_BYTES_MAX), _one_of(SubscriptionState)]
"""A `SubscriptionState`."""
StartText = Annotated[str, AtMost(_WORD_BYTES_MAX), _one_of(SubscriptionStart)]
"""A `SubscriptionStart`."""


@attrs.frozen
class SubscriptionOptions:
    """The options of a durable subscription."""

    session_timeout_ms: int = 10_000
    """A member that was silent for this long is no longer a member; 1 s to 5 min."""
    release_timeout_ms: int = 10_000
    """How long a member that has to release a log may still work on it; 0 to 5 min."""
    expires_ms: int | None = 7 * 24 * 3600 * 1000
    """A subscription that had no member for this long is deleted; at least a minute.  None:
    never."""
    mark_interval_ms: int = 250
    """The longest time until a received mark is stored; 10 ms to 1 min."""
    attempts: int | None = 5
    """A message of a queue becomes a dead letter after this many deliveries; 1 to 100.  None: it is
    dealt again without end."""
    ack_timeout_ms: int = 30_000
    """A message of a queue whose delivery is not answered for this long is dealt again; 1 s to
    12 h."""
    window: int = 1_000
    """How many messages behind its mark a queue may have dealt or settled; 1 to 10,000."""

    def fault(self, mode: str | None = None) -> str:
        """Why no subscription can have these options, in *mode* or, if None, in any mode; empty if
        one can."""
        longest = SESSION_TIMEOUT_MS_MAX
        for name, value, least, most in (
            ("session_timeout_ms", self.session_timeout_ms, SESSION_TIMEOUT_MS_MIN, longest),
            ("release_timeout_ms", self.release_timeout_ms, 0, longest),
            ("expires_ms", self.expires_ms, 60_000, COUNTED_MAX),
            ("mark_interval_ms", self.mark_interval_ms, 10, 60_000),
            ("attempts", self.attempts, 1, ATTEMPTS_MAX),
            ("ack_timeout_ms", self.ack_timeout_ms, 1_000, DELAY_MS_MAX),
            ("window", self.window, 1, QUEUE_WINDOW_MAX),
        ):
            if value is not None and not least <= value <= most:
                return f"{name} must be from {least} to {most}, not {value}"
        if mode is None or mode in QUEUE_MODES:
            return ""
        usual = SubscriptionOptions()
        for name in ("attempts", "ack_timeout_ms", "window"):
            if getattr(self, name) != getattr(usual, name):
                modes = " and ".join(sorted(QUEUE_MODES, reverse=True))
                return f"{name} is for the modes {modes}, not for {mode}"
        return ""


@attrs.frozen
class SubscriptionDefinition:
    """A coordinator's decision about a durable subscription."""

    sid: Annotated[SubscriptionId, Grammar(id_fault), AtMost(ID_CHARACTERS)]
    name: Annotated[SubscriptionName, AtMost(TOPIC_NAME_BYTES_MAX), Grammar(consumer_name_fault)]
    topic: TopicText
    topic_id: Id
    partitions: Annotated[list[PartitionNumber], AtMost(PARTITIONS_PER_TOPIC_MAX)]
    """The partitions of the topic, in its order.  The leader of the first is the coordinator."""
    mode: ModeText
    options: SubscriptionOptions
    start: StartText
    state: StateText
    created_ms: TimestampMs
    used_ms: TimestampMs
    """When it last had a member; it is stored with a precision of a quarter of ``expires_ms``."""


@unique
class Verb(StrEnum):
    """What can be granted.  The names are part of tokens, so they never change."""

    CREATE = "create"
    """Create topics."""
    PUBLISH = "publish"
    """Append to topics."""
    SUBSCRIBE = "subscribe"
    """Read topics."""
    CONSUME = "consume"
    """Be a member of durable subscriptions: create them, have their messages, move their marks."""
    ADMIN = "admin"
    """Delete topics; for ``*`` also drain and remove brokers, move replicas, add partitions."""
    REPLICATE = "replicate"
    """For ``*``: be a broker of the cluster."""
