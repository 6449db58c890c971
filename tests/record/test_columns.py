"""Values and offsets are those of the decoded messages, on any bytes; so are the errors."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import example, given

from octopi.errors import RecordError
from octopi.identifiers import (
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TopicName,
)
from octopi.record import BatchBuilder, decode, encode_opaque
from octopi.record_columns import columns
from tests.record.crafting import craft_header, craft_structured
from tests.record.strategies import anything

BASE = Offset(1000)
LONG_KEY = craft_structured(b"value", key_length=6, headers_length=0)
TWICE = craft_header(b"n", b"1") * 2
SAME_HEADERS = craft_structured(TWICE + b"value", key_length=1, headers_length=len(TWICE))
RESERVED = craft_structured(b"value", key_length=0, headers_length=0, reserved=1)
OLD = encode_opaque(bytes(32), b"old")


def outcome(data: bytes | memoryview, by_messages: bool) -> object:
    """Values and offsets, or the error."""
    try:
        if not by_messages:
            found = columns(data, BASE)
            return found.values, found.offsets.tolist()
        messages = decode(data, BASE, TopicName("orders"), PartitionId(3))
    except RecordError as error:
        return type(error), str(error), error.code
    return [one.value for one in messages], [one.offset for one in messages]


@given(anything)
@example(LONG_KEY)
@example(SAME_HEADERS)
@example(RESERVED)
@example(OLD + LONG_KEY)
@example(b"")
def test_columns_are_those_of_the_messages_and_errors_are_the_same(data: bytes) -> None:
    found = outcome(data, by_messages=False)
    assert found == outcome(data, by_messages=True)
    view = memoryview(data)
    assert outcome(view, by_messages=False) == outcome(view, by_messages=True) == found


@pytest.mark.parametrize("value", [b"", b"value", bytes(70_000)])
def test_records_of_every_kind_may_be_mixed(value: bytes) -> None:
    builder = BatchBuilder()
    for key in (None, b"", b"key"):
        for headers in ({}, {"name": b"content"}, {"name": b"", "other": b"1"}):
            builder.add(value, key, headers, 2**64 - 1)
    new = builder.encode(ProducerId(b"p" * 16), ProducerEpoch(1), Sequence(0))
    data = b"".join((OLD, new, OLD, OLD, new))
    assert columns(data, BASE).values == [b"old", *[value] * 9, b"old", b"old", *[value] * 9]
    assert outcome(data, by_messages=False) == outcome(data, by_messages=True)


def test_offsets_are_numbers_of_64_bits_without_an_end() -> None:
    base = Offset(2**63 - 1 - len(OLD))
    assert columns(OLD, base).offsets == array("q", [base])
    assert columns(b"", base).offsets == array("q")
