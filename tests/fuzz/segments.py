"""Segments of a log, and their indexes, as a broker finds them on its disk."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from hypothesis import strategies as st

from octopi.errors import StorageError
from octopi.identifiers import Offset
from octopi.limits import MIB
from octopi.record import scan
from octopi.storage.offset_index import ENTRY_BYTES, IndexEntry
from tests.fuzz.target import Target
from tests.record.crafting import with_checksums
from tests.record.strategies import damaged_logs, logs
from tests.storage.building import (
    append,
    batch,
    empty_disk,
    open_log,
    path,
    read_all,
    starts as starts_of,
)

_BATCHES: Final = [
    batch(b"a" * 70_000, b"b", timestamp_ms=10),
    batch(b"c" * 70_000, timestamp_ms=20),
    batch(b"d" * 70_000, b"e", b"f", timestamp_ms=30),
]
_RECORDS: Final = b"".join(_BATCHES)
_STARTS: Final = [0]
for _one in _BATCHES[:-1]:
    _STARTS.append(_STARTS[-1] + len(_one))
_RECORD_STARTS: Final = starts_of(_RECORDS)


def check(data: bytes) -> bool:
    """The first byte says whether the others are an index or a segment.  They are tried as they
    are, and with the checksums set right."""
    kind, data = data[:1], data[1:]
    if kind == b"i":
        _check_index(data)
        _check_index(_with_entries_sealed(data))
        return len(data) >= ENTRY_BYTES
    sealed = with_checksums(data)
    _check_damaged(sealed)
    return bool(max(_check_opened(data), _check_opened(sealed)))


def _check_opened(data: bytes) -> int:
    """That a log which was never flushed opens with what is valid, and nothing is thrown away;
    the valid bytes."""
    valid_bytes = scan(data).valid_bytes
    disk = empty_disk()
    disk.make_directory(path(0).rpartition("/")[0])
    disk.plant(path(0), data)
    log = open_log(disk)
    assert log.fault is None
    assert log.end == valid_bytes, "it has more or less than the valid prefix"
    assert read_all(log) == data[:valid_bytes]
    log.close()
    kept = [content for name, content in disk.files().items() if name.endswith(".cut")]
    assert kept == ([data[valid_bytes:]] if valid_bytes < len(data) else []), "bytes are gone"
    log = open_log(disk)
    assert log.end == valid_bytes, "opened again, it is another one"
    append(log, _BATCHES[0])
    assert read_all(log, start=valid_bytes) == _BATCHES[0]
    log.close()
    return valid_bytes


def _check_damaged(data: bytes) -> None:
    """That of a log which was flushed to its end nothing is changed, nor served where it is no
    record."""
    disk = empty_disk()
    disk.make_directory(path(0).rpartition("/")[0])
    disk.plant(path(0), data)
    log = open_log(disk, recovery_point=len(data))
    assert log.end <= len(data)
    whole = scan(data).valid_bytes == len(data)
    served = b""
    try:
        served = read_all(log)
    except StorageError:
        assert not whole, "a sound log can't be read"
    assert scan(served).fault is None, "it serves what is no record"
    assert not whole or served == data
    log.close()
    assert disk.content(path(0)) == data, "what was durable was changed"


def _with_entries_sealed(data: bytes) -> bytes:
    """*data*, as entries of an index, with the checksums that they should have."""
    parts = []
    for at in range(0, len(data), ENTRY_BYTES):
        fields = data[at : at + ENTRY_BYTES - 4]
        parts.append(fields + crc32(fields).to_bytes(4, "big"))
    return b"".join(parts)


def _is_forged(index: bytes) -> bool:
    """Whether it has an entry that nobody wrote, with a right checksum."""
    entries = (index[at : at + ENTRY_BYTES] for at in range(0, len(index), ENTRY_BYTES))
    return any(
        crc32(one[:-4]).to_bytes(4, "big") == one[-4:] and one not in _TRUE_ENTRIES
        for one in entries
    )


def _true_entries() -> set[bytes]:
    disk = empty_disk()
    log = open_log(disk)
    append(log, *_BATCHES)
    log.close()
    index = disk.content(path(0, "index"))
    return {index[at : at + ENTRY_BYTES] for at in range(0, len(index), ENTRY_BYTES)}


_TRUE_ENTRIES: Final = _true_entries()


def _check_index(data: bytes) -> None:
    """That an index of whatever bytes changes no records that are read, nor any answer.  Only if
    an entry was forged, and not damaged, may another record be the answer."""
    is_forged = _is_forged(data)
    starts = {*_RECORD_STARTS, len(_RECORDS)}
    disk = empty_disk()
    disk.make_directory(path(0).rpartition("/")[0])
    disk.plant(path(0), _RECORDS)
    disk.plant(path(0, "index"), data)
    log = open_log(disk, recovery_point=len(_RECORDS))
    assert log.end == len(_RECORDS)
    for at, timestamp_ms in enumerate((10, 20, 30)):
        found = log.find_timestamp(timestamp_ms, log.end)
        assert found == _STARTS[at] or (is_forged and found in starts), f"another time: {found}"
    found = log.find_timestamp(33, log.end)
    assert found == len(_RECORDS) or (is_forged and found in starts), "a time that is not there"
    for count, start in ((3, _STARTS[2]), (4, _STARTS[1]), (6, 0), (7, 0)):
        found = log.find_last(count, log.end)
        assert found == start or (is_forged and found in starts), "another count"
    for start in reversed(_STARTS):
        assert log.read(Offset(start), MIB, log.end) == _RECORDS[start:], "other records"
    log.close()
    assert disk.content(path(0)) == _RECORDS


_ENTRIES: Final = st.lists(
    st.builds(
        IndexEntry,
        st.sampled_from([*_STARTS, len(_RECORDS), 1, 70_000]) | st.integers(0, 2**64 - 1),
        st.sampled_from([0, 11, 21, 2**64 - 1]) | st.integers(0, 2**64 - 1),
        st.sampled_from([0, 2, 3, 6, 2**64 - 1]) | st.integers(0, 2**64 - 1),
    ).map(IndexEntry.to_bytes),
    max_size=4,
).map(b"".join)

TARGET = Target(
    "segments",
    "a log opens on any bytes and has the valid prefix; the rest is kept beside it, what was "
    "durable is left as it is, and a damaged index changes no answer",
    st.one_of(
        _ENTRIES.map(lambda data: b"i" + data),
        logs(batches_max=2)
        .filter(lambda log: len(log.data) < 2000)
        .map(lambda log: b"s" + log.data),
        damaged_logs().filter(lambda data: len(data) < 2000).map(lambda data: b"s" + data),
    ),
    check,
    (
        "octopi/storage/segmented_log.py",
        "octopi/storage/segment.py",
        "octopi/storage/index_rebuild.py",
        "octopi/storage/segments.py",
        "octopi/storage/offset_index.py",
        "octopi/storage/record_file.py",
        "octopi/storage/recovery.py",
    ),
    words=(
        batch(b"x"),
        IndexEntry(0, 0, 0).to_bytes(),
        *(IndexEntry(start, 11, 2).to_bytes() for start in _STARTS),
        b"\x00\x00\x00\x35\x02",
        b"\xff" * 8,
        bytes(8),
    ),
)
