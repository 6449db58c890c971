"""Lines out of pieces, however the pieces fall."""

import os

import pytest
from hypothesis import given, strategies as st

from octopi.cli.line_splitter import LineSplitter, LineTooLongError, pieces


def split(*parts: bytes, line_bytes_max: int = 100) -> list[bytes]:
    splitter = LineSplitter(line_bytes_max)
    lines = [line for part in parts for line in splitter.feed(part)]
    lines += splitter.finish()
    assert splitter.count == len(lines)
    return lines


@given(st.lists(st.binary(max_size=20)))
def test_lines_are_the_same_however_the_bytes_are_cut_into_pieces(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    expected = whole.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert split(*parts, line_bytes_max=10_000) == expected


def test_a_last_line_without_newline_is_a_line() -> None:
    assert split(b"a\nb") == [b"a", b"b"]


def test_an_empty_line_is_a_line() -> None:
    assert split(b"\n\n") == [b"", b""]


def test_only_newline_ends_a_line() -> None:
    assert split(b"a\r\x0b\x0c\x1c\x85\xe2\x80\xa8b\n") == [b"a\r\x0b\x0c\x1c\x85\xe2\x80\xa8b"]


def test_empty_input_has_no_lines() -> None:
    assert split(b"") == []


def test_a_line_of_the_greatest_length_passes() -> None:
    assert split(b"abc\nabc", line_bytes_max=3) == [b"abc", b"abc"]


@pytest.mark.parametrize(
    "parts",
    [[b"a\nabcd\n"], [b"a\nab", b"cd\n"], [b"a\nabcd"], [b"a\nab", b"cd"]],
    ids=["whole", "over two pieces", "unfinished", "unfinished, over two pieces"],
)
def test_a_line_that_is_too_long_is_named(parts: list[bytes]) -> None:
    with pytest.raises(LineTooLongError, match="line 2 is longer than 3 bytes"):
        split(*parts, line_bytes_max=3)


@given(st.lists(st.binary(max_size=20)), st.integers(0, 5))
def test_skipped_lines_are_counted_and_not_returned(parts: list[bytes], skip: int) -> None:
    whole, skipping = LineSplitter(10_000), LineSplitter(10_000, skip)
    lines = [line for part in parts for line in whole.feed(part)] + list(whole.finish())
    rest = [line for part in parts for line in skipping.feed(part)] + list(skipping.finish())
    assert rest == lines[skip:]
    assert skipping.count == whole.count


def test_a_line_that_is_skipped_may_be_too_long() -> None:
    splitter = LineSplitter(3, skip=2)
    lines = [line for part in (b"a\nabcd", b"efgh\nb") for line in splitter.feed(part)]
    assert lines + list(splitter.finish()) == [b"b"]


async def test_a_descriptor_is_read_to_its_end() -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"all there is")
        os.close(writing)
        assert [piece async for piece in pieces(reading)] == [b"all there is"]
    finally:
        os.close(reading)
