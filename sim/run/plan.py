"""The plan of one run: everything that decides what happens in it, as data.

A plan holds everything that a run depends on.  So it means the same even if a later version of the
search draws differently, and leaving a part out doesn't change the rest.  A plan can be written as
JSON, for people and tools, and as a token of one line, for repeating the run.

A token is ``oc1-`` and base85 (Python's `base64.b85encode`: fit for single quotes) of:

======= ===============================================================================
bytes   meaning
======= ===============================================================================
0..1    the first bytes of `versions_digest`: a run also depends on the order in which Trio
        and the WebSocket stack do things, so with other versions it may go differently
2..     raw deflate (RFC 1951) of one CBOR value
======= ===============================================================================

The value is the plan as `_pack` makes it.  `Plan` and `WorkloadOptions` become maps from the
positions of their fields, in the order of declaration, to the values that are not the defaults.
Any other object becomes the list of its fields, without those at the end that have their defaults;
where a field may hold objects of several classes, the position of the class comes first.  A word of
`_WORDS` becomes its position there; a number of seconds becomes one of whole milliseconds if that
is exact.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import types
import typing
import zlib
from enum import Enum
from functools import cache
from importlib.metadata import version
from typing import Any, Final, Literal, Union, get_args, get_origin

import attrs
import cbor2
from cattrs.preconf.json import make_converter
from cattrs.strategies import configure_tagged_union

from octopi.errors import OctopiError
from octopi.limits import (
    CLIENT_BATCH_BYTES,
    JOURNAL_SNAPSHOT_ENTRIES,
    RELAYS_MIN,
    RETENTION_CHECK_INTERVAL_S,
)
from octopi.simulation.disk.faults import How
from octopi.simulation.faults.actions import (
    Action,
    BitFlip,
    InjectedFault,
    Place,
    RollBack,
    Wipe,
)
from octopi.simulation.faults.damage import Damage

TOKEN_PREFIX: Final = "oc1-"

BROKERS_MAX: Final = 64
"""As many brokers as a plan may have; what is drawn from seeds has fewer."""

_DEPENDENCIES: Final = ("octopi-node", "trio", "trio-websocket", "wsproto")
_VERSION_BYTES: Final = 2

_LINE_OF_WORDS: Final = (
    "register broker leader follower client any here others both in out before during after "
    "append sync send rename truncate replace_file sync_directory open pread .log broker-1 "
    "broker-2 broker-3 acknowledged in_sync epoch lag fifo websocket topic drain grow move "
    "cut flip missing older log index checkpoint directory ends replica table identity journal "
    "membership follow renew tail ask poll end exclusive failover reset delete shared key_shared "
    "brokers active standby register-2 register-3 unflushed unheard "
    "replace_twice sequencer relay relays"
)
_WORDS: Final = _LINE_OF_WORDS.split()
"""Words that are frequent in plans.  Add new ones at the end, since tokens hold positions."""

Tier = Literal["message", "websocket"]
Order = Literal["random", "fifo"]
Chore = Literal[
    "topic",
    "drain",
    "grow",
    "move",
    "renew",
    "replace",
    "ask",
    "poll",
    "end",
    "reset",
    "delete",
    "alter",
    "replace_twice",
    "relays",
]
MemberMode = Literal["exclusive", "failover", "shared", "key_shared"]
Entrances = Literal["register", "brokers", "any"]


class PlanError(OctopiError):
    """A text or a token is not a valid plan."""


@attrs.frozen
class WorkloadOptions:
    """The load of a run: what its clients do."""

    producers: int = 4
    records: int = 50
    """How many messages each producer sends."""
    consumers: int = 2
    topics: int = 1
    topic_partitions: int = 2
    """How many partitions each topic has."""
    value_bytes_max: int = 400
    burst_count: int = 1
    """How many messages a producer submits, at most, before it waits for their receipts."""
    pause_s: float = 0.004
    """The pause between a producer's bursts, on average."""
    reopen_count: int = 0
    """After about this many messages a producer or consumer is closed, and another one continues
    its work; 0: never."""
    delivery_timeout_s: float = 30.0
    consumer_pause_s: float = 0.0
    """How long a consumer takes for a message, on average."""
    starts_late: bool = False
    """Whether some consumers start elsewhere than at the beginning."""
    chores: tuple[Chore, ...] = ()
    """What an operator does meanwhile: ``topic``: make and delete a topic.  ``drain``: drain a
    broker.  ``grow``: add a partition.  ``move``: move a replica.  ``renew``: make and delete a
    topic several times under one name.  ``replace``: delete a topic and make it anew at the same
    time.  ``replace_twice``: the same twice, without waiting, in partition 0.  ``ask``: ask a
    topic's logs for offsets by time and by count.  ``poll``: have more fetches wait than a broker
    takes.  ``end``: ask every log again and again where it ends.  ``reset``: set a mark of the
    durable subscription.  ``delete``: delete that subscription.  ``alter``: alter a topic.
    ``relays``: give a relay partition other members."""
    batch_bytes: int = CLIENT_BATCH_BYTES
    """A producer sends a batch of this size without waiting for the receipts of others."""
    polls: int = 0
    """How many fetches of each producer's client wait for records, on the connection on which the
    producer sends its last messages."""
    opaque_records: int = 0
    """How many messages are sent as version 1 records, by a producer of their own."""
    members: int = 0
    """How many members the durable subscription to the first topic has."""
    member_mode: MemberMode = "exclusive"
    static_members: int = 0
    """How many of them have a name of their own, and keep their logs through a restart."""
    member_pause_s: float = 0.0
    """How long a member takes for a message, on average; now and then it takes much longer."""
    member_stay_count: int = 0
    """After about this many messages a member leaves, or is cancelled, and comes back; 0: never."""
    queue_attempts: int | None = 3
    """In the modes of queues: a message that was dealt so often becomes a dead letter; None: it is
    dealt for ever."""
    queue_window: int = 20
    queue_ack_timeout_s: float = 1.0
    queue_prefetch: int = 5
    """How many unanswered messages of each log a member of a queue has, at most; some have 1."""
    entrances: Entrances = "register"
    """Which nodes clients are told: the ``register``; ``brokers``: all of them; ``any``: a broker,
    and the register behind it.  Each client is told brokers in an order of its own."""
    named_producers: int = 0
    """How many of the producers have a name, which each start of them opens again."""
    relay_topics: int = 0
    """How many topics are in memory, beside the others; at most three of four clients use them."""
    relay_buffer_count: int | None = None
    """How many transactions each relay keeps of such a topic; None: the default of the product."""
    pipes: bool = False
    """Whether the members are those of a pipe to a topic of its own; in the modes with marks."""
    forwarding_producers: int = 0
    """How many of the producers, the last ones, have brokers pass their messages on to leaders;
    named ones don't."""


@attrs.frozen
class Plan:
    """One run."""

    seed: int
    tier: Tier = "message"
    brokers: int = 3
    partitions: int = 2
    replicas: int = 3
    min_insync: int = 1
    flush_before_ack: bool = False
    flush_interval_s: float = 1.0
    segment_bytes: int | None = None
    gather_s: float = 0.1
    rebalance_interval_s: float = 5.0
    latency_s: float = 0.0005
    jitter_s: float = 0.0005
    order: Order = "random"
    """The order of tasks that could run at the same time."""
    faults_s: float = 6.0
    """When everything is healed, at the latest (virtual seconds)."""
    cut_off: str = ""
    """The host of a broker that stays cut off from the network when all else is healed."""
    workload: WorkloadOptions = WorkloadOptions()
    faults: tuple[InjectedFault, ...] = ()
    retention_bytes: int | None = None
    """Each log keeps at least this many bytes, and not much more; that takes small segments."""
    retention_check_interval_s: float = RETENTION_CHECK_INTERVAL_S
    snapshot_entries: int = JOURNAL_SNAPSHOT_ENTRIES
    """The register's journal gets a snapshot after this many entries."""
    checkpoint_bytes: int = 2000
    """A log's checkpoint is stored after this many bytes.  The default of the product is too large
    for a run, which writes little; and records before and behind a checkpoint are handled
    differently."""
    loses_all: bool = False
    """Whether machines may lose their power even if no other machine has the records in their
    memory: then these are lost, and the cluster only promises to say so."""
    kills_each: bool = False
    """Whether each broker is killed once more after healing: the others have to go on without
    it."""
    retention_ms: int | None = None
    """Each log keeps records that are not older than this, and not many others; that takes small
    segments."""
    spoils_disks: bool = False
    """Whether, after healing, the disk of each broker is full for a while, or fails once; and then
    all disks are full, until only that of one leader is.  The other brokers have to take messages
    instead."""
    without_register: bool = False
    """Whether the register is down in the end, until each producer, which was silent while leaders
    changed, has had a message acknowledged.  Before that, replicas move to brokers that have none
    of their partition.  It takes one topic, and no producer that is replaced."""
    loses_last: bool = False
    """Whether files may be damaged and disks lost even if no other replica in sync is whole: then
    the partition has no leader until an operator orders the best of the remaining replicas to lead.
    One replica of each partition keeps its disk."""
    loses_every_disk: bool = False
    """Whether the disks of all replicas of a partition may be lost, if `loses_last` is set, too:
    then the partition begins again empty, on a broker that the operator names."""
    hold_ms: int | None = None
    """Retention waits for the members of the subscription until messages are so much older than
    `retention_ms`; that takes retention."""
    hold_bytes: int | None = None
    """Retention waits for them while less than this is kept of a log beyond what it keeps
    anyway."""
    registers: int = 1
    """How many registers keep the journal together."""
    loses_power: bool = False
    """Whether all machines lose their power at once in the end, if `loses_all` is set, too: when
    everything is healed and has been flushed, so nothing may be lost."""
    others_hang: bool = False
    """Whether all other brokers hang at first while the disk of one is full because of
    `spoils_disks`, and one of them is dead when they go on."""
    stops_each: bool = False
    """Whether each broker is asked to stop after healing, while the register hangs and another one
    dies: when that one is back, they have to go on without the one that stopped."""
    founders: int = 0
    """How many of the brokers form a cluster without a register; the others join it.  0: the
    cluster has registers."""
    sheds: bool = False
    """Whether leaderships move by load, much sooner than in the product."""

    @property
    def may_lose(self) -> bool:
        """Whether acknowledged messages may be lost; the cluster has to report it then."""
        return self.loses_all or self.loses_last

    @property
    def loses_broker_disks(self) -> bool:
        """Whether what brokers have on their devices may be destroyed."""
        return any(
            isinstance(one.action, Wipe | BitFlip | RollBack | Damage)
            and one.target not in {"register", "active", "standby"}
            for one in self.faults
        )

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.brokers <= BROKERS_MAX or self.replicas < 1 or self.partitions < 1:
            raise PlanError(
                f"a cluster has 1 to {BROKERS_MAX} brokers, and at least a replica and a partition"
            )
        if not 0 <= self.founders <= self.brokers:
            raise PlanError("the founders are some of the brokers")
        if self.sheds and self.founders:
            raise PlanError("leaderships move by load where there is a register")
        if self.workload.relay_topics and (self.founders or self.brokers < RELAYS_MIN):
            raise PlanError("topics in memory take a register and three brokers")
        if self.workload.relay_topics and self.workload.forwarding_producers:
            raise PlanError("messages for topics in memory are not passed on by `forward`")
        if self.workload.topic_partitions > self.partitions:
            raise PlanError("a topic has at most as many partitions as there are")


# --- tokens ----------------------------------------------------------------------------


def to_token(plan: Plan) -> str:
    """The plan as one line without spaces or single quotes."""
    data = cbor2.dumps(_pack(plan, Plan), canonical=True)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = versions_digest()[:_VERSION_BYTES] + deflate.compress(data) + deflate.flush()
    return TOKEN_PREFIX + base64.b85encode(packed).decode()


def from_token(token: str) -> Plan:
    """The inverse of `to_token`.

    Raises:
      PlanError: if it is not a valid token; the text says why.
    """
    packed = _unwrapped(token)[_VERSION_BYTES:]
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        plan = _unpack(cbor2.loads(inflate.decompress(packed, 100_000)), Plan)
    except (zlib.error, cbor2.CBORDecodeError, TypeError, ValueError, LookupError) as error:
        raise PlanError(f"{token[:40]}... is not a valid plan: {error}") from error
    assert isinstance(plan, Plan)
    return plan


def is_stale(token: str) -> bool:
    """Whether the token was made with other versions of the packages that a run depends on, so that
    its run may go differently here.

    Raises:
      PlanError: if it is not a valid token.
    """
    return _unwrapped(token)[:_VERSION_BYTES] != versions_digest()[:_VERSION_BYTES]


def _unwrapped(token: str) -> bytes:
    if not token.startswith(TOKEN_PREFIX):
        raise PlanError(f"a token begins with {TOKEN_PREFIX}, and this with {token[:8]!r}")
    try:
        return base64.b85decode(token[len(TOKEN_PREFIX) :])
    except (ValueError, binascii.Error) as error:
        raise PlanError(f"{token[:40]}... is damaged: {error}") from error


@cache
def versions_digest() -> bytes:
    """A digest of the versions of all packages that a run depends on."""
    versions = " ".join(f"{name} {version(name)}" for name in _DEPENDENCIES)
    return hashlib.blake2b(versions.encode(), digest_size=8).digest()


# --- packing ---------------------------------------------------------------------------


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _choices(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401  # type forms have no type
    return get_args(hint) if get_origin(hint) in {Union, types.UnionType} else ()


def _is_sparse(cls: type) -> bool:
    return cls in {Plan, WorkloadOptions}


def _pack(value: Any, hint: Any) -> Any:  # noqa: ANN401
    """*value*, of the type *hint*, as lists, maps and plain values."""
    choices = _choices(hint)
    if value is None:
        return None
    if type(None) in choices:
        return _pack(value, next(one for one in choices if one is not type(None)))
    if choices:
        cls = type(value)
        return [choices.index(cls), *_pack(value, cls)]
    if attrs.has(hint):
        return _pack_fields(value, hint)
    if get_origin(hint) is tuple:
        return [_pack(one, get_args(hint)[0]) for one in value]
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str) and value in _WORDS:
        return _WORDS.index(value)
    if hint is float and (value * 1000).is_integer() and value * 1000 / 1000 == value:
        return int(value * 1000)
    return value


def _pack_fields(value: Any, cls: type) -> list[Any] | dict[int, Any]:  # noqa: ANN401
    fields, hints = attrs.fields(cls), _hints(cls)
    given = {
        position: _pack(getattr(value, one.name), hints[one.name])
        for position, one in enumerate(fields)
        if one.default != getattr(value, one.name)
    }
    if _is_sparse(cls):
        return given
    count = max(given, default=-1) + 1
    return [_pack(getattr(value, one.name), hints[one.name]) for one in fields[:count]]


def _unpack(packed: Any, hint: Any) -> Any:  # noqa: ANN401
    """The inverse of `_pack`.

    Raises:
      TypeError, ValueError, LookupError: if *packed* is not valid for *hint*.
    """
    choices = _choices(hint)
    if packed is None and type(None) in choices:
        return None
    if type(None) in choices:
        return _unpack(packed, next(one for one in choices if one is not type(None)))
    if choices:
        return _unpack(packed[1:], choices[packed[0]])
    if attrs.has(hint):
        wanted = dict if _is_sparse(hint) else list
        if not isinstance(packed, wanted):
            raise ValueError(f"{packed!r} is not a {wanted.__name__} of fields of {hint.__name__}")
        given = list(packed.items() if isinstance(packed, dict) else enumerate(packed))
        fields, hints = attrs.fields(hint), _hints(hint)
        names = {position: fields[position].name for position, _ in given}
        return hint(**{names[at]: _unpack(one, hints[names[at]]) for at, one in given})
    if get_origin(hint) is tuple:
        return tuple(_unpack(one, get_args(hint)[0]) for one in packed)
    is_enum = isinstance(hint, type) and issubclass(hint, Enum)
    if isinstance(packed, int) and (hint is str or is_enum or get_origin(hint) is Literal):
        packed = _WORDS[packed]
    if is_enum:
        return hint(packed)
    if get_origin(hint) is Literal:
        if packed not in get_args(hint):
            raise ValueError(f"{packed!r} is not one of {get_args(hint)}")
        return packed
    if hint is float and isinstance(packed, int):
        return packed / 1000
    if type(packed) is not hint:
        raise ValueError(f"{packed!r} is not of the type {hint.__name__}")
    return packed


# --- JSON ------------------------------------------------------------------------------

_CONVERTER: Final = make_converter(forbid_extra_keys=True)
for _union in (How, Place, Action):
    configure_tagged_union(_union, _CONVERTER, tag_name="kind")


def to_json(plan: Plan) -> str:
    """The plan as JSON text.  Where a field may hold objects of several classes, ``kind`` names the
    class."""
    return _CONVERTER.dumps(plan, indent=1)


def from_json(text: str) -> Plan:
    """The inverse of `to_json`.

    Raises:
      PlanError: if it is not a valid plan; the text says why.
    """
    try:
        plan = _CONVERTER.loads(text, Plan)
        to_token(plan)  # JSON may have half of a surrogate pair, which a token can't hold
        return plan
    except Exception as error:  # cattrs raises groups of whatever its hooks raise
        raise PlanError(f"this is not a valid plan: {error}") from error
