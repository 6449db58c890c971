"""A file of records and nothing else: appended at its end, scanned and walked.

An offset becomes a position in the file by subtraction.  This module knows what a record
is, and no index: every walk begins where its caller says that a record starts.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Final, Self

import attrs

from octopi import record
from octopi.environment import Disk, File
from octopi.errors import (
    CorruptLogError,
    IncompleteRecordError,
    OffsetInsideRecordError,
    RecordError,
    StorageError,
)
from octopi.identifiers import Offset
from octopi.limits import INDEX_INTERVAL_BYTES, MIB, SLICE_BYTES
from octopi.storage.file_names import segment_path
from octopi.storage.time_slices import Slices, at_once

SCAN_BYTES: Final = 4 * MIB
"""What a scan holds in memory at a time, if no record is longer."""

_WALK_BYTES: Final = INDEX_INTERVAL_BYTES
"""What a walk holds in memory at a time, if no record is longer."""


@attrs.frozen
class ScannedChunk:
    """A stretch of a file that was scanned."""

    position: int
    """Where it begins in the file (bytes)."""
    data: bytes
    scan: record.Scan
    """Of `data`, whose last record may be incomplete."""
    fault: RecordError | None
    """Why no valid record follows the chunk's last one, though bytes do."""
    read_bytes: int
    """What was read for it: more than it has where its first record is long."""

    @property
    def end(self) -> int:
        """Where its last valid record ends in the file (bytes)."""
        return self.position + self.scan.valid_bytes


class AstrayError(Exception):
    """A walk by lengths met what is no record; a wrong length before may have led it there."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(why)
        self.position = position
        """In the file (bytes)."""
        self.why = why


def whole_records(data: bytes, until: Offset) -> bytes:
    """The whole records of *data*, which was read up to *until*: that a record ends there is
    what the caller believes, and no proof.

    Raises:
      OffsetInsideRecordError: if there is none.
    """
    try:
        whole_bytes = record.whole_records_end(data)
    except RecordError:
        whole_bytes = 0
    if not whole_bytes:
        raise OffsetInsideRecordError(f"offset {until} is inside a record, not its end")
    return data[:whole_bytes]


class RecordFile:
    """One file, opened when first needed."""

    __slots__ = ("_disk", "_file", "base", "path", "size_bytes", "unsynced")

    def __init__(self, disk: Disk, directory: str, base: Offset) -> None:
        self._disk = disk
        self._file: File | None = None
        self.base = base
        """The offset of its first record."""
        self.path = segment_path(directory, base)
        self.size_bytes = 0
        """Bytes of records; a failed write may have left more in the file."""
        self.unsynced = False
        """Whether it has changed since it was last synced."""

    @classmethod
    def create(cls, disk: Disk, directory: str, base: Offset) -> Self:
        """Begin a new file.

        Raises:
          OSError: if that can't be done.
        """
        created = cls(disk, directory, base)
        try:
            file = disk.open(created.path, create=True)
        except OSError:
            # Made all the same, it would part the log where what comes next goes elsewhere.
            _remove_empty(disk, created.path)
            raise
        if file.size_bytes:
            file.close()
            raise FileExistsError(errno.EEXIST, "it holds bytes already", created.path)
        created._file = file
        created.unsynced = True
        return created

    @classmethod
    def existing(cls, disk: Disk, directory: str, base: Offset) -> Self:
        """A file that is there.

        Raises:
          OSError: if it can't be opened.
        """
        found = cls(disk, directory, base)
        file = disk.open(found.path)
        found.size_bytes = file.size_bytes
        file.close()
        return found

    @property
    def end(self) -> Offset:
        """The offset where its last record ends."""
        return Offset(self.base + self.size_bytes)

    # --- writing -------------------------------------------------------------------------

    def write(self, records: bytes) -> None:
        """Write *records* behind the last one.

        Raises:
          OSError: and then nothing of them counts; `undo` removes what is in the file.
        """
        self._open().append(records)
        self.size_bytes += len(records)
        self.unsynced = True

    def undo(self) -> None:
        """Remove what a failed write may have left.

        Raises:
          OSError: if that fails, too.
        """
        self._open().truncate(self.size_bytes)

    def cut(self, position: int) -> None:
        """Drop everything from *position* on.

        Raises:
          OSError: if the file can't be cut; what lies beyond doesn't count all the same.
        """
        self.size_bytes = position
        self.unsynced = True
        self.undo()

    async def sync(self) -> None:
        """Wait until all that changed is on the device.

        Raises:
          OSError: if that failed.
        """
        self.unsynced = False
        try:
            await self._open().sync()
        except BaseException:
            self.unsynced = True
            raise

    def close(self) -> None:
        """Let go of the file; it is opened again when needed."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # --- reading: each raises StorageError if the file can't be read ---------------------

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Exactly *size_bytes* from *position* on.

        Raises:
          CorruptLogError: if they are not there.
        """
        try:
            data = self._open().pread(size_bytes, position)
        except FileNotFoundError:
            raise self.damaged(position, "the file is missing") from None
        except OSError as error:
            raise StorageError(
                f"{self.path} can't be read at byte {position}: {error.strerror}"
            ) from error
        if len(data) < size_bytes:
            raise self.damaged(
                position + len(data), f"the file ends {size_bytes - len(data)} bytes too early"
            )
        return data

    def scan(self, position: int, chunk_bytes: int = SCAN_BYTES) -> Iterator[ScannedChunk]:
        """Check all records from *position* on, a chunk at a time, up to the end or a fault."""
        size_bytes, read_bytes = chunk_bytes, 0
        while position < self.size_bytes:
            data = self.pread(min(size_bytes, self.size_bytes - position), position)
            read_bytes += len(data)
            scan = record.scan(data)
            fault = scan.fault
            if isinstance(fault, IncompleteRecordError) and position + len(data) < self.size_bytes:
                if not scan.valid_bytes:
                    size_bytes = _first_record_bytes(data)
                    continue
                fault = None
            yield ScannedChunk(position, data, scan, fault, read_bytes)
            if fault is not None:
                return
            position += scan.valid_bytes
            size_bytes, read_bytes = chunk_bytes, 0

    def checked_record(self, position: int, limit: int) -> bytes:
        """The record at *position*, which ends at *limit* at the latest.

        Raises:
          CorruptLogError: if no sound record is there.
        """
        try:
            header = self.pread(min(record.HEADER_BYTES, limit - position), position)
            size_bytes = record.record_end(header, 0)
            data = self.pread(min(size_bytes, limit - position), position)
            record.check_record(data)
        except RecordError as error:
            raise self.damaged(position, error) from None
        return data

    def next_sound(self, position: int, hints: Iterable[int]) -> int | None:
        """Where sound records go on behind the damaged one at *position*: where it ends, if its
        length is right, else at one of *hints*; None if that is not known."""
        for candidate in chain(self._end_by_length(position), hints):
            try:
                if candidate < self.size_bytes:
                    self.checked_record(candidate, self.size_bytes)
                    return candidate
            except CorruptLogError:
                continue
        return None

    def _end_by_length(self, position: int) -> Iterator[int]:
        with suppress(CorruptLogError):
            yield from islice(self.record_ends(position, self.size_bytes), 1)

    def checked_records(self, position: int, stop: int) -> Iterator[tuple[int, int]]:
        """Start and time stamp (-1: none) of each record that starts in [*position*, *stop*).

        Raises:
          CorruptLogError: at the first that isn't sound.
        """
        while position < stop:
            window = self.pread(min(_WALK_BYTES, self.size_bytes - position), position)
            at = 0
            while position + at < stop:
                try:
                    end = record.check_record(window, at)
                except IncompleteRecordError:
                    if at:
                        break  # the next window begins with it
                    window = self.checked_record(position, self.size_bytes)
                    end = len(window)
                except RecordError as error:
                    raise self.damaged(position + at, error) from None
                yield position + at, record.record_timestamp_ms(window, at)
                at = end
            position += at

    def record_ends(self, position: int, stop: int) -> Iterator[int]:
        """Where each record that starts in [*position*, *stop*) ends, by lengths alone.

        Raises:
          CorruptLogError: at the first that isn't sound, if the lengths lead astray.
        """
        try:
            yield from self.lengths(position, stop)
        except AstrayError as error:
            raise at_once(self.find_damage(position, error.position, error.why)) from None

    def lengths(self, position: int, stop: int) -> Iterator[int]:
        """The same.

        Raises:
          AstrayError: where the lengths lead to what is no record.
          StorageError: if the file can't be read.
        """
        window, window_start = b"", position
        while position < stop:
            at = position - window_start
            if len(window) - at < record.HEADER_BYTES:
                window = self.pread(min(_WALK_BYTES, self.size_bytes - position), position)
                window_start, at = position, 0
            try:
                end = window_start + record.record_end(window, at)
            except RecordError as error:
                raise AstrayError(position, str(error)) from None
            if end > self.size_bytes:
                raise AstrayError(position, "a record reaches beyond the end")
            yield end
            position = end

    # --- walking in slices ---------------------------------------------------------------

    def walk(self, position: int, stop: int) -> Slices[tuple[int, int]]:
        """How many records start in [*position*, *stop*), and where the last one ends, by
        lengths alone.

        Raises:
          CorruptLogError: if the lengths lead astray, at the first record that isn't sound.
          StorageError: if the file can't be read.
        """
        count, end, pause_at = 0, position, position + SLICE_BYTES
        try:
            for end in self.lengths(position, stop):
                count += 1
                if end >= pause_at:
                    pause_at = end + SLICE_BYTES
                    yield
        except AstrayError as error:
            raise (yield from self.find_damage(position, error.position, error.why)) from None
        return count, end

    def forward(self, position: int, count: int) -> Slices[int]:
        """Where the record starts, or the last one ends, that comes *count* records behind the one
        at *position*, by lengths alone.

        Raises:
          CorruptLogError: if there is no such record, or the lengths lead astray.
          StorageError: if the file can't be read.
        """
        end, pause_at = position, position + SLICE_BYTES
        ends = self.lengths(position, self.size_bytes)
        try:
            for _ in range(count):
                end = next(ends, -1)
                if end >= pause_at:
                    pause_at = end + SLICE_BYTES
                    yield
                if end < 0:
                    raise self.damaged(position, f"{count} records don't follow")
        except AstrayError as error:
            raise (yield from self.find_damage(position, error.position, error.why)) from None
        return end

    def find_damage(self, start: int, position: int, why: str) -> Slices[CorruptLogError]:
        """The exception for what a walk from *start* met at *position*: a wrong length before
        may have led it there."""
        pause_at = start + SLICE_BYTES
        try:
            for at, _ in self.checked_records(start, position):
                if at >= pause_at:
                    pause_at = at + SLICE_BYTES
                    yield
        except CorruptLogError as error:
            return error
        return self.damaged(position, why)

    def damaged(self, position: int, why: object) -> CorruptLogError:
        """The exception for damage at *position*."""
        return CorruptLogError(self.path, position, self.base + position, str(why))

    def _open(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file


def _remove_empty(disk: Disk, path: str) -> None:
    """Remove a file, if it is there and empty and that can be done."""
    with suppress(OSError):
        file = disk.open(path)
        is_empty = not file.size_bytes
        file.close()
        if is_empty:
            disk.remove(path)


def _first_record_bytes(data: bytes) -> int:
    """How much to read for the record that *data* begins with, and does not hold as a whole."""
    try:
        return record.record_end(data, 0)
    except IncompleteRecordError:
        return record.HEADER_BYTES  # which has the length
