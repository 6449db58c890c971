"""A log: segments in a directory, appended at the end, read anywhere.

Appends go to the page cache and are synchronous; `SegmentedLog.flush` makes them durable.
Memory grows with the log only by a small object for each segment.

**When the disk fails.**  If the disk is full, or too many files are open, the append is undone and
the log goes on.  After any other failed write, and after any failed fsync, the log is read-only for
the rest of this process: the system may have dropped the pages that it failed to write, and the
next fsync could still succeed.

The log doesn't know what is committed: callers pass the end of the committed records as *until*, an
offset where a record ends.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from octopi.environment import Disk
from octopi.errors import (
    CorruptLogError,
    OffsetInsideRecordError,
    OffsetOutOfRangeError,
    StorageError,
)
from octopi.identifiers import Offset
from octopi.record import Scan
from octopi.storage.full_disk import FULL, NO_DESCRIPTOR, disk_full
from octopi.storage.log_condition import LogCondition
from octopi.storage.log_flush import LogFlush
from octopi.storage.log_options import LogOptions, LogStatistics
from octopi.storage.log_retention import LogRetention
from octopi.storage.log_search import LogSearch
from octopi.storage.newest_records import NewestRecords
from octopi.storage.record_file import whole_records
from octopi.storage.recovery import (
    NOTHING,
    Noted,
    Recovered,
    RecoveryReport,
    recover,
    set_bytes_aside,
)
from octopi.storage.retention import Retained
from octopi.storage.segment import Segment
from octopi.storage.segments import Segments
from octopi.storage.time_slices import Slices, at_once, quickly

_BEGINNING: Final = Offset(0)

_BOUNDARIES_COUNT_MAX: Final = 256
"""How many ends of reads are remembered: a read that continues there need not check that a record
starts there."""


class SegmentedLog:
    """One log.  Open it with `SegmentedLog.open`; only one may be open on a directory."""

    # A node may have many thousands of logs; slots save a dictionary of attributes for each.
    # fmt: off
    __slots__ = (
        "_boundaries", "_condition", "_directory", "_disk", "_flush", "_options", "_segments",
        "newest", "retention", "search",
    )
    # fmt: on

    def __init__(
        self,
        disk: Disk,
        directory: str,
        options: LogOptions,
        found: Recovered,
        flushed_end: Offset,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._options = options
        self._segments = Segments(disk, directory, found.segments, found.report.end)
        self._condition = LogCondition(directory, found.damage, found.failure)
        durable_end = max(self.start, min(flushed_end, self.end))
        self._flush = LogFlush(disk, directory, self._segments, self._condition, durable_end)
        self._boundaries: dict[Offset, None] = {}
        self.newest = NewestRecords(0)
        """Keeps the newest records for reads; at first none."""
        self.search: Final = LogSearch(self._segments, self._condition.check_open)
        """Look-ups, in slices."""
        self.retention: Final = LogRetention(
            disk, directory, self._segments, self.search, self._flush, options, now_ms
        )
        """Finds and removes old segments."""

    def alter(self, options: LogOptions) -> None:
        """Go by *options* from now on."""
        self._options = options
        self.retention.alter(options)

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        options: LogOptions,
        *,
        recovery_point: Offset,
        now_ms: int,
        on_records: Callable[[Offset, Scan], None] | None = None,
        cut_altered: bool = True,
        noted: Noted = NOTHING,
    ) -> Slices[tuple[SegmentedLog, RecoveryReport]]:
        """Open the log in *directory*, which need not exist yet, and recover it, in slices.

        *recovery_point*: an offset that `flush` has returned; records below it are not read again,
        unless they are behind the noted highwater mark.  *noted*: facts about the log from another
        file; if they don't hold, the log is damaged.
        *on_records*: called with the records that are read, a chunk at a time: with the chunk's
        offset and its scan, of which only the valid prefix counts.

        A log whose files are damaged opens, too: see `fault`.

        Raises:
          AlteredTailError: if *cut_altered* is false, and records behind the recovery point
            that had been written completely are not sound any more.  Nothing was changed.
          StorageError: if the files can't be read.
        """
        found = yield from recover(
            disk, directory, recovery_point, on_records, cut_altered=cut_altered, noted=noted
        )
        if found.segments:
            # The producer's time stamp of its oldest record; if that isn't possible, the time now.
            active = found.segments[-1]
            oldest_ms = min(active.oldest_timestamp_ms(), now_ms)
            active.first_append_ms = oldest_ms if oldest_ms > 0 else now_ms
        flushed_end = max(recovery_point, noted.durable_end)
        return cls(disk, directory, options, found, flushed_end, now_ms), found.report

    # --- where it stands -----------------------------------------------------------------

    @property
    def start(self) -> Offset:
        """The offset of the oldest record that is kept."""
        return self._segments.start

    @property
    def end(self) -> Offset:
        """The offset that the next record will get."""
        return self._segments.end

    @property
    def flushed_end(self) -> Offset:
        """Records before it are durable."""
        return self._flush.flushed_end

    @property
    def size_bytes(self) -> int:
        """The size of the records from `start` to `end`."""
        return self.end - self.start

    @property
    def segment_count(self) -> int:
        """How many segments there are, the active one included."""
        return len(self._segments)

    @property
    def fault(self) -> StorageError | None:
        """Why nothing can be appended; None: the log takes records.

        `CorruptLogError`: the files are damaged at `end`; records from there on are not served.
        `LogReadOnlyError`: the disk failed; all records are served.
        """
        return self._condition.fault

    @property
    def damage(self) -> CorruptLogError | None:
        """Where records are missing or not sound, if that was found when the log was opened."""
        return self._condition.damage

    def statistics(self) -> LogStatistics:
        """The log's state, for metrics and people."""
        fault = self.fault
        return LogStatistics(
            start=self.start,
            end=self.end,
            flushed_end=self.flushed_end,
            size_bytes=self.size_bytes,
            segment_count=self.segment_count,
            fault="" if fault is None else str(fault),
        )

    # --- writing -------------------------------------------------------------------------

    def append(self, records: bytes, scan: Scan, now_ms: int) -> Offset:
        """Append whole *records*, of which *scan* is the faultless scan; return the offset of the
        first one.  They are in the page cache then, and visible to readers.

        Raises:
          DiskFullError: if there is no space; nothing was appended, and the log goes on.
          LogReadOnlyError: if a write failed, now or before; nothing was appended.
          CorruptLogError: if the log is damaged.
        """
        assert scan.fault is None
        assert 0 < scan.valid_bytes == len(records)
        self._condition.check_writable()
        segment = self._segment_for(len(records), now_ms)
        base = segment.end
        try:
            segment.append(records, scan, now_ms)
        except OSError as error:
            if error.errno not in FULL:
                raise self._condition.fail(f"writing to {segment.path}", error) from error
            try:
                if error.errno not in NO_DESCRIPTOR:
                    segment.undo()
            except OSError as undoing:
                doing = f"undoing a write to {segment.path}"
                raise self._condition.fail(doing, undoing) from undoing
            what = f"{len(records)} bytes for {segment.path} were not written"
            raise disk_full(what, error) from error
        self._flush.changes += 1
        self.newest.add(self, base, records)
        return base

    def _segment_for(self, size_bytes: int, now_ms: int) -> Segment:
        """The active segment; a new one if the active one is too large or too old."""
        active = self._segments.active
        if active is not None:
            first_ms = now_ms if active.first_append_ms is None else active.first_append_ms
            if not active.size_bytes or (
                active.size_bytes + size_bytes <= self._options.segment_bytes_max
                and now_ms - first_ms < self._options.segment_age_s_max * 1000
            ):
                return active
        return self._begin_segment(size_bytes)

    def _begin_segment(self, size_bytes: int) -> Segment:
        """A new segment at the log's end, for *size_bytes* bytes."""
        path = f"a segment in {self._directory}"
        try:
            self._disk.make_directory(self._directory)
            segment = self._segments.begin()
        except OSError as error:
            if error.errno in FULL:
                what = f"{size_bytes} bytes for {path} were not written"
                raise disk_full(what, error) from error
            raise self._condition.fail(f"making {path}", error) from error
        self._flush.names_unsynced = True
        return segment

    def truncate(self, offset: Offset) -> None:
        """Drop all records from *offset* on, which is where a record starts, or the log's end.

        Until the next flush a power failure may bring them back.
        A caller that has stored a recovery point beyond *offset* has to move it back first: else
        the next opening takes the missing records for damage.

        Raises:
          OffsetOutOfRangeError, OffsetInsideRecordError: if no record starts at *offset*.
          LogReadOnlyError: if the disk failed, now or before.
          CorruptLogError: if the log is damaged, or damage hides where records start.
          NeedsTimeError: if it takes longer to find out whether a record starts there; see `prove`.
          StorageError: if the file can't be read; nothing was dropped.
        """
        self._condition.check_writable()
        self._check_range(offset, self.end)
        if offset == self.end:
            return
        self._check_boundary(offset)
        segment = self._segments.at(offset)
        self._drop(offset)
        try:
            while self._segments.active is not segment:  # there is no gap after any step
                self._segments.remove_last()
            segment.truncate(offset - segment.base)
        except OSError as error:
            raise self._condition.fail(f"truncating {segment.path}", error) from error
        finally:
            self._flush.flushed_end = min(self._flush.flushed_end, offset)

    def restart(self, offset: Offset) -> None:
        """Drop all records; the next one gets *offset*, which must not be before the log's end
        unless the log is empty.

        A caller that has stored a recovery point has to move it back to 0 first; see `truncate`.

        Raises:
          DiskFullError: if there is no space for a new segment; the log is empty and goes on.
          LogReadOnlyError: if the disk failed, now or before.
          CorruptLogError: if the log is damaged.
        """
        self._condition.check_writable()
        assert offset >= self.end or self.start == self.end
        self._drop(offset)
        try:
            while self._segments:  # there is no gap after any step
                self._segments.remove_last()
        except OSError as error:
            raise self._condition.fail(f"emptying {self._directory}", error) from error
        self._segments.empty_at = self._flush.flushed_end = offset
        self._begin_segment(0)  # the name of the empty file keeps the offset

    async def set_aside(self, *, refill: bool) -> list[str]:
        """Move the damaged bytes and all behind them out of the log, so that it takes records again
        at the end of its sound part; return the files that keep the bytes.

        *refill*: matters if records are missing at the log's beginning.  True: the caller will
        append them again, so all records are moved and the log goes on there, empty.  False: the
        log begins with the records that are left.

        Raises:
          DiskFullError: if there is no space for the copy; the log is damaged as before.
          LogReadOnlyError: if the disk failed, now or before.
        """
        self._condition.check_flushable()
        damage = self._condition.damage
        assert damage is not None, "only a damaged log is set aside"
        lacks_beginning = damage.offset < self.start
        offset = Offset(damage.offset) if lacks_beginning and refill else self.end
        saved = await self._set_aside(offset)
        self._condition.damage = None
        return saved

    async def truncate_aside(self, offset: Offset) -> list[str]:
        """Like `truncate`, but keep the dropped bytes; return the files that keep them.

        Raises:
          DiskFullError: if there is no space for the copy; the log is as before.
          OffsetOutOfRangeError, OffsetInsideRecordError, StorageError: see `truncate`.
        """
        self._condition.check_writable()
        self._check_range(offset, self.end)
        if offset == self.end:
            return []
        self._check_boundary(offset)
        return await self._set_aside(offset)

    async def _set_aside(self, offset: Offset) -> list[str]:
        try:
            saved = await set_bytes_aside(self._disk, self._directory, offset)
            self._segments.set_aside(offset)
        except OSError as error:
            if error.errno in FULL:
                what = f"what {self._directory} holds from {offset} on was not set aside"
                raise disk_full(what, error) from error
            raise self._condition.fail("setting bytes aside", error) from error
        self._drop(offset)
        self._flush.flushed_end = min(self._flush.flushed_end, offset)
        return saved

    def _drop(self, offset: Offset) -> None:
        """The records from *offset* on are dropped: remember nothing of them."""
        self._flush.truncated()
        self._boundaries = {one: None for one in self._boundaries if one <= offset}
        self.newest.forget(self)

    async def flush(self) -> Offset:
        """Make everything appended so far durable; return the end of what is durable.

        Several tasks may call it, also while others append: one flush runs at a time, and a task
        that waited for it returns with it if it covered what the task wants durable.

        Raises:
          LogReadOnlyError: if an fsync failed, now or before.  It is not known what is durable
              beyond `flushed_end`.
          DiskFullError: if too many files are open, so no fsync was tried; try again.
        """
        return await self._flush.run()

    # --- reading -------------------------------------------------------------------------

    def read(self, offset: Offset, bytes_max: int, until: Offset) -> bytes:
        """Read whole records from *offset* on and before *until*: at most *bytes_max* bytes, but at
        least one record.  At *until*, and if *bytes_max* is 0, the result is empty, and only
        *offset* is checked.

        A read may end early, as at a segment's end or before a damaged record; the next read
        continues at *offset* plus the length of the result.

        Raises:
          OffsetOutOfRangeError: if *offset* is before the log's start or beyond *until*.
          OffsetInsideRecordError: if no record starts at *offset*, or *until* is inside the one
            that does.
          CorruptLogError: if the record at *offset* is damaged.
          NeedsTimeError: if it takes longer to find out whether a record starts there; see `prove`.
          StorageError: if the disk can't be read.
        """
        self._condition.check_open()
        until = min(until, self.end)
        self._check_range(offset, until)
        if data := self.newest.read(self, offset, bytes_max, until):
            self._remember(offset, Offset(offset + len(data)))
            return data
        if offset != until:
            self._check_boundary(offset)
        if not bytes_max or offset == until:
            return b""
        segment = self._segments.at(offset)
        limit = min(until, segment.end) - segment.base
        data = segment.read(offset - segment.base, bytes_max, limit)
        if offset + len(data) == until < segment.end and until not in self._boundaries:
            data = whole_records(data, until)
        self._remember(offset, Offset(offset + len(data)))
        return data

    def _remember(self, *boundaries: Offset) -> None:
        """Note that records start at *boundaries*, or that one of them is the end."""
        for boundary in boundaries:
            self._boundaries.pop(boundary, None)
            self._boundaries[boundary] = None
        while len(self._boundaries) > _BOUNDARIES_COUNT_MAX:
            del self._boundaries[next(iter(self._boundaries))]

    def prove(self, offset: Offset) -> Slices[None]:
        """Check that a record starts at *offset*, or that it is the end.  A `read` or `truncate`
        there doesn't check it again, so it is quick.

        Raises:
          OffsetOutOfRangeError, OffsetInsideRecordError: if no record starts there.
          CorruptLogError: if damage hides the answer.
          StorageError: if the disk can't be read.
        """
        self._condition.check_open()
        self._check_range(offset, self.end)
        if offset == self.end or offset in self._boundaries:
            return
        segment = self._segments.at(offset)
        is_boundary = yield from self.search.on(segment, segment.is_boundary(offset - segment.base))
        if not is_boundary:
            raise OffsetInsideRecordError(f"offset {offset} is inside a record, not its start")
        self._remember(offset)

    def find_timestamp(self, timestamp_ms: int, until: Offset) -> Offset:
        """`LogSearch.timestamp`, at once."""
        return at_once(self.search.timestamp(timestamp_ms, until))

    def find_boundary(self, offset: Offset, until: Offset) -> Offset:
        """`LogSearch.boundary`, at once."""
        return at_once(self.search.boundary(offset, until))

    def find_last(self, count: int, until: Offset) -> Offset:
        """`LogSearch.last`, at once."""
        return at_once(self.search.last(count, until))

    # --- retention -----------------------------------------------------------------------

    def retention_start(
        self,
        now_ms: int,
        *,
        below: Offset,
        outdated_below: Offset = _BEGINNING,
        hold: Offset | None = None,
    ) -> Offset:
        """Where the log would start after `apply_retention`, if that waited for somebody who has
        yet to read what lies from *hold* on (`LogRetention.expired_count`)."""
        self._condition.check_open()
        until = min(below, self.flushed_end)
        count = self.retention.expired_count(now_ms, until, outdated_below, hold)
        return next(islice(self._segments, count, None)).base if count else self.start

    def apply_retention(
        self, now_ms: int, *, below: Offset, outdated_below: Offset = _BEGINNING
    ) -> Retained:
        """Remove the oldest segments that the options don't keep, and those that end at
        *outdated_below* or before.  Quick after `LogRetention.learn_ages`.

        Only durable segments before *below* are removed: one that isn't durable could come back
        incomplete after a power failure.

        Raises:
          StorageError: if a file can't be removed; those before it are removed.
        """
        start = self.retention_start(now_ms, below=below, outdated_below=outdated_below)
        return self.retention.remove_before(start)

    # --- closing -------------------------------------------------------------------------

    def close(self) -> None:
        """Close the files, flushed or not.  After this only properties and `statistics` work."""
        self._condition.is_closed = True
        self.newest.forget(self)
        for segment in self._segments:
            segment.close()

    # --- checks --------------------------------------------------------------------------

    def _check_range(self, offset: Offset, until: Offset) -> None:
        damage = self._condition.damage
        if damage is not None and (offset >= self.end or damage.offset <= offset < self.start):
            raise damage.with_traceback(None)
        if not self.start <= offset <= until:
            raise OffsetOutOfRangeError(
                f"offset {offset} is out of range: the log goes from {self.start} to {until}"
            )

    def _check_boundary(self, offset: Offset) -> None:
        if offset not in self._boundaries:
            quickly(self.prove(offset))
