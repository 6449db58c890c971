"""The compiled kernels say what Python says, of every kind of batch, to the last error."""

from __future__ import annotations

import gc
import importlib
import random
import sys
import zlib
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from octopi import kernels
from octopi.errors import MalformedRecordError
from octopi.identifiers import Offset, ProducerEpoch, ProducerId, Sequence
from octopi.kernels import Kernels
from octopi.limits import INDEX_INTERVAL_BYTES, RECORD_BYTES_MAX
from octopi.record import NO_HEADERS, BatchBuilder, Message, decode, encode_opaque
from tests.record.comparing import (
    PARTITION,
    TOPIC,
    StoppingKernels,
    check_agreement,
    compiled_kernels,
    encoded,
    using,
)
from tests.record.crafting import craft_structured, plain_batch
from tests.record.golden import GOLDEN_LOG
from tests.record.strategies import UINT64, anything, messages

PRODUCER = (b"p" * 16, 1)
Outgoing = tuple[bytes, bytes | None, bytes, int]


@pytest.fixture(scope="module", autouse=True)
def _records_handled_by() -> None:
    """Each test here chooses by itself."""


@pytest.fixture(scope="module")
def compiled() -> Kernels:
    return compiled_kernels()


# --- what they take ------------------------------------------------------------------------


def test_the_kernels_take_whole_batches_of_plain_records(compiled: Kernels) -> None:
    batch = plain_batch(1000)
    taken: list[Message] = []
    assert compiled.decode(batch, 0, 0, TOPIC, PARTITION, Message, NO_HEADERS, taken) == len(batch)
    assert len(taken) == 1000
    one = len(batch) // 1000
    producer = batch[9:29]
    # From the second record on, up to the first behind the limit.
    assert compiled.scan(batch, one, len(batch), producer, 0, 7) == (len(batch), 999, 999)
    assert compiled.scan(batch, one, 10 * one + 1, producer, 0, 50) == (11 * one, 10, 50)
    stop, values, offsets = compiled.values(batch, 0, 0)
    assert (stop, len(values), len(offsets)) == (len(batch), 1000, 8000)


def test_the_kernels_stop_in_front_of_the_first_record_that_is_not_plain(
    compiled: Kernels,
) -> None:
    before = plain_batch(3)
    others = {
        "version 1": encode_opaque(b"r" * 32, b"payload"),
        "headers": craft_structured(b"\x00\x01n\x00\x00\x00\x01v", headers_length=8),
        "reserved": craft_structured(reserved=1),
        "a key that is too long": craft_structured(b"key", key_length=4),
        "damaged": plain_batch(1)[:-1] + b"?",
        "torn": plain_batch(1)[:-1],
        "nothing": b"",
    }
    for other in others.values():
        taken: list[Message] = []
        data = before + other
        stop = compiled.decode(data, 0, 0, TOPIC, PARTITION, Message, NO_HEADERS, taken)
        assert (stop, len(taken)) == (len(before), 3)
        assert compiled.values(data, 0, 0)[0] == len(before)
        assert compiled.scan(data, 0, len(data), data[9:29], 2**64 - 1, 0) == (0, 2**64 - 1, 0)


def test_a_scan_stops_at_another_producer_epoch_or_sequence(compiled: Kernels) -> None:
    data = plain_batch(3)
    producer = data[9:29]
    assert compiled.scan(data, 0, len(data), producer, 5, 0) == (0, 5, 0)
    for at in (0, 15, 19):
        other = bytearray(producer)
        other[at] ^= 1
        start = len(data) // 3
        assert compiled.scan(data, start, len(data), bytes(other), 0, 0) == (start, 0, 0)


def test_kernels_and_python_know_the_same_greatest_record(compiled: Kernels) -> None:
    assert compiled.RECORD_BYTES_MAX == RECORD_BYTES_MAX
    largest = craft_structured(bytes(RECORD_BYTES_MAX - 57))
    assert compiled.values(largest, 0, 0)[0] == len(largest) == RECORD_BYTES_MAX
    assert compiled.values(craft_structured(bytes(RECORD_BYTES_MAX - 56)), 0, 0)[0] == 0


# --- the same as Python --------------------------------------------------------------------


@given(
    anything,
    st.integers(0, 5) | st.just(1 << 40),
    st.sampled_from([0, 1, 2**40, 2**63 - 1000, 2**63, 2**70, -5]),
    st.integers(0, 20),
    st.booleans(),
)
def test_of_any_bytes_kernels_and_python_say_the_same(
    data: bytes, count_max: int, base_offset: int, before: int, is_writable: bool
) -> None:
    compiled = compiled_kernels()
    check_agreement(compiled, data, count_max, base_offset)
    # In the middle of other bytes, at any address.
    whole = bytes(before) + data + b"\x00\x00\x00\x35\x02"
    view = memoryview(bytearray(whole) if is_writable else whole)[before : before + len(data)]
    check_agreement(compiled, view, count_max, base_offset)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a" * 16, b"b" * 16]),
            st.sampled_from([0, 1, 7, 2**64 - 20]),
            st.integers(1, 20),
            st.sampled_from([0, 100, 20_000]),
            st.sampled_from(["plain", "plain", "keys", "headers", "version 1"]),
        ),
        max_size=6,
    ),
    st.lists(UINT64, min_size=1, max_size=5),
    st.integers(0, 30) | st.just(1 << 40),
    st.none() | st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)),
)
def test_of_long_batches_kernels_and_python_say_the_same(
    batches: list[tuple[bytes, int, int, int, str]],
    times: list[int],
    count_max: int,
    damage: tuple[int, int] | None,
) -> None:
    data = bytearray()
    for producer_id, sequence, count, size, kind in batches:
        builder = BatchBuilder()
        for number in range(count):
            builder.add(
                bytes([number]) * (size + number),
                b"k" * number if kind == "keys" else None,
                {"n": b"v"} if kind == "headers" and number % 3 == 0 else NO_HEADERS,
                times[number % len(times)],
            )
            if kind == "version 1" and number % 4 == 1:
                data += encode_opaque(bytes([number]) * 32, bytes(size))
        with using(None):
            data += builder.encode(ProducerId(producer_id), ProducerEpoch(1), Sequence(sequence))
    if damage and data:
        data[damage[0] % len(data)] = damage[1]
    check_agreement(compiled_kernels(), bytes(data), count_max)


@pytest.mark.parametrize(
    "data", [GOLDEN_LOG, plain_batch(4)], ids=["all kinds of records", "plain records"]
)
def test_of_records_torn_and_damaged_at_any_byte_they_say_the_same(
    data: bytes, compiled: Kernels
) -> None:
    for at in range(len(data)):
        check_agreement(compiled, data[:at])
        for value in {0, 255, data[at] ^ 1, data[at] ^ 128}:
            check_agreement(compiled, data[:at] + bytes([value]) + data[at + 1 :])


def test_batches_longer_than_the_distance_of_marks_have_the_same_marks(compiled: Kernels) -> None:
    one = len(plain_batch(1))
    data = plain_batch(3 * INDEX_INTERVAL_BYTES // one)
    for count_max in (0, 10, INDEX_INTERVAL_BYTES // one, 1 << 40):
        check_agreement(compiled, data, count_max)


@given(
    st.lists(messages, max_size=5),
    st.sampled_from([b"p" * 16, b"short"]),
    st.sampled_from([0, 1, 2**32 - 1, 2**32, -1]),
    st.sampled_from([0, 1, 2**64 - 5, 2**64 - 1, 2**64, -1]),
)
def test_messages_are_encoded_to_the_same_bytes_or_refused_with_the_same_words(
    given_messages: list[object], producer_id: bytes, epoch: int, sequence: int
) -> None:
    builder = BatchBuilder()
    for one in given_messages:
        builder.add(one.value, one.key, one.headers, one.timestamp_ms)  # type: ignore[attr-defined]
    producer = (producer_id, epoch)
    compiled = compiled_kernels()
    fast = encoded(builder, producer, sequence, compiled)
    assert fast == encoded(builder, producer, sequence, None)
    if isinstance(fast, bytes):
        assert len(fast) == builder.size_bytes
        assert compiled.encode(builder._messages, bytes(20), 0) is not None


def test_what_kernels_encode_is_the_batch() -> None:
    class Encoding(StoppingKernels):
        def encode(self, messages: object, producer: bytes, first_sequence: int, /) -> bytes:
            return b"%r %d %d" % (messages, len(producer), first_sequence)

    builder = BatchBuilder()
    builder.add(b"value", timestamp_ms=5)
    assert encoded(builder, PRODUCER, 7, Encoding()) == b"[(b'value', None, b'', 5)] 20 7"


def test_what_is_not_bytes_is_encoded_by_python(compiled: Kernels) -> None:
    class Bytes(bytes):
        pass

    for value in (bytearray(b"value"), memoryview(b"value"), Bytes(b"value")):
        builder = BatchBuilder()
        builder.add(value)  # type: ignore[arg-type]
        assert compiled.encode(builder._messages, bytes(20), 0) is None
        assert encoded(builder, PRODUCER, 0, compiled) == encoded(builder, PRODUCER, 0, None)


def test_a_message_too_large_for_a_record_is_left_to_python(compiled: Kernels) -> None:
    largest = bytes(RECORD_BYTES_MAX - 57)
    assert compiled.encode([(largest, None, b"", 0)], bytes(20), 0) is not None
    assert compiled.encode([(largest, b"k", b"", 0)], bytes(20), 0) is None
    assert compiled.encode([(b"", None, b"", 2**64)], bytes(20), 0) is None
    assert compiled.encode([(b"", None, b"", -1)], bytes(20), 0) is None
    with pytest.raises(MalformedRecordError):
        BatchBuilder().add(largest, b"k")


# --- objects and memory --------------------------------------------------------------------


def test_messages_are_not_tracked_by_the_garbage_collector(compiled: Kernels) -> None:
    with using(compiled):
        (one, _) = decode(plain_batch(2), Offset(0), TOPIC, PARTITION)
    assert type(one) is Message
    assert not gc.is_tracked(one)
    assert one._replace(key=b"k").key == b"k"


def test_the_kernels_keep_and_lose_no_references(compiled: Kernels) -> None:
    topic, partition, headers = str(object()), 2**70, {"some": b"headers"}
    producer, batch = b"p" * 16 + bytes(4), plain_batch(50)
    damaged = batch[:-1] + b"?"
    held = (topic, partition, headers, producer, batch, damaged, Message)
    outgoing: list[Outgoing] = [(b"value", b"key", b"", 2**50)]

    def use() -> None:
        for data in (batch, damaged):
            messages: list[Message] = []
            compiled.decode(data, 0, 2**40, topic, partition, Message, headers, messages)
            compiled.values(data, 0, 2**40)
            compiled.scan(data, 0, len(data), producer, 0, 0)
        compiled.encode(outgoing, producer, 2**40)
        with suppress(ValueError):
            compiled.values(batch, len(batch) + 1, 0)

    use()
    counts, blocks = [sys.getrefcount(one) for one in held], sys.getallocatedblocks()
    for _ in range(100):
        use()
    assert [sys.getrefcount(one) for one in held] == counts
    assert abs(sys.getallocatedblocks() - blocks) < 100


def test_wrong_arguments_are_refused(compiled: Kernels) -> None:
    batch, producer = plain_batch(1), bytes(20)
    for position in (-1, len(batch) + 1):
        with pytest.raises(ValueError, match="outside of the buffer"):
            compiled.scan(batch, position, 0, producer, 0, 0)
        with pytest.raises(ValueError, match="outside of the buffer"):
            compiled.decode(batch, position, 0, TOPIC, PARTITION, Message, NO_HEADERS, [])
    with pytest.raises(ValueError, match="20 bytes"):
        compiled.scan(batch, 0, 0, producer[1:], 0, 0)
    with pytest.raises(ValueError, match="20 bytes"):
        compiled.encode([], producer[1:], 0)
    for text in ("x", None):
        with pytest.raises(TypeError):
            compiled.values(text, 0, 0)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            compiled.values(batch, 0, text)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            compiled.encode(text, producer, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="3 arguments are needed, 1 were given"):
        compiled.values(batch)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="tuples, in a list"):
        compiled.decode(batch, 0, 0, TOPIC, PARTITION, list, NO_HEADERS, [])  # type: ignore[type-var]
    for number in (-1, 2**64):
        with pytest.raises(OverflowError):
            compiled.scan(batch, 0, 0, producer, number, 0)
        with pytest.raises(OverflowError):
            compiled.encode([], producer, number)


# --- checksums -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["tables", "clmul"])
def test_each_way_of_a_checksum_gives_the_crc_of_zlib(way: str, compiled: Kernels) -> None:
    if compiled.crc32(way, b"") is None:
        pytest.skip(f"this processor can't compute checksums by {way}")
    randomness = random.Random(7)
    data = randomness.randbytes(1 << 17)
    view = memoryview(data)
    lengths = [*range(301), *(randomness.randrange(1 << 16) for _ in range(20)), 1 << 16]
    for at in range(17):
        for length in lengths:
            part = view[at : at + length]
            assert compiled.crc32(way, part) == zlib.crc32(part), (at, length)
    for edge in (bytes(1000), b"\xff" * 1000):
        for length in accumulate([1] * 200):
            assert compiled.crc32(way, edge[:length]) == zlib.crc32(edge[:length])


def test_no_other_way_of_a_checksum_is_known(compiled: Kernels) -> None:
    assert compiled.crc32("another", b"data") is None


# --- whether they are there ----------------------------------------------------------------


def test_kernels_are_not_loaded_if_they_are_not_wanted() -> None:
    assert kernels.load("0") == "OCTOPI_KERNELS is 0"


def test_kernels_of_another_source_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, built = tmp_path / "_kernels.c", StoppingKernels()
    source.write_text("/* one */")
    built.SOURCE = kernels.digest_of(source.read_bytes())
    monkeypatch.setattr(importlib, "import_module", lambda name: built)
    assert kernels.load("", source) is built
    source.write_text("/* another */")
    assert kernels.load("", source) == "they were built from another source; install again"
    # An executable has no source.
    assert kernels.load("", tmp_path / "missing.c") is built


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleNotFoundError("no"), "none were built; install again where there is a C compiler"),
        (ImportError("another machine's"), "they can't be loaded: another machine's"),
    ],
)
def test_kernels_that_do_not_load_are_no_reason_to_fail(
    error: ImportError, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    assert kernels.load("") == reason


def test_the_description_says_what_handles_records(monkeypatch: pytest.MonkeyPatch) -> None:
    with using(StoppingKernels()):
        assert kernels.description() == "records: compiled"
    monkeypatch.setattr(kernels, "WHY_NONE", "OCTOPI_KERNELS is 0")
    with using(None):
        assert kernels.description() == (
            "records: Python; no compiled kernels: OCTOPI_KERNELS is 0"
        )
