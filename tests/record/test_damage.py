"""Damage and lies: every cut, every flipped bit, every length that isn't true."""

import struct
from itertools import accumulate

import pytest

from octopi.errors import (
    ChecksumError,
    IncompleteRecordError,
    MalformedRecordError,
    RecordError,
)
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence, TopicName
from octopi.limits import (
    HEADER_COUNT_MAX,
    HEADER_NAME_BYTES_MAX,
    INDEX_INTERVAL_BYTES,
    RECORD_BYTES_MAX,
)
from octopi.record import (
    HEADER_BYTES,
    OPAQUE,
    STRUCTURED,
    BatchBuilder,
    check_record,
    decode,
    encode_opaque,
    scan,
    whole_records_end,
)
from tests.record.crafting import NO_KEY, craft, craft_header, craft_structured, is_boundary
from tests.record.golden import GOLDEN, GOLDEN_LOG, Golden

each_golden = pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
STARTS = [0, *accumulate(len(golden.data) for golden in GOLDEN)]
REQUEST_ID = range(9, HEADER_BYTES)


def fault_of(data: bytes) -> RecordError | None:
    """What scan and decode agree to be wrong with the first record of *data*."""
    found = scan(data)
    if found.fault is None:
        decode(data, Offset(0), TopicName("orders"), PartitionId(0))
        return None
    assert found.valid_bytes == 0
    with pytest.raises(type(found.fault), match="record at offset 0: "):
        decode(data, Offset(0), TopicName("orders"), PartitionId(0))
    with pytest.raises(type(found.fault)):
        check_record(data)
    return found.fault


def flip(data: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


@each_golden
def test_every_cut_leaves_an_incomplete_record(golden: Golden) -> None:
    for cut in range(1, len(golden.data)):
        assert isinstance(fault_of(golden.data[:cut]), IncompleteRecordError)


@each_golden
def test_a_missing_byte_anywhere_is_noticed(golden: Golden) -> None:
    for position in range(len(golden.data)):
        assert fault_of(golden.data[:position] + golden.data[position + 1 :]) is not None


@each_golden
def test_every_flipped_bit_is_noticed(golden: Golden) -> None:
    for position in range(len(golden.data)):
        if golden.version == OPAQUE and position in REQUEST_ID:
            continue  # the blind spot: it has a test of its own
        for bit in range(8):
            fault = fault_of(flip(golden.data, position, bit))
            if position < 4:
                assert isinstance(
                    fault, IncompleteRecordError | MalformedRecordError | ChecksumError
                )
            elif position == 4:
                assert isinstance(fault, MalformedRecordError)
            else:
                assert isinstance(fault, ChecksumError)


def test_a_flipped_bit_within_a_log_is_noticed_where_it_is() -> None:
    for golden, start in zip(GOLDEN, STARTS, strict=False):
        for position in range(len(golden.data)):
            if golden.version == OPAQUE and position in REQUEST_ID:
                continue
            for bit in range(8):
                found = scan(flip(GOLDEN_LOG, start + position, bit))
                assert found.fault is not None
                assert found.valid_bytes == start


def test_the_request_id_of_version_1_is_outside_its_checksum() -> None:
    """The blind spot, by the version's definition: the checksum is the payload's alone."""
    record = encode_opaque(b"r" * 32, b"payload")
    for position in REQUEST_ID:
        for bit in range(8):
            changed = flip(record, position, bit)
            assert fault_of(changed) is None
            (message,) = decode(changed, Offset(0), TopicName("orders"), PartitionId(0))
            assert message.request_id != b"r" * 32
            assert message.value == b"payload"


@pytest.mark.parametrize("version", [0, 3, 255])
def test_an_unknown_version_is_malformed(version: int) -> None:
    fault = fault_of(craft(version, bytes(60)))
    assert isinstance(fault, MalformedRecordError)
    assert f"version {version}" in str(fault)


@pytest.mark.parametrize("version", [OPAQUE, STRUCTURED])
@pytest.mark.parametrize("length", [0, 1, 36, RECORD_BYTES_MAX - 3, 2**31, 2**32 - 1])
def test_an_impossible_length_is_malformed(version: int, length: int) -> None:
    data = craft(version, bytes(100), length=length)
    fault = fault_of(data)
    assert isinstance(fault, MalformedRecordError)
    assert f"length {length}" in str(fault)
    for walk in (whole_records_end, lambda buffer: is_boundary(buffer, 60)):
        with pytest.raises(MalformedRecordError, match=f"length {length}"):
            walk(data)


@pytest.mark.parametrize("version", [OPAQUE, STRUCTURED])
def test_a_length_beyond_the_data_is_incomplete_however_large(version: int) -> None:
    data = craft(version, bytes(60), length=RECORD_BYTES_MAX - 4)
    fault = fault_of(data)
    assert isinstance(fault, IncompleteRecordError)
    assert f"{len(data)} bytes of a record of {RECORD_BYTES_MAX} bytes" in str(fault)


@pytest.mark.parametrize("version", [OPAQUE, STRUCTURED])
def test_a_record_above_the_greatest_size_is_malformed_although_its_checksum_is_right(
    version: int,
) -> None:
    body = bytearray(RECORD_BYTES_MAX - 9 + 1)
    struct.pack_into(">I", body, 32 + 8, NO_KEY)
    assert isinstance(fault_of(craft(version, bytes(body))), MalformedRecordError)
    assert fault_of(craft(version, bytes(body[:-1]))) is None


@pytest.mark.parametrize("body_bytes", [32, 33, 47])
def test_a_version_2_record_too_short_for_its_fields_is_malformed(body_bytes: int) -> None:
    for behind in (b"", GOLDEN_LOG):
        fault = fault_of(craft(STRUCTURED, bytes(body_bytes)) + behind)
        assert isinstance(fault, MalformedRecordError)
        assert "legal in version 2 are 53 to" in str(fault)


@pytest.mark.parametrize(
    ("key_length", "headers_length"),
    [
        (11, 0),
        (NO_KEY - 1, 0),
        (NO_KEY, 11),
        (NO_KEY, 2**32 - 1),
        (5, 6),
        (NO_KEY - 1, 2**32 - 1),
    ],
)
def test_key_and_headers_beyond_the_record_are_malformed(
    key_length: int, headers_length: int
) -> None:
    record = craft_structured(bytes(10), key_length=key_length, headers_length=headers_length)
    for behind in (b"", GOLDEN_LOG):
        fault = fault_of(record + behind)
        assert isinstance(fault, MalformedRecordError)
        assert "longer than the record" in str(fault)


@pytest.mark.parametrize("key", [b"", b"key"])
def test_reserved_bytes_other_than_zero_are_malformed(key: bytes) -> None:
    key_length = len(key) or NO_KEY
    assert fault_of(craft_structured(key, key_length=key_length)) is None
    for reserved in (1, 2**31):
        fault = fault_of(craft_structured(key, key_length=key_length, reserved=reserved))
        assert isinstance(fault, MalformedRecordError)
        assert "reserved" in str(fault)


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (b"\x00", "ends within a header"),
        (b"\x00\x01", "ends within a header"),
        (b"\x00\x01n\x00\x00\x00", "ends within a header"),
        (b"\x00\x01n\x00\x00\x00\x02v", "ends within a header"),
        (b"\xff\xffn\x00\x00\x00\x00", "ends within a header"),
        (b"\x00\x01n\xff\xff\xff\xff", "ends within a header"),
        (craft_header(b"n", b"v") + b"\x00", "ends within a header"),
        (craft_header(b"\xff", b"v"), "not UTF-8"),
        (craft_header(b"\xed\xa0\x80", b"v"), "not UTF-8"),
        (craft_header(b"n", b"1") + craft_header(b"n", b"2"), "'n' is there twice"),
        (craft_header(b"n" * (HEADER_NAME_BYTES_MAX + 1), b""), "too long names"),
        (
            b"".join(craft_header(b"%d" % number, b"") for number in range(HEADER_COUNT_MAX + 1)),
            "too many",
        ),
    ],
)
def test_a_header_block_that_no_encoder_writes_is_malformed(block: bytes, text: str) -> None:
    fault = fault_of(craft_structured(block + b"value", headers_length=len(block)))
    assert isinstance(fault, MalformedRecordError)
    assert text in str(fault)


def test_headers_do_not_reach_into_the_value() -> None:
    header = craft_header(b"name", b"value")
    fault = fault_of(craft_structured(header, headers_length=len(header) - 1))
    assert isinstance(fault, MalformedRecordError)


@pytest.mark.parametrize("size", [9, 41, 57, 100_000])
def test_zero_bytes_are_malformed(size: int) -> None:
    assert isinstance(fault_of(bytes(size)), MalformedRecordError)
    found = scan(GOLDEN_LOG + bytes(size))
    assert isinstance(found.fault, MalformedRecordError)
    assert found.valid_bytes == len(GOLDEN_LOG)


def test_sequences_that_wrap_around_start_a_new_run() -> None:
    last = craft_structured(sequence=2**64 - 1)
    first = craft_structured(sequence=0)
    found = scan(last + first + craft_structured(sequence=1))
    assert found.fault is None
    assert [(run.first_sequence, run.count, run.start) for run in found.runs] == [
        (2**64 - 1, 1, 0),
        (0, 2, len(last)),
    ]


def test_version_1_records_interrupt_a_run_and_belong_to_none() -> None:
    builder = BatchBuilder()
    builder.add(b"0")
    start = encode_opaque(b"r" * 32, b"payload")
    one = builder.encode(ProducerId(b"a" * 16), ProducerEpoch(1), Sequence(0))
    two = builder.encode(ProducerId(b"a" * 16), ProducerEpoch(1), Sequence(1))
    found = scan(start + one + start + start + two + start)
    assert found.count == 6
    assert [(run.first_sequence, run.count) for run in found.runs] == [(0, 1), (1, 1)]
    assert [(run.start, run.end) for run in found.runs] == [
        (46 + 2, 46 + 2 + len(one)),
        (3 * 48 + len(one), 3 * 48 + len(one) + len(two)),
    ]


def test_empty_data_is_a_log_without_records() -> None:
    found = scan(b"")
    assert (found.valid_bytes, found.count, found.runs, found.marks) == (0, 0, [], [])
    assert (found.timestamp_max_ms, found.fault) == (-1, None)
    assert whole_records_end(b"") == 0
    assert is_boundary(b"", 0)


def test_the_records_found_before_a_fault_are_kept() -> None:
    found = scan(GOLDEN_LOG[:-1])
    assert isinstance(found.fault, IncompleteRecordError)
    assert found.count == len(GOLDEN) - 1
    assert [(run.first_sequence, run.count) for run in found.runs] == [(0, 4)]
    assert found.timestamp_max_ms == 1_767_225_600_002


def test_a_fault_behind_the_limit_of_a_walk_is_found_by_a_read_that_reaches_it() -> None:
    data = GOLDEN_LOG + bytes(20)
    assert whole_records_end(data, STARTS[2]) == STARTS[2]
    assert is_boundary(data, len(GOLDEN_LOG))
    with pytest.raises(MalformedRecordError):
        whole_records_end(data)
    with pytest.raises(MalformedRecordError):
        is_boundary(data, len(data))
    with pytest.raises(IncompleteRecordError):
        is_boundary(GOLDEN_LOG, len(GOLDEN_LOG) + 1)


def test_a_scan_ends_soon_after_the_number_of_records_that_was_asked_for() -> None:
    one = craft_structured()
    count = 4 * INDEX_INTERVAL_BYTES // len(one)
    found = scan(one * count, 10)
    assert 10 < found.count <= INDEX_INTERVAL_BYTES // len(one) + 1
    assert (found.valid_bytes, found.fault) == (found.count * len(one), None)
    assert scan(one * count, count).count == count
    assert scan(one * 10, 9).count == 10
