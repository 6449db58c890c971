"""Messages as JSON: what `consume --json` prints is read as the same message."""

import json

import pytest
from hypothesis import given, strategies as st

from octopi.cli.json_messages import parse_message
from octopi.cli.message_format import as_json
from octopi.identifiers import Offset, PartitionId, TimestampMs, TopicName
from octopi.record import NO_HEADERS, Message

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
BYTES = st.binary(max_size=12) | NAMES.map(str.encode)


@given(
    value=BYTES,
    key=st.none() | BYTES,
    headers=st.dictionaries(NAMES | NAMES.map(lambda name: name + "_base64"), BYTES, max_size=3),
    timestamp_ms=st.none() | st.integers(0, 253_402_300_799_999),
)
def test_a_printed_message_is_read_as_the_same(
    value: bytes, key: bytes | None, headers: dict[str, bytes], timestamp_ms: int | None
) -> None:
    message = Message(
        TopicName("orders"),
        PartitionId(3),
        Offset(120),
        Offset(180),
        None if timestamp_ms is None else TimestampMs(timestamp_ms),
        key,
        value,
        headers or NO_HEADERS,
        bytes(32),
    )
    read = parse_message(as_json(message))
    assert (read.value, read.key, dict(read.headers)) == (value, key, headers)
    assert read.timestamp == message.timestamp


def test_only_the_value_has_to_be_there() -> None:
    read = parse_message(b'{"value": "hello"}')
    assert (read.value, read.key, read.headers, read.timestamp) == (b"hello", None, {}, None)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "no JSON: Expecting value at column 1"),
        (b"hello", "no JSON"),
        (b"\xff", "no UTF-8"),
        (b'["value"]', "no JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{}", "no value"),
        (b'{"value": null}', "no value"),
        (b'{"value": 7}', "value is no text"),
        (b'{"value": "\\ud800"}', "half a character"),
        (b'{"value": "a", "value": "b"}', "a field twice"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
        (b'{"value_base64": "Y"}', "value_base64 is not in base 64"),
        (b'{"value_base64": 1}', "value_base64 is no text"),
        (b'{"value": "a", "val": 1}', "a field 'val'"),
        (b'{"value": "a", "headers": []}', "headers are no JSON object"),
        (b'{"value": "a", "headers": {"n": 1}}', "header 'n' is no text"),
        (b'{"value": "a", "headers": {"n": "", "n_base64": ""}}', "the header 'n' twice"),
        (b'{"value": "a", "timestamp_ms": "now"}', "timestamp_ms is 'now'"),
        (b'{"value": "a", "timestamp_ms": -1}', "timestamp_ms is -1"),
        (b'{"value": "a", "timestamp_ms": true}', "timestamp_ms is True"),
        (b'{"value": "a", "timestamp_ms": 253402300800000}', "to the year 9999"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(line: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_message(line)


def test_a_header_whose_name_ends_like_base_64_is_not_taken_for_base_64() -> None:
    message = Message(
        TopicName("orders"),
        PartitionId(0),
        Offset(0),
        Offset(60),
        TimestampMs(0),
        None,
        b"",
        {"photo_base64": b"text"},
        bytes(32),
    )
    assert json.loads(as_json(message))["headers"] == {"photo_base64_base64": "dGV4dA=="}
    assert parse_message(as_json(message)).headers == {"photo_base64": b"text"}
