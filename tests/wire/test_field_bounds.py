"""No field of any message holds more than the bound that stands beside it.

The bounds are read off the message classes: each one is exceeded by one, wherever it is.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import attrs
import cbor2
import pytest

from octopi import limits
from octopi.errors import ProtocolError
from octopi.wire import messages as m
from octopi.wire.codec import decode, fault_in

EVERY_CLASS = frozenset(m.TYPE_NAMES)

EXAMPLES = {
    "ADDRESS_BYTES_MAX": "join.address",
    "AGENT_BYTES_MAX": "hello.agent",
    "ANCHOR_BYTES_MAX": "fetch.anchor",
    "ASK_BYTES_MAX": "ask.message",
    "AUTHORIZED_VERBS_MAX": "ask.grants",
    "BATCH_BYTES_MAX": "produce.records",
    "BROKERS_MAX": "alter_in_sync.in_sync",
    "CONNECTION_NAME_BYTES_MAX": "hello.name",
    "DEAL_COUNT_MAX": "deal.offsets",
    "DELAY_MS_MAX": "settle.released[0].delay_ms",
    "EVENTS_KEPT_COUNT": "event_list.events",
    "HELLO_BYTES_MAX": "hello.token",
    "ID_CHARACTERS": "follow.topic_id",
    "JOIN_NONCE_BYTES": "hello.nonce",
    "JOIN_SECRETS_MAX": "challenge.proofs",
    "JOIN_SECRET_BYTES": "proof.proof",
    "LIST_COUNT_MAX": "accept_epoch.ends",
    "LIVES_IN_DOUBT_MAX": "join.ancestors",
    "NONCE_BYTES_MAX": "join.nonce",
    "PARTITIONS_PER_TOPIC_MAX": "create_topic.partitions",
    "PRODUCERS_PER_LOG_MAX": "followed.producers",
    "RECENT_BATCHES_COUNT": "followed.producers[0].offsets",
    "RELAYS_MAX": "relay_vote.relay_set.members",
    "RELAY_NAMES_TOLD_MAX": "relay_topics.names",
    "RELAY_PARTITIONS_MAX": "relay_greet.emptied",
    "RELAY_PART_TRANSACTIONS": "relay_part.transactions",
    "REPLACED_TOPICS_MAX": "inventory.topics[0].replaces",
    "REQUEST_IDS_PER_LOG_MAX": "followed.requests",
    "SEAL_BYTES_MAX": "inventory.partitions[0].seal",
    "SETTLE_COUNT_MAX": "settle.acknowledged",
    "TEXT_BYTES_MAX": "failure.reason",
    "TOPIC_NAME_BYTES_MAX": "inventory.topics[0].topic",
    "UNSERVED_TOPICS_MAX": "cluster_description.unserved",
}
"""Limit -> a field that has it as its bound."""


@attrs.frozen
class Excess:
    """A value one beyond a bound, at one place of a message."""

    place: str
    """``join.ancestors[0]``: entries of lists have the number 0."""
    bound: int
    value: object
    fields: dict[str, Any]
    """A message with nothing but that value, and what it lies in."""
    complaint: str


@cache
def excesses() -> list[Excess]:
    """One for each bound of each field, also inside of parts and lists."""
    return [
        attrs.evolve(one, place=f"{name}{one.place}", fields={"type": name, **one.fields})
        for name, cls in m.MESSAGES.items()
        for one in of_class(cls)
    ]


def of_class(cls: type) -> Iterator[Excess]:
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        for one in of_field(hint):
            yield attrs.evolve(one, place=f".{name}{one.place}", fields={name: one.fields[""]})


def of_field(hint: Any) -> Iterator[Excess]:  # noqa: ANN401
    """What exceeds a field of that type; its value is at ``fields[""]``."""
    notes: tuple[object, ...] = ()
    if typing.get_origin(hint) is typing.Annotated:
        hint, *notes = typing.get_args(hint)  # type: ignore[assignment]
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        yield from of_field(typing.get_args(hint)[0])
        return
    for note in notes:
        if isinstance(note, m.Within):
            for number in (note.low - 1, note.high + 1):
                complaint = "it can't be negative" if number < 0 else f"it is {number}"
                yield Excess("", note.high, number, {"": number}, complaint)
        if isinstance(note, m.Exactly):
            for size in (note.size - 1, note.size + 1):
                complaint = f"it has {size} bytes, "
                yield Excess("", note.size, bytes(size), {"": bytes(size)}, complaint)
        if isinstance(note, m.AtMost):
            many = note.size + 1
            values: dict[object, object] = {str: "0" * many, bytes: bytes(many)}
            value = values.get(getattr(hint, "__supertype__", hint), [0] * many)
            unit = "entries" if origin in (list, tuple) else "bytes"
            complaint = f"it has {many} {unit}, at most {note.size} are allowed"
            yield Excess("", note.size, value, {"": value}, complaint)
    if origin in (list, tuple):
        for one in of_field(typing.get_args(hint)[0]):
            yield attrs.evolve(one, place=f"[0]{one.place}", fields={"": [one.fields[""]]})
    elif attrs.has(hint):
        for one in of_class(hint):
            yield attrs.evolve(one, fields={"": one.fields})


def test_no_field_of_any_message_holds_more_than_its_bound() -> None:
    found = excesses()
    assert len(found) > 200
    for one in found:
        with pytest.raises(ProtocolError) as caught:
            decode(cbor2.dumps(one.fields), EVERY_CLASS)
        assert str(caught.value).startswith(f"{one.place}: {one.complaint}")


@pytest.mark.parametrize("limit", EXAMPLES)
def test_each_limit_of_fields_bounds_a_field(limit: str) -> None:
    [bound] = {one.bound for one in excesses() if one.place == EXAMPLES[limit]}
    assert bound == getattr(limits, limit)


def test_a_message_that_nests_too_deep_can_not_be_defined() -> None:
    def nested(depth: int) -> Any:  # noqa: ANN401
        """An instance of a class with others inside of it, *depth* in all."""
        value: Any = 0
        for level in range(depth):
            cls = attrs.make_class(f"Level{level}", {"inner": attrs.field()})
            cls.__annotations__ = {"inner": type(value)}
            value = cls(value)
        return value

    assert fault_in(nested(limits.CBOR_DEPTH_MAX)) == ""
    with pytest.raises(AssertionError, match="nests too deep"):
        fault_in(nested(limits.CBOR_DEPTH_MAX + 1))
