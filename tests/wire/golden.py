"""The bytes of one message of each type, in `golden_messages.txt`, and how a further one is made.

The file has three lines for each type: its name, the map that its bytes hold, and the bytes.
``python -m tests.wire.golden NAME`` prints them for the type *NAME*; append what it prints, and
look at it: from then on clients in any language rely on it.
"""

from __future__ import annotations

import sys
import types
import typing
from pathlib import Path
from typing import Any

import attrs
import cbor2

from octopi.generation_record import Generation, generation_state_fault
from octopi.identifiers import (
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
from octopi.model import (
    PartitionRecord,
    StreamDefinition,
    SubscriptionDefinition,
    TopicRecord,
    option_name_fault,
    topic_kind_fault,
)
from octopi.printable import controls_fault
from octopi.wire.codec import encode
from octopi.wire.messages import (
    MESSAGES,
    AcceptValue,
    AnswerTold,
    Ballot,
    ComparedTold,
    CompareTold,
    Exactly,
    Grammar,
    PlacedTold,
    StartTold,
    TopicOptions,
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

FILE = Path(__file__).with_name("golden_messages.txt")

_TEXTS: dict[object, str] = {
    topic_name_fault: "orders",
    option_name_fault: "retention_ms",
    consumer_name_fault: "billing",
    id_fault: "00c1a5735eed0001",
    log_id_fault: "00c1a5735eed0001",
    optional_id_fault: "00c1a5735eed0002",
    optional_log_id_fault: "00c1a5735eed0002",
    nonce_fault: "n1",
    controls_fault: "why",
    address_fault: "ws://a:1",
    ring_refusal_fault: "no member",
    relay_state_fault: "normal",
    order_refusal_fault: "not ready",
    topic_kind_fault: "relay",
    generation_state_fault: "in_force",
}
"""What a rule for texts allows."""

_TOPIC = TopicId("00c1a5735eed0001")
_DIGEST = bytes(range(32))

_FIXED: dict[type, dict[str, Any]] = {
    PartitionRecord: {
        "replicas": [1, 2],
        "leader": 1,
        "in_sync": [1],
        "lost": [2],
        "recovered_epoch": 3,
    },
    TopicOptions: {"segment_bytes": 4096, "buffer_bytes": 65536},
    TopicRecord: {
        "options": TopicOptions(buffer_bytes=65536),
        "partitions": [PartitionId(3)],
        "generations": [Generation(1, [PartitionId(3)], "in_force")],
    },
    AcceptValue: {"successor": Ballot(9, 2, 3)},
    PlacedTold: {"point": packed_points([(Offset(7), _DIGEST)])},
    CompareTold: {"points": packed_points([(Offset(5), _DIGEST), (Offset(7), _DIGEST)])},
    ComparedTold: {"points": packed_points([(Offset(0), _DIGEST), (Offset(7), _DIGEST)])},
    VoteTold: {"streams": packed_ends([(_TOPIC, Offset(7), _DIGEST, Offset(5))])},
    StartTold: {
        "streams": packed_streams([(_TOPIC, Offset(7), _DIGEST)]),
        "removed": packed_ids([_TOPIC]),
    },
    AnswerTold: {"streams": packed_streams([(_TOPIC, Offset(7), _DIGEST)])},
    StreamDefinition: {"content_type": "text/plain", "expires_at_ms": None},
    SubscriptionDefinition: {"mode": "failover", "start": "latest", "state": "ready"},
}
"""Fields that have to fit each other."""


def golden() -> dict[str, tuple[str, bytes]]:
    """Type -> the map of a message, as Python shows it, and its bytes."""
    found = {}
    for entry in FILE.read_text(encoding="utf-8").split("\n\n"):
        name, shown, data = entry.strip().splitlines()
        found[name] = shown, bytes.fromhex(data)
    return found


def entry(name: str) -> str:
    """What the file gets for the type *name*: a message with a value in each field."""
    data = encode(_sample(MESSAGES[name]))
    return f"{name}\n{cbor2.loads(data)!r}\n{data.hex()}\n"


def _sample(cls: type) -> object:
    fixed = _FIXED.get(cls, {})
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = [field.name for field in attrs.fields(cls)]
    return cls(
        **{
            name: fixed[name] if name in fixed else _value(hints[name], number)
            for number, name in enumerate(fields, 1)
        }
    )


def _value(hint: Any, number: int) -> object:  # noqa: ANN401
    """A value of a field that is the *number*th of its message."""
    if typing.get_origin(hint) is typing.Annotated:
        hint, *notes = typing.get_args(hint)
        for note in notes:
            if isinstance(note, Within):
                return min(note.low + number, note.high)
            if isinstance(note, Exactly):
                return bytes([number]) * note.size
            if isinstance(note, Grammar):
                return _TEXTS[note.fault]
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _value(typing.get_args(hint)[0], number)
    if origin is list:
        return [_value(typing.get_args(hint)[0], number)]
    if origin is tuple:
        return (_value(typing.get_args(hint)[0], number),)
    if attrs.has(hint):
        return _sample(hint)
    while hasattr(hint, "__supertype__"):  # a `NewType`
        hint = hint.__supertype__
    values: dict[object, object] = {int: number, str: "text", bytes: b"\x00\xff", bool: True}
    return values[hint]


if __name__ == "__main__":
    sys.stdout.writelines(f"\n{entry(one)}" for one in sys.argv[1:])
