"""Hypothesis strategies for wire messages, derived from the message classes themselves."""

from __future__ import annotations

import types
import typing
from typing import Any

import attrs
from hypothesis import strategies as st

from octopi.generation_record import Generation, GenerationState, generation_state_fault
from octopi.identifiers import (
    INTERNAL_LOGS,
    Offset,
    PartitionId,
    TopicId,
    address_fault,
    consumer_name_fault,
    id_fault,
    log_id_fault,
    nonce_fault,
    optional_id_fault,
    optional_log_id_fault,
    topic_name_fault,
)
from octopi.limits import COUNTED_MAX, GENERATED_PARTITIONS_MAX, OFFSET_MAX
from octopi.model import RelaySetRecord, TopicKind, option_name_fault, topic_kind_fault
from octopi.printable import controls_fault, has_controls
from octopi.wire.messages import (
    TYPE_NAMES,
    AcceptorId,
    AcceptValue,
    AgreedValue,
    AnswerTold,
    AtMost,
    ComparedTold,
    CompareTold,
    Exactly,
    Grammar,
    MayBeMissing,
    MayBeNegative,
    OrderRefusal,
    PartitionRecord,
    PlacedTold,
    RelayState,
    RingRefusal,
    StartTold,
    StreamDefinition,
    SubscriptionDefinition,
    SubscriptionMode,
    SubscriptionStart,
    SubscriptionState,
    ToldSet,
    TopicOptions,
    TopicRecord,
    VoteTold,
    Within,
    order_refusal_fault,
    packed_ends,
    packed_ids,
    packed_points,
    packed_streams,
    relay_state_fault,
    ring_refusal_fault,
)

_ENTRIES_MAX = 4
_IDS = st.text("0123456789abcdef", min_size=16, max_size=16)
_LOG_IDS = _IDS | st.sampled_from(INTERNAL_LOGS)
_TEXTS: dict[object, st.SearchStrategy[str]] = {
    option_name_fault: st.sampled_from([one.name for one in attrs.fields(TopicOptions)]),
    topic_name_fault: st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,40}", fullmatch=True),
    id_fault: _IDS,
    consumer_name_fault: st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,40}", fullmatch=True),
    optional_id_fault: _IDS | st.just(""),
    log_id_fault: _LOG_IDS,
    optional_log_id_fault: _LOG_IDS | st.just(""),
    nonce_fault: st.from_regex(r"[!-~]{1,64}", fullmatch=True),
    controls_fault: st.text(max_size=60).filter(lambda text: not has_controls(text)),
    address_fault: st.sampled_from(["ws://a:1", "wss://broker-1.example:7001", "ws://[::1]:9"]),
    ring_refusal_fault: st.sampled_from([*map(str, RingRefusal)]),
    relay_state_fault: st.sampled_from([*map(str, RelayState)]),
    order_refusal_fault: st.sampled_from([*map(str, OrderRefusal)]),
    topic_kind_fault: st.sampled_from([*map(str, TopicKind)]),
    generation_state_fault: st.sampled_from([*map(str, GenerationState)]),
}
"""What a rule for texts allows."""
_PLACES = st.tuples(st.integers(0, OFFSET_MAX).map(Offset), st.binary(min_size=32, max_size=32))
_STREAMS = st.lists(st.tuples(_IDS.map(TopicId), _PLACES), max_size=_ENTRIES_MAX)
_ROWS: dict[type, dict[str, st.SearchStrategy[Any]]] = {
    PlacedTold: {"point": st.lists(_PLACES, max_size=1).map(packed_points)},
    CompareTold: {"points": st.lists(_PLACES, max_size=_ENTRIES_MAX).map(packed_points)},
    ComparedTold: {"points": st.lists(_PLACES, min_size=2, max_size=3).map(packed_points)},
    VoteTold: {
        "streams": _STREAMS.map(lambda some: packed_ends((one, *at, at[0]) for one, at in some))
    },
    StartTold: {
        "streams": _STREAMS.map(lambda some: packed_streams((n, *at) for n, at in some)),
        "removed": st.lists(_IDS.map(TopicId), max_size=_ENTRIES_MAX).map(packed_ids),
    },
    AnswerTold: {
        "streams": st.none()
        | _STREAMS.map(lambda some: packed_streams((one, *at) for one, at in some))
    },
}
"""Fields of messages of relays that hold rows."""
_BULK_BYTES_MAX = 300
_MEMBERS = st.lists(st.integers(1, 1_000_000), min_size=1, max_size=4, unique=True)


def messages() -> st.SearchStrategy[object]:
    """Any message of the protocol."""
    return st.one_of([instances(cls) for cls in TYPE_NAMES])


def instances(cls: type) -> st.SearchStrategy[object]:
    """Instances of one attrs class: a message, or a part of one."""
    if cls is PartitionRecord:
        return _partition_records()
    if cls is TopicRecord:
        return _topic_records()
    if cls is StreamDefinition:
        types = st.from_regex(r"[ -~]{0,30}", fullmatch=True)
        return _any_instances(cls, content_type=types).filter(lambda one: not one.fault())
    if cls is SubscriptionDefinition:
        words = {"mode": SubscriptionMode, "start": SubscriptionStart, "state": SubscriptionState}
        return _any_instances(
            cls, **{name: st.sampled_from([*map(str, all_of)]) for name, all_of in words.items()}
        )
    if cls is ToldSet:
        return _any_instances(cls, members=_MEMBERS.map(tuple))
    if cls is RelaySetRecord:
        return _any_instances(cls, members=_MEMBERS)
    if cls is AgreedValue:
        groups = st.lists(_any_instances(AcceptorId), min_size=1, max_size=4).map(_group)
        return _any_instances(cls, acceptors=groups, previous=groups)
    if cls in _ROWS:
        return _any_instances(cls, **_ROWS[cls])
    if cls is AcceptValue:
        return _any_instances(cls).filter(lambda one: not one.fault())
    return _any_instances(cls)


def _group(acceptors: list[AcceptorId]) -> tuple[AcceptorId, ...]:
    return tuple({one.broker: one for one in acceptors}.values())


def _any_instances(cls: type, **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {
        field.name: fixed[field.name] if field.name in fixed else _values(hints[field.name])
        for field in attrs.fields(cls)
    }
    return st.builds(cls, **fields)


@st.composite
def _partition_records(draw: st.DrawFn) -> PartitionRecord:
    replicas = draw(st.lists(st.integers(1, 1_000_000), min_size=1, max_size=4, unique=True))
    some = st.lists(st.sampled_from(replicas), unique=True)
    epoch = draw(st.integers(1, COUNTED_MAX))
    fixed = {
        "replicas": st.just(replicas),
        "leader": st.sampled_from(replicas),
        "in_sync": some,
        "lost": some,
        "epoch": st.just(epoch),
        "recovered_epoch": st.integers(0, epoch),
    }
    record = draw(_any_instances(PartitionRecord, **fixed))
    assert isinstance(record, PartitionRecord)
    return record


@st.composite
def _topic_records(draw: st.DrawFn) -> TopicRecord:
    partitions = st.lists(st.integers(0, 9_999), min_size=1, max_size=_ENTRIES_MAX, unique=True)
    at_least = {"retention_ms": 1, "retention_bytes": 1, "segment_bytes": 4096}
    at_least |= {"hold_ms": 1, "hold_bytes": 1}
    numbers = {name: st.none() | st.integers(least, 2**63 - 1) for name, least in at_least.items()}
    none = dict.fromkeys(("buffer_bytes", "buffer_count", "buffer_age_ms"), st.none())
    options = _any_instances(TopicOptions, min_insync=st.integers(1, 2**63 - 1), **numbers, **none)
    options = options.filter(lambda one: not one.fault())
    kind = st.just("log")
    if draw(st.booleans()):
        options, kind = st.just(TopicOptions(buffer_count=7)), st.just("relay")
    record = draw(
        _any_instances(
            TopicRecord, partitions=partitions, options=options, kind=kind, generations=st.just([])
        )
    )
    assert isinstance(record, TopicRecord)
    if draw(st.booleans()):
        later = draw(st.sampled_from(["proposed", "sealing", "cancelled"]))
        now = Generation(1, list(record.partitions), "in_force")
        generations = [now, Generation(2, [PartitionId(7)], later)]
        if len(record.partitions) < GENERATED_PARTITIONS_MAX:
            record = attrs.evolve(record, generations=generations)
    return record


def optional_fields(cls: type) -> dict[str, object]:
    """Field -> default, of the fields that messages of *cls* may come without."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        field.name: field.default.factory()
        if isinstance(field.default, attrs.Factory)  # type: ignore[arg-type]
        else field.default
        for field in attrs.fields(cls)
        if MayBeMissing() in getattr(hints[field.name], "__metadata__", ())
    }


def as_written(message: object) -> dict[str, object]:
    """*message* as the map that is sent: without the optional fields that have their default."""
    fields = _as_written(message)
    assert isinstance(fields, dict)
    return {"type": TYPE_NAMES[type(message)], **fields}


def _as_written(value: Any) -> object:  # noqa: ANN401
    if isinstance(value, list | tuple):
        return [_as_written(one) for one in value]
    if not attrs.has(type(value)):
        return value
    optional = optional_fields(type(value))
    fields = {one.name: getattr(value, one.name) for one in attrs.fields(type(value))}
    return {
        name: _as_written(inner)
        for name, inner in fields.items()
        if name not in optional or inner != optional[name]
    }


def _values(hint: object) -> st.SearchStrategy[object]:
    size_max = _BULK_BYTES_MAX
    if typing.get_origin(hint) is typing.Annotated:
        hint, *notes = typing.get_args(hint)
        if MayBeNegative() in notes:
            return st.integers(-(2**63), 2**63 - 1)
        for note in notes:
            if isinstance(note, Within):
                return st.integers(note.low, note.high)
            if isinstance(note, Exactly):
                return st.binary(min_size=note.size, max_size=note.size)
            if isinstance(note, Grammar):
                return _TEXTS[note.fault]
        sizes = [note.size for note in notes if isinstance(note, AtMost)]
        size_max = min([*sizes, _BULK_BYTES_MAX])
    hint = getattr(hint, "__supertype__", hint)  # of a `NewType`
    if hint == bytes | memoryview:
        hint = bytes  # what is decoded from bytes has no views
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([_values(choice) for choice in typing.get_args(hint)])
    if origin is list:
        (entry,) = typing.get_args(hint)
        return st.lists(_values(entry), max_size=_ENTRIES_MAX)
    if origin is tuple:
        entry, _ = typing.get_args(hint)
        return st.lists(_values(entry), max_size=_ENTRIES_MAX).map(tuple)
    if hint is types.NoneType:
        return st.none()
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(0, 2**63 - 1)
    if hint is str:
        return st.text(max_size=size_max // 4)
    if hint is bytes:
        return st.binary(max_size=size_max)
    assert isinstance(hint, type)
    return instances(hint)
