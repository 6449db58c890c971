"""The sparse index of a segment: where records start, about every 64 KiB, and how many there are.

The file is a sequence of entries of 28 bytes, unsigned, in network byte order:

================  =====  ============================================================
field             bytes  meaning
================  =====  ============================================================
position          8      where a record starts, in the segment's file
timestamp_before  8      1 + the largest time stamp (ms) among all records of the
                         segment before it; 0 if none has one; the largest number
                         if that doesn't fit, or damage hides a record
count_before      8      how many records of the segment lie before it; the largest
                         number if damage hides a record
checksum          4      CRC-32 (as `zlib.crc32`) of the 24 bytes before it
================  =====  ============================================================

Positions strictly increase; ``timestamp_before`` and ``count_before`` never decrease.

The log can be read without its index.  A damaged entry, or one of an older format, has a wrong
checksum; a search notices entries out of order; a walk notices that no record starts at its entry,
and that it is so long that entries are missing.  In each case the segment rebuilds the index.  So a
failed write to the index is ignored, and the log goes on.

A search reads entries from the file; only the last entry is kept in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple
from zlib import crc32

from octopi.environment import Disk, File
from octopi.limits import INDEX_INTERVAL_BYTES
from octopi.record import RecordStart
from octopi.storage.full_disk import NO_DESCRIPTOR

_FIELDS: Final = struct.Struct(">QQQ")
_CHECKSUM: Final = struct.Struct(">I")
ENTRY_BYTES: Final = _FIELDS.size + _CHECKSUM.size
TIMESTAMP_MS_MAX: Final = 0xFFFFFFFFFFFFFFFF
_UNKNOWN_COUNT: Final = 0xFFFFFFFFFFFFFFFF
_NO_LIMIT: Final = 1 << 64


class IndexEntry(NamedTuple):
    """One entry, as it is stored."""

    position: int
    """Where a record starts in the segment's file (bytes)."""
    timestamp_before: int
    """See the table; `newest_ms` decodes it."""
    count_before: int
    """See the table; `known_count` decodes it."""

    @classmethod
    def at(cls, position: int, timestamp_max_ms: int, count: int | None) -> IndexEntry:
        """The entry for a record at *position*, with *count* records before it (None: not known),
        whose largest time stamp is *timestamp_max_ms* (-1: none has one)."""
        timestamp_before = min(timestamp_max_ms + 1, TIMESTAMP_MS_MAX)
        return cls(position, timestamp_before, _UNKNOWN_COUNT if count is None else count)

    @classmethod
    def of_bytes(cls, data: bytes) -> IndexEntry:
        """Decode *data*, `ENTRY_BYTES` long.

        Raises:
          DamagedIndexError: if the checksum doesn't match.
        """
        (checksum,) = _CHECKSUM.unpack_from(data, _FIELDS.size)
        if crc32(data[: _FIELDS.size]) != checksum:
            raise DamagedIndexError("the checksum of an entry doesn't match")
        return cls._make(_FIELDS.unpack_from(data))

    def to_bytes(self) -> bytes:
        """The entry as it is stored."""
        data = _FIELDS.pack(*self)
        return data + _CHECKSUM.pack(crc32(data))

    @property
    def known_count(self) -> int | None:
        """How many records of the segment lie before the entry; None if that is not known."""
        return None if self.count_before == _UNKNOWN_COUNT else self.count_before

    @property
    def newest_ms(self) -> int:
        """The largest time stamp before the entry (ms); -1 if there is none, `TIMESTAMP_MS_MAX` if
        it is not known."""
        saturated = self.timestamp_before == TIMESTAMP_MS_MAX
        return TIMESTAMP_MS_MAX if saturated else self.timestamp_before - 1


FIRST: Final = IndexEntry(0, 0, 0)
"""The entry at position 0; it is the same for every segment, so it is known without the file."""


def entries_of(
    position: int, marks: Iterable[RecordStart], timestamp_max_ms: int, count: int | None, due: int
) -> list[IndexEntry]:
    """The entries for *marks*, record starts in a buffer that begins at *position*, with *count*
    records before it (None: not known), whose largest time stamp is *timestamp_max_ms* (-1: none
    has one).  The first entry is for the first mark at or behind *due*; each further one is at
    least `INDEX_INTERVAL_BYTES` behind the one before."""
    entries: list[IndexEntry] = []
    for mark in marks:
        at = position + mark.position
        if at >= due:
            newest_ms = max(timestamp_max_ms, mark.timestamp_before_ms)
            before = None if count is None else count + mark.count_before
            entries.append(IndexEntry.at(at, newest_ms, before))
            due = at + INDEX_INTERVAL_BYTES
    return entries


class DamagedIndexError(Exception):
    """The index can't be used as it is.  Not raised outside of this package."""


class OffsetIndex:
    """The index file of one segment, opened when first needed."""

    __slots__ = ("_count", "_disk", "_file", "_last", "_path", "_unproven_count", "unsynced")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._count: int | None = None
        """How many entries are valid; None until the file was opened.  After a failed write the
        file may have more."""
        self._last = FIRST
        self._unproven_count: int | None = None
        """How many entries were there when the file was opened, and have not been dropped since.
        None: it was synced since then, or is new."""
        self.unsynced = False
        """Whether the file has changed since it was last synced."""

    def begin(self) -> None:
        """Begin the index of a new segment: entries that an older file of this name has are
        ignored."""
        self._count = 0

    # --- writing: never fails, at worst the index ends early -----------------------------

    def extend(
        self, position: int, marks: Iterable[RecordStart], timestamp_max_ms: int, count: int | None
    ) -> None:
        """Add entries for those of *marks* that lie far enough apart.

        *marks* are record starts in a buffer that begins at *position* of the segment, with *count*
        records before it (None: not known); their largest time stamp is *timestamp_max_ms* (-1:
        none has one).
        """
        try:
            entry_count = self._load(create=True)
            due = self._last.position + INDEX_INTERVAL_BYTES if entry_count else 0
            entries = entries_of(position, marks, timestamp_max_ms, count, due)
            if entries:
                self._append(entry_count, entries)
        except OSError:
            return  # a look-up behind the last entry walks far, and has the index rebuilt

    def _append(self, count: int, entries: list[IndexEntry]) -> None:
        self.unsynced = True
        file = self._open(create=True)
        if file.size_bytes != count * ENTRY_BYTES:
            file.truncate(count * ENTRY_BYTES)  # an earlier failed write left more
        file.append(b"".join(entry.to_bytes() for entry in entries))
        self._count = count + len(entries)
        self._last = entries[-1]

    def replace(self, entries: list[IndexEntry]) -> None:
        """Replace all entries by *entries*."""
        self._shrink(0, FIRST)
        if entries:
            with suppress(OSError):
                self._append(0, entries)

    def keep_below(self, position: int) -> None:
        """Drop the entries at or beyond *position* of the segment."""
        try:
            count = self._search(lambda entry: entry.position < position, _NO_LIMIT)
            last = self._entry(count - 1) if count else FIRST
        except DamagedIndexError:
            count, last = 0, FIRST
        if count != self._count:
            self._shrink(count, last)

    def _shrink(self, count: int, last: IndexEntry) -> None:
        self.unsynced = True
        self._count = count
        self._last = last
        if self._unproven_count is not None:
            self._unproven_count = min(self._unproven_count, count)
        try:
            self._open(create=True).truncate(count * ENTRY_BYTES)
        except OSError:
            return  # `extend` tries it again

    # --- searching -----------------------------------------------------------------------

    def find_position(self, position: int, size_bytes: int) -> IndexEntry:
        """The last entry at or before *position* in a segment of *size_bytes* bytes.

        Raises:
          DamagedIndexError: if the index is damaged, out of order, or can't be read.
        """
        if self._count and self._last.position <= position:
            return self._last
        count = self._search(lambda entry: entry.position <= position, size_bytes)
        return self._entry(count - 1) if count else FIRST

    def find_timestamp(self, timestamp_ms: int, size_bytes: int) -> IndexEntry:
        """The last entry before which no record has a time stamp of *timestamp_ms* or later.

        Raises:
          DamagedIndexError: see `find_position`.
        """
        limit = min(timestamp_ms, TIMESTAMP_MS_MAX - 1)
        count = self._search(lambda entry: entry.timestamp_before <= limit, size_bytes)
        return self._entry(count - 1) if count else FIRST

    def find_count(self, count: int, size_bytes: int) -> tuple[IndexEntry, IndexEntry | None]:
        """The last entry with at most *count* records before it, and the entry behind it; None
        instead of the latter if there is none, or its count is not known.

        Raises:
          DamagedIndexError: see `find_position`.
        """
        number = self._search(lambda entry: entry.count_before <= count, size_bytes)
        entry = self._entry(number - 1) if number else FIRST
        following = self._entry(number) if number < self._load(create=False) else None
        return entry, None if following is None or following.known_count is None else following

    def positions_behind(self, position: int) -> Iterator[int]:
        """Where records start behind *position*, according to the index, in the order of the
        file.  Damaged entries end the search."""
        with suppress(OSError, DamagedIndexError):
            for number in range(self._load(create=False)):
                entry = self._entry(number)
                if entry.position > position:
                    yield entry.position

    def _search(self, holds: Callable[[IndexEntry], bool], size_bytes: int) -> int:
        """How many entries there are before the first one for which *holds* is false."""
        try:
            low, high = 0, self._load(create=False)
        except OSError as error:
            raise DamagedIndexError(str(error)) from error
        below, above = (
            IndexEntry(-1, 0, 0),
            IndexEntry(size_bytes, TIMESTAMP_MS_MAX, _UNKNOWN_COUNT),
        )
        while low < high:
            middle = (low + high) // 2
            entry = self._entry(middle)
            if not (
                below.position < entry.position < above.position
                and below.timestamp_before <= entry.timestamp_before <= above.timestamp_before
                and below.count_before <= entry.count_before <= above.count_before
            ):
                raise DamagedIndexError(f"entry {middle} is out of order")
            if holds(entry):
                low, below = middle + 1, entry
            else:
                high, above = middle, entry
        return low

    def _entry(self, number: int) -> IndexEntry:
        try:
            data = self._open(create=False).pread(ENTRY_BYTES, number * ENTRY_BYTES)
        except OSError as error:
            raise DamagedIndexError(str(error)) from error
        if len(data) < ENTRY_BYTES:
            raise DamagedIndexError(f"the file ends before entry {number}")
        return IndexEntry.of_bytes(data)

    # --- the file ------------------------------------------------------------------------

    def _load(self, *, create: bool) -> int:
        """How many entries there are.

        Raises:
          DamagedIndexError: if the last entry isn't sound.
          OSError: if the file can't be opened.
        """
        if self._count is None:
            count = self._open(create=create).size_bytes // ENTRY_BYTES
            self._last = self._entry(count - 1) if count else FIRST
            self._count = self._unproven_count = count
        return self._count

    def _open(self, *, create: bool) -> File:
        if self._file is None:
            self._file = self._disk.open(self._path, create=create)
        return self._file

    async def sync(self) -> None:
        """Wait until the entries are on the device.

        Raises:
          OSError: if that failed.
        """
        if self.unsynced and self._file is not None:
            self.unsynced = False
            try:
                await self._sync(self._file)
            except BaseException:
                self.unsynced = True
                raise

    async def _sync(self, file: File) -> None:
        try:
            await file.sync()
        except OSError as error:
            count = self._unproven_count
            if count is None or error.errno in NO_DESCRIPTOR:
                raise
            self._unproven_count = None
            # An earlier process may have failed to sync it, and the first sync tells that.
            position = count * ENTRY_BYTES
            file.rewrite(file.size_bytes - position, position)
            await file.sync()
        self._unproven_count = None

    def close(self) -> None:
        """Close the file; it is opened again when needed."""
        if self._file is not None:
            self._file.close()
            self._file = None
