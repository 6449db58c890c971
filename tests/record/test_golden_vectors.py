"""The format as it is fixed for ever: by vectors, in its document, for a foreign reader."""

import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence, TopicName
from octopi.limits import HEADER_COUNT_MAX, HEADER_NAME_BYTES_MAX, RECORD_BYTES_MAX
from octopi.record import decode, request_id_v1, request_id_v2, scan
from tests.record.golden import GOLDEN, GOLDEN_LOG, PRODUCER, Golden
from tests.record.strategies import BuiltLog, logs

DOCUMENT = (Path(__file__).parents[2] / "docs/record-format.md").read_text()
TOPIC, PARTITION = TopicName("orders"), PartitionId(0)

each_golden = pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)


def foreign_reader() -> Callable[[bytes], Iterator[tuple[Any, ...]]]:
    """The reader that the document shows; it uses nothing of ours."""
    (source,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    assert "octopi" not in source
    names: dict[str, Any] = {}
    exec(compile(source, "docs/record-format.md", "exec"), names)
    reader: Callable[[bytes], Iterator[tuple[Any, ...]]] = names["read_records"]
    return reader


read_records = foreign_reader()


@each_golden
def test_encoding_gives_the_golden_bytes(golden: Golden) -> None:
    assert golden.encode().hex() == golden.data.hex()


@each_golden
def test_decoding_gives_the_golden_messages(golden: Golden) -> None:
    (message,) = decode(golden.data, Offset(700), TOPIC, PARTITION)
    assert message == (
        TOPIC,
        PARTITION,
        700,
        700 + len(golden.data),
        golden.timestamp_ms,
        golden.key,
        golden.value,
        golden.headers,
        golden.request_id,
    )
    assert list(message.headers) == list(golden.headers)


@each_golden
def test_a_foreign_reader_understands_the_golden_bytes(golden: Golden) -> None:
    ((offset, request_id, timestamp_ms, key, headers, value),) = read_records(golden.data)
    assert (offset, request_id) == (0, golden.request_id)
    assert timestamp_ms == golden.timestamp_ms
    assert (key, headers, value) == (golden.key, golden.headers, golden.value)


def test_the_golden_vectors_in_a_row_are_a_log() -> None:
    starts = [0, *accumulate(len(golden.data) for golden in GOLDEN)]
    found = scan(GOLDEN_LOG)
    assert (found.valid_bytes, found.count, found.fault) == (starts[-1], len(GOLDEN), None)
    assert [record[0] for record in read_records(GOLDEN_LOG)] == starts[:-1]


def test_the_document_shows_the_same_golden_vectors() -> None:
    shown = re.findall(
        r"^### (Version [^\n]*)\n(?:(?!^#).)*?```hex\n(.*?)```", DOCUMENT, re.M | re.S
    )
    assert {name: bytes.fromhex(text) for name, text in shown} == {
        golden.name: golden.data for golden in GOLDEN
    }


def test_the_document_names_the_bounds_that_are_enforced() -> None:
    assert f"{RECORD_BYTES_MAX:,} bytes" in DOCUMENT
    assert f"{RECORD_BYTES_MAX - 4:,}" in DOCUMENT
    assert f"at most {HEADER_NAME_BYTES_MAX} |" in DOCUMENT
    assert f"at most {HEADER_COUNT_MAX} headers" in DOCUMENT


@given(logs())
def test_a_foreign_reader_agrees_with_octopi_on_every_log(log: BuiltLog) -> None:
    ours = decode(log.data, Offset(0), TOPIC, PARTITION)
    assert list(read_records(log.data)) == [
        (one.offset, one.request_id, one.timestamp_ms, one.key, one.headers, one.value)
        for one in ours
    ]


def test_a_foreign_reader_stops_at_a_torn_tail_and_refuses_damage() -> None:
    assert len(list(read_records(GOLDEN_LOG[:-1]))) == len(GOLDEN) - 1
    with pytest.raises(ValueError, match="offset 0 is damaged"):
        list(read_records(GOLDEN_LOG[:45] + b"!" + GOLDEN_LOG[46:]))
    with pytest.raises(ValueError, match="no record at offset 0"):
        list(read_records(bytes(100)))


@pytest.mark.parametrize(
    ("host", "port", "sequence", "digest"),
    [
        (
            "127.0.0.1",
            7001,
            0,
            "c10a6aea58dce6d6149e47bc38f68f4cb8a134fb51995ab85130c0d44be80a55",
        ),
        (
            "::1",
            65535,
            2**64 - 1,
            "d242a05a93d314f6086ebf38fbc202909c8f32ad3f2e2ca5b44deca61c075d1f",
        ),
    ],
)
def test_a_version_1_request_id_is_the_digest_of_address_and_number(
    host: str, port: int, sequence: int, digest: str
) -> None:
    assert request_id_v1(host, port, sequence).hex() == digest


def test_a_version_2_request_id_is_producer_epoch_zeros_and_sequence() -> None:
    request_id = request_id_v2(PRODUCER, ProducerEpoch(7), Sequence(258))
    assert request_id.hex() == PRODUCER.hex() + "00000007" + "00000000" + "0000000000000102"
    assert request_id_v2(ProducerId(b"\xff" * 16), ProducerEpoch(0), Sequence(0)) == (
        b"\xff" * 16 + bytes(16)
    )
