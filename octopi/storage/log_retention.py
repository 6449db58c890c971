"""Finds and removes segments whose records are too old, or that make the log too large."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from octopi.environment import Disk
from octopi.errors import StorageError
from octopi.identifiers import Offset
from octopi.storage.file_names import cut_names
from octopi.storage.log_flush import LogFlush
from octopi.storage.log_options import LogOptions
from octopi.storage.log_search import LogSearch
from octopi.storage.recovery import remove_quietly
from octopi.storage.retention import ClosedSegment, Hold, Retained, expired_count
from octopi.storage.segment import Segment
from octopi.storage.segments import Segments
from octopi.storage.time_slices import Slices

_BEGINNING: Final = Offset(0)


class LogRetention:
    """Applies *options* to the log that has *segments* and was opened at *opened_ms* (wall
    clock)."""

    # fmt: off
    __slots__ = ("_directory", "_disk", "_flush", "_opened_ms", "_options", "_search", "_segments")
    # fmt: on

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: Segments,
        search: LogSearch,
        flush: LogFlush,
        options: LogOptions,
        opened_ms: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._search = search
        self._flush = flush
        self._options = options
        self._opened_ms = opened_ms

    def alter(self, options: LogOptions) -> None:
        """Apply *options* from now on."""
        self._options = options

    def learn_ages(self, now_ms: int) -> Slices[None]:
        """Find out how old the oldest segments are that an earlier process wrote, as far as
        `expired_count` needs it.  After this, `expired_count` is quick."""
        age_ms = self._options.retention_ms
        if age_ms is None:
            age_ms = self._options.hold_ms
        end = self._segments.start
        while age_ms is not None and (segment := self._search.segment_behind(end)) is not None:
            if segment is self._segments.active:
                return
            if segment.last_append_ms is None:
                try:
                    yield from self._search.on(segment, segment.learn())
                except StorageError:
                    return  # `expired_count` takes the time at which the log was opened instead
            if now_ms - self._newest_ms(segment) <= age_ms:
                return
            end = segment.end

    def expired_count(
        self,
        now_ms: int,
        below: Offset,
        outdated_below: Offset = _BEGINNING,
        hold: Offset | None = None,
    ) -> int:
        """How many of the oldest segments, all before *below*, retention removes.  Segments that
        end at *outdated_below* or before are removed in any case.  It waits, as far as the options
        permit, for somebody who has yet to read what lies from *hold* on; None: for nobody."""
        return expired_count(
            self._closed_segments(),
            log_bytes=self._segments.end - self._segments.start,
            now_ms=now_ms,
            below=below,
            age_ms=self._options.retention_ms,
            bytes_min=self._options.retention_bytes,
            outdated_below=outdated_below,
            hold=None if hold is None else self._bounded(hold),
        )

    def _bounded(self, offset: Offset) -> Hold | None:
        """A hold at *offset* within the bounds of the options; None: they permit none."""
        options = self._options
        if options.hold_ms is None and options.hold_bytes is None:
            return None
        age_ms = None if options.hold_ms is None else (options.retention_ms or 0) + options.hold_ms
        return Hold(offset, age_ms, options.hold_bytes)

    def remove_before(self, start: Offset) -> Retained:
        """Remove the segments before *start*, where the log begins or
        `octopi.storage.segmented_log.SegmentedLog.retention_start` wants it to.

        Raises:
          StorageError: if a file can't be removed; those before it are removed.
        """
        segments = self._segments
        count = sum(1 for _ in takewhile(lambda one: one.end <= start, segments.closed()))
        was_at = segments.start
        for _ in range(count):
            try:
                segments.remove_first()
            except OSError as error:
                raise StorageError(
                    f"{error.filename} can't be removed: {error.strerror}"
                ) from error
            finally:
                self._flush.files_changed()
        if count:
            self._remove_cuts()
        return Retained(count, segments.start - was_at, segments.start)

    def _remove_cuts(self) -> None:
        try:
            names = self._disk.list_directory(self._directory)
        except OSError:
            return
        for name in cut_names(names, self._segments.start):
            remove_quietly(self._disk, f"{self._directory}/{name}")

    def _newest_ms(self, segment: Segment) -> int:
        """When the last record of *segment* was appended, or the best guess (ms)."""
        if segment.last_append_ms is not None:
            return segment.last_append_ms
        # An earlier process wrote it.  A time stamp may be ahead of the clock of this node.
        self._segments.use(segment)
        try:
            newest_ms = min(segment.newest_timestamp_ms(), self._opened_ms)
        except StorageError:
            newest_ms = self._opened_ms
        return newest_ms if newest_ms > 0 else self._opened_ms

    def _closed_segments(self) -> Iterator[ClosedSegment]:
        for segment in self._segments.closed():
            yield ClosedSegment(segment.end, segment.size_bytes, self._newest_ms(segment))
