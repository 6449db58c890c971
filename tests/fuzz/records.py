"""Records and their headers."""

from __future__ import annotations

import struct
from contextlib import suppress

from hypothesis import strategies as st

from octopi import kernels
from octopi.errors import IncompleteRecordError, MalformedRecordError, RecordError
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence, TopicName
from octopi.record import (
    REQUEST_ID_BYTES,
    BatchBuilder,
    Message,
    check_record,
    decode,
    decode_headers,
    encode_headers,
    encode_opaque,
    scan,
    whole_records_end,
)
from tests.fuzz.target import Target
from tests.record.comparing import check_agreement
from tests.record.crafting import craft_header, with_checksums
from tests.record.strategies import anything, damaged_logs, header_blocks, logs


def check(data: bytes) -> bool:
    _check_headers(data)
    valid_bytes = _check_scan(data)
    sealed = with_checksums(data)
    if kernels.KERNELS is not None:
        check_agreement(kernels.KERNELS, data)
        check_agreement(kernels.KERNELS, sealed)
    return bool(max(valid_bytes, _check_scan(sealed) if sealed != data else 0))


def _check_headers(data: bytes) -> None:
    try:
        headers = decode_headers(data)
    except MalformedRecordError:
        return
    assert encode_headers(headers) == data, "headers have two forms"


def _check_scan(data: bytes) -> int:
    """The valid bytes of *data*."""
    found = scan(data)
    valid = data[: found.valid_bytes]
    assert (found.fault is None) == (valid == data)
    again = scan(valid)
    assert again.fault is None, "the valid prefix is not valid"
    assert (again.count, again.runs, again.marks, again.requests) == (
        found.count,
        found.runs,
        found.marks,
        found.requests,
    ), "the valid prefix says other things than the whole"
    messages = decode(valid, Offset(0), TopicName("t"), PartitionId(0))
    ends = [0, *(int(one.next_offset) for one in messages)]
    assert [int(one.offset) for one in messages] == ends[:-1]
    assert (len(messages), ends[-1]) == (found.count, found.valid_bytes)
    assert b"".join(map(_encoded, messages)) == valid, "a record has two forms"
    for cut in {0, 1, len(data) // 3, len(data) // 2, max(0, found.valid_bytes - 1), len(data) - 1}:
        if cut >= 0:
            expected = max(end for end in ends if end <= cut)
            assert scan(data[:cut]).valid_bytes == expected, "a prefix says more than the whole"
    _check_same_fault(data, found.valid_bytes, found.fault)
    return found.valid_bytes


def _check_same_fault(data: bytes, valid_bytes: int, fault: RecordError | None) -> None:
    """That decoding stops where scanning does, for the same reason; and that a walk by lengths
    comes as far."""
    raised: RecordError | None = None
    try:
        decode(data, Offset(0), TopicName("t"), PartitionId(0))
    except RecordError as error:
        raised = error
    assert type(raised) is type(fault), (raised, fault)
    if fault is None:
        assert whole_records_end(data) == len(data)
        return
    assert str(fault) in str(raised)
    alone: RecordError | None = None
    try:
        check_record(data, valid_bytes)
    except RecordError as error:
        alone = error
    assert type(alone) is type(fault), "a record alone is judged otherwise than among others"
    with suppress(MalformedRecordError, IncompleteRecordError):
        assert whole_records_end(data) >= valid_bytes


def _encoded(message: Message) -> bytes:
    """The record that *message* was."""
    if message.timestamp_ms is None:
        return encode_opaque(message.request_id, message.value)
    producer, epoch, _, sequence = struct.unpack(">16sIIQ", message.request_id)
    builder = BatchBuilder()
    builder.add(message.value, message.key, message.headers, message.timestamp_ms)
    return builder.encode(ProducerId(producer), ProducerEpoch(epoch), Sequence(sequence))


TARGET = Target(
    "records",
    "of any bytes a prefix is valid: scanning, decoding and walking agree about it, also with less "
    "behind it, what is decoded is encoded to the same bytes, and compiled kernels say the same",
    st.one_of(
        logs(batches_max=2).map(lambda log: log.data).filter(lambda data: len(data) < 3000),
        header_blocks,
        anything.filter(lambda data: len(data) < 3000),
        damaged_logs().filter(lambda data: len(data) < 3000),
    ),
    check,
    ("octopi/record.py", "octopi/record_encoding.py", "octopi/record_headers.py"),
    words=(
        encode_opaque(bytes(REQUEST_ID_BYTES), b"x"),
        encode_opaque(b"r" * REQUEST_ID_BYTES, b""),
        craft_header(b"a", b"b"),
        craft_header(b"", b""),
        b"\x00\x00\x00\x25\x01",
        b"\x00\x00\x00\x35\x02",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\xff" * 8,
    ),
)
