"""A log that lacks records that the file of ends notes: it ends at the damage, and is not cut."""

from __future__ import annotations

import errno

import pytest

from octopi.errors import (
    CorruptLogError,
    DiskFullError,
    LogReadOnlyError,
    OffsetInsideRecordError,
    OffsetOutOfRangeError,
    StorageError,
)
from octopi.identifiers import Offset
from octopi.storage.log_options import LogOptions
from octopi.storage.recovery import Noted
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
    open_log,
    path,
    read_all,
)

SMALL = LogOptions(segment_bytes_max=1000)
BATCHES = [batch(b"v" * 900, sequence=number) for number in range(4)]
SIZE = len(BATCHES[0])


def stored(*batches: bytes) -> MemoryDisk:
    """A disk with a log of these batches, all durable, a segment each."""
    return disk_with(*batches, options=SMALL)


def reopened(
    disk: MemoryDisk,
    durable_end: int,
    *,
    start: int = 0,
    recovery_point: int = 0,
    end: int = 0,
    highwater: int | None = None,
) -> SegmentedLog:
    log, _ = at_once(
        SegmentedLog.open(
            disk,
            DIRECTORY,
            SMALL,
            recovery_point=Offset(recovery_point),
            now_ms=NOW_MS,
            noted=Noted(
                Offset(start),
                Offset(durable_end),
                Offset(end),
                None if highwater is None else Offset(highwater),
            ),
            cut_altered=False,
        )
    )
    return log


def damaged_at(log: SegmentedLog, offset: int) -> CorruptLogError:
    damage = log.damage
    assert damage is not None
    assert log.fault is damage
    assert damage.offset == offset
    with pytest.raises(CorruptLogError):
        append(log, BATCHES[0])
    return damage


def test_a_flipped_bit_below_the_noted_end_is_damage_and_nothing_is_cut() -> None:
    disk = stored(*BATCHES)
    disk.flip(path(SIZE), 8 * 100)
    before = disk.files()
    log = reopened(disk, 4 * SIZE)
    damaged_at(log, SIZE)
    assert log.end == log.flushed_end == SIZE
    assert read_all(log) == BATCHES[0]
    assert files_of(disk.files(), ".log") == files_of(before, ".log")
    assert not files_of(disk.files(), ".cut")


@pytest.mark.parametrize("highwater", [None, SIZE, 2 * SIZE])
def test_a_flipped_bit_behind_the_highwater_mark_is_noticed_though_it_was_flushed(
    highwater: int | None,
) -> None:
    disk = stored(*BATCHES)
    disk.flip(path(SIZE), 8 * 100)
    log = reopened(disk, 4 * SIZE, recovery_point=4 * SIZE, highwater=highwater)
    if highwater == SIZE:
        damaged_at(log, SIZE)
    else:
        assert (log.damage, log.end) == (None, 4 * SIZE), "readers notice it"


@pytest.mark.parametrize("durable_end", [0, SIZE])
def test_a_flipped_bit_behind_the_noted_end_ends_the_log(durable_end: int) -> None:
    disk = stored(*BATCHES[:2])
    disk.plant(path(SIZE), BATCHES[1][:-1])
    log = reopened(disk, durable_end)
    assert (log.damage, log.end) == (None, SIZE)
    assert files_of(disk.files(), ".cut")


def test_bytes_of_the_page_cache_that_a_killed_process_left_are_damage_if_they_are_gone() -> None:
    disk = stored(*BATCHES[:2])
    disk.plant(path(SIZE), BATCHES[1][:-1])
    damaged_at(reopened(disk, 0, end=2 * SIZE), SIZE)


def test_a_segment_cut_in_half_ends_the_log_with_a_whole_record() -> None:
    disk = stored(*BATCHES)
    disk.plant(path(3 * SIZE), BATCHES[3][: SIZE // 2])
    for recovery_point in (0, 3 * SIZE, 4 * SIZE):
        log = reopened(disk, 4 * SIZE, recovery_point=recovery_point)
        damaged_at(log, 3 * SIZE)
        assert read_all(log) == b"".join(BATCHES[:3])


def test_a_segment_in_the_middle_that_is_gone_ends_the_log() -> None:
    disk = stored(*BATCHES)
    disk.remove(path(SIZE))
    damaged_at(reopened(disk, 4 * SIZE), SIZE)


def test_a_first_segment_that_is_gone_is_damage_unless_retention_took_it() -> None:
    disk = stored(*BATCHES)
    disk.remove(path(0))
    assert reopened(disk, 4 * SIZE, start=SIZE).damage is None
    log = reopened(disk, 4 * SIZE)
    damaged_at(log, 0)
    with pytest.raises(CorruptLogError):
        log.read(Offset(0), 1000, log.end)
    assert log.read(Offset(SIZE), 1000, log.end) == BATCHES[1]


def test_a_first_segment_that_was_never_flushed_and_is_gone_is_missed_all_the_same() -> None:
    """A failure of power may take its name, and leave those of the later ones."""
    disk = stored(*BATCHES)
    disk.remove(path(0))
    log = reopened(disk, 0)
    assert isinstance(log.fault, CorruptLogError)
    assert log.fault.offset == 0


def test_a_missing_beginning_is_reported_before_damage_behind_it() -> None:
    disk = stored(*BATCHES)
    disk.remove(path(0))
    disk.flip(path(3 * SIZE), 8 * 100)
    log = reopened(disk, 4 * SIZE)
    damaged_at(log, 0)
    assert log.end == 3 * SIZE


def test_segments_that_are_all_gone_leave_a_log_that_begins_where_it_began() -> None:
    disk = stored(*BATCHES)
    for number in range(4):
        disk.remove(path(number * SIZE))
    log = reopened(disk, 4 * SIZE, start=SIZE)
    damaged_at(log, SIZE)
    assert (log.start, log.end) == (SIZE, SIZE)


async def test_damaged_records_are_set_aside_and_the_log_goes_on() -> None:
    disk = stored(*BATCHES)
    disk.flip(path(SIZE), 8 * 100)
    flipped = disk.content(path(SIZE))
    log = reopened(disk, 4 * SIZE)
    saved = await log.set_aside(refill=True)
    assert saved == [path(number * SIZE, "cut") for number in (1, 2, 3)]
    assert disk.content(path(SIZE, "cut")) == flipped
    assert disk.content(path(3 * SIZE, "cut")) == BATCHES[3]
    append(log, *BATCHES[1:])
    assert read_all(log) == b"".join(BATCHES)
    await log.flush()
    log.close()
    assert reopened(disk, 4 * SIZE).damage is None


async def test_damaged_records_inside_a_segment_are_copied_durably_before_they_are_cut() -> None:
    data = batch(b"one") + batch(b"two") + batch(b"three")
    disk = empty_disk()
    log = open_log(disk)
    append(log, data)
    log.close()
    disk.settle()
    one = len(batch(b"one"))
    disk.flip(path(0), 8 * (one + 30))
    flipped = disk.content(path(0))
    log, _ = at_once(
        SegmentedLog.open(
            disk,
            DIRECTORY,
            LogOptions(),
            recovery_point=Offset(0),
            now_ms=NOW_MS,
            noted=Noted(Offset(0), Offset(len(data))),
        )
    )
    damaged_at(log, one)
    saved = await log.set_aside(refill=False)
    assert saved == [path(one, "cut")]
    append(log, batch(b"again"))
    assert read_all(log) == batch(b"one") + batch(b"again")
    disk.crash(keep_page_cache=False)
    assert disk.content(path(one, "cut")) == flipped[one:]
    assert disk.content(path(0)) == flipped[:one]


async def test_a_log_that_is_only_short_has_nothing_to_set_aside() -> None:
    disk = stored(*BATCHES[:2])
    log = reopened(disk, 4 * SIZE)
    damaged_at(log, 2 * SIZE)
    assert await log.set_aside(refill=True) == []
    append(log, *BATCHES[2:])
    assert read_all(log) == b"".join(BATCHES)


@pytest.mark.parametrize("refill", [False, True])
async def test_records_behind_a_lost_beginning_are_set_aside_if_a_leader_sends_them_again(
    refill: bool,
) -> None:
    disk = stored(*BATCHES)
    disk.remove(path(0))
    log = reopened(disk, 4 * SIZE)
    assert len(await log.set_aside(refill=refill)) == 3 * refill
    assert (log.start, log.end) == ((0, 0) if refill else (SIZE, 4 * SIZE))
    append(log, BATCHES[0])
    assert log.fault is None


@pytest.mark.parametrize("operation", ["rename", "append", "sync", "truncate", "sync_directory"])
@pytest.mark.parametrize(
    ("code", "error"), [(errno.ENOSPC, DiskFullError), (errno.EIO, LogReadOnlyError)]
)
async def test_bytes_that_can_not_be_set_aside_are_set_aside_the_next_time(
    operation: str, code: int, error: type[StorageError]
) -> None:
    disk = stored(*BATCHES)
    disk.plant(path(SIZE), BATCHES[1][:-1])
    log = reopened(disk, 4 * SIZE)
    damaged_at(log, SIZE)
    disk.plant(path(0), BATCHES[0] + b"more")
    before = b"".join(disk.content(path(number * SIZE)) for number in range(4))
    disk.fail(code, operation)
    with pytest.raises(error):
        await log.set_aside(refill=True)
    log.close()
    log = reopened(disk, 4 * SIZE)
    await log.set_aside(refill=True)
    append(log, *BATCHES[1:])
    assert read_all(log) == b"".join(BATCHES)
    kept = b"".join(data for name, data in disk.files().items() if name.endswith(".cut"))
    for piece in (before[-SIZE:], before[-2 * SIZE : -SIZE], b"more"):
        assert piece in kept


async def test_a_log_is_cut_and_the_cut_bytes_are_kept() -> None:
    disk = stored(*BATCHES)
    log = reopened(disk, 4 * SIZE)
    assert await log.truncate_aside(Offset(4 * SIZE)) == []
    with pytest.raises(OffsetInsideRecordError):
        await log.truncate_aside(Offset(SIZE + 1))
    with pytest.raises(OffsetOutOfRangeError):
        await log.truncate_aside(Offset(4 * SIZE + 1))
    saved = await log.truncate_aside(Offset(2 * SIZE))
    assert [disk.content(one) for one in saved] == BATCHES[2:]
    assert (log.end, log.flushed_end) == (2 * SIZE, 2 * SIZE)
    assert read_all(log) == b"".join(BATCHES[:2])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_log_is_not_cut_if_the_cut_bytes_can_not_be_kept(code: int) -> None:
    disk = stored(*BATCHES)
    log = reopened(disk, 4 * SIZE)
    disk.fail(code, "rename")
    with pytest.raises(DiskFullError if code == errno.ENOSPC else LogReadOnlyError):
        await log.truncate_aside(Offset(2 * SIZE))
    assert log.end == 4 * SIZE


def test_an_until_offset_inside_a_record_does_not_become_a_record_boundary() -> None:
    data = batch(b"one", b"two")
    disk = empty_disk()
    log = open_log(disk)
    append(log, data)
    inside = Offset(len(data) - 5)
    first = log.read(Offset(0), 1000, inside)
    assert 0 < len(first) < inside, "whole records alone"
    with pytest.raises(OffsetInsideRecordError):
        log.read(Offset(len(first)), 1000, inside)
    with pytest.raises(OffsetInsideRecordError):
        log.truncate(inside)
    assert log.read(Offset(len(first)), 1000, log.end) == data[len(first) :]


def test_a_reader_reports_damage_in_the_records_that_it_walks() -> None:
    data = batch(b"one")
    disk = empty_disk()
    log = open_log(disk)
    append(log, data + data + data)
    disk.flip(path(0), 8 * len(data))
    with pytest.raises(OffsetInsideRecordError):
        log.read(Offset(len(data)), 1000, Offset(2 * len(data)))


def test_the_log_start_that_retention_will_leave_is_known_before() -> None:
    disk = stored(*BATCHES)
    log, _ = at_once(
        SegmentedLog.open(
            disk,
            DIRECTORY,
            LogOptions(segment_bytes_max=1000, retention_bytes=2 * SIZE),
            recovery_point=Offset(4 * SIZE),
            now_ms=NOW_MS,
        )
    )
    assert log.retention_start(NOW_MS, below=Offset(SIZE)) == SIZE
    assert log.retention_start(NOW_MS, below=log.end) == 2 * SIZE
    assert log.apply_retention(NOW_MS, below=log.end).start == 2 * SIZE
    assert log.retention_start(NOW_MS, below=log.end) == 2 * SIZE


def test_a_log_that_began_at_an_offset_and_got_no_records_lacks_none() -> None:
    for durable_end in (0, SIZE):
        log = reopened(empty_disk(), durable_end, start=SIZE)
        assert (log.damage, log.start, log.end) == (None, SIZE, SIZE)
        append(log, BATCHES[0])
        assert log.end == 2 * SIZE
    damaged_at(reopened(empty_disk(), SIZE + 1, start=SIZE), SIZE)
