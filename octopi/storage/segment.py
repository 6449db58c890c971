"""A segment: a stretch of a log, in a file of records with a sparse index.

Finds records in its file by position, time stamp and count, and knows which bytes were checked.
It knows no other segment, and callers decide what a failure of the disk means.

**Soundness.**  Bytes that this process has neither appended nor scanned are checked when they are
first read.  Those before ``_sound_end`` were checked by reads, from the segment's beginning on;
those from ``_sound_from`` on were appended or scanned at opening.

**The index** is a hint.  Its entries are compared with the records.  If they disagree, the index is
rebuilt, once in each process: a fault after that is damage of the records.

**Slices.**  Methods that may walk further than from one entry of the index to the next work in
slices (`octopi.storage.time_slices`).  Records may be appended and cut between two slices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self, TypeVar

from octopi import record
from octopi.environment import Disk
from octopi.errors import CorruptLogError, IncompleteRecordError, RecordError, StorageError
from octopi.identifiers import Offset
from octopi.limits import INDEX_INTERVAL_BYTES, RECORD_BYTES_MAX, SLICE_BYTES
from octopi.storage.file_names import index_path
from octopi.storage.index_rebuild import rebuilt
from octopi.storage.offset_index import (
    FIRST,
    TIMESTAMP_MS_MAX,
    DamagedIndexError,
    IndexEntry,
    OffsetIndex,
)
from octopi.storage.record_file import RecordFile, ScannedChunk
from octopi.storage.time_slices import Slices, at_once, pauses

ENTRY_DISTANCE_BYTES_MAX: Final = 2 * INDEX_INTERVAL_BYTES + RECORD_BYTES_MAX
"""Neighbouring entries of a complete index are closer than this.  They may be more than
`INDEX_INTERVAL_BYTES` apart, because an entry is left out if a batch begins soon behind the last
entry of the batch before."""

_COUNT_MAX: Final = 2**63
"""More records than any segment has."""

_T = TypeVar("_T")


class Segment(RecordFile):
    """One segment; its files are opened when first needed."""

    # fmt: off
    __slots__ = (
        "_count", "_cuts", "_index", "_index_rebuilt", "_sound_end", "_sound_from",
        "_timestamp_max_ms", "first_append_ms", "last_append_ms",
    )
    # fmt: on

    def __init__(self, disk: Disk, directory: str, base: Offset) -> None:
        super().__init__(disk, directory, base)
        self._index = OffsetIndex(disk, index_path(directory, base))
        self._index_rebuilt = False
        self._sound_end = 0
        self._sound_from = 0
        self._timestamp_max_ms: int | None = -1
        """The largest time stamp (ms); -1: no record has one; None: not known yet."""
        self._count: int | None = 0
        """How many records there are; None: not known."""
        self._cuts = 0
        """How often records were cut off."""
        self.first_append_ms: int | None = None
        """When the first record was appended (wall clock); None if not known."""
        self.last_append_ms: int | None = None
        """When this process last appended a record (wall clock); None if it has not."""

    @classmethod
    def create(cls, disk: Disk, directory: str, base: Offset) -> Self:
        """Begin a new segment.

        Raises:
          OSError: if its file can't be created.
        """
        segment = super().create(disk, directory, base)
        segment._index.begin()
        return segment

    @classmethod
    def existing(cls, disk: Disk, directory: str, base: Offset) -> Self:
        """Open a segment that exists.

        Raises:
          OSError: if its file can't be opened.
        """
        segment = super().existing(disk, directory, base)
        segment._sound_from = segment.size_bytes
        segment._timestamp_max_ms = segment._count = None
        return segment

    # --- writing -------------------------------------------------------------------------

    def append(self, records: bytes, scan: record.Scan, now_ms: int) -> None:
        """Write *records*, which *scan* has found valid, behind the last one.

        Raises:
          OSError: if the disk fails; then none of them counts, and `undo` removes their bytes.
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
          OSError: if the file can't be cut; the records beyond don't count even then.
          StorageError: if the file can't be read; nothing was done.
        """
        self._timestamp_max_ms, self._count = at_once(self._standing(position))
        self._cuts += 1
        self._sound_end = min(self._sound_end, position)
        self._sound_from = min(self._sound_from, position)
        if not position:
            self.first_append_ms = None
        self._index.keep_below(position)
        self.cut(position)

    async def sync(self) -> None:
        """Wait until records and index are on the device.

        Raises:
          OSError: see `RecordFile.sync`.
        """
        await super().sync()
        try:
            await self._index.sync()
        except BaseException:
            self.unsynced = True
            raise

    def close(self) -> None:
        """Close the files; they are opened again when needed."""
        super().close()
        self._index.close()

    def _note(self, position: int, scan: record.Scan) -> None:
        """Add valid records at *position* to the index; all records before are in it."""
        assert self._timestamp_max_ms is not None, "only a recovered segment is written to"
        self._index.extend(position, scan.marks, self._timestamp_max_ms, self._count)
        self._timestamp_max_ms = max(self._timestamp_max_ms, scan.timestamp_max_ms)
        if self._count is not None:
            self._count += scan.count

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

    def record_bytes_at(self, position: int) -> int:
        """How long the record at *position* is, by its length field; 0 if that is not known."""
        size_bytes = min(record.HEADER_BYTES, self.size_bytes - position)
        try:
            return record.record_end(self.pread(size_bytes, position), 0)
        except (RecordError, StorageError):
            return 0

    def _end_unchecked(self, data: bytes, position: int, limit: int) -> int | None:
        """Where the last whole record ends in *data*, which was read at *position*; None if its
        bytes have to be checked.

        It follows the lengths from the last index entry within *data*, if a sound record starts
        there; else from the beginning of *data*.
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

    def recover(
        self, position: int, on_chunk: Callable[[ScannedChunk], None]
    ) -> Slices[RecordError | None]:
        """Check all records from *position* on and index them; end the segment at a fault.

        Records before *position* are trusted.  Return the fault; None: there is none.

        Raises:
          StorageError: if the file can't be read.
        """
        self._timestamp_max_ms, self._count = yield from self._standing(position)
        self._index.keep_below(position)
        self._sound_from = position
        self.unsynced = True
        for chunk in self.scan(position, SLICE_BYTES):
            self._note(chunk.position, chunk.scan)
            on_chunk(chunk)
            if chunk.fault is not None:
                self.size_bytes = chunk.end
                return chunk.fault
            yield from pauses(chunk.read_bytes)
        return None

    # --- finding -------------------------------------------------------------------------

    def is_boundary(self, position: int) -> Slices[bool]:
        """Whether a record starts or the last one ends at *position*.

        Raises:
          CorruptLogError: if damage makes that unknowable.
          StorageError: if the file can't be read.
        """
        return self._trusting_index(lambda: self._is_boundary(position))

    def _is_boundary(self, position: int) -> Slices[bool]:
        if position in {0, self.size_bytes}:
            return True
        entry = yield from self._entry_before(position)
        start = entry.position
        _, end = yield from self.walk(start, position)
        if end == position:
            return True
        # False only on proof: sound records from an earlier entry on lead to this entry.
        earlier = FIRST
        if start:
            earlier = yield from self._entry_before(start - 1)
        met, pause_at = False, earlier.position + SLICE_BYTES
        for at, _ in self.checked_records(earlier.position, position):
            met = met or at == start
            if at >= pause_at:
                pause_at = at + SLICE_BYTES
                yield
        if not met:
            raise self.damaged(start, "no record starts where its index says")
        return False

    def boundary_at_most(self, position: int) -> Slices[int]:
        """Where the last record starts at or before *position*, which lies within the records.

        Raises:
          CorruptLogError: if damage makes that unknowable.
          StorageError: if the file can't be read.
        """
        return self._trusting_index(lambda: self._boundary_at_most(position))

    def _boundary_at_most(self, position: int) -> Slices[int]:
        entry = yield from self._entry_before(position)
        count, end = yield from self.walk(entry.position, position)
        if end <= position:
            return end
        return (yield from self.forward(entry.position, count - 1))

    def find_timestamp(self, timestamp_ms: int) -> Slices[int | None]:
        """Where the first record starts whose time stamp is *timestamp_ms* or later; None if there
        is none.

        Raises:
          CorruptLogError: if damage makes that unknowable.
          StorageError: if the file can't be read.
        """
        yield from self.learn()
        if self.newest_timestamp_ms() < timestamp_ms:
            return None
        return (yield from self._trusting_index(lambda: self._find_timestamp(timestamp_ms)))

    def _find_timestamp(self, timestamp_ms: int) -> Slices[int | None]:
        start = yield from self._entry(
            lambda: self._index.find_timestamp(timestamp_ms, self.size_bytes)
        )
        pause_at = start.position + SLICE_BYTES
        for position, found_ms in self.checked_records(start.position, self.size_bytes):
            if found_ms >= timestamp_ms:
                return position
            if position >= pause_at:
                pause_at = position + SLICE_BYTES
                yield
        if not self._index_rebuilt:
            raise self.damaged(start.position, "a time stamp that its index knows is not there")
        return None

    def learn(self) -> Slices[None]:
        """Find the largest time stamp, so that `newest_timestamp_ms` is quick.

        Raises:
          StorageError: if the file can't be read.
        """
        if self._timestamp_max_ms is None:
            cuts = self._cuts
            newest_ms, count = yield from self._standing(self.size_bytes)
            if cuts == self._cuts:
                self._timestamp_max_ms, self._count = newest_ms, count

    def newest_timestamp_ms(self) -> int:
        """The largest time stamp of all its records (ms); -1 if none has one, `TIMESTAMP_MS_MAX` if
        damage hides some.  Quick after `learn`.

        Raises:
          StorageError: if the file can't be read.
        """
        if self._timestamp_max_ms is None:
            self._timestamp_max_ms, self._count = at_once(self._standing(self.size_bytes))
        return self._timestamp_max_ms

    def _standing(self, stop: int) -> Slices[tuple[int, int | None]]:
        """The largest time stamp before *stop* (`TIMESTAMP_MS_MAX` if damage hides some), and the
        number of records before *stop* (None if damage hides some)."""
        try:
            return (yield from self._trusting_index(lambda: self._standing_at(stop)))
        except CorruptLogError:
            return TIMESTAMP_MS_MAX, None

    def _standing_at(self, stop: int) -> Slices[tuple[int, int | None]]:
        if not stop:
            return -1, 0
        entry = yield from self._entry_before(stop - 1)
        newest_ms, count = entry.newest_ms, 0
        pause_at = entry.position + SLICE_BYTES
        for position, timestamp_ms in self.checked_records(entry.position, stop):
            newest_ms = max(newest_ms, timestamp_ms)
            count += 1
            if position >= pause_at:
                pause_at = position + SLICE_BYTES
                yield
        return newest_ms, None if entry.known_count is None else entry.known_count + count

    def oldest_timestamp_ms(self) -> int:
        """The first record's time stamp (ms); -1 if it has none, or can't be read."""
        try:
            _, timestamp_ms = next(self.checked_records(0, min(1, self.size_bytes)), (0, -1))
        except StorageError:
            return -1
        return timestamp_ms

    def count(self, stop: int) -> Slices[int]:
        """How many records there are before *stop*, where one ends.  If that is the segment's end,
        the number is remembered.

        Raises:
          CorruptLogError, StorageError: see `count_back`.
        """
        if stop == self.size_bytes:
            yield from self.learn()
        _, missing = yield from self.count_back(_COUNT_MAX, stop)
        return _COUNT_MAX - missing

    def count_back(self, count: int, stop: int) -> Slices[tuple[int, int]]:
        """Where the *count*-th record before *stop* starts, counted backwards, and 0.  If there are
        fewer records before *stop*, return position 0, and how many are missing.

        *count* and *stop* have to be more than 0.

        Raises:
          CorruptLogError: if damage makes that unknowable.
          StorageError: if the file can't be read.
        """
        return self._trusting_index(lambda: self._count_back(count, stop))

    def _count_back(self, count: int, stop: int) -> Slices[tuple[int, int]]:
        if stop == self.size_bytes and self._count is not None and self._count <= count:
            return 0, count - self._count
        while True:
            entry = yield from self._entry_before(stop - 1)
            start = entry.position
            here, end = yield from self.walk(start, stop)
            if end != stop:
                raise (yield from self.find_damage(start, stop, "no record ends there"))
            if here >= count:
                return (yield from self.forward(start, here - count)), 0
            if entry.known_count is not None:
                before = entry.known_count + here - count
                return (yield from self._record(before)) if before > 0 else 0, max(0, -before)
            count -= here
            stop = start
            yield

    def count_on(self, position: int, count: int) -> Slices[int]:
        """Where the record starts that comes *count* records behind the one at *position*; or the
        end, if that one is the last.

        Raises:
          CorruptLogError: if damage hides the answer, or there are fewer records.
          StorageError: if the file can't be read.
        """
        return self._trusting_index(lambda: self._count_on(position, count))

    def _count_on(self, position: int, count: int) -> Slices[int]:
        entry = yield from self._entry_before(position)
        before, end = yield from self.walk(entry.position, position)
        if entry.known_count is None or end != position:
            return (yield from self.forward(position, count))
        return (yield from self._record(entry.known_count + before + count))

    def _record(self, number: int) -> Slices[int]:
        """Where record *number* starts, counted from 0; if there are *number* records, the end."""
        try:
            entry, following = self._index.find_count(number, self.size_bytes)
        except DamagedIndexError as error:
            if not self._index_rebuilt:
                raise self.damaged(0, f"its index is damaged: {error}") from None
            entry, following = FIRST, None
        if following is not None:
            count, end = yield from self.walk(entry.position, following.position)
            if (end, entry.count_before + count) != (following.position, following.count_before):
                raise self.damaged(entry.position, "its index counts other records")
        return (yield from self.forward(entry.position, number - entry.count_before))

    # --- the index, never trusted against the records --------------------------------------

    def _entry_before(self, position: int) -> Slices[IndexEntry]:
        """The last entry at or before *position*.  If it is so far before that entries must be
        missing, the index is rebuilt first."""

        def find() -> IndexEntry:
            return self._index.find_position(position, self.size_bytes)

        entry = yield from self._entry(find)
        if position - entry.position > ENTRY_DISTANCE_BYTES_MAX and not self._index_rebuilt:
            yield from self._rebuild_index()
            entry = yield from self._entry(find)
        return entry

    def _entry(self, find: Callable[[], IndexEntry]) -> Slices[IndexEntry]:
        try:
            return find()
        except DamagedIndexError:
            if self._index_rebuilt:
                return FIRST
        yield from self._rebuild_index()
        return (yield from self._entry(find))

    def _trusting_index(self, find: Callable[[], Slices[_T]]) -> Slices[_T]:
        """The result of *find*.  If it meets damage, the index may be wrong: rebuild it and try
        once more."""
        try:
            return (yield from find())
        except CorruptLogError:
            if self._index_rebuilt:
                raise
        yield from self._rebuild_index()
        return (yield from self._trusting_index(find))

    def _rebuild_index(self) -> Slices[None]:
        """Rebuild the index from the records, once in each process.

        Several look-ups may rebuild it at the same time; the first one to end is valid for all.
        """
        cuts = -1
        while not self._index_rebuilt and cuts != self._cuts:
            cuts = self._cuts
            yield from self._rebuild_unless_cut(cuts)

    def _rebuild_unless_cut(self, cuts: int) -> Slices[None]:
        new = yield from rebuilt(
            self, self._index, lambda: self._index_rebuilt or cuts != self._cuts
        )
        if new is not None:  # nothing was appended since the last slice
            self._index_rebuilt = True
            self._index.replace(new.entries)
            self._timestamp_max_ms, self._count = new.timestamp_max_ms, new.count
