"""Messages as `consume` prints them."""

import json

import pytest

from octopi.cli.failures import CommandError
from octopi.cli.message_format import as_json, compile_format
from octopi.identifiers import Offset, PartitionId, TimestampMs, TopicName
from octopi.record import NO_HEADERS, Message

MESSAGE = Message(
    TopicName("orders"),
    PartitionId(3),
    Offset(120),
    Offset(180),
    TimestampMs(1_700_000_000_000),
    b"k\xff",
    b"v\n\x00",
    {"a": b"1", "b": b""},
    bytes(32),
)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%t", b"orders"),
        ("%p", b"3"),
        ("%o", b"120"),
        ("%T", b"1700000000000"),
        ("%k", b"k\xff"),
        ("%v", b"v\n\x00"),
        ("%h", b"a=1,b="),
        (r"%o\t%k\n", b"120\tk\xff\n"),
        (r"100%% \\ \0 \r", b"100% \\ \0 \r"),
        ("né %t", "né orders".encode()),
        ("", b""),
    ],
)
def test_fields_and_escapes_are_printed(text: str, printed: bytes) -> None:
    assert compile_format(text)(MESSAGE) == printed


def test_a_field_that_a_message_lacks_is_printed_as_nothing() -> None:
    bare = MESSAGE._replace(key=None, timestamp_ms=None, headers=NO_HEADERS)
    assert compile_format("<%k|%h|%T>")(bare) == b"<||->"


@pytest.mark.parametrize("text", ["%", "%x", "ab%", "\\", r"\q"])
def test_an_unknown_field_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(CommandError, match="means nothing; there are %t"):
        compile_format(text)


def test_json_shows_utf_8_bytes_as_text() -> None:
    line = as_json(MESSAGE._replace(key=b"k", value="ü".encode()))
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 120,
        "next_offset": 180,
        "timestamp_ms": 1_700_000_000_000,
        "key": "k",
        "value": "ü",
        "headers": {"a": "1", "b": ""},
    }


def test_json_shows_other_bytes_in_base_64() -> None:
    fields = json.loads(as_json(MESSAGE._replace(key=None, value=b"\xff")))
    assert fields["value_base64"] == "/w=="
    assert "value" not in fields
    assert fields["key"] is None
