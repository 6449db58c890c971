"""Which segments retention removes, and what it leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from octopi.identifiers import Offset
from octopi.storage.log_options import LogOptions
from octopi.storage.retention import ClosedSegment, expired_count
from tests.kit.disk import MemoryDisk
from tests.storage.building import (
    NOW_MS,
    append,
    batch,
    empty_disk,
    files_of,
    opaque,
    open_log,
    path,
    read_all,
)

HOUR_MS = 3_600_000


def segments(*ages_ms: int) -> list[ClosedSegment]:
    """Segments of 100 bytes whose newest record is so old."""
    return [
        ClosedSegment(Offset(100 * number + 100), 100, 10_000 - age)
        for number, age in enumerate(ages_ms)
    ]


def count(
    closed: list[ClosedSegment],
    *,
    age_ms: int | None = None,
    bytes_min: int | None = None,
    below: int = 10**9,
    outdated_below: int = 0,
) -> int:
    return expired_count(
        closed,
        log_bytes=100 * len(closed) + 50,
        now_ms=10_000,
        below=Offset(below),
        age_ms=age_ms,
        bytes_min=bytes_min,
        outdated_below=Offset(outdated_below),
    )


def test_retention_without_limits_removes_nothing() -> None:
    assert count(segments(9000, 8000)) == 0


def test_segments_wholly_below_the_outdated_offset_are_removed() -> None:
    assert count(segments(3, 2, 1), outdated_below=0) == 0
    assert count(segments(3, 2, 1), outdated_below=199) == 1
    assert count(segments(3, 2, 1), outdated_below=200) == 2
    assert count(segments(3, 2, 1), outdated_below=200, below=199) == 1, "not all committed"


def test_segments_are_removed_when_their_newest_record_is_too_old() -> None:
    assert count(segments(3001, 2000, 1000), age_ms=3000) == 1
    assert count(segments(3000, 2000, 1000), age_ms=3000) == 0
    assert count(segments(9, 8, 7), age_ms=0) == 3


def test_no_segment_behind_a_kept_one_is_removed() -> None:
    assert count(segments(5000, 10, 5000), age_ms=3000) == 1


def test_segments_are_removed_while_enough_bytes_remain() -> None:
    assert count(segments(0, 0, 0), bytes_min=350) == 0
    assert count(segments(0, 0, 0), bytes_min=250) == 1
    assert count(segments(0, 0, 0), bytes_min=249) == 1
    assert count(segments(0, 0, 0), bytes_min=50) == 3
    assert count(segments(0, 0, 0), bytes_min=0) == 3


def test_a_segment_beyond_one_of_the_two_limits_is_removed() -> None:
    assert count(segments(5000, 5000, 10, 10), age_ms=3000, bytes_min=350) == 2
    assert count(segments(5000, 10, 10, 10), age_ms=3000, bytes_min=250) == 2


def test_no_segment_that_ends_behind_the_highest_removable_offset_is_removed() -> None:
    assert count(segments(9, 9, 9), age_ms=0, below=299) == 2
    assert count(segments(9, 9, 9), age_ms=0, below=99) == 0


def test_retention_looks_at_no_segment_behind_the_first_kept_one() -> None:
    def ask() -> Iterator[ClosedSegment]:
        yield from segments(5000, 10)
        raise AssertionError("asked too far")

    found = expired_count(
        ask(), log_bytes=500, now_ms=10_000, below=Offset(10**9), age_ms=3000, bytes_min=None
    )
    assert found == 1


# --- of a log ----------------------------------------------------------------------------


@pytest.fixture
def disk() -> MemoryDisk:
    return empty_disk()


def options(*, age_ms: int | None = None, size_bytes: int | None = None) -> LogOptions:
    return LogOptions(segment_bytes_max=1000, retention_ms=age_ms, retention_bytes=size_bytes)


async def test_the_oldest_segments_are_removed_with_their_indexes(disk: MemoryDisk) -> None:
    log = open_log(disk, options(size_bytes=2500))
    data = batch(b"v" * 900)
    append(log, *[data] * 6)
    await log.flush()
    removed = log.apply_retention(NOW_MS, below=log.end)
    assert (removed.segment_count, removed.size_bytes) == (3, 3 * len(data))
    assert removed.start == log.start == 3 * len(data)
    assert log.size_bytes >= 2500
    for suffix in (".log", ".index"):
        assert files_of(disk.files(), suffix) == [n * len(data) for n in (3, 4, 5)]
    assert read_all(log) == data * 3
    assert log.find_timestamp(0, log.end) == log.find_last(99, log.end) == log.start
    assert log.apply_retention(NOW_MS, below=log.end).segment_count == 0
    assert read_all(open_log(disk)) == data * 3


async def test_altered_options_hold_for_the_segments_that_are_there(disk: MemoryDisk) -> None:
    log = open_log(disk, options())
    data = batch(b"v" * 900)
    append(log, *[data] * 6)
    await log.flush()
    assert log.apply_retention(NOW_MS, below=log.end).segment_count == 0
    log.alter(LogOptions(segment_bytes_max=2000, retention_bytes=2500))
    assert log.apply_retention(NOW_MS, below=log.end).segment_count == 3
    append(log, *[data] * 2)  # the first of them joins the segment of the one before
    assert files_of(disk.files(), ".log") == [n * len(data) for n in (3, 4, 5, 7)]


async def test_the_active_segment_is_never_removed(disk: MemoryDisk) -> None:
    log = open_log(disk, options(age_ms=0, size_bytes=0))
    data = batch(b"v" * 900)
    append(log, *[data] * 3)
    await log.flush()
    assert log.apply_retention(NOW_MS + HOUR_MS, below=log.end).segment_count == 2
    assert read_all(log) == data


async def test_retention_removes_only_durable_segments_below_its_limit(disk: MemoryDisk) -> None:
    log = open_log(disk, options(size_bytes=0))
    data = batch(b"v" * 900)
    append(log, *[data] * 3)
    assert log.apply_retention(NOW_MS, below=log.end).segment_count == 0
    await log.flush()
    append(log, *[data] * 3)
    assert log.apply_retention(NOW_MS, below=Offset(2 * len(data) - 1)).segment_count == 1
    assert log.apply_retention(NOW_MS, below=log.end).segment_count == 2


async def test_a_segments_age_counts_from_its_last_record(disk: MemoryDisk) -> None:
    log = open_log(disk, options(age_ms=HOUR_MS))
    data = batch(b"v" * 400, timestamp_ms=1)
    append(log, data, now_ms=NOW_MS)
    append(log, data, now_ms=NOW_MS + HOUR_MS)
    append(log, data, now_ms=NOW_MS + HOUR_MS)
    await log.flush()
    assert log.apply_retention(NOW_MS + 2 * HOUR_MS, below=log.end).segment_count == 0
    assert log.apply_retention(NOW_MS + 2 * HOUR_MS + 1, below=log.end).segment_count == 1


@pytest.mark.parametrize(
    ("record", "age_ms"),
    [
        (batch(b"v" * 900, timestamp_ms=NOW_MS - 2 * HOUR_MS), 2 * HOUR_MS),
        (batch(b"v" * 900, timestamp_ms=NOW_MS + 9 * HOUR_MS), 0),  # a clock ahead of ours
        (batch(b"v" * 900, timestamp_ms=0), 0),  # no clock at all
        (opaque(b"v" * 900), 0),
    ],
)
def test_after_a_restart_plausible_time_stamps_give_the_age_of_a_segment(
    disk: MemoryDisk, record: bytes, age_ms: int
) -> None:
    log = open_log(disk, options())
    append(log, record, record)
    log = open_log(disk, options(age_ms=3 * HOUR_MS), recovery_point=log.end)
    gone_at = NOW_MS + 3 * HOUR_MS - age_ms
    assert log.apply_retention(gone_at, below=log.end).segment_count == 0
    assert log.apply_retention(gone_at + 1, below=log.end).segment_count == 1


async def test_a_crash_between_removals_leaves_a_log_that_opens(disk: MemoryDisk) -> None:
    data = batch(b"v" * 900)
    for removals in range(1, 9):
        disk = empty_disk()
        log = open_log(disk, options(size_bytes=0))
        append(log, *[data] * 5)
        await log.flush()
        before = disk.files()
        log.apply_retention(NOW_MS, below=log.end)
        gone = [name for name in before if name not in disk.files()]
        # The order in which they went: each segment, then its index.
        gone.sort(key=lambda name: (name.split(".")[0], name.endswith(".index")))
        disk = empty_disk()
        disk.make_directory("/data/log")
        for name, content in before.items():
            if name not in gone[:removals]:
                disk.plant(name, content)
        log = open_log(disk, options(size_bytes=0), recovery_point=log.end)
        assert log.fault is None
        assert log.start == (removals + 1) // 2 * len(data)
        assert read_all(log) == data * (5 - (removals + 1) // 2)


async def test_retention_passes_over_a_segment_whose_file_is_gone(disk: MemoryDisk) -> None:
    log = open_log(disk, options(size_bytes=0))
    data = batch(b"v" * 900)
    append(log, *[data] * 3)
    await log.flush()
    disk.remove(path(0))
    disk.remove(path(0, "index"))
    assert log.apply_retention(NOW_MS, below=log.end).segment_count == 2


@pytest.mark.parametrize("failing", [False, True])
async def test_cut_bytes_are_removed_with_the_segments_around_them(
    disk: MemoryDisk, failing: bool
) -> None:
    data = batch(b"v" * 900)
    log = open_log(disk, options(size_bytes=0))
    append(log, data)
    disk.plant(path(0), data + b"torn")
    log = open_log(disk, options(size_bytes=0))
    append(log, data, data)
    disk.plant(path(2 * len(data)), data + b"torn")
    log = open_log(disk, options(size_bytes=0))
    assert files_of(disk.files(), ".cut") == [len(data), 3 * len(data)]
    await log.flush()
    if failing:
        disk.fail(5, "list_directory")
    log.apply_retention(NOW_MS, below=log.end)
    assert log.start == 2 * len(data)
    assert files_of(disk.files(), ".cut") == [len(data)] * failing + [3 * len(data)]
