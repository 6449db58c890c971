"""Which segments retention removes, because their records are too old or the log is too large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from octopi.errors import StorageError
from octopi.identifiers import Offset
from octopi.storage.log_options import LogOptions
from octopi.storage.log_search import LogSearch
from octopi.storage.retention import ClosedSegment, expired_count
from octopi.storage.segment import Segment
from octopi.storage.segments import Segments
from octopi.storage.time_slices import Slices

_BEGINNING: Final = Offset(0)


class LogRetention:
    """Applies *options* to the log that has *segments* and was opened at *opened_ms* (wall
    clock)."""

    __slots__ = ("_opened_ms", "_options", "_search", "_segments")

    def __init__(
        self, segments: Segments, search: LogSearch, options: LogOptions, opened_ms: int
    ) -> None:
        self._segments = segments
        self._search = search
        self._options = options
        self._opened_ms = opened_ms

    def learn_ages(self, now_ms: int) -> Slices[None]:
        """Find out how old the oldest segments are that an earlier process wrote, as far as
        `expired_count` needs it.  After this, `expired_count` is quick."""
        age_ms = self._options.retention_ms
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

    def expired_count(self, now_ms: int, below: Offset, outdated_below: Offset = _BEGINNING) -> int:
        """How many of the oldest segments, all before *below*, retention removes.  Segments that
        end at *outdated_below* or before are removed in any case."""
        return expired_count(
            self._closed_segments(),
            log_bytes=self._segments.end - self._segments.start,
            now_ms=now_ms,
            below=below,
            age_ms=self._options.retention_ms,
            bytes_min=self._options.retention_bytes,
            outdated_below=outdated_below,
        )

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
