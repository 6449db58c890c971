"""Look-ups in a log, in time slices; segments may be added and removed between two slices.

Callers pass the end of the committed records as *until*, an offset where a record ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from octopi.errors import NeedsTimeError, OffsetOutOfRangeError, StorageError
from octopi.identifiers import Offset
from octopi.storage.segment import Segment
from octopi.storage.segments import Segments
from octopi.storage.time_slices import Slices, if_quick

_T = TypeVar("_T")


class RemovedError(StorageError):
    """Retention removed the segment in which a look-up searched."""


class LogSearch:
    """Look-ups in the log that has *segments*; *check_open* raises if the log was closed."""

    __slots__ = ("_check_open", "_segments")

    def __init__(self, segments: Segments, check_open: Callable[[], None]) -> None:
        self._segments = segments
        self._check_open = check_open

    def record_bytes_at(self, offset: Offset) -> int:
        """How long the record at *offset* is, by its length field alone.  0 if that is not known;
        then a read from there raises what is wrong."""
        if not self._segments.start <= offset < self._segments.end:
            return 0
        segment = self._segments.at(offset)
        return segment.record_bytes_at(offset - segment.base)

    def timestamp(self, timestamp_ms: int, until: Offset) -> Slices[Offset]:
        """Where the first record before *until* starts whose time stamp is *timestamp_ms* or
        later; *until* if there is none.

        Raises:
          CorruptLogError: if damage hides the answer.
          StorageError: if the disk can't be read.
        """
        self._check_open()
        until = min(until, self._segments.end)
        end = self._segments.start
        while end < until and (segment := self.segment_behind(end)) is not None:
            try:
                position = yield from self.on(segment, segment.find_timestamp(timestamp_ms))
            except RemovedError:
                position = None
            if position is not None:
                return min(until, Offset(segment.base + position))
            end = max(segment.end, self._segments.start)
            yield
        return until

    def boundary(self, offset: Offset, until: Offset) -> Slices[Offset]:
        """The last place at or before *offset*, and at most *until*, where a record starts; the
        log's start if *offset* is before that.

        Raises:
          CorruptLogError: if damage hides the answer.
          StorageError: if the disk can't be read.
        """
        self._check_open()
        start, until = self._segments.start, min(until, self._segments.end)
        if offset >= until or offset <= start:
            return max(start, min(offset, until))
        segment = self._segments.at(offset)
        try:
            position = yield from self.on(segment, segment.boundary_at_most(offset - segment.base))
        except RemovedError:
            return self._segments.start
        return Offset(segment.base + position)

    def last(self, count: int, until: Offset) -> Slices[Offset]:
        """Where the *count*-th record before *until* starts, counted backwards; the log's start if
        there are fewer.  A record has to end at *until*.

        Raises:
          CorruptLogError: if damage hides the answer.
          StorageError: if the disk can't be read.
        """
        self._check_open()
        until = min(until, self._segments.end)
        while count and until > self._segments.start:
            segment = self._segments.at(Offset(until - 1))
            try:
                position, count = yield from self.on(
                    segment, segment.count_back(count, until - segment.base)
                )
            except RemovedError:
                break
            until = Offset(segment.base + position)
            yield
        return max(until, self._segments.start)

    def count_on(self, offset: Offset, count: int) -> Slices[Offset]:
        """Where the record starts that comes *count* records behind the one at *offset*.  Both have
        to be in the same segment, as the records of one batch are.

        Raises:
          OffsetOutOfRangeError: if retention has removed them.
          CorruptLogError: if damage hides the answer.
          StorageError: if the disk can't be read.
        """
        self._check_open()
        self._check_kept(offset)
        segment = self._segments.at(offset)
        try:
            position = yield from self.on(segment, segment.count_on(offset - segment.base, count))
        except RemovedError:
            self._check_kept(offset)
            raise
        return Offset(segment.base + position)

    def count(self, until: Offset) -> Slices[tuple[Offset, int | None]]:
        """Where the log starts, and how many records there are from there to *until*; None if
        damage hides some, or if the index of a segment has to be rebuilt first, which takes long.

        Raises:
          StorageError: if the log was closed.
        """
        while True:
            self._check_open()
            start = end = self._segments.start
            count: int | None = 0
            while count is not None and end < until and (segment := self.segment_behind(end)):
                stop = min(until, segment.end)
                work = self.on(segment, if_quick(segment.count(stop - segment.base)))
                try:
                    count += yield from work
                except (StorageError, NeedsTimeError):
                    count = None
                end = stop
                yield
            if self._segments.start == start:  # retention has removed nothing meanwhile
                return start, count

    def on(self, segment: Segment, work: Slices[_T]) -> Slices[_T]:
        """Do *work*, which reads *segment*, and return its result.

        Raises:
          RemovedError: if the segment was removed between two slices.
          StorageError: if the log was closed.
        """
        try:
            while True:
                self._check_open()
                if not self._segments.has(segment):
                    raise RemovedError(f"{segment.path} was removed")
                self._segments.use(segment)  # *work* may open its files again
                try:
                    next(work)
                except StopIteration as done:
                    result: _T = done.value
                    return result
                yield
        finally:
            work.close()

    def segment_behind(self, end: Offset) -> Segment | None:
        """The segment that begins at *end*; None if *end* is the end of the log."""
        return None if end >= self._segments.end else self._segments.at(end)

    def _check_kept(self, offset: Offset) -> None:
        if offset < self._segments.start:
            raise OffsetOutOfRangeError(
                f"the record at offset {offset} is gone: the log starts at {self._segments.start}"
            )
