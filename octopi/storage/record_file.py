"""A file that contains only records: appended to, scanned and walked.

A position in the file is an offset minus that of the first record.  This module knows records, but
no index: a walk begins where the caller says that a record starts.

**The first sync** of a file that an earlier process wrote may tell that a sync of that process
failed; Linux reports such an error to whoever opens the file next.  That doesn't say that the disk
fails now.  So what is not known to be durable is written once more (`RecordFile.write_again`), and
synced again.
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
from octopi.storage.full_disk import NO_DESCRIPTOR
from octopi.storage.time_slices import Slices, at_once

SCAN_BYTES: Final = 4 * MIB
"""How much a scan holds in memory at a time, unless a record is longer."""

_WALK_BYTES: Final = INDEX_INTERVAL_BYTES
"""How much a walk holds in memory at a time, unless a record is longer."""


@attrs.frozen
class ScannedChunk:
    """A stretch of a file that was scanned."""

    position: int
    """Where it begins in the file (bytes)."""
    data: bytes
    scan: record.Scan
    """The scan of `data`, whose last record may be incomplete."""
    fault: RecordError | None
    """Why the bytes behind the last valid record are no valid record; None: they are, or there
    are none."""
    read_bytes: int
    """How much was read for it: more than `data` has if its first record is long."""

    @property
    def end(self) -> int:
        """Where its last valid record ends in the file (bytes)."""
        return self.position + self.scan.valid_bytes


class AstrayError(Exception):
    """A walk by the lengths of records met bytes that are no record.  One of the lengths before
    may be wrong."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(why)
        self.position = position
        """Where in the file (bytes)."""
        self.why = why


def whole_records(data: bytes, until: Offset) -> bytes:
    """The whole records with which *data* begins.  It was read up to *until*, which may be inside a
    record if the caller is wrong.

    Raises:
      OffsetInsideRecordError: if *data* has no whole record.
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

    # fmt: off
    __slots__ = (
        "_disk", "_file", "_unproven_from", "base", "path", "size_bytes", "to_be_written_again",
        "unsynced",
    )
    # fmt: on

    def __init__(self, disk: Disk, directory: str, base: Offset) -> None:
        self._disk = disk
        self._file: File | None = None
        self.base = base
        """The offset of its first record."""
        self.path = segment_path(directory, base)
        self.size_bytes = 0
        """The size of the records; a failed write may have left more in the file."""
        self.unsynced = False
        """Whether the file has changed since it was last synced."""
        self._unproven_from: int | None = None
        """Bytes before it are on the device, as the last process noted.  None: this process has
        synced the file, or made it."""
        self.to_be_written_again = False
        """Whether the first sync has failed, perhaps because of an earlier process: the next one
        counts only after `write_again`."""

    @classmethod
    def create(cls, disk: Disk, directory: str, base: Offset) -> Self:
        """Create a new file.

        Raises:
          OSError: if it can't be created, or exists and isn't empty.
        """
        created = cls(disk, directory, base)
        try:
            file = disk.open(created.path, create=True)
        except OSError:
            # The file may exist all the same.  If it stayed, the log would seem to have a gap
            # when its next records went into another segment.
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
        """Open a file that exists.

        Raises:
          OSError: if it can't be opened.
        """
        found = cls(disk, directory, base)
        file = disk.open(found.path)
        found.size_bytes = found._unproven_from = file.size_bytes
        file.close()
        return found

    @property
    def end(self) -> Offset:
        """The offset where the file's last record ends."""
        return Offset(self.base + self.size_bytes)

    # --- writing -------------------------------------------------------------------------

    def write(self, records: bytes) -> None:
        """Write *records* behind the last one.

        Raises:
          OSError: if the disk fails; then none of them counts, and `undo` removes their bytes.
        """
        self._open().append(records)
        self.size_bytes += len(records)
        self.unsynced = True

    def undo(self) -> None:
        """Remove the bytes that a failed write may have left.

        Raises:
          OSError: if that fails, too.
        """
        self._open().truncate(self.size_bytes)

    def cut(self, position: int) -> None:
        """Drop everything from *position* on.

        Raises:
          OSError: if the file can't be cut; the records beyond don't count even then.
        """
        self.size_bytes = position
        self.unsynced = True
        if self._unproven_from is not None:
            self._unproven_from = min(self._unproven_from, position)
        self.undo()

    def rewrite(self, position: int) -> Slices[None]:
        """Have the next sync bring all bytes from *position* on to the device, even if a sync of
        them failed before: the system may consider them written since then.

        Raises:
          OSError: if they can't be written.
        """
        if self._unproven_from is not None:
            self._unproven_from = min(self._unproven_from, position)
        start = position
        while start < self.size_bytes:  # which may become smaller between two slices
            self.unsynced = True
            self._open().rewrite(min(SLICE_BYTES, self.size_bytes - start), start)
            start += SLICE_BYTES
            yield

    def write_again(self) -> Slices[None]:
        """Have the next sync bring everything to the device of which it isn't known that it is
        there.  If that one fails, too, the disk does.

        Raises:
          OSError: if it can't be written.
        """
        assert self._unproven_from is not None
        yield from self.rewrite(self._unproven_from)
        self._unproven_from, self.to_be_written_again = None, False

    async def sync(self) -> None:
        """Wait until all changes are on the device.

        Raises:
          OSError: if that failed.  If `to_be_written_again` is true then, it may do so only because
            a sync by an earlier process failed: call `write_again`, then this once more.
        """
        assert not self.to_be_written_again
        self.unsynced = False
        try:
            await self._open().sync()
        except BaseException as error:
            self.unsynced = True
            if isinstance(error, OSError) and error.errno not in NO_DESCRIPTOR:
                self.to_be_written_again = self._unproven_from is not None
            raise
        self._unproven_from = None

    def close(self) -> None:
        """Close the file; it is opened again when needed."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # --- reading: each raises StorageError if the file can't be read ---------------------

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Read exactly *size_bytes* from *position* on.

        Raises:
          CorruptLogError: if the file is missing, or ends before.
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
        """Where the next sound record starts behind the damaged one at *position*: where that one
        ends, if its length is right, else at one of *hints*; None if no sound record is found."""
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
          CorruptLogError: at the first record that isn't sound.
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
        """Where each record ends that starts in [*position*, *stop*), by the lengths alone.

        Raises:
          CorruptLogError: if a length leads to bytes that are no record; it names the first record
              that isn't sound.
        """
        try:
            yield from self.lengths(position, stop)
        except AstrayError as error:
            raise at_once(self.find_damage(position, error.position, error.why)) from None

    def lengths(self, position: int, stop: int) -> Iterator[int]:
        """The same as `record_ends`, without looking for the damaged record.

        Raises:
          AstrayError: if a length leads to bytes that are no record.
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
        """How many records start in [*position*, *stop*), and where the last one ends, by the
        lengths alone.

        Raises:
          CorruptLogError: see `record_ends`.
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
        """Walk *count* records on from the one at *position*, by the lengths alone, and return
        where the last of them ends.

        Raises:
          CorruptLogError: if there are fewer records, or see `record_ends`.
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
        """The exception for a walk from *start* that met bytes at *position* which are no record.
        It names the first record from *start* on that isn't sound."""
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
    """Remove a file if it exists and is empty.  Errors are ignored."""
    with suppress(OSError):
        file = disk.open(path)
        is_empty = not file.size_bytes
        file.close()
        if is_empty:
            disk.remove(path)


def _first_record_bytes(data: bytes) -> int:
    """How much has to be read for the record with which *data* begins, and of which it has only a
    part."""
    try:
        return record.record_end(data, 0)
    except IncompleteRecordError:
        return record.HEADER_BYTES  # the header has the length
