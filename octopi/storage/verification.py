"""Checks the files of a log while no node has them open, and reports each fault with its place.

Changes nothing, and holds a few MiB for a log of any size.  The kind of a finding says what a node
would do about it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from enum import StrEnum, unique
from itertools import zip_longest
from typing import Final

import attrs

from octopi import record
from octopi.environment import Disk
from octopi.errors import CorruptLogError, IncompleteRecordError, RecordError, StorageError
from octopi.identifiers import Offset
from octopi.storage.file_names import index_path, segment_bases
from octopi.storage.offset_index import ENTRY_BYTES, DamagedIndexError, IndexEntry
from octopi.storage.record_file import RecordFile, ScannedChunk
from octopi.storage.segment import ENTRY_DISTANCE_BYTES_MAX

_PAGE_BYTES: Final = 4096 * ENTRY_BYTES


@unique
class Kind(StrEnum):
    """What a finding means."""

    DAMAGE = "damage"
    """Stored bytes are not what was written, or are missing: they can't be served."""
    TORN_TAIL = "torn tail"
    """A crash left it.  Harmless: it was not flushed, and the next start cuts it off."""
    RETIRED = "retired"
    """A replica that the broker gave up, and keeps for a while."""
    SET_ASIDE = "set aside"
    """Bytes that were taken out of a log, and are kept beside it."""
    INDEX = "index"
    """An index doesn't match its segment.  Harmless: the node rebuilds it when it notices."""


@attrs.frozen
class Finding:
    """One fault, and its place."""

    kind: Kind
    path: str
    """The file."""
    position_bytes: int
    """Where in the file."""
    offset: Offset
    """Where in the log."""
    what: str
    """What is wrong, for people to read."""


@attrs.frozen
class VerificationProgress:
    """How far the check has come."""

    checked_bytes: int
    """Of all segments together."""
    total_bytes: int


def verify_log(
    disk: Disk, directory: str, recovery_point: Offset | None = None
) -> Iterator[Finding | VerificationProgress]:
    """Check every record's checksum, the joins of the segments, and their indexes.

    *recovery_point* is the one with which a node would open the log: a fault behind it is a torn
    tail.  Without it, only an incomplete record at the very end counts as one.

    Raises:
      StorageError: if the directory can't be read.
    """
    try:
        bases = segment_bases(disk.list_directory(directory))
    except OSError as error:
        raise StorageError(f"{directory} can't be read: {error.strerror}") from error
    segments: list[RecordFile] = []
    for base in bases:
        try:
            segments.append(RecordFile.existing(disk, directory, base))
        except OSError as error:
            path = RecordFile(disk, directory, base).path
            yield Finding(Kind.DAMAGE, path, 0, base, f"it can't be opened: {error.strerror}")
    total_bytes = sum(segment.size_bytes for segment in segments)
    checked_bytes = 0
    for segment, following in zip_longest(segments, segments[1:]):
        check = _SegmentCheck(disk, directory, segment, following is None, recovery_point)
        try:
            for seen in check.run():
                if isinstance(seen, Finding):
                    yield seen
                else:
                    yield VerificationProgress(checked_bytes + seen, total_bytes)
        finally:
            check.close()
        checked_bytes += segment.size_bytes
        if check.torn:
            break
        if following is not None and following.base != segment.end:
            kind = Kind.DAMAGE
            if recovery_point is not None and recovery_point <= min(segment.end, following.base):
                kind = Kind.TORN_TAIL
            what = f"it ends at offset {segment.end}, but the next segment is {following.path}"
            yield Finding(kind, segment.path, segment.size_bytes, segment.end, what)
            if kind is Kind.TORN_TAIL:
                break
    else:
        end = segments[-1].end if segments else Offset(0)
        if recovery_point is not None and end < recovery_point:
            what = f"the log ends there, but had been durable up to offset {recovery_point}"
            path, size_bytes = directory, 0
            if segments:
                path, size_bytes = segments[-1].path, segments[-1].size_bytes
            yield Finding(Kind.DAMAGE, path, size_bytes, end, what)
    yield VerificationProgress(total_bytes, total_bytes)


class _SegmentCheck:
    """The check of one segment and its index."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segment: RecordFile,
        is_last: bool,
        recovery_point: Offset | None,
    ) -> None:
        self._segment = segment
        self._is_last = is_last
        self._recovery_point = recovery_point
        self._index = _IndexCheck(disk, index_path(directory, segment.base), segment.base)
        self.torn = False
        """Whether a torn tail was found, which ends the log."""

    def run(self) -> Iterator[Finding | int]:
        """Findings and, from time to time, how many bytes have been checked."""
        position: int | None = 0
        while position is not None:
            fault: RecordError | None = None
            try:
                for chunk in self._segment.scan(position):
                    yield from self._index.check(chunk)
                    fault, position = chunk.fault, chunk.end
                    yield position
                sound = None
                if fault is not None:
                    hints = self._index.starts_behind(position)
                    sound = self._segment.next_sound(position, hints)
            except CorruptLogError as error:
                yield self._finding(Kind.DAMAGE, error.position_bytes, error.why)
                return
            except StorageError as error:
                yield self._finding(Kind.DAMAGE, position, str(error))
                return
            if fault is None:
                yield from self._index.finish(self._segment.size_bytes)
            else:
                self._index.resume(sound)
                self.torn = self._is_torn(position, fault, sound)
                kind = Kind.TORN_TAIL if self.torn else Kind.DAMAGE
                yield self._finding(kind, position, str(fault))
            position = None if self.torn else sound

    def close(self) -> None:
        """Close the files."""
        self._segment.close()
        self._index.close()

    def _is_torn(self, position: int, fault: RecordError, sound: int | None) -> bool:
        if self._recovery_point is not None:
            return self._segment.base + position >= self._recovery_point
        return self._is_last and sound is None and isinstance(fault, IncompleteRecordError)

    def _finding(self, kind: Kind, position: int, what: str) -> Finding:
        offset = Offset(self._segment.base + position)
        return Finding(kind, self._segment.path, position, offset, what)


class _IndexCheck:
    """Compares the index of a segment with its records, up to the first difference."""

    def __init__(self, disk: Disk, path: str, base: Offset) -> None:
        self._disk = disk
        self._path = path
        self._base = base
        self._entries = self._read()
        self._number = -1
        self._entry: IndexEntry | None = None
        self._last_position = 0
        """The position of the last entry that was compared or, behind damage, skipped."""
        self._timestamp_max_ms: int | None = -1
        """The largest time stamp of the records so far; None after damage, as it is not known."""
        self._count = 0
        """The number of records so far, while `_timestamp_max_ms` is known."""
        self._wrong = ""
        self._reported = False

    def check(self, chunk: ScannedChunk) -> Iterator[Finding]:
        """Compare entries with the next records."""
        if self._number < 0:
            self._advance()
        data, position = chunk.data, 0
        while position < chunk.scan.valid_bytes and not self._wrong:
            at = chunk.position + position
            if self._entry is not None and self._entry.position <= at:
                self._compare(self._entry, at)
            if self._timestamp_max_ms is not None:
                timestamp_ms = record.record_timestamp_ms(data, position)
                self._timestamp_max_ms = max(self._timestamp_max_ms, timestamp_ms)
                self._count += 1
            position = record.record_end(data, position)
        yield from self._report()

    def finish(self, size_bytes: int) -> Iterator[Finding]:
        """Check that there are entries up to the segment's end, and none behind it."""
        if self._number >= 0 and not self._wrong:
            if self._entry is not None:
                self._wrong = f"it has entries up to the segment's byte {self._entry.position}"
            elif size_bytes - self._last_position > ENTRY_DISTANCE_BYTES_MAX:
                self._wrong = "it ends too early"
        yield from self._report()

    def starts_behind(self, position: int) -> Iterator[int]:
        """Where records start behind *position*, according to the next entries."""
        while self._entry is not None:
            if self._entry.position > position:
                yield self._entry.position
            self._advance()

    def resume(self, position: int | None) -> None:
        """Go on at *position*, behind damage; None: compare no further entry."""
        self._timestamp_max_ms = None
        while self._entry is not None and (position is None or self._entry.position < position):
            self._last_position = self._entry.position
            self._advance()

    def close(self) -> None:
        """Close the file."""
        self._entries.close()

    def _compare(self, entry: IndexEntry, at: int) -> None:
        newest_ms = self._timestamp_max_ms
        if entry.position < at:
            self._wrong = f"no record starts at the segment's byte {entry.position}"
        elif at - self._last_position > ENTRY_DISTANCE_BYTES_MAX:
            self._wrong = f"entries before the segment's byte {at} are missing"
        elif newest_ms is not None and entry != IndexEntry.at(at, newest_ms, self._count):
            self._wrong = f"it has another time stamp or count before the segment's byte {at}"
        self._last_position = at
        self._advance()

    def _advance(self) -> None:
        self._number += 1
        try:
            self._entry = next(self._entries, None)
        except OSError as error:
            self._entry, self._wrong = None, f"it can't be read: {error.strerror}"
        except DamagedIndexError as error:
            self._entry, self._wrong = None, str(error)

    def _read(self) -> Generator[IndexEntry]:
        file = self._disk.open(self._path)
        try:
            whole_bytes = file.size_bytes - file.size_bytes % ENTRY_BYTES
            for position in range(0, whole_bytes, _PAGE_BYTES):
                data = file.pread(min(_PAGE_BYTES, whole_bytes - position), position)
                for at in range(0, len(data), ENTRY_BYTES):
                    yield IndexEntry.of_bytes(data[at : at + ENTRY_BYTES])
        finally:
            file.close()

    def _report(self) -> Iterator[Finding]:
        if self._wrong and not self._reported:
            self._reported = True
            position = max(0, self._number - 1) * ENTRY_BYTES
            yield Finding(Kind.INDEX, self._path, position, self._base, self._wrong)
