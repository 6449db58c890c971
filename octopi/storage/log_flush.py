"""Flushes a log, and knows up to which offset it is durable."""

from __future__ import annotations

from octopi.environment import Disk
from octopi.identifiers import Offset
from octopi.storage.brief_lock import BriefLock
from octopi.storage.full_disk import not_synced
from octopi.storage.log_condition import LogCondition
from octopi.storage.segment import Segment
from octopi.storage.segments import Segments
from octopi.storage.time_slices import Slices, in_turns


class LogFlush:
    """Makes the segments of the log in *directory* durable, their names included."""

    # fmt: off
    __slots__ = (
        "_condition", "_directory", "_disk", "_flushed_changes", "_lock", "_segments",
        "_truncations", "changes", "flushed_end", "names_unsynced",
    )
    # fmt: on

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: Segments,
        condition: LogCondition,
        flushed_end: Offset,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._condition = condition
        self._lock = BriefLock()
        self.flushed_end = flushed_end
        """Records before it are durable."""
        self.changes = 0
        """Counts what a flush has to make durable: appends, truncations, new and removed files."""
        self._flushed_changes = -1
        self._truncations = 0
        self.names_unsynced = True
        """Whether files were made or removed since the last flush."""

    def files_changed(self) -> None:
        """Note that whole segments were added or removed."""
        self.names_unsynced = True
        self.changes += 1

    def truncated(self) -> None:
        """Note that records were dropped from the end."""
        self._truncations += 1
        self.files_changed()

    async def run(self) -> Offset:
        """Make everything durable that was changed so far; return the end of what is durable.

        Raises:
          LogReadOnlyError, DiskFullError: see `SegmentedLog.flush`.
        """
        wanted = self.changes
        self._condition.check_flushable()
        async with self._lock:
            self._condition.check_flushable()
            if self._flushed_changes < wanted:
                await self._flush()
            return self.flushed_end

    async def _flush(self) -> None:
        # One at a time, because the system reports an error of the device to one fsync only: a
        # second fsync at the same time could return success.
        changes, truncations, end = self.changes, self._truncations, self._segments.end
        try:
            for segment in self._segments.unsynced():
                self._condition.check_open()  # a closed log must not open its files again
                if segment.unsynced:  # false if the segment was removed meanwhile
                    self._segments.use(segment)
                    await self._sync(segment)
            if self.names_unsynced and self._segments:
                self.names_unsynced = False
                try:
                    await self._disk.sync_directory(self._directory)
                    await self._disk.sync_directory(_parent(self._directory))
                except BaseException:
                    self.names_unsynced = True
                    raise
        except OSError as error:
            failure = not_synced(self._directory, error) or self._condition.fail("fsync", error)
            raise failure from error
        self._flushed_changes = changes
        if truncations == self._truncations:
            self.flushed_end = max(self.flushed_end, end)
        self._segments.close_unused()

    async def _sync(self, segment: Segment) -> None:
        if not segment.to_be_written_again:
            try:
                await segment.sync()
                return
            except OSError:
                if not segment.to_be_written_again:
                    raise
        await in_turns(self._write_again(segment))
        if self._segments.has(segment):
            await segment.sync()

    def _write_again(self, segment: Segment) -> Slices[None]:
        if not self._segments.has(segment):
            return  # it was removed meanwhile
        for _ in segment.write_again():
            yield
            self._condition.check_open()
            if not self._segments.has(segment):
                return


def _parent(directory: str) -> str:
    head, slash, _ = directory.rpartition("/")
    return head or slash or "."
