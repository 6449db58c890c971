"""Which names a topic can have: they become folders and parts of URLs as they are."""

import re
from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st

from octopi.errors import InvalidTopicError
from octopi.identifiers import (
    INTERNAL_LOGS,
    log_id_fault,
    log_name_fault,
    optional_log_id_fault,
    topic_name,
)
from octopi.limits import TEXT_BYTES_MAX, TOPIC_NAME_BYTES_MAX


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "7",
        "orders",
        "Orders.EU_2026-11",
        "...",
        ".hidden",
        "-",
        "_",
        "-rf",
        "a..b",
        "x" * TOPIC_NAME_BYTES_MAX,
    ],
)
def test_letters_digits_and_three_marks_make_a_name(name: str) -> None:
    assert topic_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        ".",
        "..",
        "../orders",
        "orders/..",
        "../../etc/passwd",
        "/etc/passwd",
        "orders/2026",
        "orders\\2026",
        "C:orders",
        "orders\0",
        "\0",
        "orders\n",
        "\norders",
        "orders\r",
        " ",
        " orders",
        "two words",
        "tab\there",
        "größe",
        "注文",
        "о" + "rders",  # noqa: RUF001  a Cyrillic letter that looks like ours
        "٣",  # a digit, but not of ASCII
        "\ud800",
        "orders?",
        "orders#1",
        "orders%2F..",
        "*",
        "~",
        "$HOME",
        "a:b",
    ],
)
def test_anything_else_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidTopicError, match=re.escape(repr(name))) as refusal:
        topic_name(name)
    assert "letters, digits" in str(refusal.value)


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(InvalidTopicError, match="can't be empty"):
        topic_name("")


@pytest.mark.parametrize("count", [TOPIC_NAME_BYTES_MAX + 1, 300, 1_000_000])
def test_a_name_too_long_is_refused_without_repeating_it(count: int) -> None:
    with pytest.raises(InvalidTopicError, match=f"this one has {count}") as refusal:
        topic_name("x" * count)
    assert len(str(refusal.value).encode()) <= TEXT_BYTES_MAX


@given(st.text(max_size=30) | st.from_regex(r"[A-Za-z0-9._/-]{1,10}\n?", fullmatch=True))
def test_a_legal_name_is_one_part_of_a_path_and_the_same_in_a_url(text: str) -> None:
    try:
        name = topic_name(text)
    except InvalidTopicError:
        return
    assert name.isascii()
    assert PurePosixPath("data", name).parts == ("data", name)
    assert PureWindowsPath("data", name).parts == ("data", name)
    assert name not in {".", ".."}
    assert quote(name, safe="") == name


@pytest.mark.parametrize("name", INTERNAL_LOGS)
def test_an_internal_log_has_a_name_that_no_topic_has_and_that_is_its_id(name: str) -> None:
    with pytest.raises(InvalidTopicError):
        topic_name(name)
    assert not log_id_fault(name)
    assert not optional_log_id_fault(name)
    assert not log_name_fault(name, name)
    assert "the id of" in log_name_fault(name, "0" * 16)


def test_any_other_log_has_the_name_and_the_id_of_its_topic() -> None:
    assert not log_name_fault("orders", "0" * 16)
    assert not optional_log_id_fault("")
    assert not optional_log_id_fault("0" * 16)
    for name, topic_id in (("~other", "0" * 16), ("orders", "~subscriptions"), ("orders", "")):
        assert log_name_fault(name, topic_id)
    for odd in ("", "~other", "../x"):
        assert log_id_fault(odd)
