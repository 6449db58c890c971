"""The plan of one run: all that decides what happens in it, as data.

A plan holds everything that a run depends on, so that it means the same whatever the
search draws later, and so that leaving a part out leaves the rest as it is.  It goes to
JSON for people and tools, and to a token of one line for whoever has to repeat it.

A token is ``oc1-`` and base85 (Python's `base64.b85encode`: fit for single quotes) of:

======= ===============================================================================
bytes   meaning
======= ===============================================================================
0..1    the first bytes of `versions_digest`: a run also depends on how Trio and the
        WebSocket stack order what they do, so another version may run another course
2..     raw deflate (RFC 1951) of one CBOR value
======= ===============================================================================

The value is the plan as `_pack` makes it.  `Plan` and `WorkloadOptions` are maps from the positions
of their fields, in the order of declaration, to values that are not the defaults; any other
object is the list of its fields, without those at the end that have their defaults; one of
several classes has its position among them in front.  A word of `_WORDS` is its position
there; a number of seconds is one of whole milliseconds where that is exact.
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
from octopi.limits import CLIENT_BATCH_BYTES, JOURNAL_SNAPSHOT_ENTRIES, RETENTION_CHECK_INTERVAL_S
from octopi.simulation.disk.faults import How
from octopi.simulation.faults.actions import Action, InjectedFault, Place

TOKEN_PREFIX: Final = "oc1-"

_DEPENDENCIES: Final = ("octopi-node", "trio", "trio-websocket", "wsproto")
_VERSION_BYTES: Final = 2

_LINE_OF_WORDS: Final = (
    "register broker leader follower client any here others both in out before during after "
    "append sync send rename truncate replace_file sync_directory open pread .log broker-1 "
    "broker-2 broker-3 acknowledged in_sync epoch lag fifo websocket topic drain grow move "
    "cut flip missing older log index checkpoint directory ends replica table identity journal "
    "membership follow renew tail ask poll end"
)
_WORDS: Final = _LINE_OF_WORDS.split()
"""Words that plans are full of.  New ones come at the end."""

Tier = Literal["message", "websocket"]
Order = Literal["random", "fifo"]
Chore = Literal["topic", "drain", "grow", "move", "renew", "ask", "poll", "end"]


class PlanError(OctopiError):
    """What should be a plan is none."""


@attrs.frozen
class WorkloadOptions:
    """What clients do."""

    producers: int = 4
    records: int = 50
    """Messages of each producer."""
    consumers: int = 2
    topics: int = 1
    topic_partitions: int = 2
    """Of each topic."""
    value_bytes_max: int = 400
    burst_count: int = 1
    """A producer submits up to so many messages before it waits for their receipts."""
    pause_s: float = 0.004
    """Between a producer's sends, on average."""
    reopen_count: int = 0
    """A producer or consumer is closed, and another one goes on, after about so many
    messages; 0: never."""
    delivery_timeout_s: float = 30.0
    consumer_pause_s: float = 0.0
    """What a consumer takes for a message, on average."""
    starts_late: bool = False
    """Whether some consumers begin elsewhere than at the beginning."""
    chores: tuple[Chore, ...] = ()
    """What an operator does meanwhile: make and delete a topic, drain a broker, grow the
    number of partitions, move a replica, make and delete a topic whose name was used before,
    ask every log for offsets by time and by count, have very many fetches wait, ask every log
    again and again where it ends."""
    batch_bytes: int = CLIENT_BATCH_BYTES
    """A producer sends a batch that has so many without waiting for receipts of others."""
    polls: int = 0
    """So many fetches of each producer's client wait for records, on the connection on which the
    producer has its last word."""
    opaque_records: int = 0
    """So many messages are sent as version 1 records, by a producer of their own."""


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
    """In which tasks run that could run at the same time."""
    faults_s: float = 6.0
    """After so long at the latest everything is healed."""
    cut_off: str = ""
    """A broker that nothing comes from or goes to when all else is healed."""
    workload: WorkloadOptions = WorkloadOptions()
    faults: tuple[InjectedFault, ...] = ()
    retention_bytes: int | None = None
    """Each log keeps at least so many, and not much more: that takes small segments."""
    retention_check_interval_s: float = RETENTION_CHECK_INTERVAL_S
    snapshot_entries: int = JOURNAL_SNAPSHOT_ENTRIES
    """After so many entries the register's journal is folded into a snapshot."""
    checkpoint_bytes: int = 2000
    """A log's checkpoint is stored after so many bytes.  A run writes too little to ever meet one
    otherwise, and what isn't behind one needs other care."""
    loses_all: bool = False
    """Whether machines may lose their power although nobody else has what is in their memory:
    then that is lost, and all that is promised is that it is told."""
    kills_each: bool = False
    """Whether each broker is killed once more when everything has come back: the others have to
    go on without it."""
    retention_ms: int | None = None
    """Each log keeps what is not older, and not much more: that takes small segments."""
    spoils_disks: bool = False
    """Whether the disk of each broker is full for a while, or fails once, when everything has
    come back, and then all are full until only that of a leader is: the others have to take
    messages instead of it."""
    without_register: bool = False
    """Whether the register is down in the end, until each producer that was silent while leaders
    changed was heard.  Replicas move before, where brokers have none.  It takes one topic, and no
    producer that begins anew."""
    loses_last: bool = False
    """Whether files may be damaged and disks lost although no other replica in sync is whole: then
    nobody leads before an operator orders it, and the best of the replicas that are left does.  One
    replica of each partition keeps its disk."""
    loses_every_disk: bool = False
    """Whether the disks of all replicas of a partition may be lost, where `loses_last` holds: then
    it begins again empty, on a broker that the operator names."""

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.brokers <= 9 or self.replicas < 1 or self.partitions < 1:
            raise PlanError("a cluster has 1 to 9 brokers, and at least a replica and a partition")
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
      PlanError: if it is no token; the text says why.
    """
    packed = _unwrapped(token)[_VERSION_BYTES:]
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        plan = _unpack(cbor2.loads(inflate.decompress(packed, 100_000)), Plan)
    except (zlib.error, cbor2.CBORDecodeError, TypeError, ValueError, LookupError) as error:
        raise PlanError(f"{token[:40]}... is no plan: {error}") from error
    assert isinstance(plan, Plan)
    return plan


def is_stale(token: str) -> bool:
    """Whether the token comes from other versions of what a run depends on, so that its run
    may take another course here.

    Raises:
      PlanError: if it is no token.
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
    """Stands for the versions of all that a run depends on."""
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
    """*value*, which is as *hint* says, as lists, maps and plain values."""
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
      TypeError, ValueError, LookupError: if that can't be.
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
            raise ValueError(f"{packed!r} is no {wanted.__name__} of fields of {hint.__name__}")
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
            raise ValueError(f"{packed!r} is none of {get_args(hint)}")
        return packed
    if hint is float and isinstance(packed, int):
        return packed / 1000
    if type(packed) is not hint:
        raise ValueError(f"{packed!r} is no {hint.__name__}")
    return packed


# --- JSON ------------------------------------------------------------------------------

_CONVERTER: Final = make_converter(forbid_extra_keys=True)
for _union in (How, Place, Action):
    configure_tagged_union(_union, _CONVERTER, tag_name="kind")


def to_json(plan: Plan) -> str:
    """The plan as JSON text; what is one of several classes has its name as ``kind``."""
    return _CONVERTER.dumps(plan, indent=1)


def from_json(text: str) -> Plan:
    """The inverse of `to_json`.

    Raises:
      PlanError: if that is no plan; the text says why.
    """
    try:
        plan = _CONVERTER.loads(text, Plan)
        to_token(plan)  # JSON can write half of a character, which no token holds
        return plan
    except Exception as error:  # cattrs raises groups of whatever its hooks raise
        raise PlanError(f"this is no plan: {error}") from error
