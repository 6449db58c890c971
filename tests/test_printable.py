"""What strangers wrote, on a terminal: `octopi.printable`."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given, strategies as st

from octopi.printable import as_json, has_controls, printable, readable, without_directory

C0 = "".join(map(chr, range(0x20)))
C1 = "".join(map(chr, range(0x7F, 0xA0)))
BIDIRECTIONAL = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
ENDS_OF_LINES = "\u2028\u2029"
FORBIDDEN = C0 + C1 + BIDIRECTIONAL + ENDS_OF_LINES


@pytest.mark.parametrize("character", FORBIDDEN, ids=lambda one: f"U+{ord(one):04X}")
def test_what_a_terminal_obeys_is_shown_as_an_escape(character: str) -> None:
    for shown in (printable(f"a{character}b"), readable(f"a{character}b")):
        assert shown == f"a{ascii(character)[1:-1]}b"
    assert has_controls(f"a{character}b")
    told = as_json({"name": f"a{character}b"})
    assert not set(told) & set(FORBIDDEN)
    assert json.loads(told) == {"name": f"a{character}b"}


@given(st.text(st.characters()))
def test_no_text_whatever_brings_a_control_character_through(text: str) -> None:
    for shown in (printable(text), readable(text), as_json(text), as_json([text])):
        assert not any(unicodedata.category(one) in {"Cc", "Cs", "Zl", "Zp"} for one in shown)
        assert not set(shown) & set(BIDIRECTIONAL)
        assert not has_controls(shown)


@given(st.text(st.characters(codec="utf-8")))
def test_json_means_the_same_as_before(text: str) -> None:
    value = {"key": text, "more": [text, None, 1]}
    assert json.loads(as_json(value)) == json.loads(as_json(value, indent=2)) == value


def test_text_of_any_language_stays_as_it_is() -> None:
    for text in ("Zürich", "日本語", "שלום", "emoji 🐙", 'back\\slash "quoted"'):
        assert printable(text) == readable(text) == text
        assert not has_controls(text)


def test_prose_keeps_what_its_spelling_needs() -> None:
    for text in ("日本\u3000語", "می\u200cخواهم", "👩\u200d💻", "10\u00a0000"):  # noqa: RUF001
        assert readable(text) == text
        assert printable(text).isprintable()


def test_indented_json_keeps_its_own_line_ends() -> None:
    assert as_json({"a": "\n", "b": "\x9b"}, indent=1) == '{\n "a": "\\n",\n "b": "\\u009b"\n}'


DIRECTORIES = [
    "/srv/octopi",
    "/home/ann lee/my data",
    "octopi-data/broker",
    "./data",
    "../x",
    "/",
]


@pytest.mark.parametrize("directory", DIRECTORIES)
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "{}/logs/3/orders!1.log is damaged at byte 5 (offset 9): no",
            "logs/3/orders!1.log is damaged at byte 5 (offset 9): no",
        ),
        ("the log in {}/logs/0/a is closed", "the log in logs/0/a is closed"),
        (
            "No space left: 12 bytes for {}/logs/0/a/1.log were not written; free some space",
            "No space left: 12 bytes for logs/0/a/1.log were not written; free some space",
        ),
        ("{}/replicas/7 is gone", "replicas/7 is gone"),
        ("{}/identity can't be read: why", "identity can't be read: why"),
        ("[Errno 5] I/O: '{}/journal/000001'", "[Errno 5] I/O: 'journal/000001'"),
    ],
)
def test_what_another_machine_may_read_names_no_directory(
    directory: str, text: str, shown: str
) -> None:
    assert without_directory(text.format(directory.rstrip("/"))) == shown


def test_text_without_a_directory_stays_as_it_is() -> None:
    for text in (
        "orders/3: the records from offset 1 to 2 were lost",
        "the token grants nothing on topic 'logs'",
        "ws://10.0.0.1:7000 did not answer within 5 s",
        "see octopi-node partitions move, or partitions recover",
        "use /v1/client or /v1/membership",
    ):
        assert without_directory(text) == text
