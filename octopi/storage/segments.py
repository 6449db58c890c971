"""The segments of a log: in order, without a gap, and with few open files.

Finds the segment of an offset, and adds and removes segments at the two ends.  Callers decide what
is written into them, and what a failing disk means for the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, takewhile
from typing import Final

from octopi.environment import Disk
from octopi.identifiers import Offset
from octopi.storage.file_names import index_path
from octopi.storage.recovery import remove_quietly
from octopi.storage.segment import Segment

_OPEN_COUNT_MAX: Final = 4
"""How many closed segments of a log keep their files open.  There may be many logs, and the number
of file descriptors is limited."""


class Segments:
    """The segments of one log.  Each begins where the one before ends.  The last one is active,
    which means that it takes records; the others are closed."""

    __slots__ = ("_directory", "_disk", "_recent", "_segments", "empty_at")

    def __init__(
        self, disk: Disk, directory: str, segments: list[Segment], empty_at: Offset
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._recent: tuple[Segment, ...] = ()
        """The closed segments that may have open files; the one used last is at the end."""
        self.empty_at = empty_at
        """The log's start and end while it has no segment."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def start(self) -> Offset:
        """The offset where the first segment begins."""
        return self._segments[0].base if self._segments else self.empty_at

    @property
    def end(self) -> Offset:
        """The offset where the last segment ends."""
        return self._segments[-1].end if self._segments else self.empty_at

    @property
    def active(self) -> Segment | None:
        """The segment that takes records; None if there is no segment."""
        return self._segments[-1] if self._segments else None

    def closed(self) -> Iterator[Segment]:
        """All segments but the active one, oldest first."""
        return islice(self._segments, max(0, len(self._segments) - 1))

    def unsynced(self) -> list[Segment]:
        """The segments that changed since they were last synced, oldest first.  They are the last
        ones of the log."""
        found = list(takewhile(lambda one: one.unsynced, reversed(self._segments)))
        return found[::-1]

    def at(self, offset: Offset) -> Segment:
        """The segment that holds *offset*, which may be the log's end.  Callers may open its
        files."""
        active = self._segments[-1]
        if offset >= active.base:
            return active
        number = bisect_right(self._segments, offset, key=lambda one: one.base) - 1
        segment = self._segments[number]
        self.use(segment)
        return segment

    def has(self, segment: Segment) -> bool:
        """Whether *segment* is one of these segments; it may have been removed."""
        number = bisect_right(self._segments, segment.base, key=lambda one: one.base) - 1
        return number >= 0 and self._segments[number] is segment

    def begin(self) -> Segment:
        """Add a new active segment at the end.

        Raises:
          OSError: if its file can't be created.
        """
        segment = Segment.create(self._disk, self._directory, self.end)
        closing = self.active
        self._segments.append(segment)
        if closing is not None:
            self.use(closing)
        return segment

    def remove_first(self) -> None:
        """Remove the oldest segment.

        Raises:
          OSError: if the disk fails; the segment stays.
        """
        self._remove(0)

    def remove_last(self) -> None:
        """Remove the active segment; the one before it, if any, becomes active.

        Raises:
          OSError: if the disk fails; the segment stays.
        """
        self._remove(len(self._segments) - 1)
        if self._segments:
            self._forget(self._segments[-1])

    def _remove(self, number: int) -> None:
        """Remove a segment, its index last: recovery removes an index without a segment."""
        segment = self._segments[number]
        with suppress(FileNotFoundError):
            self._disk.remove(segment.path)
        segment.close()
        segment.unsynced = False
        del self._segments[number]
        self._forget(segment)
        remove_quietly(self._disk, index_path(self._directory, segment.base))

    def set_aside(self, offset: Offset) -> None:
        """Drop the segments from *offset* on, whose files were renamed.  The file of the segment
        before them was cut at *offset*.

        Raises:
          OSError: if that segment's index can't be cut.
        """
        while self._segments and self._segments[-1].base >= offset:
            gone = self._segments.pop()
            gone.close()
            self._forget(gone)
        if self._segments:
            last = self._segments[-1]
            last.close()  # its open file has the size from before the cut
            last.truncate(offset - last.base)
            self._forget(last)
        self.empty_at = offset

    def use(self, segment: Segment) -> None:
        """Note that a segment's files may be open now.  Those of the active one stay open."""
        if segment is not self._segments[-1]:
            self._forget(segment)
            self._recent += (segment,)
            self.close_unused()

    def close_unused(self) -> None:
        """Close the files of closed segments that were not used lately and are durable."""
        durable = [segment for segment in self._recent if not segment.unsynced]
        for segment in durable[:-_OPEN_COUNT_MAX]:
            segment.close()
            self._forget(segment)

    def _forget(self, segment: Segment) -> None:
        self._recent = tuple(one for one in self._recent if one is not segment)
