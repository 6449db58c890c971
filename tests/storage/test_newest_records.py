"""The newest records of a log come from memory, and never others than the log has."""

from __future__ import annotations

import errno

import pytest
import trio

from octopi.errors import OffsetInsideRecordError, OffsetOutOfRangeError, StorageError
from octopi.identifiers import Offset
from octopi.limits import NEWEST_RECORDS_BATCHES_COUNT, NEWEST_RECORDS_LOG_BYTES
from octopi.storage.log_options import LogOptions
from octopi.storage.newest_records import NewestRecords
from octopi.storage.segmented_log import SegmentedLog
from tests.kit.disk import MemoryDisk
from tests.storage.building import append, batch, empty_disk, open_log, path, read_all, starts

FIRST, SECOND, THIRD = batch(b"one", b"two"), batch(b"three", sequence=2), batch(b"4", sequence=3)


@pytest.fixture
def disk() -> MemoryDisk:
    return empty_disk()


def keeping(disk: MemoryDisk, options: LogOptions | None = None) -> SegmentedLog:
    """A log whose newest records are kept."""
    log = open_log(disk, options)
    log.newest = NewestRecords()
    return log


def unreadable(disk: MemoryDisk) -> None:
    """Have every read of a file fail from now on."""
    disk.fail(errno.EIO, "pread", times=1000)


# --- what is kept ------------------------------------------------------------------------


def test_what_was_just_appended_is_read_without_the_file(disk: MemoryDisk) -> None:
    log = keeping(disk)
    append(log, FIRST, SECOND, THIRD)
    unreadable(disk)
    assert log.read(Offset(0), 1 << 20, log.end) == FIRST + SECOND + THIRD
    assert log.read(Offset(len(FIRST)), 1 << 20, log.end) == SECOND + THIRD
    assert log.read(Offset(0), len(FIRST + SECOND), log.end) == FIRST + SECOND
    assert log.read(Offset(0), 1 << 20, Offset(len(FIRST))) == FIRST
    assert log.read(log.end, 1 << 20, log.end) == b""


def test_all_who_read_one_batch_get_the_bytes_that_were_appended(disk: MemoryDisk) -> None:
    log = keeping(disk)
    append(log, FIRST)
    assert log.read(Offset(0), 1 << 20, log.end) is FIRST


def test_a_part_of_a_batch_is_read_from_the_file(disk: MemoryDisk) -> None:
    log = keeping(disk)
    append(log, FIRST, SECOND)
    second_record = starts(FIRST)[1]
    assert log.read(Offset(0), len(FIRST) - 1, log.end) == FIRST[:second_record]
    assert log.read(Offset(second_record), 1 << 20, log.end) == FIRST[second_record:] + SECOND
    with pytest.raises(OffsetInsideRecordError):
        log.read(Offset(1), 1 << 20, log.end)
    unreadable(disk)
    with pytest.raises(StorageError):
        log.read(Offset(0), len(FIRST) - 1, log.end)


def test_a_log_without_that_memory_reads_from_its_file(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, FIRST)
    assert read_all(log) == FIRST
    unreadable(disk)
    with pytest.raises(StorageError):
        log.read(Offset(0), 1 << 20, log.end)


def test_records_are_kept_across_segments(disk: MemoryDisk) -> None:
    log = keeping(disk, LogOptions(segment_bytes_max=1))
    append(log, FIRST, SECOND)
    assert log.segment_count == 2
    unreadable(disk)
    assert log.read(Offset(0), 1 << 20, log.end) == FIRST + SECOND


# --- what is not in the log any more -----------------------------------------------------


def test_what_was_cut_is_forgotten_where_another_batch_is_now(disk: MemoryDisk) -> None:
    log = keeping(disk)
    append(log, FIRST, SECOND, THIRD)
    log.truncate(Offset(len(FIRST)))
    other = batch(b"THREE", b"5", b"6", sequence=2)
    inside = Offset(len(FIRST) + starts(other)[1])
    assert inside == len(FIRST + SECOND)
    append(log, other)
    assert log.read(inside, len(THIRD), log.end) == other[len(SECOND) :][: len(THIRD)]
    assert read_all(log) == FIRST + other


async def test_what_was_set_aside_is_forgotten(disk: MemoryDisk) -> None:
    log = keeping(disk)
    append(log, FIRST, SECOND)
    await log.truncate_aside(Offset(len(FIRST)))
    other = batch(b"THREE", sequence=2)
    append(log, other)
    assert read_all(log) == FIRST + other


def test_a_log_that_began_again_has_none_of_its_old_records(disk: MemoryDisk) -> None:
    log = keeping(disk)
    append(log, FIRST, SECOND)
    log.restart(Offset(1000))
    assert log.read(log.end, 1 << 20, log.end) == b""
    with pytest.raises(OffsetOutOfRangeError):
        log.read(Offset(0), 1 << 20, log.end)
    append(log, FIRST)
    assert read_all(log) == FIRST


def test_records_that_retention_removed_are_out_of_range(disk: MemoryDisk) -> None:
    log = keeping(disk, LogOptions(segment_bytes_max=1, retention_bytes=1))
    append(log, FIRST, SECOND, THIRD)
    trio.run(log.flush)
    assert log.apply_retention(0, below=log.end).segment_count == 2
    with pytest.raises(OffsetOutOfRangeError):
        log.read(Offset(0), 1 << 20, log.end)
    assert read_all(log) == THIRD


def test_a_batch_that_was_not_written_is_not_kept(disk: MemoryDisk) -> None:
    log = keeping(disk)
    append(log, FIRST)
    disk.fail(errno.ENOSPC, "append", written=0.5)
    with pytest.raises(StorageError):
        append(log, SECOND)
    assert log.end == len(FIRST)
    assert read_all(log) == FIRST


def test_a_closed_log_is_forgotten_and_not_read(disk: MemoryDisk) -> None:
    log = keeping(disk)
    append(log, FIRST)
    log.close()
    assert log.newest.size_bytes == 0
    with pytest.raises(StorageError):
        log.read(Offset(0), 1 << 20, log.end)


def test_bytes_that_change_in_the_file_are_not_read_while_those_appended_are_kept(
    disk: MemoryDisk,
) -> None:
    log = keeping(disk)
    append(log, FIRST)
    disk.flip(path(0), 8 * 50)
    assert read_all(log) == FIRST


# --- how much is kept --------------------------------------------------------------------


def test_of_one_log_so_many_bytes_and_batches_are_kept() -> None:
    newest = NewestRecords()
    for number in range(NEWEST_RECORDS_BATCHES_COUNT + 1):
        newest.add("log", Offset(number), b"r")
    assert newest.read("log", Offset(0), 1 << 20, Offset(1000)) == b""
    assert newest.read("log", Offset(1), 1 << 20, Offset(1000)) == (
        b"r" * NEWEST_RECORDS_BATCHES_COUNT
    )
    large = bytes(NEWEST_RECORDS_LOG_BYTES // 2)
    for number in range(3):
        newest.add("log", Offset(1000 + number * len(large)), large)
        assert newest.size_bytes <= NEWEST_RECORDS_LOG_BYTES
    newest.add("log", Offset(2**30), bytes(NEWEST_RECORDS_LOG_BYTES))
    assert newest.size_bytes == 0


def test_of_all_logs_those_appended_to_last_are_kept() -> None:
    newest = NewestRecords(3000)
    for log in ("first", "second", "third"):
        newest.add(log, Offset(0), b"r" * 700)
    newest.add("first", Offset(700), b"s" * 700)
    kept = [
        log for log in ("first", "second", "third") if newest.read(log, Offset(0), 700, Offset(700))
    ]
    assert kept == ["first", "third"]
    assert newest.size_bytes == 3 * 900
    newest.forget("first")
    newest.forget("first")
    assert newest.size_bytes == 900
