"""What holds for every log: encode, scan, decode and the walks against simple models."""

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from octopi.errors import IncompleteRecordError, RecordError
from octopi.identifiers import (
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TopicName,
)
from octopi.limits import INDEX_INTERVAL_BYTES
from octopi.record import (
    OPAQUE,
    BatchBuilder,
    Message,
    RecordStart,
    Run,
    check_record,
    decode,
    decode_headers,
    encode_headers,
    encode_opaque,
    record_end,
    record_key,
    record_timestamp_ms,
    scan,
    whole_records_end,
)
from tests.record.crafting import is_boundary
from tests.record.strategies import BuiltLog, anything, logs

TOPIC, PARTITION = TopicName("orders"), PartitionId(3)


def decode_at_1000(data: bytes) -> list[Message]:
    return decode(data, Offset(1000), TOPIC, PARTITION)


def model_runs(log: BuiltLog) -> list[Run]:
    """The runs, found by comparing each record with the one before it."""
    groups: list[list[int]] = []
    for index, one in enumerate(log.sent):
        before = log.sent[index - 1] if index else None
        if one.producer is None:
            continue
        if before and (before.producer, before.sequence + 1) == (one.producer, one.sequence):
            groups[-1].append(index)
        else:
            groups.append([index])
    runs = []
    for group in groups:
        first = log.sent[group[0]]
        assert first.producer is not None
        runs.append(
            Run(
                ProducerId(first.producer[0]),
                ProducerEpoch(first.producer[1]),
                Sequence(first.sequence),
                len(group),
                log.starts[group[0]],
                log.starts[group[-1] + 1],
            )
        )
    return runs


def model_marks(log: BuiltLog) -> list[RecordStart]:
    """The marks: a record's start once enough bytes lie between it and the mark before."""
    marks: list[RecordStart] = []
    timestamp_ms = -1
    for count, (start, one) in enumerate(zip(log.starts, log.sent, strict=False)):
        if not marks or start - marks[-1].position >= INDEX_INTERVAL_BYTES:
            marks.append(RecordStart(start, timestamp_ms, count))
        timestamp_ms = max(timestamp_ms, -1 if one.timestamp_ms is None else one.timestamp_ms)
    return marks


@given(logs())
def test_scan_finds_all_encoded_records(log: BuiltLog) -> None:
    found = scan(log.data)
    assert found.fault is None
    assert (found.valid_bytes, found.count) == (len(log.data), len(log.sent))
    assert found.runs == model_runs(log)
    assert found.marks == model_marks(log)
    stamps = [one.timestamp_ms for one in log.sent if one.timestamp_ms is not None]
    assert found.timestamp_max_ms == max(stamps, default=-1)


@given(logs())
def test_decode_returns_the_encoded_messages(log: BuiltLog) -> None:
    assert decode_at_1000(log.data) == [
        (
            TOPIC,
            PARTITION,
            1000 + start,
            1000 + end,
            one.timestamp_ms,
            one.key,
            one.value,
            one.headers,
            one.request_id,
        )
        for (start, end), one in zip(pairwise(log.starts), log.sent, strict=True)
    ]


@given(logs(batches_max=3), st.data())
def test_a_prefix_is_whole_records_and_perhaps_one_incomplete(
    log: BuiltLog, data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(log.data)), max_size=20))
    for cut in {*cuts, *log.starts, *(max(0, start - 1) for start in log.starts)}:
        prefix = log.data[:cut]
        whole = max(start for start in log.starts if start <= cut)
        found = scan(prefix)
        assert (found.valid_bytes, found.count) == (whole, log.starts.index(whole))
        assert whole_records_end(prefix) == whole
        if cut == whole:
            assert found.fault is None
            assert len(decode_at_1000(prefix)) == found.count
        else:
            assert isinstance(found.fault, IncompleteRecordError)
            with pytest.raises(IncompleteRecordError, match=f"offset {1000 + whole}:"):
                decode_at_1000(prefix)


@given(anything)
def test_scan_decode_and_check_record_agree_on_any_bytes(data: bytes) -> None:
    found = scan(data)
    position = 0
    for _ in range(found.count):
        position = check_record(data, position)
    assert position == found.valid_bytes
    assert len(decode_at_1000(data[:position])) == found.count
    if found.fault is None:
        assert position == len(data)
        return
    with pytest.raises(RecordError) as checked:
        check_record(data, position)
    with pytest.raises(RecordError) as decoded:
        decode_at_1000(data)
    assert type(checked.value) is type(decoded.value) is type(found.fault)
    assert str(checked.value) == str(found.fault)
    assert str(decoded.value) == f"record at offset {1000 + position}: {found.fault}"


@given(anything)
def test_a_message_has_one_encoding_only(data: bytes) -> None:
    accepted = data[: scan(data).valid_bytes]
    encoded = bytearray()
    for message in decode_at_1000(accepted):
        if message.timestamp_ms is None:
            encoded += encode_opaque(message.request_id, message.value)
            continue
        builder = BatchBuilder()
        builder.add(message.value, message.key, message.headers, message.timestamp_ms)
        encoded += builder.encode(
            ProducerId(message.request_id[:16]),
            ProducerEpoch(int.from_bytes(message.request_id[16:20], "big")),
            Sequence(int.from_bytes(message.request_id[24:], "big")),
        )
    assert encoded == accepted


@given(anything)
def test_a_view_into_a_buffer_scans_like_the_bytes(data: bytes) -> None:
    of_view, of_bytes = scan(memoryview(b"xyz" + data)[3:]), scan(data)
    assert str(of_view.fault) == str(of_bytes.fault)
    assert of_view.valid_bytes == of_bytes.valid_bytes
    assert of_view.runs == of_bytes.runs


@given(anything, st.integers(0, 400), st.none() | st.integers(0, 400))
def test_walking_over_any_bytes_ends_or_raises_a_record_error(
    data: bytes, position: int, limit_bytes: int | None
) -> None:
    with suppress(RecordError):
        assert record_end(data, position) > position
    with suppress(RecordError):
        assert 0 <= whole_records_end(data, limit_bytes) <= len(data)
    with suppress(RecordError):
        is_boundary(data, position)


@given(logs(), st.data())
def test_walks_find_exactly_the_record_boundaries(log: BuiltLog, data: st.DataObject) -> None:
    for (start, end), one in zip(pairwise(log.starts), log.sent, strict=True):
        assert record_end(log.data, start) == end
        expected = -1 if log.data[start + 4] == OPAQUE else one.timestamp_ms
        assert record_timestamp_ms(log.data, start) == expected
    beside = {max(0, start - 1) for start in log.starts} | {start + 1 for start in log.starts[:-1]}
    inside = data.draw(st.lists(st.integers(0, len(log.data)), max_size=20))
    for position in {*log.starts, *beside, *inside}:
        assert is_boundary(log.data, position) == (position in log.starts)


@given(logs(), st.data())
def test_whole_records_end_is_the_last_boundary_within_the_limit(
    log: BuiltLog, data: st.DataObject
) -> None:
    limit = data.draw(st.sampled_from(log.starts) | st.integers(0, len(log.data) + 100))
    expected = max(start for start in log.starts if start <= limit)
    if expected == 0 and log.sent:
        expected = log.starts[1]  # a reader with a small limit still has to get on
    assert whole_records_end(log.data, limit) == expected


@given(st.dictionaries(st.text(), st.binary(), max_size=20))
def test_decoded_headers_keep_their_order(headers: dict[str, bytes]) -> None:
    decoded = decode_headers(encode_headers(headers))
    assert list(decoded.items()) == list(headers.items())


@given(logs())
def test_record_key_agrees_with_decode(log: BuiltLog) -> None:
    messages = decode(log.data, Offset(0), TOPIC, PARTITION)
    for message in messages:
        assert record_key(log.data, message.offset) == message.key


def test_a_record_has_a_key_an_empty_one_or_none() -> None:
    builder = BatchBuilder()
    builder.add(b"value", key=b"key", headers={"a": b"b"})
    builder.add(b"value", key=b"")
    builder.add(b"value")
    data = builder.encode(ProducerId(bytes(16)), ProducerEpoch(0), Sequence(0))
    data += encode_opaque(bytes(32), b"payload")
    ends = [0]
    while ends[-1] < len(data):
        ends.append(record_end(data, ends[-1]))
    assert [record_key(data, at) for at in ends[:-1]] == [b"key", b"", None, None]
