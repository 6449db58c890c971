"""A segment: a stretch of a log, in a file of records with a sparse index.

Finds records in its file by position, time stamp and count, and knows which bytes it has
seen to be sound.  It knows no other segment and decides nothing about failures of the disk.

**Soundness.**  Bytes that this process has neither appended nor scanned are checked when
they are first read.  ``_sound_end`` says how far that has come from the segment's
beginning, and ``_sound_from`` where what was appended or scanned at opening begins.

**The index** is a hint.  What it says is held against the records, and if they disagree it
is made anew, once: after that, whatever is wrong is wrong with the records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self, TypeVar

from octopi import record
from octopi.environment import Disk
from octopi.errors import CorruptLogError, IncompleteRecordError, RecordError, StorageError
from octopi.identifiers import Offset
from octopi.limits import INDEX_INTERVAL_BYTES, RECORD_BYTES_MAX
from octopi.storage.file_names import index_path
from octopi.storage.offset_index import (
    FIRST,
    TIMESTAMP_MS_MAX,
    DamagedIndexError,
    Entry,
    OffsetIndex,
    entries_of,
)
from octopi.storage.record_file import Chunk, RecordFile

ENTRY_DISTANCE_BYTES_MAX: Final = 2 * INDEX_INTERVAL_BYTES + RECORD_BYTES_MAX
"""Neighbouring entries of a whole index are closer than this: one may be left out because
a batch begins soon behind another's last entry."""

_T = TypeVar("_T")


class Segment(RecordFile):
    """One segment; its files are opened when first needed."""

    __slots__ = (
        "_index",
        "_index_rebuilt",
        "_sound_end",
        "_sound_from",
        "_timestamp_max_ms",
        "first_append_ms",
        "last_append_ms",
    )

    def __init__(self, disk: Disk, directory: str, base: Offset) -> None:
        super().__init__(disk, directory, base)
        self._index = OffsetIndex(disk, index_path(directory, base))
        self._index_rebuilt = False
        self._sound_end = 0
        self._sound_from = 0
        self._timestamp_max_ms: int | None = -1
        """The largest time stamp; -1: no record has one; None: not known yet."""
        self.first_append_ms: int | None = None
        """When the first record came (wall clock); None if not known."""
        self.last_append_ms: int | None = None
        """When the last record came (wall clock); None if not in this process."""

    @classmethod
    def create(cls, disk: Disk, directory: str, base: Offset) -> Self:
        """Begin a new segment.

        Raises:
          OSError: if its file can't be made.
        """
        segment = super().create(disk, directory, base)
        segment._index.begin()
        return segment

    @classmethod
    def existing(cls, disk: Disk, directory: str, base: Offset) -> Self:
        """A segment that is there.

        Raises:
          OSError: if its file can't be opened.
        """
        segment = super().existing(disk, directory, base)
        segment._sound_from = segment.size_bytes
        segment._timestamp_max_ms = None
        return segment

    # --- writing -------------------------------------------------------------------------

    def append(self, records: bytes, scan: record.Scan, now_ms: int) -> None:
        """Write *records*, of which *scan* says that they are valid, behind the last one.

        Raises:
          OSError: and then nothing of them counts; `undo` removes what is in the file.
        """
        position = self.size_bytes
        self.write(records)
        self._note(position, scan)
        if self.first_append_ms is None:
            self.first_append_ms = now_ms
        self.last_append_ms = now_ms

    def truncate(self, position: int) -> None:
        """Cut the segment at *position*, where a record starts.

        Raises:
          OSError: if the file can't be cut; the records beyond don't count all the same.
          StorageError: if the file can't be read; nothing was done.
        """
        self._timestamp_max_ms = self._newest_at_most(position)
        self._sound_end = min(self._sound_end, position)
        self._sound_from = min(self._sound_from, position)
        if not position:
            self.first_append_ms = None
        self._index.keep_below(position)
        self.cut(position)

    async def sync(self) -> None:
        """Wait until records and index are on the device.

        Raises:
          OSError: if that failed.
        """
        await super().sync()
        try:
            await self._index.sync()
        except BaseException:
            self.unsynced = True
            raise

    def close(self) -> None:
        """Let go of the files; they are opened again when needed."""
        super().close()
        self._index.close()

    def _note(self, position: int, scan: record.Scan) -> None:
        """Take valid records at *position*, up to which all is noted, into the index."""
        assert self._timestamp_max_ms is not None, "only a recovered segment is written to"
        self._index.extend(position, scan.marks, self._timestamp_max_ms)
        self._timestamp_max_ms = max(self._timestamp_max_ms, scan.timestamp_max_ms)

    # --- reading -------------------------------------------------------------------------

    def read(self, position: int, bytes_max: int, limit: int) -> bytes:
        """Whole records from *position* on: at most *bytes_max* bytes, but at least one record.

        *position* is where a record starts and *limit* where one ends, not beyond the
        segment's end.

        Raises:
          CorruptLogError: if the first record is damaged.
          StorageError: if the file can't be read.
        """
        stop = min(limit, position + bytes_max)
        data = self.pread(stop - position, position)
        end = self._end_unchecked(data, position, limit)
        if end is None:
            scan = record.scan(data)
            end = scan.valid_bytes
            cut_short = isinstance(scan.fault, IncompleteRecordError) and stop < limit
            if not end and scan.fault is not None and not cut_short:
                raise self.damaged(position, scan.fault)
        if not end:
            data = self.checked_record(position, limit)
            end = len(data)
        if position <= self._sound_end:
            self._sound_end = max(self._sound_end, position + end)
        return data if end == len(data) else data[:end]

    def _end_unchecked(self, data: bytes, position: int, limit: int) -> int | None:
        """Where the last whole record of *data*, which was read at *position*, ends in it; None
        if its bytes have to be checked.

        Walks lengths from the last index entry within, if a sound record is there; else from
        the beginning.
        """
        stop = position + len(data)
        appended_or_scanned = position >= self._sound_from or self._sound_end >= self._sound_from
        if stop > self._sound_end and not appended_or_scanned:
            return None
        if stop == limit:
            return len(data)
        start = 0
        try:
            entry = self._index.find_position(stop - 1, self.size_bytes)
            if entry.position > position:
                record.check_record(data, entry.position - position)
                start = entry.position - position
        except (DamagedIndexError, RecordError):
            start = 0
        try:
            return start + record.whole_records_end(memoryview(data)[start:])
        except RecordError:
            return None

    def recover(self, position: int, on_chunk: Callable[[Chunk], None]) -> RecordError | None:
        """Check all records from *position* on and index them; hide what is behind a fault.

        What lies before *position* is trusted.  Returns the fault.

        Raises:
          StorageError: if the file can't be read.
        """
        self._timestamp_max_ms = self._newest_at_most(position)
        self._index.keep_below(position)
        self._sound_from = position
        self.unsynced = True
        for chunk in self.scan(position):
            self._note(chunk.position, chunk.scan)
            on_chunk(chunk)
            if chunk.fault is not None:
                self.size_bytes = chunk.end
                return chunk.fault
        return None

    # --- finding -------------------------------------------------------------------------

    def is_boundary(self, position: int) -> bool:
        """Whether a record starts or the last one ends at *position*.

        Raises:
          CorruptLogError: if damage makes that unknowable.
          StorageError: if the file can't be read.
        """
        return self._trusting_index(lambda: self._is_boundary(position))

    def _is_boundary(self, position: int) -> bool:
        if position in {0, self.size_bytes}:
            return True
        start = self._entry_before(position).position
        _, end = self.walk(start, position)
        if end == position:
            return True
        # Refuse only on proof: sound records, found from an earlier entry, that meet this one.
        earlier = self._entry_before(start - 1).position if start else 0
        met = [at for at, _ in self.checked_records(earlier, position) if at == start]
        if not met:
            raise self.damaged(start, "no record starts where its index says")
        return False

    def boundary_at_most(self, position: int) -> int:
        """The last place at or before *position*, which lies within the records, where one starts.

        Raises:
          CorruptLogError: if damage makes that unknowable.
          StorageError: if the file can't be read.
        """
        return self._trusting_index(lambda: self._boundary_at_most(position))

    def _boundary_at_most(self, position: int) -> int:
        start = self._entry_before(position).position
        for end in self.record_ends(start, position):
            if end > position:
                break
            start = end
        return start

    def find_timestamp(self, timestamp_ms: int) -> int | None:
        """Where the first record with that time stamp, or a later one, starts.

        Raises:
          CorruptLogError: if damage makes that unknowable.
          StorageError: if the file can't be read.
        """
        if self.newest_timestamp_ms() < timestamp_ms:
            return None
        return self._trusting_index(lambda: self._find_timestamp(timestamp_ms))

    def _find_timestamp(self, timestamp_ms: int) -> int | None:
        start = self._entry(lambda: self._index.find_timestamp(timestamp_ms, self.size_bytes))
        for position, found_ms in self.checked_records(start.position, self.size_bytes):
            if found_ms >= timestamp_ms:
                return position
        if not self._index_rebuilt:
            raise self.damaged(start.position, "a time stamp that its index knows is not there")
        return None

    def newest_timestamp_ms(self) -> int:
        """The largest time stamp of all its records, or more if damage makes that unknowable;
        -1 if none has one.

        Raises:
          StorageError: if the file can't be read.
        """
        if self._timestamp_max_ms is None:
            self._timestamp_max_ms = self._newest_at_most(self.size_bytes)
        return self._timestamp_max_ms

    def _newest(self, stop: int) -> int:
        if not stop:
            return -1
        entry = self._entry_before(stop - 1)
        records = self.checked_records(entry.position, stop)
        return max(entry.newest_ms, max(timestamp_ms for _, timestamp_ms in records))

    def _newest_at_most(self, stop: int) -> int:
        """What no time stamp before *stop* exceeds, whatever damage hides."""
        try:
            return self._trusting_index(lambda: self._newest(stop))
        except CorruptLogError:
            return TIMESTAMP_MS_MAX

    def oldest_timestamp_ms(self) -> int:
        """The first record's time stamp; -1 if that can't be known, or it has none."""
        try:
            _, timestamp_ms = next(self.checked_records(0, min(1, self.size_bytes)), (0, -1))
        except StorageError:
            return -1
        return timestamp_ms

    def count_back(self, count: int, stop: int) -> tuple[int, int]:
        """Where the *count*-th record before *stop* starts, and how many are missing to it.

        If there are fewer, the position is 0 and the rest of the count comes with it.

        Raises:
          CorruptLogError: if damage makes that unknowable.
          StorageError: if the file can't be read.
        """
        return self._trusting_index(lambda: self._count_back(count, stop))

    def _count_back(self, count: int, stop: int) -> tuple[int, int]:
        while stop and count:
            start = self._entry_before(stop - 1).position
            here, end = self.walk(start, stop)
            if end != stop:
                raise self.first_damage(start, stop, "no record ends there")
            if here >= count:
                ends = self.record_ends(start, stop)
                for _ in range(here - count):
                    start = next(ends)
                return start, 0
            count -= here
            stop = start
        return stop, count

    # --- the index, never trusted against the records --------------------------------------

    def _entry_before(self, position: int) -> Entry:
        """The last entry at or before *position*, close to it if the index is whole."""
        entry = self._entry(lambda: self._index.find_position(position, self.size_bytes))
        if position - entry.position > ENTRY_DISTANCE_BYTES_MAX and not self._index_rebuilt:
            self._rebuild_index()
            entry = self._entry(lambda: self._index.find_position(position, self.size_bytes))
        return entry

    def _entry(self, find: Callable[[], Entry]) -> Entry:
        try:
            return find()
        except DamagedIndexError:
            if not self._index_rebuilt:
                self._rebuild_index()
                return self._entry(find)
            return FIRST

    def _trusting_index(self, find: Callable[[], _T]) -> _T:
        """What *find* says; if it meets damage, the index may be wrong and is made anew."""
        try:
            return find()
        except CorruptLogError:
            if not self._index_rebuilt:
                self._rebuild_index()
                return self._trusting_index(find)
            raise

    def _rebuild_index(self) -> None:
        """Make the index from the records, once in the segment's life: damage stays damage.

        Holds the new entries in memory, a 4096th of the segment; the old ones tell where
        records go on behind damage.
        """
        self._index_rebuilt = True
        entries: list[Entry] = []
        timestamp_max_ms = -1
        position: int | None = 0
        while position is not None:
            due, fault = position, None
            for chunk in self.scan(position):
                new = entries_of(chunk.position, chunk.scan.marks, timestamp_max_ms, due)
                entries += new
                due = new[-1].position + INDEX_INTERVAL_BYTES if new else due
                timestamp_max_ms = max(timestamp_max_ms, chunk.scan.timestamp_max_ms)
                position, fault = chunk.end, chunk.fault
            if fault is None:
                break
            timestamp_max_ms = TIMESTAMP_MS_MAX  # those of damaged records are not known
            position = self.next_sound(position, self._index.positions_behind(position))
        self._index.replace(entries)
        self._timestamp_max_ms = timestamp_max_ms
