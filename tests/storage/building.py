"""Batches to store, and the shortest ways to store and read them."""

from __future__ import annotations

from collections.abc import Iterable

from octopi.environment import Disk
from octopi.identifiers import Offset, ProducerEpoch, ProducerId, Sequence
from octopi.record import BatchBuilder, encode_opaque, scan, whole_records_end
from octopi.storage.log_options import LogOptions
from octopi.storage.recovery import RecoveryReport
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.time_slices import at_once
from octopi.storage.verification import Finding, verify_log
from tests.kit.disk import MemoryDisk

DIRECTORY = "/data/log"
NOW_MS = 1_700_000_000_000


def empty_disk() -> MemoryDisk:
    """A disk with a place for a log."""
    disk = MemoryDisk()
    disk.make_directory("/data")
    disk.settle()
    return disk


def batch(*values: bytes, timestamp_ms: int = 0, sequence: int = 0) -> bytes:
    """Version 2 records with these values; time stamps and sequences count up."""
    builder = BatchBuilder()
    for number, value in enumerate(values):
        builder.add(value, timestamp_ms=timestamp_ms + number)
    return builder.encode(ProducerId(b"p" * 16), ProducerEpoch(1), Sequence(sequence))


def opaque(value: bytes) -> bytes:
    """A version 1 record."""
    return encode_opaque(bytes(32), value)


def open_log(
    disk: Disk, options: LogOptions | None = None, *, recovery_point: int = 0
) -> SegmentedLog:
    log, _ = recover_log(disk, options, recovery_point=recovery_point)
    return log


def recover_log(
    disk: Disk,
    options: LogOptions | None = None,
    *,
    recovery_point: int = 0,
    cut_altered: bool = True,
) -> tuple[SegmentedLog, RecoveryReport]:
    return at_once(
        SegmentedLog.open(
            disk,
            DIRECTORY,
            options or LogOptions(),
            recovery_point=Offset(recovery_point),
            now_ms=NOW_MS,
            cut_altered=cut_altered,
        )
    )


def append(log: SegmentedLog, *batches: bytes, now_ms: int = NOW_MS) -> list[Offset]:
    """Append each batch; return where each begins."""
    return [log.append(data, scan(data), now_ms) for data in batches]


def disk_with(*batches: bytes, options: LogOptions | None = None) -> MemoryDisk:
    """A disk with a log of these batches, all durable."""
    disk = empty_disk()
    log = open_log(disk, options)
    append(log, *batches)
    log.close()
    disk.settle()
    return disk


def read_all(log: SegmentedLog, *, bytes_max: int = 1 << 20, start: int | None = None) -> bytes:
    """Everything from *start* (or the log's start) to the end."""
    data = bytearray()
    offset = log.start if start is None else Offset(start)
    while offset < log.end:
        part = log.read(offset, bytes_max, log.end)
        assert part
        assert whole_records_end(part) == len(part)
        data += part
        offset = Offset(offset + len(part))
    return bytes(data)


def starts(data: bytes) -> list[int]:
    """Where each record of *data* starts, then the end."""
    found, position = [0], 0
    while position < len(data):
        position = whole_records_end(data[position:], 1) + position
        found.append(position)
    return found


def findings(disk: Disk) -> list[Finding]:
    """What an offline check finds."""
    return [one for one in verify_log(disk, DIRECTORY) if isinstance(one, Finding)]


def path(base: int, suffix: str = "log") -> str:
    """The name of a segment's file."""
    return f"{DIRECTORY}/{base:020d}.{suffix}"


def files_of(names: Iterable[str], suffix: str) -> list[int]:
    """The offsets in the names of files with that suffix."""
    return [int(name.rpartition("/")[2].split(".")[0]) for name in names if name.endswith(suffix)]
