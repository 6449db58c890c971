"""What the encoders take, and what they refuse instead of writing something else."""

import hashlib

import pytest

from octopi.errors import MalformedRecordError
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence, TopicName
from octopi.limits import HEADER_COUNT_MAX, HEADER_NAME_BYTES_MAX, RECORD_BYTES_MAX
from octopi.record import (
    HEADER_BYTES,
    STRUCTURED_BYTES_MIN,
    BatchBuilder,
    Message,
    check_values,
    decode,
    encode_headers,
    encode_opaque,
    producer_id_of,
    record_size_bytes,
    request_id_v2,
    scan,
)

ALICE = ProducerId(b"a" * 16)
FIRST_LIFE = ProducerEpoch(1)


def decode_one(data: bytes) -> Message:
    (message,) = decode(data, Offset(0), TopicName("orders"), PartitionId(0))
    return message


def test_add_says_where_each_record_will_be() -> None:
    builder = BatchBuilder()
    positions = [
        builder.add(b"one"),
        builder.add(b"two", key=b"k"),
        builder.add(b"three", headers={"h": b"v"}),
    ]
    assert len(builder) == 3
    data = builder.encode(ALICE, FIRST_LIFE, Sequence(0))
    assert len(data) == builder.size_bytes
    messages = decode(data, Offset(0), TopicName("orders"), PartitionId(0))
    assert [message.offset for message in messages] == positions
    assert [message.value for message in messages] == [b"one", b"two", b"three"]


def test_records_added_together_are_encoded_as_records_added_one_by_one() -> None:
    values, headers = [b"a" * length for length in range(10)], {"h": b"v"}
    single, many = BatchBuilder(), BatchBuilder()
    for value in values[2:]:
        single.add(value, headers=headers, timestamp_ms=7)
    assert many.add_many(values, 2, headers, 7, size_bytes_max=10_000) == 8
    assert many.encode(ALICE, FIRST_LIFE, Sequence(0)) == single.encode(
        ALICE, FIRST_LIFE, Sequence(0)
    )
    assert many.size_bytes == single.size_bytes


def test_records_are_added_until_the_batch_is_large_enough() -> None:
    builder, values = BatchBuilder(), [bytes(100)] * 10
    size_bytes = record_size_bytes(values[0], None, b"")
    assert builder.add_many(values, 0, size_bytes_max=2 * size_bytes + 1) == 3
    assert builder.add_many(values, 3, size_bytes_max=2 * size_bytes + 1) == 1
    assert builder.size_bytes == 4 * size_bytes
    with pytest.raises(MalformedRecordError, match="64 bits"):
        builder.add_many(values, 4, timestamp_ms=2**64, size_bytes_max=10_000)
    assert builder.size_bytes == 4 * size_bytes


def test_messages_that_go_from_one_batch_to_others_are_encoded_as_if_they_were_added_there() -> (
    None
):
    given = [(b"one", b"k", {"h": b"v"}), (b"two", None, {}), (b"three", b"k", {})]
    batch, direct, parts = (
        BatchBuilder(),
        BatchBuilder(),
        {b"k": BatchBuilder(), None: BatchBuilder()},
    )
    for value, key, headers in given:
        batch.add(value, key, headers, timestamp_ms=7)
    positions = [
        direct.add(value, key, headers, timestamp_ms=7)
        for value, key, headers in given
        if key is not None
    ]
    moved = [
        (batch.key(number), parts[batch.key(number)].add_from(batch, number)) for number in range(3)
    ]
    assert [key for key, _ in moved] == [key for _, key, _ in given]
    assert [at for key, at in moved if key is not None] == positions
    part = parts[b"k"]
    assert part.size_bytes == direct.size_bytes
    assert part.encode(ALICE, FIRST_LIFE, Sequence(0)) == direct.encode(
        ALICE, FIRST_LIFE, Sequence(0)
    )


def test_a_value_that_is_too_large_is_found_before_any_of_many_is_added() -> None:
    largest = bytes(RECORD_BYTES_MAX - STRUCTURED_BYTES_MIN)
    check_values([b"", largest])
    check_values([])
    with pytest.raises(MalformedRecordError):
        check_values([b"", largest], {"h": b"v"})


def test_an_empty_batch_is_encoded_as_no_bytes() -> None:
    assert BatchBuilder().encode(ALICE, FIRST_LIFE, Sequence(0)) == b""


def test_a_batch_can_be_encoded_again_with_other_sequences() -> None:
    builder = BatchBuilder()
    builder.add(b"value")
    first = builder.encode(ALICE, FIRST_LIFE, Sequence(0))
    again = builder.encode(ALICE, ProducerEpoch(2), Sequence(9))
    assert decode_one(first).request_id == request_id_v2(ALICE, FIRST_LIFE, Sequence(0))
    assert decode_one(again).request_id == request_id_v2(ALICE, ProducerEpoch(2), Sequence(9))
    assert builder.encode(ALICE, FIRST_LIFE, Sequence(0)) == first


def test_no_key_and_an_empty_key_are_different() -> None:
    sizes = []
    for key in (None, b""):
        builder = BatchBuilder()
        builder.add(b"value", key)
        sizes.append(builder.size_bytes)
        assert decode_one(builder.encode(ALICE, FIRST_LIFE, Sequence(0))).key == key
    assert sizes == [STRUCTURED_BYTES_MIN + 5] * 2


@pytest.mark.parametrize(
    ("producer_id", "epoch", "sequence", "text"),
    [
        (b"a" * 15, 1, 0, "16 bytes, this one has 15"),
        (b"a" * 17, 1, 0, "16 bytes, this one has 17"),
        (b"a" * 16, -1, 0, "epoch -1"),
        (b"a" * 16, 2**32, 0, "epoch 4294967296"),
        (b"a" * 16, 1, -1, "sequences -1"),
        (b"a" * 16, 1, 2**64, "sequences 18446744073709551616"),
    ],
)
def test_producer_ids_epochs_and_sequences_that_do_not_fit_a_request_id_are_refused(
    producer_id: bytes, epoch: int, sequence: int, text: str
) -> None:
    arguments = ProducerId(producer_id), ProducerEpoch(epoch), Sequence(sequence)
    with pytest.raises(MalformedRecordError, match=text):
        request_id_v2(*arguments)
    builder = BatchBuilder()
    builder.add(b"value")
    with pytest.raises(MalformedRecordError, match=text):
        builder.encode(*arguments)


def test_sequences_end_at_64_bits_instead_of_starting_again() -> None:
    builder = BatchBuilder()
    builder.add(b"last but one")
    builder.add(b"last")
    data = builder.encode(ALICE, FIRST_LIFE, Sequence(2**64 - 2))
    assert scan(data).runs[0].first_sequence == 2**64 - 2
    with pytest.raises(MalformedRecordError, match="64 bits"):
        builder.encode(ALICE, FIRST_LIFE, Sequence(2**64 - 1))


@pytest.mark.parametrize("timestamp_ms", [-1, 2**64])
def test_a_time_stamp_that_does_not_fit_is_refused(timestamp_ms: int) -> None:
    builder = BatchBuilder()
    with pytest.raises(MalformedRecordError, match="64 bits"):
        builder.add(b"value", timestamp_ms=timestamp_ms)
    assert (len(builder), builder.size_bytes) == (0, 0)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_request_id_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(MalformedRecordError, match=f"32 bytes, this one has {size}"):
        encode_opaque(bytes(size), b"payload")


def test_a_record_of_the_greatest_size_fits_and_one_byte_more_does_not() -> None:
    payload = bytes(RECORD_BYTES_MAX - HEADER_BYTES)
    assert scan(encode_opaque(bytes(32), payload)).valid_bytes == RECORD_BYTES_MAX
    with pytest.raises(MalformedRecordError, match=f"would have {RECORD_BYTES_MAX + 1}"):
        encode_opaque(bytes(32), payload + b"!")

    value = bytes(RECORD_BYTES_MAX - record_size_bytes(b"", b"key", b""))
    builder = BatchBuilder()
    builder.add(value, b"key")
    assert scan(builder.encode(ALICE, FIRST_LIFE, Sequence(0))).valid_bytes == RECORD_BYTES_MAX
    with pytest.raises(MalformedRecordError, match=f"would have {RECORD_BYTES_MAX + 1}"):
        builder.add(value, b"key!")
    assert (len(builder), builder.size_bytes) == (1, RECORD_BYTES_MAX)


def test_as_many_headers_and_as_long_names_as_allowed_fit_and_more_do_not() -> None:
    headers = {f"{number:0{HEADER_NAME_BYTES_MAX}}": b"v" for number in range(HEADER_COUNT_MAX)}
    builder = BatchBuilder()
    builder.add(b"value", headers=headers)
    data = builder.encode(ALICE, FIRST_LIFE, Sequence(0))
    assert decode_one(data).headers == headers
    with pytest.raises(MalformedRecordError, match="at most 1000 headers, this one has 1001"):
        builder.add(b"value", headers={**headers, "one more": b""})
    with pytest.raises(MalformedRecordError, match="at most 1000 bytes"):
        encode_headers({"ö" * (HEADER_NAME_BYTES_MAX // 2) + "!": b""})
    assert len(builder) == 1


def test_a_header_name_that_utf_8_cannot_write_is_refused() -> None:
    with pytest.raises(MalformedRecordError, match="not UTF-8"):
        encode_headers({"\ud800": b""})


def test_messages_without_headers_share_one_immutable_mapping() -> None:
    builder = BatchBuilder()
    builder.add(b"value")
    headers = decode_one(builder.encode(ALICE, FIRST_LIFE, Sequence(0))).headers
    assert headers == {}
    with pytest.raises(TypeError):
        headers["h"] = b"v"  # type: ignore[index]


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (1_767_225_600_001, "2026-01-01T00:00:00.001000+00:00"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999000+00:00"),
    ],
)
def test_a_time_stamp_reads_as_a_datetime_in_utc(timestamp_ms: int, text: str) -> None:
    builder = BatchBuilder()
    builder.add(b"value", timestamp_ms=timestamp_ms)
    message = decode_one(builder.encode(ALICE, FIRST_LIFE, Sequence(0)))
    assert message.timestamp is not None
    assert message.timestamp.isoformat() == text


@pytest.mark.parametrize("timestamp_ms", [253_402_300_800_000, 2**64 - 1])
def test_a_time_beyond_the_year_9999_is_kept_but_is_no_datetime(timestamp_ms: int) -> None:
    builder = BatchBuilder()
    builder.add(b"value", timestamp_ms=timestamp_ms)
    message = decode_one(builder.encode(ALICE, FIRST_LIFE, Sequence(0)))
    assert message.timestamp_ms == timestamp_ms
    with pytest.raises(OverflowError):
        _ = message.timestamp


def test_a_version_1_message_has_no_time() -> None:
    message = decode_one(encode_opaque(bytes(32), b"payload"))
    assert message.timestamp_ms is None
    assert message.timestamp is None


def test_a_batch_takes_no_more_messages_than_it_may_have() -> None:
    builder, values = BatchBuilder(), [b"value"] * 10
    builder.add(b"first")
    assert builder.add_many(values, 0, size_bytes_max=10_000, count_max=4) == 3
    assert builder.add_many(values, 3, size_bytes_max=10_000, count_max=4) == 0


def test_the_id_of_a_producer_with_a_name_is_a_digest_of_its_kind_and_name() -> None:
    digest = hashlib.sha256(b"octopi producer pricing").digest()
    assert producer_id_of("producer", "pricing") == digest[:16]
