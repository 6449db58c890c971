"""Indexes whose entries are in order and wrong all the same."""

from __future__ import annotations

import errno
import struct

import pytest

from octopi.errors import OffsetInsideRecordError
from octopi.identifiers import Offset
from octopi.limits import MIB
from octopi.record import HEADER_BYTES
from octopi.storage.log_options import LogOptions
from octopi.storage.offset_index import ENTRY_BYTES, IndexEntry
from octopi.storage.segmented_log import SegmentedLog
from tests.kit.disk import MemoryDisk
from tests.storage.building import (
    NOW_MS,
    append,
    batch,
    empty_disk,
    findings,
    opaque,
    open_log,
    path,
    read_all,
    starts,
)

INDEX = path(0, "index")
LURE = struct.pack(">IBI", 60_000, 2, 0)
"""In a payload, it looks like the start of a record that reaches into the next ones."""
BATCHES = [
    batch(b"a" * 1000, b"b" * 70_000, timestamp_ms=10),
    opaque(bytes(20_000) + LURE + bytes(20_000)),
    *[batch(b"c" * 8_000, timestamp_ms=n) for n in range(20, 40)],
]
DATA = b"".join(BATCHES)
LAST = batch(b"in a segment of its own", timestamp_ms=50)
WHOLE = DATA + LAST
OPTIONS = LogOptions(segment_bytes_max=len(DATA))
LURE_AT = DATA.index(LURE)


def entries(*fields: tuple[int, int, int]) -> bytes:
    return b"".join(IndexEntry(*each).to_bytes() for each in fields)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = empty_disk()
    log = open_log(disk, OPTIONS)
    append(log, *BATCHES, LAST)
    assert log.segment_count == 2
    log.close()
    disk.settle()
    return disk


def reopen(disk: MemoryDisk, index: bytes) -> SegmentedLog:
    disk.plant(INDEX, index)
    return open_log(disk, OPTIONS, recovery_point=len(WHOLE))


def test_an_index_entry_that_points_into_a_record_is_noticed_by_every_look_up(
    disk: MemoryDisk,
) -> None:
    wrong = entries((0, 0, 0), (LURE_AT, 12, 3))
    behind = [one for one in starts(DATA) if one > LURE_AT][:-1]
    for offset in behind:
        log = reopen(disk, wrong)
        assert log.read(Offset(offset), MIB, log.end) == DATA[offset:]
        log.close()
        assert findings(disk) == []
    log = reopen(disk, wrong)
    with pytest.raises(OffsetInsideRecordError):
        log.read(Offset(LURE_AT + 60_000), MIB, log.end)
    log = reopen(disk, wrong)
    assert log.find_last(20, Offset(behind[3])) == 0
    log = reopen(disk, wrong)
    assert log.find_last(21, log.end) == behind[0]
    log = reopen(disk, wrong)
    assert log.find_timestamp(20, log.end) == behind[0]
    for bytes_max in (75_000, 100_000, 120_000):
        log = reopen(disk, wrong)
        assert read_all(log, bytes_max=bytes_max) == WHOLE  # checks all records
        assert read_all(log, bytes_max=bytes_max) == WHOLE  # goes by lengths


def test_an_index_with_too_late_times_is_noticed(disk: MemoryDisk) -> None:
    log = reopen(disk, entries((0, 0, 0), (len(BATCHES[0]), 1000, 2)))
    assert log.find_timestamp(45, log.end) == len(DATA)
    assert log.find_timestamp(39, log.end) == len(DATA) - len(BATCHES[-1])
    assert log.find_timestamp(500, log.end) == log.end


def test_an_index_that_shrinks_while_it_is_open_is_made_anew(disk: MemoryDisk) -> None:
    log = reopen(disk, disk.content(INDEX))
    whole = disk.content(INDEX)
    assert log.find_timestamp(30, log.end) == len(DATA) - 10 * len(BATCHES[-1])
    disk.plant(INDEX, whole[: ENTRY_BYTES + 4])
    for offset in reversed(starts(DATA)[:-1]):
        assert log.read(Offset(offset), 1, log.end)
    assert len(disk.content(INDEX)) > ENTRY_BYTES + 4
    assert findings(disk) == []


def test_a_segment_whose_age_can_not_be_read_ages_from_the_restart() -> None:
    disk = empty_disk()
    options = LogOptions(segment_bytes_max=1000, retention_ms=1000)
    old = batch(b"v" * 900, timestamp_ms=NOW_MS - 10**9)
    log = open_log(disk, options)
    append(log, old, old)
    log = open_log(disk, options, recovery_point=log.end)
    disk.fail(errno.EIO, "pread", path_end=path(0))
    assert log.apply_retention(NOW_MS, below=log.end).segment_count == 0
    assert log.apply_retention(NOW_MS, below=log.end).segment_count == 1


def test_a_record_header_without_its_payload_is_not_a_record(disk: MemoryDisk) -> None:
    disk.plant(path(0), DATA[: HEADER_BYTES - 1])
    log = open_log(disk)
    assert log.end == 0
