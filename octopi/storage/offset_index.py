"""The sparse index of a segment: where records start, about every 64 KiB, and how many there are.

The file is a sequence of entries of 28 bytes, unsigned, in network byte order:

================  =====  ============================================================
field             bytes  meaning
================  =====  ============================================================
position          8      where a record starts, in the segment's file
timestamp_before  8      1 + the largest time stamp (ms) among all records of the
                         segment before it; 0 if none has one; the largest number
                         if that doesn't fit, or damage makes it unknowable
count_before      8      how many records of the segment lie before it; the largest
                         number if damage makes that unknowable
checksum          4      CRC-32 (as `zlib.crc32`) of the 24 bytes before it
================  =====  ============================================================

Positions strictly increase; ``timestamp_before`` and ``count_before`` never decrease.

An index is never needed to know what the log holds.  A damaged entry, or one of an older
format, is noticed by its checksum, entries out of order are noticed when they are met, an
entry that is no record's start is noticed by whoever walks from it, and an index that ends
early is noticed by the length of that walk.  In each case the segment rebuilds it.  So a
failed write is forgotten here: the log goes on.

Entries are searched where they lie; only the last one is kept in memory.
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
    """See the table; `newest_ms` says it plainly."""
    count_before: int
    """See the table; `known_count` says it plainly."""

    @classmethod
    def at(cls, position: int, timestamp_max_ms: int, count: int | None) -> IndexEntry:
        """The entry for a record at *position* behind *count* records (None: not known) with
        time stamps up to *timestamp_max_ms* (-1: none)."""
        timestamp_before = min(timestamp_max_ms + 1, TIMESTAMP_MS_MAX)
        return cls(position, timestamp_before, _UNKNOWN_COUNT if count is None else count)

    @classmethod
    def of_bytes(cls, data: bytes) -> IndexEntry:
        """The one that is stored as *data*, `ENTRY_BYTES` long.

        Raises:
          DamagedIndexError: if it isn't sound.
        """
        (checksum,) = _CHECKSUM.unpack_from(data, _FIELDS.size)
        if crc32(data[: _FIELDS.size]) != checksum:
            raise DamagedIndexError("the checksum of an entry doesn't match")
        return cls._make(_FIELDS.unpack_from(data))

    def to_bytes(self) -> bytes:
        """As it is stored."""
        data = _FIELDS.pack(*self)
        return data + _CHECKSUM.pack(crc32(data))

    @property
    def known_count(self) -> int | None:
        """How many records of the segment lie before it; None if that is not known."""
        return None if self.count_before == _UNKNOWN_COUNT else self.count_before

    @property
    def newest_ms(self) -> int:
        """No time stamp before it is larger; -1 if there is none."""
        saturated = self.timestamp_before == TIMESTAMP_MS_MAX
        return TIMESTAMP_MS_MAX if saturated else self.timestamp_before - 1


FIRST: Final = IndexEntry(0, 0, 0)
"""True of every segment, so it needs no file."""


def entries_of(
    position: int, marks: Iterable[RecordStart], timestamp_max_ms: int, count: int | None, due: int
) -> list[IndexEntry]:
    """The entries for *marks* in a buffer at *position*, behind *count* records (None: not known)
    with time stamps up to *timestamp_max_ms* (-1: none): one at or behind *due*, then far enough
    apart."""
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
    """The index can't be used as it is; stays within this package."""


class OffsetIndex:
    """The index file of one segment, opened when first needed."""

    __slots__ = ("_count", "_disk", "_file", "_last", "_path", "unsynced")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._count: int | None = None
        """Entries that count; None until the file was looked at.  More may lie behind them
        after a failed write."""
        self._last = FIRST
        self.unsynced = False
        """Whether the file has changed since it was last synced."""

    def begin(self) -> None:
        """Be the index of a new segment, whatever an older one left behind."""
        self._count = 0

    # --- writing: never fails, at worst the index ends early -----------------------------

    def extend(
        self, position: int, marks: Iterable[RecordStart], timestamp_max_ms: int, count: int | None
    ) -> None:
        """Add those of *marks* that lie far enough apart.

        *marks* lie in a buffer that begins at *position* of the segment, behind *count* records
        (None: not known); the largest time stamp before that is *timestamp_max_ms* (-1: none).
        """
        try:
            entry_count = self._load(create=True)
            due = self._last.position + INDEX_INTERVAL_BYTES if entry_count else 0
            entries = entries_of(position, marks, timestamp_max_ms, count, due)
            if entries:
                self._append(entry_count, entries)
        except OSError:
            return  # look-ups behind the last entry walk further, then have it rebuilt

    def _append(self, count: int, entries: list[IndexEntry]) -> None:
        self.unsynced = True
        file = self._open(create=True)
        if file.size_bytes != count * ENTRY_BYTES:
            file.truncate(count * ENTRY_BYTES)  # what an earlier failure left
        file.append(b"".join(entry.to_bytes() for entry in entries))
        self._count = count + len(entries)
        self._last = entries[-1]

    def replace(self, entries: list[IndexEntry]) -> None:
        """Have *entries* instead of the ones that are there."""
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
        try:
            self._open(create=True).truncate(count * ENTRY_BYTES)
        except OSError:
            return  # `extend` tries it again

    # --- searching -----------------------------------------------------------------------

    def find_position(self, position: int, size_bytes: int) -> IndexEntry:
        """The last entry at or before *position* in a segment of *size_bytes* bytes.

        Raises:
          DamagedIndexError: if the index shows itself to be wrong or can't be read.
        """
        if self._count and self._last.position <= position:
            return self._last
        count = self._search(lambda entry: entry.position <= position, size_bytes)
        return self._entry(count - 1) if count else FIRST

    def find_timestamp(self, timestamp_ms: int, size_bytes: int) -> IndexEntry:
        """The last entry with no record at or after *timestamp_ms* before it.

        Raises:
          DamagedIndexError: see `find_position`.
        """
        limit = min(timestamp_ms, TIMESTAMP_MS_MAX - 1)
        count = self._search(lambda entry: entry.timestamp_before <= limit, size_bytes)
        return self._entry(count - 1) if count else FIRST

    def find_count(self, count: int, size_bytes: int) -> tuple[IndexEntry, IndexEntry | None]:
        """The last entry with at most *count* records before it, and the one behind it; None if
        there is no such, or its count is not known.

        Raises:
          DamagedIndexError: see `find_position`.
        """
        number = self._search(lambda entry: entry.count_before <= count, size_bytes)
        entry = self._entry(number - 1) if number else FIRST
        following = self._entry(number) if number < self._load(create=False) else None
        return entry, None if following is None or following.known_count is None else following

    def positions_behind(self, position: int) -> Iterator[int]:
        """What it says, in whatever order, about where records start behind *position*."""
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
          DamagedIndexError: if the last one isn't sound.
          OSError: if the file can't be opened.
        """
        if self._count is None:
            count = self._open(create=create).size_bytes // ENTRY_BYTES
            self._last = self._entry(count - 1) if count else FIRST
            self._count = count
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
                await self._file.sync()
            except BaseException:
                self.unsynced = True
                raise

    def close(self) -> None:
        """Let go of the file; it is opened again when needed."""
        if self._file is not None:
            self._file.close()
            self._file = None
