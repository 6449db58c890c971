"""Retention waits for who has yet to read, and no longer than the bounds permit."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, strategies as st

from octopi.identifiers import Offset
from octopi.storage.log_options import LogOptions
from octopi.storage.retention import ClosedSegment, Hold, expired_count
from tests.storage.building import NOW_MS, append, batch, empty_disk, open_log

HOUR_MS = 3_600_000


def segments(*ages_ms: int) -> list[ClosedSegment]:
    """Segments of 100 bytes whose newest record is so old."""
    return [
        ClosedSegment(Offset(100 * number + 100), 100, 10_000 - age)
        for number, age in enumerate(ages_ms)
    ]


def count(
    closed: Sequence[ClosedSegment],
    hold: Hold | None,
    *,
    age_ms: int | None = 0,
    bytes_min: int | None = None,
) -> int:
    return expired_count(
        closed,
        log_bytes=sum(one.size_bytes for one in closed) + 50,
        now_ms=10_000,
        below=Offset(10**9),
        age_ms=age_ms,
        bytes_min=bytes_min,
        hold=hold,
    )


def held(offset: int, *, age_ms: int | None = None, bytes_min: int | None = None) -> Hold:
    return Hold(Offset(offset), age_ms, bytes_min)


def test_a_segment_stays_while_somebody_has_yet_to_read_its_last_record() -> None:
    three = segments(9, 9, 9)
    assert count(three, None) == 3
    assert count(three, held(0)) == 0
    assert count(three, held(99)) == 0
    assert count(three, held(100)) == 1
    assert count(three, held(299)) == 2
    assert count(three, held(300)) == 3
    assert count(three, held(10**6)) == 3


def test_a_hold_keeps_nothing_that_is_not_to_be_removed() -> None:
    assert count(segments(9, 3, 2), held(10**6), age_ms=5) == 1
    assert count(segments(9, 3, 2), held(0), age_ms=5) == 0


def test_a_segment_is_not_held_when_it_is_older_than_the_bound() -> None:
    three = segments(9000, 8000, 7000)
    assert count(three, held(0, age_ms=9000)) == 0
    assert count(three, held(0, age_ms=8999)) == 1
    assert count(three, held(0, age_ms=7000)) == 2
    assert count(three, held(0, age_ms=6999)) == 3


def test_a_segment_is_not_held_when_enough_is_held_without_it() -> None:
    three = segments(9, 9, 9)
    assert count(three, held(0, bytes_min=201)) == 0
    assert count(three, held(0, bytes_min=200)) == 1
    assert count(three, held(0, bytes_min=101)) == 1
    assert count(three, held(0, bytes_min=100)) == 2
    assert count(three, held(0, bytes_min=1)) == 2


def test_what_is_kept_anyway_is_not_counted_as_held() -> None:
    five = segments(0, 0, 0, 0, 0)
    # The two newest, and the active segment, are kept anyway.
    assert count(five, None, age_ms=None, bytes_min=250) == 3
    assert count(five, held(0, bytes_min=201), age_ms=None, bytes_min=250) == 0
    assert count(five, held(0, bytes_min=200), age_ms=None, bytes_min=250) == 1


def test_the_bound_that_is_reached_first_ends_the_hold() -> None:
    three = segments(9000, 8000, 7000)
    assert count(three, held(0, age_ms=8500, bytes_min=1000)) == 1
    assert count(three, held(0, age_ms=9500, bytes_min=100)) == 2


# --- any log ---------------------------------------------------------------------------------

_BOUND = st.none() | st.integers(1, 600)


@st.composite
def _logs(draw: st.DrawFn) -> list[ClosedSegment]:
    sizes = draw(st.lists(st.integers(1, 100), max_size=8))
    ages = draw(st.lists(st.integers(0, 500), min_size=len(sizes), max_size=len(sizes)))
    found, end = [], 0
    for size, age in zip(sizes, ages, strict=True):
        end += size
        found.append(ClosedSegment(Offset(end), size, 10_000 - age))
    return found


@given(_logs(), st.integers(0, 900), _BOUND, _BOUND, _BOUND, _BOUND)
def test_a_hold_keeps_what_is_needed_within_its_bounds_and_nothing_else(
    closed: list[ClosedSegment],
    offset: int,
    hold_ms: int | None,
    hold_bytes: int | None,
    age_ms: int | None,
    bytes_min: int | None,
) -> None:
    plain = count(closed, None, age_ms=age_ms, bytes_min=bytes_min)
    hold = held(offset, age_ms=hold_ms, bytes_min=hold_bytes)
    found = count(closed, hold, age_ms=age_ms, bytes_min=bytes_min)
    assert 0 <= found <= plain
    for number, segment in enumerate(closed[:found]):
        behind_bytes = sum(one.size_bytes for one in closed[number + 1 : plain])
        is_read = segment.end <= offset
        is_old = hold_ms is not None and 10_000 - segment.newest_ms > hold_ms
        is_enough = hold_bytes is not None and behind_bytes >= hold_bytes
        assert is_read or is_old or is_enough, "it was needed, and within both bounds"
    if found < plain:
        kept = closed[found]
        kept_bytes = sum(one.size_bytes for one in closed[found + 1 : plain])
        assert kept.end > offset, "nobody has yet to read it"
        assert hold_ms is None or 10_000 - kept.newest_ms <= hold_ms
        assert hold_bytes is None or kept_bytes < hold_bytes


@given(_logs(), st.integers(0, 900), st.integers(0, 900), _BOUND, _BOUND)
def test_who_is_slower_holds_no_less(
    closed: list[ClosedSegment],
    one: int,
    other: int,
    hold_ms: int | None,
    hold_bytes: int | None,
) -> None:
    slow, fast = sorted((one, other))
    bounds = {"age_ms": hold_ms, "bytes_min": hold_bytes}
    assert count(closed, held(slow, **bounds)) <= count(closed, held(fast, **bounds))


# --- of a log --------------------------------------------------------------------------------


async def test_the_bounds_of_a_log_come_from_its_options() -> None:
    data = batch(b"v" * 900)
    size = len(data)
    options = LogOptions(
        segment_bytes_max=1000,
        retention_ms=HOUR_MS,
        hold_ms=2 * HOUR_MS,
        hold_bytes=2 * size,
    )
    log = open_log(empty_disk(), options)
    append(log, *[data] * 5)
    await log.flush()

    def start(age_ms: int, hold: int | None) -> int:
        at = None if hold is None else Offset(hold)
        return log.retention_start(NOW_MS + age_ms, below=log.end, hold=at) // size

    assert start(HOUR_MS, 0) == 0
    assert start(HOUR_MS + 1, None) == 4
    assert start(HOUR_MS + 1, 0) == 2, "two of the four are held by size"
    assert start(HOUR_MS + 1, 3 * size) == 3
    assert start(HOUR_MS + 1, 9 * size) == 4
    assert start(3 * HOUR_MS, 0) == 2
    assert start(3 * HOUR_MS + 1, 0) == 4, "the age of the messages ends the hold"


async def test_without_bounds_no_log_waits() -> None:
    data = batch(b"v" * 900)
    log = open_log(empty_disk(), LogOptions(segment_bytes_max=1000, retention_bytes=1))
    append(log, *[data] * 3)
    await log.flush()
    assert log.retention_start(NOW_MS, below=log.end, hold=Offset(0)) == 2 * len(data)
