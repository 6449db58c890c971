"""Salvaged bytes, which brokers took out of logs and kept: listed, read, and put back.

A broker keeps a torn tail, the bytes behind damage, and records that were cut because their loss
was accepted, in ``.cut`` files; it renames a log folder without a usable checkpoint.  Records in
these files are found one by one, also behind damaged ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from octopi import record
from octopi.cli.retired_replicas import is_retired
from octopi.environment import Disk
from octopi.errors import StorageError
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.record import Message
from octopi.storage import checkpoint
from octopi.storage.file_names import DAMAGED_SUFFIX, cut_names, segment_bases
from octopi.storage.record_file import RecordFile

_CUT: Final = re.compile(r"([0-9]{20})(?:\.[0-9]+)?\.cut", re.ASCII)
_PIECE_BYTES: Final = 1024 * 1024
_ANYWHERE: Final = Offset(1 << 64)


@attrs.frozen
class Kept:
    """One file of salvaged bytes."""

    path: str
    topic: str
    partition: int
    offset: int
    """Where its bytes were in the log."""
    size_bytes: int
    messages: int
    """Number of valid messages in it."""
    damaged_places: int
    fits: bool
    """Whether it can be put back: the log ends where the file begins, all records of the file are
    valid, and no other broker has a replica."""


class KeptFile(RecordFile):
    """A file of records that begins at offset *base*, whatever its name is."""

    def __init__(self, disk: Disk, path: str, base: Offset) -> None:
        super().__init__(disk, path.rpartition("/")[0], base)
        self.path = path
        self.size_bytes = Path(path).stat().st_size

    def sound(self) -> Iterator[tuple[int, bytes]]:
        """Position and bytes of each run of valid records, in order.  A run begins where the one
        before ends, or behind damage."""
        position: int | None = 0
        while position is not None:
            fault = None
            for chunk in self.scan(position, _PIECE_BYTES):
                if chunk.scan.valid_bytes:
                    yield chunk.position, chunk.data[: chunk.scan.valid_bytes]
                position, fault = chunk.end, chunk.fault
            position = self.next_sound(position, ()) if fault is not None else None


def find_kept(disk: Disk, directory: str) -> list[Kept]:
    """The salvaged files in a broker's data *directory*, sorted by path; of a retired replica all
    its segments, too.

    Raises:
      StorageError: if it can't be read.
    """
    found: list[Kept] = []
    retired = is_retired(directory)
    for partition in disk.list_directory(f"{directory}/logs"):
        parent = f"{directory}/logs/{partition}"
        sole = not retired and _has_one_replica(disk, f"{directory}/replicas/{partition}")
        for name in disk.list_directory(parent):
            folder = f"{parent}/{name}"
            if name.endswith(DAMAGED_SUFFIX):
                topic = name.rsplit("!", 1)[0]
                paths = [
                    *(f"{folder}/{base:020d}.log" for base in segment_bases(_names(disk, folder))),
                    *(f"{folder}/{one}" for one in cut_names(_names(disk, folder), _ANYWHERE)),
                ]
                found += [_kept(disk, path, topic, int(partition), -1) for path in paths]
            elif "!" not in name:
                end = _end(folder, segment_bases(_names(disk, folder))) if sole else -1
                names = cut_names(_names(disk, folder), _ANYWHERE)
                if retired:
                    names += [f"{base:020d}.log" for base in segment_bases(_names(disk, folder))]
                found += [
                    _kept(disk, f"{folder}/{one}", name, int(partition), end)
                    for one in sorted(names)
                ]
    return found


def segments_of(disk: Disk, directory: str, folder: str) -> list[Kept]:
    """The segments of the log in *folder*; empty if that is not a log in a broker's data
    *directory*."""
    path = Path(folder)
    logs = (Path(directory) / "logs").resolve()
    partition = path.resolve().parent.name
    if path.resolve().parent.parent != logs or not (path.is_dir() and partition.isdecimal()):
        return []
    return [
        _kept(disk, str(path / f"{base:020d}.log"), path.name, int(partition), -1)
        for base in segment_bases(_names(disk, folder))
    ]


def _names(disk: Disk, folder: str) -> list[str]:
    try:
        return disk.list_directory(folder)
    except OSError as error:
        raise StorageError(
            f"{folder} can't be read: {error.strerror}; check its permissions and the disk"
        ) from error


def _has_one_replica(disk: Disk, path: str) -> bool:
    stored: dict[str, Any] = checkpoint.load(disk, path) or {}
    return len((stored.get("record") or {}).get("replicas", ())) == 1


def _end(folder: str, bases: list[Offset]) -> int:
    return bases[-1] + Path(f"{folder}/{bases[-1]:020d}.log").stat().st_size if bases else 0


def _kept(disk: Disk, path: str, topic: str, partition: int, log_end: int) -> Kept:
    base = _base(path)
    file = KeptFile(disk, path, base)
    messages = damaged = end = 0
    try:
        for position, data in file.sound():
            damaged += position != end
            messages += record.scan(data).count
            end = position + len(data)
    finally:
        file.close()
    damaged += end != file.size_bytes
    fits = base == log_end and not damaged and messages > 0
    return Kept(path, topic, partition, base, file.size_bytes, messages, damaged, fits)


def _base(path: str) -> Offset:
    return Offset(int(path.rpartition("/")[2].split(".")[0]))


def messages_in(disk: Disk, kept: Kept) -> Iterator[Message]:
    """The valid messages of a file, in order."""
    file = KeptFile(disk, kept.path, Offset(kept.offset))
    topic, partition = TopicName(kept.topic), PartitionId(kept.partition)
    try:
        for position, data in file.sound():
            yield from record.decode(data, Offset(kept.offset + position), topic, partition)
    finally:
        file.close()


def put_back(disk: Disk, kept: Kept) -> None:
    """Append the records of *kept*, which `fits`, to its log durably; the file becomes a segment.

    Raises:
      OSError: if the disk fails; the file is still there then.
    """
    assert kept.fits
    folder = kept.path.rpartition("/")[0]
    # May replace an empty segment with the same base.
    disk.rename(kept.path, f"{folder}/{kept.offset:020d}.log")
    for path in (f"{folder}/{kept.offset:020d}.log", folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
