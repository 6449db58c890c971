"""Records found and checked a megabyte at a time, held against `octopi.record` throughout."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st

from octopi.errors import RecordError
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence, TopicName
from octopi.record import (
    BatchBuilder,
    decode,
    encode_headers,
    encode_opaque,
    record_end,
    scan,
)
from octopi.spark.columns import TIMESTAMP_MS_MAX, arrow_schema, record_batch
from octopi.spark.encoding import encode, record_sizes
from octopi.spark.frames import Frames, RecordFaultError, check_records, find_records

PRODUCER = ProducerId(b"p" * 16)
EPOCH = ProducerEpoch(7)
COLUMNS = [
    "topic",
    "partition",
    "offset",
    "next_offset",
    "timestamp",
    "key",
    "value",
    "headers",
    "request_id",
]

VALUES = st.one_of(st.binary(max_size=80), st.just(bytes(60)), st.just(b"\0\0\0\x39\2" + bytes(60)))
KEYS = st.none() | st.binary(max_size=20)
HEADERS = st.dictionaries(st.text(max_size=5), st.binary(max_size=9), max_size=2)
TIMES = st.integers(0, 2**64 - 1)
MESSAGES = st.lists(st.tuples(VALUES, KEYS, HEADERS, TIMES), max_size=30)


def encoded(
    messages: list[tuple[bytes, bytes | None, dict[str, bytes], int]], first_sequence: int = 0
) -> bytes:
    builder = BatchBuilder()
    for value, key, headers, timestamp_ms in messages:
        builder.add(value, key, headers, timestamp_ms)
    return builder.encode(PRODUCER, EPOCH, Sequence(first_sequence))


def plain(values: list[bytes]) -> bytes:
    return encoded([(value, None, {}, 0) for value in values])


def walked(buffer: bytes) -> list[int]:
    bounds = [0]
    while bounds[-1] < len(buffer):
        bounds.append(record_end(buffer, bounds[-1]))
    return bounds


def faults_of(buffer: bytes) -> tuple[int, type[RecordError]] | None:
    try:
        check_records(find_records(buffer), 0)
    except RecordFaultError as error:
        return error.offset, type(error.why)
    return None


@given(MESSAGES)
@example([(plain([b"a record within a record"]) * 3, None, {}, 0)] * 3)
def test_records_are_found_where_a_walk_finds_them(
    messages: list[tuple[bytes, bytes | None, dict[str, bytes], int]],
) -> None:
    buffer = encoded(messages)
    frames = find_records(buffer)
    assert frames.bounds.tolist() == walked(buffer)
    assert frames.is_structured
    check_records(frames, 0)


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20), st.data())
def test_an_incomplete_record_at_the_end_is_left_out(
    values: list[bytes], data: st.DataObject
) -> None:
    buffer = plain(values)
    cut = data.draw(st.integers(0, len(buffer)))
    whole = [bound for bound in walked(buffer) if bound <= cut]
    assert find_records(buffer[:cut]).bounds.tolist() == whole


@given(st.lists(st.booleans(), max_size=12))
def test_versions_may_be_mixed(kinds: list[bool]) -> None:
    parts = [plain([b"new"]) if kind else encode_opaque(b"i" * 32, b"old") for kind in kinds]
    frames = find_records(b"".join(parts))
    assert frames.bounds.tolist() == walked(b"".join(parts))
    assert frames.is_structured == all(kinds)
    check_records(frames, 0)


@given(MESSAGES.filter(bool), st.data())
def test_a_changed_byte_is_noticed_exactly_where_scan_notices_it(
    messages: list[tuple[bytes, bytes | None, dict[str, bytes], int]], data: st.DataObject
) -> None:
    good = encoded(messages)
    buffer = bytearray(good)
    at = data.draw(st.integers(0, len(buffer) - 1))
    buffer[at] ^= data.draw(st.integers(1, 255))
    try:
        frames = find_records(bytes(buffer))
    except RecordError:
        assert scan(bytes(buffer)).fault is not None
        return
    found = scan(bytes(buffer)[: frames.size_bytes])
    if found.fault is None:
        check_records(frames, 0)
        # A length that grew beyond the end: nothing but the missing rest tells.
        assert frames.size_bytes < len(good)
    else:
        with pytest.raises(RecordFaultError) as raised:
            check_records(frames, 1000)
        assert raised.value.offset == 1000 + found.valid_bytes
        assert type(raised.value.why) is type(found.fault)


def test_a_flipped_bit_anywhere_in_a_record_is_noticed() -> None:
    good = plain([b"first", b"second", b"third"])
    for at in range(9, len(good)):
        for bit in range(8):
            buffer = bytearray(good)
            buffer[at] ^= 1 << bit
            fault = scan(bytes(buffer)).fault
            assert fault is not None
            try:
                frames = find_records(bytes(buffer))
            except RecordError:
                continue
            if frames.size_bytes == len(good):
                assert faults_of(bytes(buffer)) == (scan(bytes(buffer)).valid_bytes, type(fault))


def test_swapped_payloads_of_equal_size_are_noticed() -> None:
    one, other = plain([b"aaaa", b"bbbb"]), plain([b"cccc", b"dddd"])
    mixed = one[:57] + other[57:61] + one[61:]
    assert faults_of(mixed) is not None


def test_a_record_fault_survives_pickling_to_the_driver() -> None:
    buffer = bytearray(plain([b"value"]))
    buffer[-1] ^= 1
    with pytest.raises(RecordFaultError) as raised:
        check_records(find_records(bytes(buffer)), 5)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.offset, str(again)) == (5, str(raised.value))


# --- columns -----------------------------------------------------------------------------


def rows_of(buffer: bytes, base: int = 0) -> list[dict[str, object]]:
    frames = find_records(buffer)
    batch = record_batch(frames, base, TopicName("t"), PartitionId(3), arrow_schema(COLUMNS))
    batch.validate(full=True)
    stamps = batch.column(4).cast(pa.int64())
    batch = batch.set_column(4, pa.field("timestamp", pa.int64()), stamps)
    rows: list[dict[str, object]] = batch.to_pylist()
    return rows


def expected_rows(buffer: bytes, base: int = 0) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for one in decode(buffer, Offset(base), TopicName("t"), PartitionId(3)):
        stamp = one.timestamp_ms
        late = stamp is None or stamp > TIMESTAMP_MS_MAX
        headers = [{"key": key, "value": value} for key, value in one.headers.items()]
        rows.append(
            {
                "topic": "t",
                "partition": 3,
                "offset": one.offset,
                "next_offset": one.next_offset,
                "timestamp": None if late or stamp is None else stamp * 1000,
                "key": one.key,
                "value": one.value,
                "headers": headers or None,
                "request_id": one.request_id,
            }
        )
    return rows


@given(MESSAGES)
def test_rows_have_the_content_of_messages(
    messages: list[tuple[bytes, bytes | None, dict[str, bytes], int]],
) -> None:
    buffer = encoded(messages)
    assert rows_of(buffer, 10**12) == expected_rows(buffer, 10**12)


def test_version_1_records_have_neither_key_nor_time() -> None:
    buffer = encode_opaque(b"i" * 32, b"payload") + encoded([(b"v", b"k", {"a": b"b"}, 5)])
    assert rows_of(buffer) == expected_rows(buffer)


# --- encoding ----------------------------------------------------------------------------


@given(MESSAGES, st.integers(0, 2**40), st.booleans())
def test_rows_are_encoded_as_the_client_encodes_messages(
    messages: list[tuple[bytes, bytes | None, dict[str, bytes], int]],
    first_sequence: int,
    with_headers: bool,
) -> None:
    if not with_headers:
        messages = [(value, key, {}, stamp) for value, key, _, stamp in messages]
    values = pa.array([one[0] for one in messages], pa.binary())
    keys = pa.array([one[1] for one in messages], pa.binary())
    headers = pa.array([encode_headers(one[2]) for one in messages], pa.binary())
    stamps = np.array([one[3] for one in messages], np.uint64)
    blocks = headers if with_headers else None
    made = encode(values, keys, blocks, stamps, PRODUCER, EPOCH, first_sequence)
    expected = encoded(messages, first_sequence)
    assert bytes(made.records) == expected
    assert made.bounds.tolist() == walked(expected)
    assert record_sizes(values, keys, blocks).tolist() == np.diff(made.bounds).tolist()
    assert b"".join(made.pieces(10, 100)) == expected
    for piece in made.pieces(1, 100):
        assert isinstance(find_records(piece), Frames)
        assert find_records(piece).size_bytes == len(piece)
