"""A log on a disk that fails: every call once, every errno that matters, fsync above all."""

from __future__ import annotations

import errno

import pytest
import trio

from octopi.errors import DiskFullError, LogReadOnlyError, StorageError
from octopi.identifiers import Offset
from octopi.limits import MIB
from octopi.record import scan
from octopi.storage.log_options import LogOptions
from octopi.storage.offset_index import ENTRY_BYTES
from octopi.storage.segment import Segment
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.time_slices import at_once
from tests.kit.disk import MemoryDisk
from tests.storage.building import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    empty_disk,
    findings,
    open_log,
    path,
    read_all,
    starts,
)

SMALL = LogOptions(segment_bytes_max=1000)
FULL = [errno.ENOSPC, errno.EDQUOT]
FATAL = [errno.EIO, errno.EROFS, errno.EBADF, errno.EFBIG]


@pytest.fixture
def disk() -> MemoryDisk:
    return empty_disk()


# --- a full disk -------------------------------------------------------------------------


@pytest.mark.parametrize("number", FULL)
@pytest.mark.parametrize("written_bytes", [0, 1, 57, 60, 120])
def test_a_full_disk_undoes_the_append_and_the_log_goes_on(
    disk: MemoryDisk, number: int, written_bytes: int
) -> None:
    log = open_log(disk)
    first, second = batch(b"one"), batch(b"two", b"three", sequence=1)
    append(log, first)
    disk.fail(number, "append", path_end=".log", written=(written_bytes + 0.5) / len(second))
    with pytest.raises(DiskFullError, match="free some space"):
        append(log, second)
    assert (log.end, log.fault) == (len(first), None)
    assert disk.content(path(0)) == first
    assert read_all(log) == first
    append(log, second)
    assert read_all(log) == first + second
    assert read_all(open_log(disk)) == first + second


async def test_a_disk_that_really_is_full_refuses_until_there_is_space() -> None:
    disk = empty_disk()
    disk.capacity_bytes = 10_000
    log = open_log(disk, LogOptions(segment_bytes_max=1000, retention_bytes=0))
    data = batch(b"v" * 900)
    stored = 0
    while True:
        try:
            append(log, data)
        except DiskFullError:
            break
        stored += 1
    assert stored >= 9
    assert read_all(log) == data * stored
    await log.flush()
    log.apply_retention(NOW_MS, below=log.end)
    append(log, data)
    assert log.end == (stored + 1) * len(data)


@pytest.mark.parametrize("number", FULL)
@pytest.mark.parametrize("operation", ["open", "make_directory"])
def test_a_disk_too_full_for_a_new_segment_lets_the_log_go_on(
    disk: MemoryDisk, number: int, operation: str
) -> None:
    log = open_log(disk, SMALL)
    data = batch(b"v" * 900)
    append(log, data)
    disk.fail(number, operation)
    with pytest.raises(DiskFullError):
        append(log, data)
    append(log, data)
    assert read_all(log) == data * 2


def test_a_segment_file_that_a_full_disk_left_empty_leaves_no_gap_in_the_log(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk, SMALL)
    large, small = batch(b"v" * 800), batch(b"small", sequence=1)
    append(log, large)
    disk.fail(errno.ENOSPC, "open", times=1)
    disk.plant(path(log.end), b"")
    with pytest.raises(DiskFullError):
        append(log, large)
    append(log, small)
    assert read_all(open_log(disk, SMALL, recovery_point=log.end)) == large + small


def test_a_segment_file_that_could_not_be_opened_and_holds_bytes_is_left_alone(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk, SMALL)
    append(log, batch(b"v" * 900))
    disk.fail(errno.ENOSPC, "open", times=1)
    disk.plant(path(log.end), b"somebody's")
    with pytest.raises(DiskFullError):
        append(log, batch(b"w" * 900))
    assert disk.content(path(log.end)) == b"somebody's"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("operation", ["open", "append"])
def test_a_log_goes_on_when_files_can_be_opened_again(
    disk: MemoryDisk, number: int, operation: str
) -> None:
    """An append, too, may have to open the file: one that isn't used is closed."""
    log = open_log(disk, SMALL)
    data = batch(b"v" * 900)
    append(log, data)
    disk.fail(number, operation, path_end=".log")
    disk.fail(errno.EIO, "truncate", path_end=".log", times=1)  # nothing is to be undone
    with pytest.raises(DiskFullError, match="ulimit"):
        append(log, data)
    append(log, data)
    assert read_all(log) == data * 2


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
async def test_a_log_is_flushed_when_files_can_be_opened_again(
    disk: MemoryDisk, number: int, operation: str
) -> None:
    log = open_log(disk)
    first, second = batch(b"one"), batch(b"two", sequence=1)
    append(log, first)
    disk.fail(number, operation)
    with pytest.raises(DiskFullError, match="was not synced; let the broker have more open files"):
        await log.flush()
    assert (log.flushed_end, log.fault) == (0, None)
    append(log, second)
    assert await log.flush() == len(first + second)


def test_an_append_that_cannot_be_undone_makes_the_log_read_only(disk: MemoryDisk) -> None:
    log = open_log(disk)
    first, second = batch(b"one"), batch(b"two", sequence=1)
    append(log, first)
    disk.fail(errno.ENOSPC, "append", path_end=".log", written=1.0)
    disk.fail(errno.EIO, "truncate")
    with pytest.raises(LogReadOnlyError, match="undoing"):
        append(log, second)
    assert read_all(log) == first
    with pytest.raises(LogReadOnlyError, match="undoing"):
        append(log, second)


# --- other failed writes -----------------------------------------------------------------


@pytest.mark.parametrize("number", FATAL)
@pytest.mark.parametrize("written", [0.0, 0.5, 1.0])
async def test_a_write_that_fails_for_another_reason_than_space_makes_the_log_read_only(
    disk: MemoryDisk, number: int, written: float
) -> None:
    log = open_log(disk)
    first, second = batch(b"one"), batch(b"two", sequence=1)
    append(log, first)
    disk.fail(number, "append", path_end=".log", written=written)
    for _ in range(2):
        with pytest.raises(LogReadOnlyError, match="look at the disk, then restart"):
            append(log, second)
    assert isinstance(log.fault, LogReadOnlyError)
    assert DIRECTORY in log.statistics().fault
    assert read_all(log) == first
    with pytest.raises(LogReadOnlyError):
        log.truncate(Offset(0))
    with pytest.raises(LogReadOnlyError):
        await log.flush()
    log.close()
    log = open_log(disk)
    assert read_all(log)[: len(first)] == first
    append(log, second)


@pytest.mark.parametrize("operation", ["open", "make_directory"])
def test_a_segment_that_cannot_be_made_makes_the_log_read_only(
    disk: MemoryDisk, operation: str
) -> None:
    log = open_log(disk, SMALL)
    data = batch(b"v" * 900)
    append(log, data)
    disk.fail(errno.EIO, operation)
    with pytest.raises(LogReadOnlyError, match="making a segment"):
        append(log, data)
    assert read_all(log) == data


@pytest.mark.parametrize("operation", ["truncate", "remove"])
def test_a_failed_truncation_makes_the_log_read_only(disk: MemoryDisk, operation: str) -> None:
    log = open_log(disk, SMALL)
    data = batch(b"v" * 400)
    append(log, *[data] * 5)
    disk.fail(errno.EIO, operation, path_end=".log")
    with pytest.raises(LogReadOnlyError, match="truncating"):
        log.truncate(Offset(len(data)))
    with pytest.raises(LogReadOnlyError):
        append(log, data)
    assert read_all(log) == data * (log.end // len(data))
    assert read_all(open_log(disk, SMALL)) == data * 5 or operation == "truncate"


def test_a_truncation_that_can_not_read_the_log_changes_nothing(disk: MemoryDisk) -> None:
    log = open_log(disk)
    data = batch(b"v" * 400)
    append(log, *[data] * 5)
    read_all(log, bytes_max=1)
    disk.fail(errno.EIO, "pread", path_end=".log")
    with pytest.raises(StorageError, match="can't be read"):
        log.truncate(Offset(len(data)))
    assert read_all(log) == data * 5
    log.truncate(Offset(len(data)))
    assert read_all(log) == data


async def test_a_failed_restart_of_a_log_is_complete_or_makes_it_read_only(
    disk: MemoryDisk,
) -> None:
    data = batch(b"v" * 900)
    log = open_log(disk, SMALL)
    append(log, *[data] * 3)
    disk.fail(errno.ENOSPC, "open", path_end=".log")
    with pytest.raises(DiskFullError):
        log.restart(Offset(10_000))
    assert append(log, data) == [10_000]
    disk.fail(errno.EIO, "remove", path_end=".log")
    with pytest.raises(LogReadOnlyError, match="emptying"):
        log.restart(Offset(20_000))
    assert read_all(log) == data


# --- the index is never worth a record ---------------------------------------------------


@pytest.mark.parametrize("operation", ["open", "append", "truncate"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_to_an_index_does_not_fail_the_append(
    disk: MemoryDisk, number: int, operation: str
) -> None:
    batches = [batch(b"v" * 40_000, sequence=n, timestamp_ms=n) for n in range(20)]
    data = b"".join(batches)
    log = open_log(disk)
    append(log, *batches[:3])
    disk.fail(errno.EIO, "append", path_end=".index", written=0.5)
    disk.fail(number, operation, path_end=".index", times=3)
    append(log, *batches[3:])
    assert log.fault is None
    disk.heal()
    assert findings(disk) == []
    boundaries = starts(data)
    for opened in (log, open_log(disk, recovery_point=log.end), open_log(disk)):
        for n, offset in enumerate(boundaries[:-1]):
            assert opened.read(Offset(offset), 1, log.end) == batches[n]
            assert opened.find_timestamp(n, log.end) == offset
        assert opened.find_last(7, log.end) == boundaries[-8]


@pytest.mark.parametrize("operation", ["open", "append", "truncate", "pread"])
@pytest.mark.parametrize("recovered", [False, True])
def test_a_log_without_any_index_still_finds_everything(
    disk: MemoryDisk, operation: str, recovered: bool
) -> None:
    batches = [batch(b"v" * 40_000, sequence=n, timestamp_ms=n) for n in range(20)]
    data = b"".join(batches)
    log = open_log(disk)
    append(log, *batches)
    log.close()
    if operation == "append":
        disk.remove(path(0, "index"))
    disk.fail(errno.EIO, operation, path_end=".index", times=10**9)
    log = open_log(disk, recovery_point=log.end if recovered else 0)
    boundaries = starts(data)
    for n, offset in enumerate(boundaries[:-1]):
        assert log.read(Offset(offset), 100_000, log.end) == b"".join(batches[n : n + 2])
        assert log.find_timestamp(n, log.end) == offset
    assert log.find_last(7, log.end) == boundaries[-8]
    append(log, batches[0])
    assert read_all(log) == data + batches[0]


def test_an_index_that_lacks_entries_is_made_anew(disk: MemoryDisk) -> None:
    big = batch(b"v" * 5 * MIB)
    log = open_log(disk)
    disk.fail(errno.ENOSPC, "append", path_end=".index", times=4)
    append(log, *[big] * 4, batch(b"w"))
    log.close()
    log = open_log(disk, recovery_point=log.end)
    third = Offset(3 * len(big))
    at_once(log.prove(third))
    assert log.read(third, 1, log.end) == big
    assert len(disk.content(path(0, "index"))) == 5 * ENTRY_BYTES
    before = len(disk.calls)
    log = open_log(disk, recovery_point=log.end)
    assert log.read(third, 1, log.end) == big
    assert len(disk.calls) - before < 30


# --- fsync -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "path_end"),
    [("sync", ".log"), ("sync", ".index"), ("sync_directory", "log"), ("sync_directory", "data")],
)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_a_failed_fsync_is_never_retried_as_success(
    disk: MemoryDisk, operation: str, path_end: str, number: int
) -> None:
    log = open_log(disk, SMALL)
    append(log, batch(b"one"))
    disk.fail(number, operation, path_end=path_end)
    with pytest.raises(LogReadOnlyError, match="fsync failed"):
        await log.flush()
    data = read_all(log)
    before = len(disk.calls)
    for _ in range(3):
        with pytest.raises(LogReadOnlyError, match="fsync failed"):
            await log.flush()
        with pytest.raises(LogReadOnlyError, match="fsync failed"):
            append(log, batch(b"two"))
    assert disk.calls[before:] == []
    assert log.flushed_end == 0
    assert read_all(log) == data == batch(b"one")


async def test_a_task_that_waits_for_a_failing_flush_fails_with_it(
    disk: MemoryDisk, nursery: trio.Nursery
) -> None:
    log = open_log(disk)
    append(log, batch(b"one"))
    failed: list[str] = []

    async def flush() -> None:
        try:
            await log.flush()
        except LogReadOnlyError as error:
            failed.append(str(error))

    disk.fail(errno.EIO, "sync")
    with disk.syncs_held():
        for _ in range(4):
            nursery.start_soon(flush)
        await trio.testing.wait_all_tasks_blocked()
        append(log, batch(b"two"))
    await trio.testing.wait_all_tasks_blocked()
    assert len(failed) == 4
    assert log.flushed_end == 0
    disk.crash(keep_page_cache=False)
    assert open_log(disk).end == 0


async def test_a_failed_fsync_of_one_segment_leaves_the_others_durable(disk: MemoryDisk) -> None:
    log = open_log(disk, SMALL)
    data = batch(b"v" * 900)
    append(log, data)
    assert await log.flush() == len(data)
    append(log, data, data, data)
    disk.fail(errno.EIO, "sync", path_end=path(2 * len(data)))
    with pytest.raises(LogReadOnlyError):
        await log.flush()
    assert log.flushed_end == len(data)


async def test_a_log_that_is_opened_after_a_failed_fsync_is_written_once_more(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk, SMALL)
    data = batch(b"v" * 900)
    append(log, data)
    durable_end = await log.flush()
    append(log, data, data, data)
    disk.fail(errno.EIO, "sync", path_end=path(2 * len(data)))
    with pytest.raises(LogReadOnlyError):
        await log.flush()
    disk.crash(keep_page_cache=True)
    log = open_log(disk, SMALL, recovery_point=durable_end)
    assert await log.flush() == log.end == 4 * len(data)
    disk.crash(keep_page_cache=False)
    assert read_all(open_log(disk, SMALL, recovery_point=log.end)) == 4 * data


async def test_only_what_is_not_known_to_be_durable_is_written_once_more(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, batch(b"one"))
    durable_end = await log.flush()
    disk.crash(keep_page_cache=True)
    open_log(disk, recovery_point=durable_end)
    assert "rewrite" not in disk.calls


async def test_a_log_whose_end_cannot_be_written_once_more_is_read_only(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, batch(b"one"))
    disk.crash(keep_page_cache=True)
    disk.fail(errno.EROFS, "rewrite")
    log = open_log(disk)
    assert read_all(log) == batch(b"one")
    with pytest.raises(LogReadOnlyError, match="can't be written once more"):
        append(log, batch(b"two"))


def tell_again(disk: MemoryDisk, path_end: str) -> None:
    """Have the next sync of these files tell that one of an earlier process failed."""
    for file, image in disk.simulated.tree.files():
        if file.endswith(path_end):
            image.has_error = True


@pytest.mark.parametrize("path_end", [".log", ".index"])
async def test_a_failure_that_an_earlier_process_had_does_not_stop_the_log_again(
    disk: MemoryDisk, path_end: str
) -> None:
    """Linux tells it once more, after a failed sync of the whole file system."""
    log = open_log(disk)
    append(log, batch(b"one"))
    durable_end = await log.flush()
    second = batch(b"v" * 100_000), batch(b"two")  # so long that it has an entry in the index
    append(log, *second)
    disk.fail(errno.EIO, "sync", path_end=path_end)
    with pytest.raises(LogReadOnlyError):
        await log.flush()
    disk.crash(keep_page_cache=True)
    tell_again(disk, path_end)
    log = open_log(disk, recovery_point=durable_end)
    append(log, batch(b"three"))
    assert await log.flush() == log.end
    data = read_all(log)
    disk.crash(keep_page_cache=False)
    assert read_all(open_log(disk, recovery_point=log.end)) == data
    assert data == batch(b"one") + b"".join(second) + batch(b"three")


@pytest.mark.parametrize("path_end", [".log", ".index"])
async def test_a_disk_that_fails_again_after_a_restart_stops_the_log(
    disk: MemoryDisk, path_end: str
) -> None:
    log = open_log(disk)
    append(log, batch(b"one"))
    disk.crash(keep_page_cache=True)
    tell_again(disk, path_end)
    disk.fail(errno.EIO, "sync", path_end=path_end)
    log = open_log(disk)
    with pytest.raises(LogReadOnlyError, match="fsync failed"):
        await log.flush()
    assert log.flushed_end == 0
    with pytest.raises(LogReadOnlyError, match="fsync failed"):
        await log.flush()


async def test_what_is_cut_and_appended_behind_an_earlier_failure_is_written_again(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk)
    append(log, batch(b"one"), batch(b"two"))
    durable_end = await log.flush()
    disk.crash(keep_page_cache=True)
    log = open_log(disk, recovery_point=durable_end)
    log.truncate(Offset(len(batch(b"one"))))
    append(log, batch(b"2nd"))
    disk.fail(errno.EIO, "sync", path_end=".log")  # it takes what it left out for written
    assert await log.flush() == log.end
    disk.crash(keep_page_cache=False)
    assert read_all(open_log(disk)) == batch(b"one") + batch(b"2nd")


async def test_a_segment_that_was_synced_once_is_not_synced_again_after_a_failure(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk)
    append(log, batch(b"one"))
    disk.crash(keep_page_cache=True)
    log = open_log(disk)
    flushed_end = await log.flush()
    append(log, batch(b"two"))
    disk.fail(errno.EIO, "sync", path_end=".log")
    with pytest.raises(LogReadOnlyError):
        await log.flush()
    assert log.flushed_end == flushed_end


async def test_a_flush_that_ends_while_it_writes_again_leaves_that_to_the_next_one(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk)
    data = batch(b"v" * 200_000)
    append(log, data, data, data)
    disk.crash(keep_page_cache=True)
    log = open_log(disk)
    disk.fail(errno.EIO, "sync", path_end=".log")
    scope = trio.CancelScope()
    rewritten = disk.calls.count("rewrite")

    async def end_it_soon() -> None:
        while disk.calls.count("rewrite") == rewritten:
            await trio.lowlevel.checkpoint()
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_it_soon)
        with scope:
            await log.flush()
    assert scope.cancelled_caught
    assert log.flushed_end == 0
    assert await log.flush() == log.end
    disk.crash(keep_page_cache=False)
    assert read_all(open_log(disk)) == 3 * data


@pytest.mark.parametrize("is_removed", [False, True])
async def test_a_segment_that_is_cut_or_removed_while_it_is_written_again_does_not_stop_the_log(
    disk: MemoryDisk, is_removed: bool
) -> None:
    options = LogOptions(segment_bytes_max=400_000)
    log = open_log(disk, options)
    data = batch(b"v" * 390_000)
    append(log, data, data)
    disk.crash(keep_page_cache=True)
    log = open_log(disk, options)
    disk.fail(errno.EIO, "sync", path_end=path(len(data)))
    rewritten = disk.calls.count("rewrite")
    kept = b"" if is_removed else data
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.flush)
        while disk.calls.count("rewrite") == rewritten:
            await trio.lowlevel.checkpoint()
        log.truncate(Offset(len(kept)))
    append(log, batch(b"new"))
    assert await log.flush() == log.end
    disk.crash(keep_page_cache=False)
    assert read_all(open_log(disk, options)) == kept + batch(b"new")


async def test_a_segment_that_is_removed_while_its_sync_fails_is_not_written_again(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk, SMALL)
    data = batch(b"v" * 900)
    append(log, data)
    durable_end = await log.flush()
    append(log, data)
    disk.crash(keep_page_cache=True)
    log = open_log(disk, SMALL, recovery_point=durable_end)
    tell_again(disk, path(len(data)))
    rewritten = disk.calls.count("rewrite")
    sync = Segment.sync

    async def sync_slowly(segment: Segment) -> None:
        try:
            await sync(segment)
        except OSError:
            log.truncate(Offset(0))
            raise

    monkeypatch.setattr(Segment, "sync", sync_slowly)
    await log.flush()
    assert disk.calls.count("rewrite") == rewritten
    append(log, batch(b"new"))
    assert await log.flush() == log.end
    disk.crash(keep_page_cache=False)
    assert read_all(open_log(disk)) == batch(b"new")


async def test_what_was_synced_may_be_written_once_more(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, batch(b"one"))
    await log.flush()
    log.close()
    segment = Segment.existing(disk, DIRECTORY, Offset(0))
    segment.unsynced = True
    await segment.sync()
    list(segment.rewrite(0))
    assert segment.unsynced
    await segment.sync()
    assert disk.content(path(0)) == batch(b"one")


# --- retention ---------------------------------------------------------------------------


async def test_a_segment_that_cannot_be_removed_stays(disk: MemoryDisk) -> None:
    options = LogOptions(segment_bytes_max=1000, retention_bytes=0)
    log = open_log(disk, options)
    data = batch(b"v" * 900)
    append(log, *[data] * 5)
    await log.flush()
    disk.fail(errno.EROFS, "remove", calls_before=2, path_end=".log")
    with pytest.raises(StorageError, match="can't be removed"):
        log.apply_retention(NOW_MS, below=log.end)
    assert (log.start, log.fault) == (2 * len(data), None)
    assert len(read_all(log)) == 3 * len(data)
    assert len(read_all(open_log(disk, options))) == 3 * len(data)
    assert log.apply_retention(NOW_MS, below=log.end).start == 4 * len(data)


# --- every call once ---------------------------------------------------------------------


class Life:
    """A log that is used in every way, and what its user was promised."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.data = bytearray()
        """What was appended, from offset 0."""
        self.flushed_end = 0
        self.start_max = 0
        """Retention may have removed what is before."""
        self.end_min = 0
        """What was there at least, unless truncated."""
        self.options = LogOptions(segment_bytes_max=150_000, retention_bytes=200_000)

    async def live(self) -> None:
        log = self.open()
        for round_number in range(2):
            for n in range(6):
                self.append(log, batch(bytes([n]) * 30_000, b"w", timestamp_ms=n + 1))
                if n % 2:
                    self.flushed_end = await log.flush()
            self.read(log)
            log.find_timestamp(3, log.end)
            log.find_last(4, log.end)
            cut = log.find_last(1, log.end)
            self.flushed_end = min(self.flushed_end, cut)
            self.end_min = cut
            log.truncate(cut)
            del self.data[cut:]
            self.start_max = log.end
            log.apply_retention(NOW_MS, below=log.end)
            if round_number == 0:
                log.close()
                log = self.open()
        self.flushed_end = await log.flush()
        log.close()

    def open(self) -> SegmentedLog:
        return open_log(self.disk, self.options, recovery_point=self.flushed_end)

    def append(self, log: SegmentedLog, data: bytes) -> None:
        assert log.end == len(self.data)
        self.data += data
        try:
            log.append(data, scan(data), NOW_MS)
        except StorageError:
            del self.data[-len(data) :]
            raise
        self.end_min = log.end

    def read(self, log: SegmentedLog) -> None:
        assert read_all(log) == self.data[log.start :]

    def check(self, log: SegmentedLog, promised_end: int) -> None:
        """What was promised is there.  Behind it may be more, as what was appended without
        success, or after a power failure truncated without a flush."""
        assert log.fault is None
        assert log.start <= self.start_max
        assert log.end >= promised_end
        found = read_all(log)
        assert found[: promised_end - log.start] == self.data[log.start : promised_end]
        append(log, batch(b"goes on"))
        read_all(log)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("power_failure", [False, True])
async def test_a_failure_of_any_one_disk_call_loses_no_flushed_record(
    number: int, power_failure: bool
) -> None:
    calls_before, failed = 0, True
    while failed:
        disk = empty_disk()
        disk.fail(number, calls_before=calls_before, written=calls_before % 97 / 96)
        life = Life(disk)
        try:
            await life.live()
            failed = calls_before < len(disk.calls) - 1
        except StorageError:
            failed = True
        disk.crash(keep_page_cache=not power_failure)
        log = open_log(disk, life.options, recovery_point=life.flushed_end)
        life.check(log, life.flushed_end if power_failure else life.end_min)
        calls_before += 1
    assert calls_before > 100
