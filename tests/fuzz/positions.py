"""Positions, places and anchors, and what a person writes for the beginning of reading."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from octopi.cli.failures import CommandError
from octopi.cli.start_option import parse_start
from octopi.errors import InvalidOptionError
from octopi.position import Place, Position, checked_anchor
from tests.fuzz.target import Target

_NUMBER_MAX: Final = 2**63 - 1


def check(data: bytes) -> bool:
    text = data.decode(errors="surrogateescape")
    _check_place(text)
    _check_start(text)
    try:
        position = Position.parse(text)
    except InvalidOptionError as error:
        is_short = len(str(error)) < 700
    else:
        return _check_position(text, position)
    assert is_short, "the error repeats much of what came"
    return text.startswith("v1:") and "@" in text


def _check_position(text: str, position: Position) -> bool:
    assert Position.parse(str(position)) == position
    assert str(Position.parse(str(position))) == str(position)
    assert all(0 <= place.offset <= _NUMBER_MAX for place in position.places.values())
    assert text.count("=") == len(position.places), "a place was left out"
    # The order of the places is the only freedom.
    assert sorted(str(position)) == sorted(text), "two texts mean one position"
    return True


def _check_place(text: str) -> None:
    try:
        anchor = checked_anchor(text)
    except InvalidOptionError:
        pass
    else:
        assert str(anchor) == text
    try:
        place = Place.parse(text)
    except InvalidOptionError:
        return
    assert str(place) == text
    assert 0 <= place.offset <= _NUMBER_MAX


def _check_start(text: str) -> None:
    try:
        start = parse_start(text)
    except (InvalidOptionError, CommandError):
        return
    if isinstance(start, Position):
        assert start == Position.parse(text)


_NUMBERS: Final = st.integers(0, _NUMBER_MAX) | st.integers(0, 9) | st.just(_NUMBER_MAX)
_ANCHORS: Final = st.one_of(
    st.just(""),
    st.lists(st.tuples(st.integers(1, _NUMBER_MAX), st.integers(0, _NUMBER_MAX)), min_size=1).map(
        lambda epochs: "~" + ".".join(f"{epoch}-{start}" for epoch, start in epochs)
    ),
    st.integers(0, 2**64 - 1).map(lambda digest: f"~12.{digest:016x}"),
)


@st.composite
def _positions(draw: st.DrawFn) -> bytes:
    topic = draw(st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True))
    topic_id = draw(st.from_regex(r"[0-9a-f]{1,16}", fullmatch=True))
    places = [
        f"{partition}={draw(_NUMBERS)}{draw(_ANCHORS)}"
        for partition in draw(st.lists(st.integers(0, 9999), unique=True, max_size=4))
    ]
    return f"v1:{topic}@{topic_id}:{','.join(places)}".encode()


TARGET = Target(
    "positions",
    "any text is refused as documented, or is a position, a place or an anchor that is written "
    "in the same way again",
    st.one_of(
        _positions(),
        st.builds(lambda offset, anchor: f"{offset}{anchor}".encode(), _NUMBERS, _ANCHORS),
        st.sampled_from([b"earliest", b"latest", b"-10", b"2026-01-02T03:04:05+01:00", b"7"]),
    ),
    check,
    ("octopi/position.py", "octopi/cli/start_option.py"),
    words=(
        b"v1:", b"v2:", b"@", b":", b",", b"=", b"~", b".", b"0=0", b"0=1~1-0", b",0=1", b"00",
        b"01", b"-", b"+", b"_", b"0123456789abcdef", b"9223372036854775807",
        b"9223372036854775808", b"\xd9\xa3", b"\n", b"T", b"Z", b"+24:00",
    ),
)  # fmt: skip
