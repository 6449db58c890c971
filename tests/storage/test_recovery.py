"""Opening a log after an unclean end: what is trusted, checked, cut, kept and reported."""

from __future__ import annotations

import errno

import pytest

from octopi.errors import AlteredTailError, CorruptLogError, LogReadOnlyError, StorageError
from octopi.identifiers import Offset
from octopi.limits import INDEX_INTERVAL_BYTES, MIB
from octopi.record import Scan
from octopi.storage.log_options import LogOptions
from octopi.storage.offset_index import ENTRY_BYTES, IndexEntry
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.time_slices import at_once
from tests.kit.disk import MemoryDisk
from tests.storage.building import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    disk_with,
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


def stored(*batches: bytes, options: LogOptions | None = None) -> MemoryDisk:
    """`disk_with`, of which no calls are noted yet."""
    disk = disk_with(*batches, options=options)
    disk.calls.clear()
    return disk


# --- the tail ----------------------------------------------------------------------------


def test_a_torn_tail_is_cut_reported_and_kept() -> None:
    whole, last = batch(b"one", b"two"), batch(b"three", sequence=2)
    disk = stored(whole, last)
    disk.plant(path(0), whole + last[:-3])
    log, recovery = recover_log(disk)
    assert log.end == recovery.end == recovery.scanned_bytes == len(whole)
    assert recovery.cut_bytes == len(last) - 3
    assert path(0) in recovery.why
    assert f"at byte {len(whole)}" in recovery.why
    assert recovery.saved_as == [path(len(whole), "cut")]
    assert disk.content(path(len(whole), "cut")) == last[:-3]
    assert disk.content(path(0)) == whole
    assert log.fault is None
    append(log, last)
    assert read_all(log) == whole + last
    assert disk.open_files != []
    log.close()
    assert disk.open_files == []


def test_the_last_batch_cut_at_every_byte_leaves_its_whole_records() -> None:
    kept = batch(b"kept" * 20)
    last = batch(b"1" * 10, b"", b"3" * 70, sequence=1) + opaque(b"4")
    disk = stored(kept + last)
    boundaries = starts(last)
    for cut in range(len(last)):
        disk.plant(path(0), kept + last[:cut])
        log, recovery = recover_log(disk, recovery_point=len(kept))
        whole = max(one for one in boundaries if one <= cut)
        assert log.end == len(kept) + whole
        assert recovery.cut_bytes == cut - whole
        assert read_all(log) == kept + last[:whole]
        append(log, batch(b"goes on"))
        assert read_all(log)[log.end - len(batch(b"goes on")) :] == batch(b"goes on")


@pytest.mark.parametrize("garbage", [bytes(100), b"\xff" * 100, b"x", batch(b"1")[1:]])
def test_garbage_behind_the_last_record_is_cut(garbage: bytes) -> None:
    data = batch(b"one")
    disk = stored(data)
    disk.plant(path(0), data + garbage)
    log, recovery = recover_log(disk)
    assert (log.end, recovery.cut_bytes) == (len(data), len(garbage))


def test_two_tails_cut_at_the_same_offset_are_both_kept() -> None:
    data = batch(b"one")
    disk = stored(data)
    for garbage in (b"first", b"second", b"third"):
        disk.plant(path(0), data + garbage)
        _, recovery = recover_log(disk)
        assert disk.content(recovery.saved_as[0]) == garbage
    assert len(files_of(disk.files(), ".cut")) == 3


def test_a_long_torn_tail_is_kept_whole() -> None:
    data = batch(b"one")
    disk = stored(data)
    garbage = bytes(range(256)) * 12_000
    disk.plant(path(0), data + garbage)
    _, recovery = recover_log(disk)
    assert recovery.cut_bytes == len(garbage)
    assert disk.content(recovery.saved_as[0]) == garbage


def test_damage_in_a_middle_segment_behind_the_recovery_point_ends_the_log() -> None:
    batches = [batch(b"v" * 900, sequence=n) for n in range(4)]
    size = len(batches[0])
    disk = stored(*batches, options=SMALL)
    disk.flip(path(size), 8 * 100)
    log, recovery = recover_log(disk, SMALL)
    assert log.end == size
    assert recovery.cut_bytes == 3 * size
    assert recovery.saved_as == [path(n * size, "cut") for n in (3, 2, 1)]
    assert disk.content(path(3 * size, "cut")) == batches[3]
    assert read_all(log) == batches[0]
    append(log, batches[1])
    log = open_log(disk, SMALL)
    assert (read_all(log), log.fault) == (b"".join(batches[:2]), None)


# --- what was altered -----------------------------------------------------------------------


def test_a_partial_write_is_never_taken_for_an_altered_tail() -> None:
    kept = batch(b"kept")
    last = batch(b"1" * 10, b"", b"3" * 70, sequence=1) + opaque(b"4")
    disk = stored(kept + last)
    for cut in range(len(last) + 1):
        disk.plant(path(0), kept + last[:cut])
        log, _ = recover_log(disk, cut_altered=False)
        assert read_all(log) == (kept + last)[: log.end]


def test_a_tail_with_a_flipped_bit_is_cut_only_if_cutting_is_allowed() -> None:
    first, rest = batch(b"one"), batch(b"two", b"three", sequence=1)
    for bit in range(8 * len(first)):
        disk = stored(first + rest)
        disk.flip(path(0), bit)
        before = disk.content(path(0))
        with pytest.raises(AlteredTailError) as refused:
            recover_log(disk, cut_altered=False)
        assert refused.value.offset == 0
        assert disk.content(path(0)) == before
        assert disk.open_files == []
        log, recovery = recover_log(disk)
        assert (log.end, recovery.cut_bytes) == (0, len(first + rest))


def test_a_disk_call_that_fails_while_a_tail_is_checked_is_a_storage_error() -> None:
    whole, last = batch(b"one"), batch(b"two", sequence=1)
    torn = whole + last[:-3]

    def recover(fails_at: int | None = None) -> MemoryDisk:
        disk = stored(whole, last)
        disk.plant(path(0), torn)
        if fails_at is not None:
            disk.fail(errno.EIO, calls_before=fails_at)
        recover_log(disk, cut_altered=False)
        return disk

    refused = 0
    for number in range(len(recover().calls)):
        try:
            recover(number)
        except StorageError:
            refused += 1
    assert refused >= 3, "the directory, the records, and the tail"


def test_a_log_lacking_a_segment_behind_the_recovery_point_is_cut_only_if_allowed() -> None:
    batches = [batch(b"v" * 900, sequence=n) for n in range(4)]
    size = len(batches[0])
    disk = stored(*batches, options=SMALL)
    disk.remove(path(2 * size))
    with pytest.raises(AlteredTailError, match="doesn't begin where"):
        recover_log(disk, SMALL, cut_altered=False)
    assert recover_log(disk, SMALL)[0].end == 2 * size


@pytest.mark.parametrize("recovery_segments", [0, 1, 2])
def test_a_short_middle_segment_behind_the_recovery_point_ends_the_log(
    recovery_segments: int,
) -> None:
    batches = [batch(b"v" * 450, b"v" * 440, sequence=n) for n in range(4)]
    size = len(batches[0])
    disk = stored(*batches, options=SMALL)
    short = starts(batches[2])[1] if recovery_segments < 2 else 0
    disk.plant(path(2 * size), batches[2][:short])
    log, recovery = recover_log(disk, SMALL, recovery_point=recovery_segments * size)
    assert log.fault is None
    assert log.end == 2 * size + short
    assert recovery.cut_bytes == size
    assert f"{path(3 * size)} doesn't begin where {path(2 * size)} ends" in recovery.why
    assert len(read_all(log)) == log.end
    append(log, batches[0])
    assert len(read_all(open_log(disk, SMALL))) == log.end


async def test_records_behind_the_recovery_point_may_not_survive_a_power_failure() -> None:
    disk = empty_disk()
    log = open_log(disk, SMALL)
    batches = [batch(b"v" * 400, sequence=n) for n in range(10)]
    append(log, *batches[:3])
    end = await log.flush()
    append(log, *batches[3:])
    disk.crash(keep_page_cache=False, names_kept=True, unsynced_bytes_kept=600)
    log, recovery = recover_log(disk, SMALL, recovery_point=end)
    # The rest of the segment, and in the next one a batch and a half.
    assert read_all(log) == b"".join(batches[:5])
    assert recovery.cut_bytes == 600 - len(batches[5]) + 600 * 2


# --- what is trusted ---------------------------------------------------------------------


def test_flushed_records_are_not_read_again_at_recovery() -> None:
    batches = [batch(b"v" * 900, sequence=n) for n in range(20)]
    disk = stored(*batches, options=SMALL)
    end = 20 * len(batches[0])
    log, recovery = recover_log(disk, SMALL, recovery_point=end)
    assert recovery.scanned_bytes == 0
    assert disk.calls.count("pread") < 10  # of the last segment's end, whatever its size
    assert log.flushed_end == end


def test_opening_reports_only_the_records_behind_the_recovery_point() -> None:
    batches = [batch(b"v" * 300, b"w", sequence=2 * n) for n in range(10)]
    size = len(batches[0])
    disk = stored(*batches, options=SMALL)
    told: list[tuple[Offset, Scan]] = []
    log, recovery = at_once(
        SegmentedLog.open(
            disk,
            DIRECTORY,
            SMALL,
            recovery_point=Offset(4 * size),
            now_ms=NOW_MS,
            on_records=lambda base, scan: told.append((base, scan)),
        )
    )
    assert recovery.scanned_bytes == 6 * size
    assert log.flushed_end == 4 * size
    assert [base for base, _ in told] == [n * size for n in (4, 6, 8)]
    runs = [(base + run.start, run.first_sequence, run.count) for base, s in told for run in s.runs]
    assert runs == [(n * size, 2 * n, 4) for n in (4, 6, 8)]


async def test_few_files_stay_open_when_many_segments_were_checked() -> None:
    batches = [batch(b"v" * 900, sequence=n) for n in range(30)]
    disk = stored(*batches, options=SMALL)
    log = open_log(disk, SMALL)
    assert len(disk.open_files) <= 4
    assert await log.flush() == log.end
    assert len(disk.open_files) <= 12


def test_a_torn_record_is_not_reported() -> None:
    whole, last = batch(b"one"), batch(b"two", sequence=1)
    disk = stored(whole)
    told: list[int] = []
    for data in (whole + last[:-1], last[:-1]):
        disk.plant(path(0), data)
        at_once(
            SegmentedLog.open(
                disk,
                DIRECTORY,
                SMALL,
                recovery_point=Offset(0),
                now_ms=NOW_MS,
                on_records=lambda _, scan: told.append(scan.count),
            )
        )
    assert told == [1]


async def test_a_recovery_point_before_the_logs_start_is_its_start() -> None:
    disk = empty_disk()
    log = open_log(disk, LogOptions(segment_bytes_max=1000, retention_bytes=0))
    append(log, *[batch(b"v" * 900)] * 3)
    await log.flush()
    log.apply_retention(NOW_MS, below=log.end)
    append(log, batch(b"v"))
    log, recovery = recover_log(disk, recovery_point=5)
    assert (recovery.start, recovery.end) == (log.start, log.end)
    assert log.start > 5
    assert log.flushed_end == log.start
    assert await log.flush() == log.end


def test_a_recovery_point_inside_a_record_cuts_nothing() -> None:
    data = batch(b"one", b"two" * 100, b"three")
    disk = stored(data)
    for recovery_point in range(len(data)):
        log, recovery = recover_log(disk, recovery_point=recovery_point)
        assert (read_all(log), recovery.cut_bytes) == (data, 0)


# --- damage below the recovery point ------------------------------------------------------


@pytest.mark.parametrize("kind", ["missing", "short", "long", "cut to nothing"])
def test_segments_that_do_not_join_are_served_up_to_the_damage(kind: str) -> None:
    batches = [batch(b"v" * 450, b"w" * 440, sequence=2 * n) for n in range(4)]
    size = len(batches[0])
    disk = stored(*batches, options=SMALL)
    half = starts(batches[0])[1]
    if kind == "missing":
        disk.remove(path(size))
        end = size
    elif kind == "short":
        disk.plant(path(size), batches[1][:half])
        end = size + half
    elif kind == "long":
        disk.plant(path(size), batches[1] * 2)
        end = 2 * size
    else:
        disk.plant(path(size), b"")
        end = size
    before = disk.files()
    log, recovery = recover_log(disk, SMALL, recovery_point=4 * size)
    assert (log.start, log.end, recovery.cut_bytes) == (0, end, 0)
    fault = log.fault
    assert isinstance(fault, CorruptLogError)
    assert fault.offset == end
    assert str(end) in str(fault)
    assert str(fault) == log.statistics().fault
    assert read_all(log) == b"".join(batches)[:end]
    for offset in (end, 2 * size, 3 * size, 4 * size):
        if offset >= end:
            with pytest.raises(CorruptLogError):
                log.read(Offset(offset), MIB, Offset(4 * size))
    with pytest.raises(CorruptLogError):
        append(log, batches[0])
    with pytest.raises(CorruptLogError):
        log.truncate(Offset(0))
    assert {name: data for name, data in disk.files().items() if name.endswith("log")} == {
        name: data for name, data in before.items() if name.endswith("log")
    }


def test_a_log_whose_first_segment_is_cut_to_nothing_serves_nothing() -> None:
    batches = [batch(b"v" * 900, sequence=n) for n in range(3)]
    disk = stored(*batches, options=SMALL)
    disk.plant(path(0), b"")
    log = open_log(disk, SMALL, recovery_point=3 * len(batches[0]))
    assert (log.start, log.end, log.segment_count) == (0, 0, 0)
    with pytest.raises(CorruptLogError):
        log.read(Offset(0), MIB, Offset(9000))


def test_a_log_that_lost_durable_records_takes_no_new_ones() -> None:
    data = batch(b"one", b"two")
    disk = stored(data)
    second = starts(data)[1]
    disk.plant(path(0), data[:second])
    log = open_log(disk, recovery_point=len(data))
    assert isinstance(log.fault, CorruptLogError)
    assert read_all(log) == data[:second]
    with pytest.raises(CorruptLogError, match=f"durable up to offset {len(data)}"):
        append(log, data)


def test_a_log_whose_files_are_gone_takes_no_records() -> None:
    log = open_log(empty_disk(), recovery_point=100)
    assert log.end == 0
    with pytest.raises(CorruptLogError, match=DIRECTORY):
        append(log, batch(b"1"))


async def test_a_damaged_log_can_be_flushed_and_its_oldest_segments_removed() -> None:
    batches = [batch(b"v" * 900, sequence=n) for n in range(5)]
    size = len(batches[0])
    disk = stored(*batches, options=SMALL)
    disk.remove(path(3 * size))
    options = LogOptions(segment_bytes_max=1000, retention_bytes=0)
    log = open_log(disk, options, recovery_point=5 * size)
    assert await log.flush() == 3 * size
    assert log.apply_retention(NOW_MS, below=log.end).segment_count == 2
    assert log.start == 2 * size


# --- indexes -----------------------------------------------------------------------------


@pytest.mark.parametrize("recovered_bytes", [0, 200_000, 10**6])
@pytest.mark.parametrize(
    "harm",
    [
        "missing",
        "torn",
        "empty",
        "swapped",
        "shifted",
        "zeros",
        "garbage",
        "far too long",
        "older format",
    ],
)
def test_a_damaged_index_does_not_break_look_ups(harm: str, recovered_bytes: int) -> None:
    batches = [
        batch(*[bytes([n]) * 9000] * 3, sequence=3 * n, timestamp_ms=10 * n) for n in range(30)
    ]
    data = b"".join(batches)
    disk = stored(*batches)
    index = disk.content(path(0, "index"))
    entries = [index[at : at + ENTRY_BYTES] for at in range(0, len(index), ENTRY_BYTES)]
    assert len(entries) > 8
    if harm == "missing":
        disk.remove(path(0, "index"))
    elif harm == "torn":
        disk.plant(path(0, "index"), index[: len(index) // 2 + 5])
    elif harm == "empty":
        disk.plant(path(0, "index"), b"")
    elif harm == "swapped":
        entries[2], entries[6] = entries[6], entries[2]
        disk.plant(path(0, "index"), b"".join(entries))
    elif harm == "shifted":
        sound = [IndexEntry.of_bytes(one) for one in entries]
        shifted = [one._replace(position=one.position + 7) for one in sound]
        disk.plant(path(0, "index"), b"".join(one.to_bytes() for one in shifted))
    elif harm == "older format":
        disk.plant(path(0, "index"), b"".join(one[:16] for one in entries))
    elif harm == "zeros":
        disk.plant(path(0, "index"), bytes(len(index)))
    elif harm == "garbage":
        disk.plant(path(0, "index"), b"\xa5" * len(index))
    else:
        disk.plant(path(0, "index"), index + b"\xff" * 160)
    recovery_point = max(one for one in starts(data) if one <= recovered_bytes)
    log = open_log(disk, recovery_point=recovery_point)
    boundaries = starts(data)
    for number, offset in enumerate(boundaries[:-1]):
        part = log.read(Offset(offset), 100_000, log.end)
        assert part == data[offset : offset + len(part)]
        assert offset + len(part) in boundaries
        assert log.find_timestamp(10 * (number // 3) + number % 3, log.end) == offset
    assert log.find_last(50, log.end) == boundaries[-51]
    if harm in {"swapped", "shifted", "zeros", "garbage", "older format"}:
        assert findings(disk) == []
    append(log, batch(b"x" * 70_000, timestamp_ms=1000), batch(b"y", timestamp_ms=2000))
    assert log.find_timestamp(1001, log.end) == log.end - len(batch(b"y"))


def test_an_index_without_its_segment_is_removed() -> None:
    disk = stored(batch(b"1"))
    disk.plant(path(777, "index"), b"left by a crash")
    open_log(disk)
    assert files_of(disk.files(), ".index") == [0]
    disk.plant(path(777, "index"), b"left by a crash")
    disk.fail(errno.EROFS, "remove")
    assert open_log(disk).fault is None


# --- a disk that fails while a log is opened ------------------------------------------------


def test_a_torn_tail_is_cut_even_if_it_can_not_be_kept() -> None:
    data = batch(b"one")
    disk = stored(data)
    disk.plant(path(0), data + b"torn")
    disk.fail(errno.ENOSPC, "append", path_end=".cut")
    log, recovery = recover_log(disk)
    assert (log.fault, recovery.cut_bytes) == (None, 4)
    assert disk.content(path(0)) == data


@pytest.mark.parametrize("operation", ["truncate", "rename"])
def test_a_torn_tail_that_can_not_be_cut_makes_the_log_read_only(operation: str) -> None:
    batches = [batch(b"v" * 900, sequence=n) for n in range(3)]
    size = len(batches[0])
    disk = stored(*batches, options=SMALL)
    disk.plant(path(size), batches[1][:-1])
    disk.fail(errno.EROFS, operation, path_end=".log")
    log, recovery = recover_log(disk, SMALL)
    assert isinstance(log.fault, LogReadOnlyError)
    assert recovery.cut_bytes == 2 * size - 1
    assert read_all(log) == batches[0]
    with pytest.raises(LogReadOnlyError, match="can't be cut"):
        append(log, batches[0])
    log = open_log(disk, SMALL)
    assert (log.fault, log.end) == (None, size)


@pytest.mark.parametrize(
    ("operation", "path_end"),
    [("list_directory", ""), ("open", ".log"), ("pread", ".log")],
)
def test_a_log_that_cannot_be_read_is_neither_opened_nor_cut(operation: str, path_end: str) -> None:
    disk = stored(batch(b"one"))
    disk.fail(errno.EIO, operation, path_end=path_end)
    with pytest.raises(StorageError, match="Input/output error"):
        open_log(disk)
    assert disk.open_files == []
    assert disk.content(path(0)) == batch(b"one")
    assert read_all(open_log(disk)) == batch(b"one")


def test_a_log_on_a_read_only_disk_is_read() -> None:
    data = batch(b"one" * INDEX_INTERVAL_BYTES, b"two")
    disk = stored(data)
    disk.read_only = True
    for recovery_point in (0, len(data)):
        log = open_log(disk, recovery_point=recovery_point)
        assert read_all(log) == data
        with pytest.raises(LogReadOnlyError, match="Read-only file system"):
            append(log, data)
        assert read_all(log) == data
