"""One life of a log on a real file system."""

from __future__ import annotations

from pathlib import Path

from octopi.identifiers import Offset
from octopi.operating_system import SystemDisk
from octopi.record import scan
from octopi.storage.segmented_log import LogOptions, SegmentedLog
from octopi.storage.verification import Finding, Kind, verify_log
from tests.storage.building import NOW_MS, batch, read_all


async def test_a_log_lives_on_a_real_disk(tmp_path: Path) -> None:
    disk, directory = SystemDisk(), str(tmp_path / "log")
    options = LogOptions(segment_bytes_max=100_000, retention_bytes=150_000)
    batches = [batch(bytes([n]) * 30_000, b"", timestamp_ms=10 * n) for n in range(20)]
    data = b"".join(batches)

    def open_log(recovery_point: int) -> SegmentedLog:
        log, _ = SegmentedLog.open(
            disk, directory, options, recovery_point=Offset(recovery_point), now_ms=NOW_MS
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


def test_a_long_append_is_written_whole_and_in_order(tmp_path: Path) -> None:
    data = bytes(range(251)) * 2_000  # half a megabyte, of a period that no power of two has
    file = SystemDisk().open(str(tmp_path / "file"), create=True)
    file.append(b"begin")
    file.append(data)
    assert file.size_bytes == 5 + len(data)
    assert file.pread(10**6, 0) == b"begin" + data
    file.close()
