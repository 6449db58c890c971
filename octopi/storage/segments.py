"""The segments of a log: in order, joined, and with few open files.

Knows which segment holds an offset and how segments come and go at the two ends.  What
is written into them, and what a failing disk means for the log, is its owner's concern.
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
"""Closed segments whose files stay open, so that many logs don't use up the descriptors."""


class Segments:
    """Each begins where the one before ends.  The last one is active, the others closed."""

    __slots__ = ("_directory", "_disk", "_recent", "_segments", "empty_at")

    def __init__(
        self, disk: Disk, directory: str, segments: list[Segment], empty_at: Offset
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._recent: tuple[Segment, ...] = ()
        """Closed ones that may have open files, the one used last at the end."""
        self.empty_at = empty_at
        """Where the log is while it has no segment."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def start(self) -> Offset:
        """Where the first one begins."""
        return self._segments[0].base if self._segments else self.empty_at

    @property
    def end(self) -> Offset:
        """Where the last one ends."""
        return self._segments[-1].end if self._segments else self.empty_at

    @property
    def active(self) -> Segment | None:
        """The one that takes records."""
        return self._segments[-1] if self._segments else None

    def closed(self) -> Iterator[Segment]:
        """The others, oldest first."""
        return islice(self._segments, max(0, len(self._segments) - 1))

    def unsynced(self) -> list[Segment]:
        """Those that changed since they were last synced, which are the last ones; oldest first."""
        found = list(takewhile(lambda one: one.unsynced, reversed(self._segments)))
        return found[::-1]

    def at(self, offset: Offset) -> Segment:
        """The one that holds *offset*, which may be the end; its files may be opened."""
        active = self._segments[-1]
        if offset >= active.base:
            return active
        number = bisect_right(self._segments, offset, key=lambda one: one.base) - 1
        segment = self._segments[number]
        self.use(segment)
        return segment

    def has(self, segment: Segment) -> bool:
        """Whether it is one of them."""
        number = bisect_right(self._segments, segment.base, key=lambda one: one.base) - 1
        return number >= 0 and self._segments[number] is segment

    def begin(self) -> Segment:
        """Have a new active one at the end.

        Raises:
          OSError: if its file can't be made.
        """
        segment = Segment.create(self._disk, self._directory, self.end)
        closing = self.active
        self._segments.append(segment)
        if closing is not None:
            self.use(closing)
        return segment

    def remove_first(self) -> None:
        """Remove the oldest one.

        Raises:
          OSError: if that can't be done; it stays.
        """
        self._remove(0)

    def remove_last(self) -> None:
        """Remove the active one; the one before, if any, is active then.

        Raises:
          OSError: if that can't be done; it stays.
        """
        self._remove(len(self._segments) - 1)
        if self._segments:
            self._forget(self._segments[-1])

    def _remove(self, number: int) -> None:
        """Remove a segment, its index last: that alone is an orphan."""
        segment = self._segments[number]
        with suppress(FileNotFoundError):
            self._disk.remove(segment.path)
        segment.close()
        segment.unsynced = False
        del self._segments[number]
        self._forget(segment)
        remove_quietly(self._disk, index_path(self._directory, segment.base))

    def set_aside(self, offset: Offset) -> None:
        """Forget the segments from *offset* on: their files have gone elsewhere, and that of the
        one before ends there.

        Raises:
          OSError: if that one's index can't be cut.
        """
        while self._segments and self._segments[-1].base >= offset:
            gone = self._segments.pop()
            gone.close()
            self._forget(gone)
        if self._segments:
            last = self._segments[-1]
            last.close()  # which knows the file as it was
            last.truncate(offset - last.base)
            self._forget(last)
        self.empty_at = offset

    def use(self, segment: Segment) -> None:
        """Note that a segment's files may be open now; the active one's stay so anyway."""
        if segment is not self._segments[-1]:
            self._forget(segment)
            self._recent += (segment,)
            self.close_unused()

    def close_unused(self) -> None:
        """Close the files of closed ones that were not used lately and are durable."""
        durable = [segment for segment in self._recent if not segment.unsynced]
        for segment in durable[:-_OPEN_COUNT_MAX]:
            segment.close()
            self._forget(segment)

    def _forget(self, segment: Segment) -> None:
        self._recent = tuple(one for one in self._recent if one is not segment)
