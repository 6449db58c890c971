"""A log on a real file system."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest
import trio

from octopi import platforms
from octopi.identifiers import Offset
from octopi.limits import SYNCS_ALONE_MAX
from octopi.operating_system import SystemDisk
from octopi.record import scan
from octopi.storage.log_options import LogOptions
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.time_slices import at_once
from octopi.storage.verification import Finding, Kind, verify_log
from tests.storage.building import NOW_MS, batch, read_all


async def test_a_log_works_on_a_real_disk(tmp_path: Path) -> None:
    disk, directory = SystemDisk(), str(tmp_path / "log")
    options = LogOptions(segment_bytes_max=100_000, retention_bytes=150_000)
    batches = [batch(bytes([n]) * 30_000, b"", timestamp_ms=10 * n) for n in range(20)]
    data = b"".join(batches)

    def open_log(recovery_point: int) -> SegmentedLog:
        log, _ = at_once(
            SegmentedLog.open(
                disk, directory, options, recovery_point=Offset(recovery_point), now_ms=NOW_MS
            )
        )
        return log

    log = open_log(0)
    for one in batches[:10]:
        log.append(one, scan(one), NOW_MS)
    end = await log.flush()
    log.close()
    log = open_log(end)
    for one in batches[10:]:
        log.append(one, scan(one), NOW_MS)
    log.close()  # without a flush
    last = max(name for name in disk.list_directory(directory) if name.endswith(".log"))
    file = disk.open(f"{directory}/{last}")
    file.append(batches[0][:20_000])
    file.close()
    seen = list(verify_log(disk, directory, end))
    (found,) = [one for one in seen if isinstance(one, Finding)]
    assert (found.kind, found.path, found.offset) == (
        Kind.TORN_TAIL,
        f"{directory}/{last}",
        len(data),
    )

    log = open_log(end)
    assert read_all(log) == data
    assert log.find_timestamp(150, log.end) == 15 * len(batches[0])
    assert log.find_last(3, log.end) == len(data) - len(batches[0]) - 57
    assert await log.flush() == len(data)
    removed = log.apply_retention(NOW_MS, below=log.end)
    assert removed.size_bytes == log.start > 0
    log.truncate(log.find_last(2, log.end))
    await log.flush()
    assert read_all(log) == data[log.start : -len(batches[0])]
    log.close()
    assert not [one for one in verify_log(disk, directory) if isinstance(one, Finding)]
    assert f"{len(data):020d}.cut" in disk.list_directory(directory)


async def test_bytes_are_written_once_more_unchanged_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(range(251)) * 1_000
    path = str(tmp_path / "file")
    disk, synced = SystemDisk(), list[int]()
    monkeypatch.setattr("octopi.platforms.sync_data", synced.append)
    file = disk.open(path, create=True)
    file.append(data)
    await file.sync()
    await file.sync()
    assert len(synced) == 1
    file.rewrite(200_000, 1_000)
    file.rewrite(10, len(data))  # behind the end there is nothing to write
    assert (file.size_bytes, file.pread(10**6, 0)) == (len(data), data)
    await file.sync()
    assert len(synced) == 2
    file.close()


def test_a_long_append_is_written_whole_and_in_order(tmp_path: Path) -> None:
    data = bytes(range(251)) * 2_000  # half a megabyte, of a period that no power of two has
    file = SystemDisk().open(str(tmp_path / "file"), create=True)
    file.append(b"begin")
    file.append(data)
    assert file.size_bytes == 5 + len(data)
    assert file.pread(10**6, 0) == b"begin" + data
    file.close()


def test_a_thousand_logs_need_few_descriptors(tmp_path: Path) -> None:
    disk = SystemDisk(files_open_max=8)
    files = [disk.open(str(tmp_path / f"file-{number}"), create=True) for number in range(64)]
    assert open_count(tmp_path) == 8
    for file in files:
        assert file.pread(10, 0) == b""
    assert open_count(tmp_path) == 8
    files[0].close()
    with pytest.raises(OSError, match="is closed"):
        files[0].pread(10, 0)


async def test_a_file_stays_open_until_its_bytes_are_on_the_device(
    tmp_path: Path,
) -> None:
    """The system tells a failed write-back to those that have the file open."""
    disk = SystemDisk(files_open_max=2)
    files = [disk.open(str(tmp_path / f"file-{number}"), create=True) for number in range(16)]
    for file in files:
        file.append(b"first")
    assert open_count(tmp_path) == 16
    for file in files[:-1]:
        await file.sync()
    for file in files:
        file.append(b"second")
    assert [file.pread(20, 0) for file in files] == [b"firstsecond"] * 16
    for file in files:
        await file.sync()
        file.pread(1, 0)
    assert open_count(tmp_path) == 2
    files[3].truncate(5)
    assert files[3].pread(20, 0) == b"first"
    for file in files:
        file.close()
    assert open_count(tmp_path) == 0


async def test_many_files_that_are_synced_at_the_same_time_are_all_on_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    alone = platforms.sync_data

    def sync_alone(descriptor: int) -> None:
        calls.append("alone")
        alone(descriptor)

    monkeypatch.setattr(platforms, "sync_data", sync_alone)
    whole = Whole(calls)
    monkeypatch.setattr(platforms, "file_system_sync", lambda directory: whole)
    disk = SystemDisk()
    files = [disk.open(str(tmp_path / f"file-{number}"), create=True) for number in range(50)]
    for file in files:
        await file.sync()  # only this tells whether writing it failed before it was opened
    assert calls == ["alone"] * 50
    calls.clear()
    for file in files:
        file.append(b"first")
    async with trio.open_nursery() as nursery:
        for file in files:
            nursery.start_soon(file.sync)
    assert all(file.is_synced for file in files)
    assert calls.count("together") == 1
    assert calls.count("alone") == SYNCS_ALONE_MAX
    await files[0].sync()  # nothing has changed since
    assert len(calls) == 1 + SYNCS_ALONE_MAX
    for file in files:
        file.append(b"second")
    whole.error = OSError(errno.EIO, "a bad block")
    with pytest.RaisesGroup(*[OSError] * (50 - SYNCS_ALONE_MAX)):
        async with trio.open_nursery() as nursery:
            for file in files:
                nursery.start_soon(file.sync)
    assert sum(not file.is_synced for file in files) == 50 - SYNCS_ALONE_MAX
    for file in files:
        file.close()


class Whole:
    """Syncs a file system; fails if told to."""

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls
        self.error: OSError | None = None

    def __call__(self) -> None:
        self._calls.append("together")
        if self.error is not None:
            raise self.error


def open_count(directory: Path) -> int:
    """How many files of *directory* this process has open."""
    numbers = [one.name for one in Path("/proc/self/fd").iterdir()]
    paths = []
    for number in numbers:
        with contextlib.suppress(FileNotFoundError):
            paths.append(Path(f"/proc/self/fd/{number}").readlink())
    return sum(path.parent == directory for path in paths)
