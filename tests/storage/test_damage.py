"""Bytes that changed on the disk: found by reading and by `verify_log`, and never served."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from octopi.errors import CorruptLogError, OffsetInsideRecordError, StorageError
from octopi.identifiers import Offset
from octopi.limits import MIB
from octopi.record import whole_records_end
from octopi.storage.log_options import LogOptions
from octopi.storage.offset_index import ENTRY_BYTES, IndexEntry
from octopi.storage.retention import Retained
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.verification import Finding, Kind, VerificationProgress, verify_log
from tests.kit.disk import MemoryDisk
from tests.storage.building import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    disk_with,
    empty_disk,
    opaque,
    open_log,
    path,
    read_all,
    starts,
)

SMALL = LogOptions(segment_bytes_max=400)
BATCHES = [
    batch(b"a" * 40, b"b" * 20, b"", timestamp_ms=5)
    + opaque(bytes([n]) * 30)
    + batch(b"z" * 9, timestamp_ms=n)
    for n in range(3)
]
SIZE = len(BATCHES[0])
DATA = b"".join(BATCHES)


def findings(disk: MemoryDisk, recovery_point: int | None = None) -> list[Finding]:
    point = None if recovery_point is None else Offset(recovery_point)
    seen = list(verify_log(disk, DIRECTORY, point))
    progress = [one for one in seen if isinstance(one, VerificationProgress)]
    assert progress
    assert all(0 <= one.checked_bytes <= one.total_bytes for one in progress)
    assert sorted(progress, key=lambda one: one.checked_bytes) == progress
    assert progress[-1].checked_bytes == progress[-1].total_bytes
    assert disk.open_files == []
    return [one for one in seen if isinstance(one, Finding)]


def served(log: SegmentedLog) -> dict[int, bytes]:
    """What is read at each boundary, where anything is."""
    found: dict[int, bytes] = {}
    for offset in starts(DATA)[:-1]:
        try:
            found[offset] = log.read(Offset(offset), MIB, log.end)
        except (CorruptLogError, OffsetInsideRecordError):
            continue
    return found


def unprotected_bits() -> set[int]:
    """Bits of the middle segment that no checksum covers: the request id of version 1."""
    first = starts(BATCHES[1])[3]
    return set(range(8 * (first + 9), 8 * (first + 41)))


# --- one bit -----------------------------------------------------------------------------


def test_a_flipped_bit_anywhere_in_a_middle_segment_is_found_and_never_served() -> None:
    disk = disk_with(*BATCHES, options=SMALL)
    boundaries = starts(DATA)
    index = disk.content(path(SIZE, "index"))
    for bit in sorted(set(range(8 * SIZE)) - unprotected_bits()):
        disk.flip(path(SIZE), bit)
        offset = SIZE + bit // 8
        record_start = max(one for one in boundaries if one <= offset)
        record_stop = min(one for one in boundaries if one > offset)
        (found,) = [one for one in findings(disk) if one.kind is not Kind.INDEX][:1]
        assert (found.kind, found.path, found.offset) == (Kind.DAMAGE, path(SIZE), record_start)
        assert found.position_bytes == record_start - SIZE
        log = open_log(disk, SMALL, recovery_point=len(DATA))
        with pytest.raises(CorruptLogError) as damage:
            log.read(Offset(record_start), MIB, log.end)
        assert (damage.value.path, damage.value.offset) == (path(SIZE), record_start)
        assert damage.value.position_bytes == record_start - SIZE
        for start, data in served(log).items():
            assert data == DATA[start : start + len(data)]
            assert not (start < record_stop and start + len(data) > record_start)
        before = log.read(Offset(SIZE), MIB, log.end) if record_start > SIZE else b""
        assert SIZE + len(before) == record_start
        log.close()
        disk.flip(path(SIZE), bit)
        disk.plant(path(SIZE, "index"), index)
    assert findings(disk) == []


@settings(max_examples=20)
@given(data=st.data())
def test_damage_in_a_long_segment_costs_only_the_records_near_it(data: st.DataObject) -> None:
    batches = [
        batch(*[bytes([n]) * 4000] * 5, sequence=5 * n, timestamp_ms=10 * n) for n in range(25)
    ]
    whole = b"".join(batches)
    boundaries = starts(whole)
    disk = disk_with(*batches)
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    disk.flip(path(0), bit)
    damaged = max(one for one in boundaries if one <= bit // 8)
    log = open_log(disk, recovery_point=len(whole))
    unread = 0
    for offset in [*data.draw(st.lists(st.sampled_from(boundaries[:-1]))), damaged]:
        bytes_max = data.draw(st.sampled_from([1, 70_000, MIB]))
        if offset == damaged:
            with pytest.raises(CorruptLogError) as damage:
                log.read(Offset(offset), bytes_max, log.end)
            assert damage.value.offset == damaged
            continue
        try:
            part = log.read(Offset(offset), bytes_max, log.end)
        except CorruptLogError:
            unread += 1
        else:
            assert part == whole[offset : offset + len(part)]
            assert offset + len(part) in boundaries
            assert not offset <= damaged < offset + len(part)
    assert unread <= 17  # the records of one interval
    log.close()
    first = findings(disk)[0]
    assert (first.kind, first.offset) == (Kind.DAMAGE, damaged)
    assert len([one for one in findings(disk) if one.kind is Kind.DAMAGE]) == 1


def test_every_kind_of_look_up_reports_the_damage_that_it_meets() -> None:
    batches = [batch(*[b"v" * 4000] * 5, timestamp_ms=10 * n) for n in range(20)]
    disk = disk_with(*batches)
    disk.flip(path(0), 8 * 2 + 6)  # a length
    end = len(b"".join(batches))
    calls: list[Callable[[SegmentedLog], object]] = [
        lambda log: log.read(Offset(len(batches[0])), MIB, log.end),
        lambda log: log.find_timestamp(3, log.end),
        lambda log: log.find_last(100, log.end),
        lambda log: log.truncate(Offset(len(batches[0]))),
    ]
    for call in calls:
        log = open_log(disk, recovery_point=end)
        for _ in range(2):
            with pytest.raises(CorruptLogError, match="damaged at byte 0"):
                call(log)
        assert log.find_last(50, log.end) == end // 2
        with pytest.raises(CorruptLogError, match="damaged at byte 0"):
            log.find_timestamp(150, log.end)  # the damaged record may be the first


async def test_a_log_with_damage_takes_records_at_its_end() -> None:
    data = batch(b"v" * 200_000)
    disk = disk_with(data, data)
    disk.flip(path(0), 8 * 150_000)
    log = open_log(disk, recovery_point=2 * len(data))
    (base,) = append(log, batch(b"new", timestamp_ms=7))
    assert log.read(base, MIB, log.end) == batch(b"new", timestamp_ms=7)
    assert log.fault is None
    assert await log.flush() == log.end


def test_a_truncation_that_removes_the_damage_repairs_the_log() -> None:
    data = batch(b"v" * 200_000)
    disk = disk_with(data, data, data)
    disk.flip(path(0), 8 * (2 * len(data) + 1000))
    log = open_log(disk, recovery_point=3 * len(data))
    log.truncate(Offset(2 * len(data)))
    append(log, data)
    assert read_all(log) == data * 3


def test_a_log_can_be_truncated_behind_damage() -> None:
    data = batch(b"v" * 20_000, timestamp_ms=3)
    disk = disk_with(*[data] * 9)
    disk.flip(path(0), 8 * (4 * len(data) + 1000))
    log = open_log(disk, recovery_point=9 * len(data))
    log.truncate(Offset(5 * len(data)))
    append(log, data)
    assert log.read(Offset(5 * len(data)), MIB, log.end) == data
    assert log.read(Offset(3 * len(data)), MIB, log.end) == data
    with pytest.raises(CorruptLogError):
        log.read(Offset(4 * len(data)), MIB, log.end)


@pytest.mark.parametrize("byte", [0, 1000])
def test_a_log_with_damage_recovers_its_tail(byte: int) -> None:
    data = batch(b"v" * 20_000, timestamp_ms=3)
    disk = disk_with(*[data] * 9)
    disk.flip(path(0), 8 * (4 * len(data) + byte))
    log = open_log(disk, recovery_point=5 * len(data))
    assert log.end == 9 * len(data)
    assert len(read_all(log, start=5 * len(data))) == 4 * len(data)


def test_retention_removes_segments_with_damage() -> None:
    options = LogOptions(segment_bytes_max=1000, retention_ms=1000)
    data = batch(b"v" * 900, timestamp_ms=NOW_MS - 5000)
    disk = disk_with(*[data] * 3, options=options)
    disk.flip(path(0), 8 * 500)
    disk.plant(path(0, "index"), b"")
    log = open_log(disk, options, recovery_point=3 * len(data))
    assert log.apply_retention(NOW_MS, below=log.end) == Retained(0, 0, Offset(0))
    assert log.apply_retention(NOW_MS + 2000, below=log.end).segment_count == 2


def test_a_file_that_became_shorter_is_damage_where_it_ends() -> None:
    data = batch(b"one", b"two")
    disk = disk_with(data)
    log = open_log(disk, recovery_point=len(data))
    disk.plant(path(0), data[:-1])
    with pytest.raises(CorruptLogError, match="1 bytes too early"):
        log.read(Offset(0), MIB, log.end)


def test_damage_behind_the_checked_part_is_found_by_the_next_reader() -> None:
    data = batch(*[b"v" * 100] * 10)
    disk = disk_with(data)
    boundaries = starts(data)
    disk.flip(path(0), 8 * (boundaries[7] + 60))
    log = open_log(disk, recovery_point=len(data))
    assert log.read(Offset(0), 500, log.end) == data[: boundaries[3]]
    assert log.read(Offset(boundaries[3]), MIB, log.end) == data[boundaries[3] : boundaries[7]]
    assert log.read(Offset(boundaries[8]), MIB, log.end) == data[boundaries[8] :]
    with pytest.raises(CorruptLogError):
        log.read(Offset(boundaries[7]), MIB, log.end)
    assert log.read(Offset(0), MIB, log.end) == data[: boundaries[7]]


def test_bytes_that_change_after_they_were_checked_are_never_cut_inside_a_record() -> None:
    data = batch(*[b"v" * 1000] * 200)
    disk = disk_with(data)
    log = open_log(disk)  # checks everything
    boundaries = starts(data)
    disk.flip(path(0), 8 * boundaries[70] + 7)  # a length, larger by 2**31
    start = Offset(boundaries[64])
    assert log.read(start, 20_000, log.end) == data[start : boundaries[70]]
    with pytest.raises(CorruptLogError, match="length"):
        log.read(Offset(boundaries[70]), 20_000, log.end)
    disk.flip(path(0), 8 * boundaries[70] + 7)
    disk.flip(path(0), 8 * (boundaries[199] + 1) + 4)  # the last record reaches beyond the end
    with pytest.raises(CorruptLogError) as damage:
        log.find_last(2, log.end)
    assert damage.value.offset == boundaries[199]


# --- verify ------------------------------------------------------------------------------


def test_verifying_a_sound_log_finds_nothing() -> None:
    batches = [batch(*[b"v" * 4000] * 5, sequence=5 * n) for n in range(20)] + [opaque(b"w")]
    for options in (SMALL, LogOptions()):
        disk = disk_with(*batches, options=options)
        calls = len(disk.calls)
        assert findings(disk) == []
        assert findings(disk, len(b"".join(batches))) == []
        assert set(disk.calls[calls:]) == {"list_directory", "open", "pread"}
    assert findings(empty_disk()) == []


def test_verifying_checks_records_larger_than_one_read() -> None:
    batches = [batch(b"v" * 5 * MIB)] * 3
    disk = disk_with(*batches)
    assert findings(disk) == []
    disk.flip(path(0), 8 * (6 * MIB))
    (found,) = findings(disk)
    assert (found.kind, found.offset) == (Kind.DAMAGE, len(batches[0]))


def test_a_torn_tail_is_distinguished_from_damage() -> None:
    disk = disk_with(*BATCHES, options=SMALL)
    last = path(2 * SIZE)
    disk.plant(last, BATCHES[2][:-1])
    at = starts(DATA)[-2]
    for recovery_point in (None, 2 * SIZE, at):
        (found,) = findings(disk, recovery_point)
        assert (found.kind, found.path, found.offset) == (Kind.TORN_TAIL, last, at)
    (found,) = findings(disk, at + 1)
    assert (found.kind, found.offset) == (Kind.DAMAGE, at)


def test_garbage_at_the_end_is_a_torn_tail_only_behind_the_recovery_point() -> None:
    disk = disk_with(*BATCHES, options=SMALL)
    disk.plant(path(2 * SIZE), BATCHES[2] + bytes(50))
    (found,) = findings(disk, 3 * SIZE)
    assert (found.kind, found.offset) == (Kind.TORN_TAIL, 3 * SIZE)
    (found,) = findings(disk)
    assert (found.kind, found.offset) == (Kind.DAMAGE, 3 * SIZE)


def test_verifying_finds_each_damaged_place() -> None:
    batches = [batch(*[bytes([n]) * 4000] * 5, sequence=5 * n) for n in range(25)]
    data = b"".join(batches)
    disk = disk_with(*batches)
    boundaries = starts(data)
    places = [boundaries[3], boundaries[40], boundaries[80], boundaries[124]]
    for place in places[:2]:
        disk.flip(path(0), 8 * (place + 100))  # the record's length holds
    for place in places[2:]:
        disk.flip(path(0), 8 * place)  # it does not
    found = [one.offset for one in findings(disk) if one.kind is Kind.DAMAGE]
    assert found == places


def test_verifying_finds_segments_that_do_not_join() -> None:
    disk = disk_with(*BATCHES, options=SMALL)
    disk.remove(path(SIZE))
    (found,) = findings(disk)
    assert (found.kind, found.path, found.offset) == (Kind.DAMAGE, path(0), SIZE)
    assert path(2 * SIZE) in found.what
    (found,) = findings(disk, SIZE)
    assert found.kind is Kind.TORN_TAIL
    (found,) = findings(disk, SIZE + 1)
    assert found.kind is Kind.DAMAGE


def test_verifying_finds_that_the_end_of_a_log_is_gone() -> None:
    disk = disk_with(*BATCHES, options=SMALL)
    disk.remove(path(2 * SIZE))
    assert findings(disk) == []
    (found,) = findings(disk, 3 * SIZE)
    assert (found.kind, found.path, found.offset) == (Kind.DAMAGE, path(SIZE), 2 * SIZE)
    assert str(3 * SIZE) in found.what
    (found,) = findings(empty_disk(), 10)
    assert (found.kind, found.path, found.offset) == (Kind.DAMAGE, DIRECTORY, 0)


def test_verifying_reports_a_disk_that_can_not_be_read() -> None:
    disk = disk_with(*BATCHES, options=SMALL)
    disk.fail(errno.EIO, "pread", path_end=path(SIZE))
    disk.fail(errno.EACCES, "open", path_end=path(2 * SIZE))
    first, second = findings(disk)
    assert (first.path, first.kind) == (path(2 * SIZE), Kind.DAMAGE)
    assert "Permission denied" in first.what
    assert (second.path, second.kind) == (path(SIZE), Kind.DAMAGE)
    assert "Input/output error" in second.what
    disk.heal()
    disk.fail(errno.EIO, "list_directory")
    with pytest.raises(StorageError, match="Input/output error"):
        findings(disk)


def test_verifying_reports_a_file_that_shrinks_meanwhile() -> None:
    disk = disk_with(*BATCHES, options=SMALL)
    seen = []
    for one in verify_log(disk, DIRECTORY):
        seen.append(one)
        disk.plant(path(2 * SIZE), b"")
    (found,) = [one for one in seen if isinstance(one, Finding)]
    assert (found.path, found.kind) == (path(2 * SIZE), Kind.DAMAGE)


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        ("missing", "can't be read: No such file"),
        ("ends early", "ends too early"),
        ("gap", "are missing"),
        ("shifted", "no record starts at"),
        ("time", "another time stamp or count"),
        ("count", "another time stamp or count"),
        ("bit", "the checksum of an entry doesn't match"),
        ("older format", "the checksum of an entry doesn't match"),
        ("too long", "has entries up to"),
        ("unreadable", "can't be read: Input/output error"),
    ],
)
def test_verifying_finds_an_index_that_contradicts_its_segment(harm: str, what: str) -> None:
    batches = [batch(b"v" * 3 * MIB, timestamp_ms=n) for n in range(8)]
    disk = disk_with(*batches)
    name = path(0, "index")
    index = disk.content(name)
    assert len(index) == 8 * ENTRY_BYTES
    entries = [
        IndexEntry.of_bytes(index[at : at + ENTRY_BYTES])
        for at in range(0, len(index), ENTRY_BYTES)
    ]
    if harm == "missing":
        disk.remove(name)
    elif harm == "ends early":
        disk.plant(name, index[: 4 * ENTRY_BYTES])
    elif harm == "gap":
        disk.plant(name, index[: 2 * ENTRY_BYTES] + index[-2 * ENTRY_BYTES :])
    elif harm == "bit":
        disk.flip(name, 8 * 55)
    elif harm == "older format":
        disk.plant(name, b"".join(struct.pack(">QQ", *entry[:2]) for entry in entries))
    elif harm in {"shifted", "time", "count", "too long"}:
        changes = {
            "shifted": entries[3]._replace(position=entries[3].position + 1),
            "time": entries[3]._replace(timestamp_before=entries[3].timestamp_before + 1),
            "count": entries[3]._replace(count_before=entries[3].count_before + 1),
            "too long": IndexEntry.at(8 * len(batches[0]), 7, 8),
        }
        entries[8 if harm == "too long" else 3 :] = [changes[harm]]
        disk.plant(name, b"".join(entry.to_bytes() for entry in entries))
    else:
        disk.fail(errno.EIO, "pread", path_end="index")
    (found,) = findings(disk)
    assert (found.kind, found.path) == (Kind.INDEX, name)
    assert what in found.what


def test_an_empty_segment_needs_no_index() -> None:
    disk = disk_with(*BATCHES, options=SMALL)
    disk.plant(path(3 * SIZE), b"")
    assert findings(disk) == []


def test_a_verified_log_reads_back_whole() -> None:
    disk = disk_with(*BATCHES, options=SMALL)
    assert findings(disk) == []
    data = read_all(open_log(disk, SMALL, recovery_point=3 * SIZE))
    assert data == DATA
    assert whole_records_end(data) == len(data)
