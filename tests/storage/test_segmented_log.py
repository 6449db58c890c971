"""A log on a disk that works: appending, reading, finding, truncating, flushing."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import pairwise

import pytest
import trio

from octopi.errors import (
    CorruptLogError,
    OffsetInsideRecordError,
    OffsetOutOfRangeError,
    StorageError,
)
from octopi.identifiers import Offset
from octopi.limits import INDEX_INTERVAL_BYTES, MIB, SEGMENT_AGE_S_MAX
from octopi.record import scan
from octopi.storage.log_options import LogOptions
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.time_slices import at_once
from tests.kit.disk import MemoryDisk
from tests.storage.building import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    empty_disk,
    files_of,
    findings,
    opaque,
    open_log,
    path,
    read_all,
    recover_log,
    starts,
)

SMALL = LogOptions(segment_bytes_max=1000)


@pytest.fixture
def disk() -> MemoryDisk:
    return empty_disk()


def long_batches(count: int = 30) -> list[bytes]:
    """Batches that fill several index intervals."""
    return [
        batch(*[bytes([n]) * 5000] * 3, sequence=n * 3, timestamp_ms=n * 10) for n in range(count)
    ]


# --- appending and reading ---------------------------------------------------------------


def test_an_empty_log_has_neither_files_nor_records(disk: MemoryDisk) -> None:
    log, recovery = recover_log(disk)
    assert (log.start, log.end, log.size_bytes, log.segment_count) == (0, 0, 0, 0)
    assert (recovery.start, recovery.end, recovery.scanned_bytes) == (0, 0, 0)
    assert log.read(Offset(0), 100, Offset(0)) == b""
    assert log.find_timestamp(0, log.end) == 0
    assert log.find_last(5, log.end) == 0
    assert log.apply_retention(NOW_MS, below=log.end).segment_count == 0
    assert log.fault is None
    assert disk.files() == {}


def test_records_are_read_as_they_were_appended(disk: MemoryDisk) -> None:
    log = open_log(disk)
    first, second, third = batch(b"one", b"two"), opaque(b"three"), batch(b"four", sequence=2)
    assert append(log, first, second, third) == [0, len(first), len(first + second)]
    assert log.end == len(first + second + third)
    assert read_all(log) == first + second + third
    assert read_all(log, bytes_max=1) == first + second + third
    assert disk.content(path(0)) == first + second + third


def test_a_read_returns_whole_records_and_at_least_one(disk: MemoryDisk) -> None:
    log = open_log(disk)
    data = batch(b"1" * 100, b"2" * 100, b"3" * 100)
    append(log, data)
    _, second, third, end = starts(data)
    assert log.read(Offset(0), 1, log.end) == data[:second]
    assert log.read(Offset(0), 1, log.end) == data[:second]
    assert log.read(Offset(0), second, log.end) == data[:second]
    assert log.read(Offset(0), third - 1, log.end) == data[:second]
    assert log.read(Offset(0), third, log.end) == data[:third]
    assert log.read(Offset(second), end, log.end) == data[second:]


def test_a_read_of_zero_bytes_checks_the_offset_and_reads_no_record(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, batch(b"a" * 100, b"b"))
    assert log.read(Offset(0), 0, log.end) == b""
    with pytest.raises(OffsetInsideRecordError):
        log.read(Offset(1), 0, log.end)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(Offset(log.end + 1), 0, log.end)
    log.close()
    log = open_log(disk)
    disk.fail(errno.EIO, "pread", path_end=".log")
    assert log.read(Offset(0), 0, log.end) == b""
    with pytest.raises(StorageError):
        log.read(Offset(0), 1, log.end)


def test_a_read_ends_before_the_until_offset(disk: MemoryDisk) -> None:
    log = open_log(disk)
    data = batch(b"1", b"2", b"3")
    append(log, data)
    _, second, third, _ = starts(data)
    assert log.read(Offset(0), MIB, Offset(third)) == data[:third]
    assert log.read(Offset(second), MIB, Offset(second)) == b""
    assert log.read(Offset(0), MIB, Offset(10**9)) == data
    with pytest.raises(OffsetOutOfRangeError, match=f"from 0 to {second}"):
        log.read(Offset(third), MIB, Offset(second))


def test_the_error_for_an_offset_out_of_range_names_the_range(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, batch(b"1"))
    with pytest.raises(OffsetOutOfRangeError, match=rf"from 0 to {log.end}"):
        log.read(Offset(log.end + 1), MIB, log.end)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(Offset(-1), MIB, log.end)
    with pytest.raises(OffsetOutOfRangeError, match=rf"from 0 to {log.end}"):
        log.read(Offset(log.end + 1), MIB, Offset(10**9))


def test_every_offset_inside_a_record_is_refused(disk: MemoryDisk) -> None:
    log = open_log(disk)
    data = batch(b"value", b"", b"x" * 50) + opaque(batch(b"a record in a payload"))
    append(log, data)
    boundaries = starts(data)
    for offset in range(log.end):
        if offset in boundaries:
            assert log.read(Offset(offset), MIB, log.end) == data[offset:]
        else:
            with pytest.raises(OffsetInsideRecordError, match=str(offset)):
                log.read(Offset(offset), MIB, log.end)


def test_offsets_are_checked_in_every_index_interval(disk: MemoryDisk) -> None:
    batches = long_batches()
    data = b"".join(batches)
    log = open_log(disk)
    append(log, *batches)
    log.close()
    log = open_log(disk, recovery_point=log.end)
    for offset in starts(data)[:-1]:
        with pytest.raises(OffsetInsideRecordError):
            log.read(Offset(offset + 1), MIB, log.end)
        part = log.read(Offset(offset), 6000, log.end)
        assert part == data[offset : offset + len(part)] != b""


def test_any_read_size_gives_whole_records(disk: MemoryDisk) -> None:
    batches = long_batches(20)
    data = b"".join(batches)
    log = open_log(disk)
    append(log, *batches)
    for bytes_max in (1, 5000, 70_000, 131_072, 200_001, MIB):
        assert read_all(log, bytes_max=bytes_max) == data
    log = open_log(disk, recovery_point=log.end)
    for bytes_max in (1, 5000, 70_000, 131_072, 200_001, MIB):
        assert read_all(log, bytes_max=bytes_max) == data


def test_a_record_may_be_larger_than_one_piece_of_a_scan(disk: MemoryDisk) -> None:
    log = open_log(disk)
    batches = [batch(b"a" * 3 * MIB), batch(b"b" * 5 * MIB), batch(b"c" * 3 * MIB), batch(b"d")]
    append(log, *batches)
    log = open_log(disk)
    assert read_all(log, bytes_max=MIB) == b"".join(batches)


def test_the_length_of_a_record_is_known_before_it_is_read(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    records = [opaque(b"x" * size) for size in (5, 700, 900)]
    offsets = append(log, *records)
    assert log.segment_count > 1
    for offset, one in zip(offsets, records, strict=True):
        assert log.search.record_bytes_at(offset) == len(one)
    assert log.search.record_bytes_at(log.end) == 0
    assert log.search.record_bytes_at(Offset(offsets[1] + 1)) == 0  # no length that we write
    log.close()
    log = open_log(disk, SMALL, recovery_point=log.end)
    disk.fail(errno.EIO, "open", path_end=".log")
    assert log.search.record_bytes_at(offsets[0]) == 0


def test_a_sequential_reader_does_not_look_up_its_offset_again(disk: MemoryDisk) -> None:
    log = open_log(disk)
    data = b"".join(long_batches())
    append(log, data)
    log = open_log(disk, recovery_point=log.end)
    position = len(log.read(Offset(0), 100_000, log.end))
    before = len(disk.calls)
    while position < log.end:
        position += len(log.read(Offset(position), 100_000, log.end))
    assert position == len(data)
    assert set(disk.calls[before:]) == {"pread"}
    reads = len(disk.calls) - before
    assert reads <= len(data) // 80_000 + 1


def test_a_log_remembers_a_bounded_number_of_record_boundaries(disk: MemoryDisk) -> None:
    log = open_log(disk)
    data = batch(*[b"v"] * 1000)
    append(log, data)
    assert read_all(log, bytes_max=1) == data
    assert read_all(log, bytes_max=1) == data
    with pytest.raises(OffsetInsideRecordError):
        log.read(Offset(1), 1, log.end)


# --- segments ----------------------------------------------------------------------------


def test_a_full_segment_is_followed_by_a_new_one(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    batches = [batch(b"v" * 300, sequence=n) for n in range(10)]
    size = len(batches[0])
    append(log, *batches)
    assert log.segment_count == 5
    bases = [n * 2 * size for n in range(5)]
    assert files_of(disk.files(), ".log") == bases
    assert read_all(log) == b"".join(batches)
    assert len(log.read(Offset(size), MIB, log.end)) == size  # the segment's end
    log = open_log(disk, SMALL)
    assert read_all(log) == b"".join(batches)
    append(log, batches[0])
    assert (log.segment_count, log.end) == (6, 11 * size)


def test_a_batch_larger_than_a_segment_gets_a_segment_of_its_own(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    append(log, batch(b"v" * 5000), batch(b"w" * 5000), batch(b"x"))
    assert log.segment_count == 3
    assert len(read_all(log)) == log.end


def test_a_segment_of_full_age_is_closed_when_the_next_batch_comes(disk: MemoryDisk) -> None:
    log = open_log(disk)
    age_ms = int(SEGMENT_AGE_S_MAX * 1000)
    append(log, batch(b"1"), now_ms=NOW_MS)
    append(log, batch(b"2"), now_ms=NOW_MS + age_ms - 1)
    assert log.segment_count == 1
    append(log, batch(b"3"), now_ms=NOW_MS + age_ms)
    assert log.segment_count == 2
    assert len(read_all(log)) == log.end


def test_a_segments_age_survives_a_restart_as_its_first_time_stamp(disk: MemoryDisk) -> None:
    age_ms = int(SEGMENT_AGE_S_MAX * 1000)
    log = open_log(disk)
    append(log, batch(b"1", timestamp_ms=NOW_MS - age_ms + 5))
    log = open_log(disk)
    append(log, batch(b"2"))
    assert log.segment_count == 1
    append(log, batch(b"3"), now_ms=NOW_MS + 5)
    assert log.segment_count == 2


@pytest.mark.parametrize("timestamp_ms", [0, NOW_MS * 2])
def test_an_impossible_time_stamp_does_not_close_a_segment(
    disk: MemoryDisk, timestamp_ms: int
) -> None:
    log = open_log(disk)
    append(log, batch(b"1", timestamp_ms=timestamp_ms))
    log = open_log(disk)
    append(log, batch(b"2"))
    assert log.segment_count == 1


def test_few_files_of_closed_segments_stay_open(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    append(log, *[batch(b"v" * 900, sequence=n) for n in range(40)])
    assert len(disk.open_files) == 80  # none is durable yet
    log.close()
    log = open_log(disk, SMALL, recovery_point=log.end)
    assert read_all(log) == read_all(log)
    log.find_timestamp(NOW_MS, log.end)
    assert len(disk.open_files) <= 12
    append(log, batch(b"1"))
    log.close()
    assert disk.open_files == []


# --- finding -----------------------------------------------------------------------------


def test_the_first_record_at_or_after_a_time_is_found(disk: MemoryDisk) -> None:
    log = open_log(disk, LogOptions(segment_bytes_max=300_000))
    batches = long_batches(60)  # time stamps n*10, n*10 + 1, n*10 + 2
    bases = append(log, *batches)
    size = len(batches[0]) // 3
    assert log.segment_count > 2
    for opened in (log, open_log(disk, recovery_point=log.end)):
        assert opened.find_timestamp(0, log.end) == 0
        assert opened.find_timestamp(-5, log.end) == 0
        for n, base in enumerate(bases):
            assert opened.find_timestamp(n * 10, log.end) == base
            assert opened.find_timestamp(n * 10 + 1, log.end) == base + size
            assert opened.find_timestamp(n * 10 - 5, log.end) == base
        assert opened.find_timestamp(592, log.end) == log.end - size
        assert opened.find_timestamp(593, log.end) == log.end
        assert opened.find_timestamp(300, bases[20]) == bases[20]


def test_the_record_that_holds_a_byte_is_found(disk: MemoryDisk) -> None:
    log = open_log(disk, LogOptions(segment_bytes_max=300_000))
    batches = long_batches(60)
    append(log, *batches)
    boundaries = starts(b"".join(batches))
    for opened in (log, open_log(disk, recovery_point=log.end)):
        for start, stop in pairwise(boundaries):
            for offset in (start, start + 1, stop - 1):
                assert opened.find_boundary(Offset(offset), log.end) == start
        until = Offset(boundaries[7])
        assert opened.find_boundary(Offset(until - 1), until) == boundaries[6]
        assert opened.find_boundary(Offset(until + 1), until) == until
        assert opened.find_boundary(Offset(log.end + 1), Offset(log.end + 2)) == log.end


def test_time_stamps_out_of_order_do_not_confuse_the_search(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    stamps = [50, 10, 2**64 - 1, 20, 60]
    bases = append(log, *[batch(b"v" * 400, timestamp_ms=stamp) for stamp in stamps])
    for opened in (log, open_log(disk, recovery_point=log.end)):
        assert opened.find_timestamp(20, log.end) == bases[0]
        assert opened.find_timestamp(51, log.end) == bases[2]
        assert opened.find_timestamp(2**64 - 1, log.end) == bases[2]
        assert opened.find_timestamp(51, bases[1]) == bases[1]


def test_the_largest_time_stamps_are_found_behind_an_index_entry(disk: MemoryDisk) -> None:
    largest = 2**64 - 1
    log = open_log(disk)
    bases = append(
        log,
        batch(b"v" * 70_000, timestamp_ms=5),
        batch(b"v" * 70_000, timestamp_ms=largest),
        batch(b"v" * 70_000, timestamp_ms=6),
        batch(b"v" * 70_000, timestamp_ms=7),
    )
    for opened in (log, open_log(disk, recovery_point=log.end)):
        assert opened.find_timestamp(largest, log.end) == bases[1]
        assert opened.find_timestamp(largest - 1, log.end) == bases[1]


def test_records_without_time_stamp_are_passed_over(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, opaque(b"1"))
    assert log.find_timestamp(0, log.end) == log.end
    (base,) = append(log, batch(b"2"))
    assert log.find_timestamp(0, log.end) == base


def test_the_offset_of_the_last_n_records_is_found(disk: MemoryDisk) -> None:
    batches = long_batches(60)
    data = b"".join(batches)
    log = open_log(disk, LogOptions(segment_bytes_max=300_000))
    append(log, *batches)
    boundaries = starts(data)
    for opened in (log, open_log(disk, recovery_point=log.end)):
        for count in range(181):
            assert opened.find_last(count, log.end) == boundaries[-1 - count]
        assert opened.find_last(10**9, log.end) == 0
        assert opened.find_last(3, Offset(boundaries[100])) == boundaries[97]
        assert opened.find_last(3, Offset(0)) == 0


# --- truncating --------------------------------------------------------------------------


@pytest.mark.parametrize("segment_bytes_max", [1000, 10**6])
def test_a_truncated_log_takes_records_at_its_new_end(
    disk: MemoryDisk, segment_bytes_max: int
) -> None:
    options = LogOptions(segment_bytes_max=segment_bytes_max)
    batches = [batch(b"v" * 150, b"w" * 150, sequence=n) for n in range(10)]
    data = b"".join(batches)
    for boundary in starts(data):
        disk = empty_disk()
        log = open_log(disk, options)
        append(log, *batches)
        read_all(log, bytes_max=1)
        log.truncate(Offset(boundary))
        assert log.end == boundary
        assert read_all(log) == data[:boundary]
        other = batch(b"other")
        append(log, other)
        expected = data[:boundary] + other
        assert read_all(log) == expected
        assert read_all(open_log(disk, options)) == expected


def test_a_log_is_truncated_at_boundaries_only(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, batch(b"1", b"2"))
    with pytest.raises(OffsetInsideRecordError):
        log.truncate(Offset(5))
    with pytest.raises(OffsetOutOfRangeError):
        log.truncate(Offset(log.end + 1))
    assert len(read_all(log)) == log.end


def test_a_truncated_record_leaves_no_boundary_behind(disk: MemoryDisk) -> None:
    log = open_log(disk)
    data = batch(b"1", b"2", b"3")
    append(log, data)
    read_all(log, bytes_max=1)
    _, second, third, _ = starts(data)
    log.truncate(Offset(second))
    append(log, batch(b"other" * 100))
    with pytest.raises(OffsetInsideRecordError):
        log.read(Offset(third), MIB, log.end)


def test_an_index_that_a_truncation_left_behind_is_not_taken_for_the_new_one(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk, LogOptions(segment_bytes_max=300_000))
    data = batch(b"v" * 90_000)
    append(log, *[data] * 3, *[batch(b"w" * 70_000, timestamp_ms=99)] * 4)
    disk.fail(errno.EIO, "remove", path_end=".index", times=9)
    log.truncate(Offset(2 * len(data)))
    append(log, data)
    batches = [batch(b"x" * 40_000, timestamp_ms=n) for n in range(1, 7)]
    bases = append(log, *batches)
    assert (bases[0], log.segment_count) == (3 * len(data), 2)
    assert findings(disk) == []
    log.close()
    log = open_log(disk, recovery_point=log.end)
    for n, base in enumerate(bases):
        assert log.read(base, 1, log.end) == batches[n]
        assert log.find_timestamp(n + 1, log.end) == base


def test_time_stamps_behind_a_truncation_are_forgotten(disk: MemoryDisk) -> None:
    log = open_log(disk)
    bases = append(log, *[batch(b"v" * 50_000, timestamp_ms=n * 10) for n in range(10)])
    log.truncate(bases[5])
    assert findings(disk) == []
    assert log.find_timestamp(60, log.end) == log.end
    assert log.find_timestamp(40, log.end) == bases[4]
    (base,) = append(log, batch(b"v" * 80_000, timestamp_ms=20))
    append(log, batch(b"v" * 80_000, timestamp_ms=60))
    assert log.find_timestamp(41, log.end) == base + len(batch(b"v" * 80_000))


async def test_truncation_takes_back_what_was_flushed(disk: MemoryDisk) -> None:
    log = open_log(disk)
    _, second = append(log, batch(b"1"), batch(b"2"))
    assert await log.flush() == log.end
    log.truncate(second)
    assert log.flushed_end == second
    append(log, batch(b"3" * 9))
    end = await log.flush()
    disk.crash(keep_page_cache=False)
    assert end == len(read_all(open_log(disk)))


# --- restarting --------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [0, 10_000])
async def test_a_restarted_log_is_empty_and_continues_at_the_given_offset(
    disk: MemoryDisk, behind: int
) -> None:
    log = open_log(disk, SMALL)
    append(log, *[batch(b"v" * 900)] * 3)
    await log.flush()
    offset = Offset(log.end + behind)
    log.restart(offset)
    assert (log.start, log.end, log.flushed_end, log.segment_count) == (offset, offset, offset, 1)
    assert log.read(offset, MIB, offset) == b""
    with pytest.raises(OffsetOutOfRangeError):
        log.read(Offset(0), MIB, log.end)
    await log.flush()
    disk.crash(keep_page_cache=False)
    log = open_log(disk, SMALL, recovery_point=offset)
    assert (log.start, log.end, log.fault) == (offset, offset, None)
    assert append(log, batch(b"1")) == [offset]
    assert read_all(log) == batch(b"1")
    assert findings(disk) == []


def test_an_empty_log_may_begin_at_any_offset(disk: MemoryDisk) -> None:
    log = open_log(disk)
    log.restart(Offset(77))
    assert append(log, batch(b"1")) == [77]
    assert open_log(disk).start == 77


async def test_a_log_may_be_restarted_during_a_flush(
    disk: MemoryDisk, nursery: trio.Nursery
) -> None:
    log = open_log(disk, SMALL)
    append(log, *[batch(b"v" * 900)] * 3)
    offset = Offset(10_000)
    with disk.syncs_held():
        nursery.start_soon(log.flush)
        await trio.testing.wait_all_tasks_blocked()
        log.restart(offset)
    await trio.testing.wait_all_tasks_blocked()
    assert (log.flushed_end, log.fault) == (offset, None)
    append(log, batch(b"1"))
    assert await log.flush() == log.end
    log.close()
    assert disk.open_files == []


# --- flushing ----------------------------------------------------------------------------


async def test_flushed_records_survive_a_power_failure(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    batches = [batch(b"v" * 300, sequence=n) for n in range(9)]
    append(log, *batches)
    assert log.flushed_end == 0
    end = await log.flush()
    assert end == log.flushed_end == log.end
    append(log, *batches)
    disk.crash(keep_page_cache=False)
    log, recovery = recover_log(disk, SMALL, recovery_point=end)
    assert (log.end, recovery.cut_bytes, log.fault) == (end, 0, None)
    assert read_all(log) == b"".join(batches)


async def test_an_idle_log_is_not_synced_again(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, batch(b"1"))
    await log.flush()
    before = len(disk.calls)
    assert await log.flush() == log.end
    assert disk.calls[before:] == []


async def test_an_index_is_synced_with_its_segment_only_when_it_grew(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, batch(b"1"))
    await log.flush()
    append(log, batch(b"2"))
    before = disk.calls.count("sync")
    await log.flush()
    assert disk.calls.count("sync") - before == 1
    append(log, batch(b"3" * INDEX_INTERVAL_BYTES), batch(b"4"))
    await log.flush()
    assert disk.calls.count("sync") - before == 3


async def test_flushes_at_the_same_time_share_their_syncs(
    disk: MemoryDisk, nursery: trio.Nursery
) -> None:
    log = open_log(disk)
    ends: list[int] = []

    async def flush() -> None:
        ends.append(await log.flush())

    append(log, batch(b"1"))
    first = log.end
    with disk.syncs_held():
        nursery.start_soon(flush)
        await trio.testing.wait_all_tasks_blocked()
        append(log, batch(b"2"))
        for _ in range(5):
            nursery.start_soon(flush)
        await trio.testing.wait_all_tasks_blocked()
    await trio.testing.wait_all_tasks_blocked()
    assert ends == [first] + [log.end] * 5
    assert disk.calls.count("sync") == 3  # the segment twice, its index once


async def test_appends_go_on_during_a_flush(disk: MemoryDisk, nursery: trio.Nursery) -> None:
    log = open_log(disk, SMALL)
    append(log, batch(b"1" * 500))
    durable = log.end
    with disk.syncs_held():
        nursery.start_soon(log.flush)
        await trio.testing.wait_all_tasks_blocked()
        append(log, *[batch(b"2" * 500)] * 4)
    await trio.testing.wait_all_tasks_blocked()
    assert log.flushed_end == durable
    assert await log.flush() == log.end
    disk.crash(keep_page_cache=False)
    assert len(read_all(open_log(disk))) == log.end


async def test_records_truncated_during_a_flush_are_not_called_durable(
    disk: MemoryDisk, nursery: trio.Nursery
) -> None:
    log = open_log(disk, SMALL)
    append(log, *[batch(b"1" * 900)] * 3)
    offset = Offset(log.end // 3)
    with disk.syncs_held():
        nursery.start_soon(log.flush)
        await trio.testing.wait_all_tasks_blocked()
        log.truncate(offset)
        append(log, batch(b"2" * 2000))
    await trio.testing.wait_all_tasks_blocked()
    assert log.flushed_end <= offset
    assert await log.flush() == log.end
    disk.crash(keep_page_cache=False)
    assert len(read_all(open_log(disk))) == log.end


async def test_segments_may_be_removed_during_a_flush(
    disk: MemoryDisk, nursery: trio.Nursery
) -> None:
    log = open_log(disk, LogOptions(segment_bytes_max=1000, retention_bytes=0))
    append(log, *[batch(b"1" * 900)] * 3)
    await log.flush()
    append(log, *[batch(b"1" * 900)] * 3)
    with disk.syncs_held():
        nursery.start_soon(log.flush)
        await trio.testing.wait_all_tasks_blocked()
        assert log.apply_retention(NOW_MS, below=log.end).segment_count == 3
    await trio.testing.wait_all_tasks_blocked()
    assert log.flushed_end == await log.flush() == log.end
    disk.crash(keep_page_cache=False)
    assert len(read_all(open_log(disk))) == log.size_bytes == log.end // 2


async def test_the_flush_after_a_cancelled_one_makes_all_records_durable(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    append(log, *[batch(b"1" * 900)] * 3)
    with trio.CancelScope() as scope:
        scope.cancel()
        await log.flush()
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        with disk.syncs_held():
            nursery.start_soon(log.flush)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert log.flushed_end == 0
    assert await log.flush() == log.end
    disk.crash(keep_page_cache=False)
    assert len(read_all(open_log(disk))) == log.end


async def test_the_flush_after_one_cancelled_between_segments_syncs_the_second(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk, SMALL)
    append(log, batch(b"1" * 100))
    await log.flush()
    append(log, *[batch(b"1" * 400)] * 5)
    async with trio.open_nursery() as nursery:
        with disk.syncs_held():
            nursery.start_soon(log.flush)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert await log.flush() == log.end
    disk.crash(keep_page_cache=False)
    assert len(read_all(open_log(disk))) == log.end


async def test_a_directory_that_a_log_made_is_durable_with_it() -> None:
    for directory in ("/log", "log", "/a/b/log"):
        disk = MemoryDisk()
        disk.make_directory("/a/b")
        await disk.sync_directory("/")
        await disk.sync_directory("/a")
        log, _ = at_once(
            SegmentedLog.open(
                disk, directory, LogOptions(), recovery_point=Offset(0), now_ms=NOW_MS
            )
        )
        append(log, batch(b"1"))
        await log.flush()
        disk.crash(keep_page_cache=False)
        assert len(disk.list_directory(directory)) == 2


# --- the rest ----------------------------------------------------------------------------


def test_statistics_tell_the_offsets_and_sizes_of_a_log(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    append(log, *[batch(b"1" * 900)] * 2)
    statistics = log.statistics()
    assert statistics.start == 0
    assert statistics.end == statistics.size_bytes == log.end
    assert (statistics.flushed_end, statistics.segment_count, statistics.fault) == (0, 2, "")


async def test_a_closed_log_refuses_all_operations(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, batch(b"1"))
    log.close()
    log.close()
    calls: list[Callable[[], object]] = [
        lambda: append(log, batch(b"2")),
        lambda: log.read(Offset(0), 1, log.end),
        lambda: log.truncate(Offset(0)),
        lambda: log.find_timestamp(0, log.end),
        lambda: log.find_last(1, log.end),
        lambda: log.apply_retention(NOW_MS, below=log.end),
    ]
    before = len(disk.calls)
    for call in calls:
        with pytest.raises(StorageError, match="closed"):
            call()
    with pytest.raises(StorageError, match="closed"):
        await log.flush()
    assert len(disk.calls) == before
    assert log.statistics().end == log.end


async def test_a_log_closed_during_a_flush_opens_no_file_again(
    disk: MemoryDisk, nursery: trio.Nursery
) -> None:
    log = open_log(disk, SMALL)
    append(log, *[batch(b"1" * 900)] * 3)

    async def flush() -> None:
        with pytest.raises(StorageError, match="closed"):
            await log.flush()

    with disk.syncs_held():
        nursery.start_soon(flush)
        await trio.testing.wait_all_tasks_blocked()
        before = disk.calls.count("open")
        log.close()
    await trio.testing.wait_all_tasks_blocked()
    assert disk.calls.count("open") == before


def test_other_files_in_the_directory_are_left_alone(disk: MemoryDisk) -> None:
    disk.make_directory(DIRECTORY)
    names = ["checkpoint", "1.log", "00000000000000000001.log.new", "notes.index"]
    for name in names:
        disk.plant(f"{DIRECTORY}/{name}", b"mine")
    log = open_log(disk)
    append(log, batch(b"1"))
    assert len(read_all(open_log(disk))) == log.end
    assert {disk.content(f"{DIRECTORY}/{name}") for name in names} == {b"mine"}


def test_a_file_in_the_place_of_a_new_segment_is_not_overwritten(disk: MemoryDisk) -> None:
    log = open_log(disk)
    disk.make_directory(DIRECTORY)
    disk.plant(path(0), b"whose is this?")
    with pytest.raises(StorageError, match="holds bytes already"):
        append(log, batch(b"1"))
    assert disk.content(path(0)) == b"whose is this?"


def test_a_segment_that_disappears_is_reported_as_damage(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    append(log, *[batch(b"1" * 900)] * 3)
    log = open_log(disk, SMALL, recovery_point=log.end)
    disk.remove(path(0))
    with pytest.raises(CorruptLogError, match="missing"):
        log.read(Offset(0), 1, log.end)
    assert log.read(Offset(log.end // 3), 1, log.end)


def test_appending_bytes_with_the_scan_of_others_fails_an_assertion(disk: MemoryDisk) -> None:
    log = open_log(disk)
    with pytest.raises(AssertionError):
        log.append(batch(b"1"), scan(batch(b"22")), NOW_MS)
    with pytest.raises(AssertionError):
        log.append(b"", scan(b""), NOW_MS)
