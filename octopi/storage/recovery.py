"""Opening a log's files: what an unclean end left is checked, cut and reported.

Everything below the *recovery point* had been made durable, index included, and is trusted
as whole: bytes missing there are damage, which no program may mend by forgetting.  The log
then ends where the damage begins, and says so.  Behind the recovery point nothing was
promised.  Records there are checked one by one, and the first that isn't sound ends the
log: the rest is a torn tail.  It is kept in ``.cut`` files (`octopi.storage.file_names`),
as far as the disk allows, and cut.

A process that ends while it writes leaves the beginning of a record, and nothing behind it.
Any other tail has lost records that were written whole.  When the machine lost power that is
as it may be; else the caller may have to tell others before they are forgotten here, too.

What happens later, reading, appending and flushing, is `octopi.storage.segmented_log`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final

import attrs

from octopi.environment import Disk
from octopi.errors import (
    AlteredTailError,
    CorruptLogError,
    IncompleteRecordError,
    LogReadOnlyError,
    RecordError,
    StorageError,
)
from octopi.identifiers import Offset
from octopi.limits import MIB
from octopi.record import Scan, holds_record
from octopi.storage.file_names import (
    cut_path,
    index_bases,
    index_path,
    segment_bases,
)
from octopi.storage.record_file import Chunk
from octopi.storage.segment import Segment
from octopi.storage.slices import at_once

_COPY_BYTES: Final = MIB


@attrs.frozen
class Recovery:
    """What opening a log found and did."""

    start: Offset
    """The log's start."""
    end: Offset
    """The log's end (exclusive)."""
    scanned_bytes: int
    """Bytes of records that were checked."""
    cut_bytes: int
    """Bytes that were cut off at `end`."""
    why: str
    """Why they were: file, position and fault; empty if none were."""
    saved_as: list[str]
    """The files that keep what was cut; with a full or failing disk, maybe not all of it."""


@attrs.frozen
class Recovered:
    """A log's segments, in order and joined, and what was done to have them so."""

    segments: list[Segment]
    report: Recovery
    damage: CorruptLogError | None
    """Where the log ends too early: below the recovery point."""
    failure: LogReadOnlyError | None
    """Why nothing can be appended: the disk failed while the tail was cut."""


def recover(
    disk: Disk,
    directory: str,
    recovery_point: Offset,
    on_records: Callable[[Offset, Scan], None] | None,
    *,
    cut_altered: bool,
) -> Recovered:
    """Open the log in *directory*; one that doesn't exist is empty.

    *on_records* is told every sound record behind *recovery_point*, in order, a chunk at a
    time: the chunk's offset and its scan, of which only the valid prefix counts.

    Raises:
      AlteredTailError: if *cut_altered* is not set, and the tail is not what a process leaves
        that ends while it writes.  Nothing was cut.
      StorageError: if the disk doesn't let us know what is there.
    """
    segments: list[Segment] = []
    try:
        names = disk.list_directory(directory)
        segments += (Segment.existing(disk, directory, base) for base in segment_bases(names))
    except OSError as error:
        raise StorageError(f"the log in {directory} can't be opened: {error}") from error
    _remove_orphans(disk, directory, names)
    damage = _find_damage(segments, directory, recovery_point)
    if damage is not None:
        segments = [one for one in segments if one.base < damage.offset]
        for one in segments[-1:]:
            # Bytes beyond are not ours to give: the next segment claims them.
            one.size_bytes = min(one.size_bytes, damage.offset - one.base)
    tail = _Tail(disk, directory, names, on_records, cut_altered=cut_altered)
    try:
        failure = tail.check(segments, recovery_point)
    except BaseException:
        for one in segments:
            one.close()
        raise
    start = end = Offset(damage.offset if damage is not None else 0)
    if segments:
        start, end = segments[0].base, segments[-1].end
    report = Recovery(start, end, tail.scanned_bytes, tail.cut_bytes, tail.why, tail.saved_as)
    return Recovered(segments, report, damage, failure)


def _find_damage(
    segments: list[Segment], directory: str, recovery_point: Offset
) -> CorruptLogError | None:
    """The first place below the recovery point where the segments don't join."""
    for segment, following in pairwise(segments):
        offset = min(segment.end, following.base)
        if segment.end != following.base and offset < recovery_point:
            return CorruptLogError(
                segment.path,
                offset - segment.base,
                offset,
                f"it ends at offset {segment.end} and the next segment begins at {following.base}",
            )
    path, base, end = directory, Offset(0), Offset(0)
    if segments:
        path, base, end = segments[-1].path, segments[-1].base, segments[-1].end
    if end < recovery_point:
        return CorruptLogError(
            path,
            end - base,
            end,
            f"the log ends there, but had been durable up to offset {recovery_point}",
        )
    return None


class _Tail:
    """What lies behind the recovery point: checked, and cut where it stops being sound."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        names: list[str],
        on_records: Callable[[Offset, Scan], None] | None,
        *,
        cut_altered: bool,
    ) -> None:
        self._cut_altered = cut_altered
        self._disk = disk
        self._directory = directory
        self._names = list(names)
        self._on_records = on_records
        self.scanned_bytes = 0
        self.cut_bytes = 0
        self.why = ""
        self.saved_as: list[str] = []

    def check(self, segments: list[Segment], recovery_point: Offset) -> LogReadOnlyError | None:
        """Check the records of *segments* behind *recovery_point*; take those that are cut off
        the list.  Return what failed while they were cut.

        Raises:
          AlteredTailError: if it must not be cut.
          StorageError: if a file can't be read.
        """
        for number, segment in enumerate(segments):
            following = segments[number + 1 :]
            joined = not following or following[0].base == segment.end
            if segment.end <= recovery_point and following and joined:
                continue
            file_bytes = segment.size_bytes
            start = min(max(0, recovery_point - segment.base), file_bytes)
            if not self._is_boundary(segment, start):
                start = 0  # whoever keeps the recovery point erred: check all rather than cut it
            fault = at_once(segment.recover(start, partial(self._note, segment)))
            if fault is not None:
                self.why = f"{segment.path} at byte {segment.size_bytes}: {fault}"
            elif not joined:
                self.why = f"{following[0].path} doesn't begin where {segment.path} ends"
            if self.why:
                self.cut_bytes = file_bytes - segment.size_bytes
                self.cut_bytes += sum(one.size_bytes for one in following)
                if not self._cut_altered and (following or self._is_altered(segment, fault)):
                    raise AlteredTailError(segment.path, segment.size_bytes, segment.end, self.why)
                del segments[number + 1 :]
                return self._try_cut(segment, file_bytes, following)
            if following:
                segment.close()
        return None

    def _is_boundary(self, segment: Segment, position: int) -> bool:
        try:
            return at_once(segment.is_boundary(position))
        except CorruptLogError:
            return True  # damage before it, which readers will meet

    def _note(self, segment: Segment, chunk: Chunk) -> None:
        self.scanned_bytes += chunk.scan.valid_bytes
        if self._on_records is not None and chunk.scan.count:
            self._on_records(Offset(segment.base + chunk.position), chunk.scan)

    def _is_altered(self, segment: Segment, fault: RecordError | None) -> bool:
        """Whether the last file ends otherwise than with the beginning of a record.

        No checksum covers a record's length.  One that turned into a larger one swallows the
        records behind it, and looks as if its own end was missing.
        """
        if not isinstance(fault, IncompleteRecordError):
            return True
        try:
            file = self._disk.open(segment.path)
            try:
                return holds_record(file.pread(self.cut_bytes, segment.size_bytes)[1:])
            finally:
                file.close()
        except OSError as error:
            raise StorageError(f"the tail of {segment.path} can't be read: {error}") from error

    def _try_cut(
        self, segment: Segment, file_bytes: int, following: list[Segment]
    ) -> LogReadOnlyError | None:
        try:
            self._cut(segment, file_bytes, following)
        except OSError as error:
            return LogReadOnlyError(
                f"the torn tail of the log in {self._directory} can't be cut: "
                f"{error.strerror}; look at the disk, then restart the broker"
            )
        return None

    def _cut(self, segment: Segment, file_bytes: int, following: list[Segment]) -> None:
        """Cut the log at the end of *segment*, whose file has *file_bytes* bytes.

        Raises:
          OSError: if that can't be done; what is left is recovered the same way again.
        """
        for one in reversed(following):  # what is left joins after each step
            path = self._free_path(one.base)
            self._disk.rename(one.path, path)
            self.saved_as.append(path)
            remove_quietly(self._disk, index_path(self._directory, one.base))
        if file_bytes > segment.size_bytes:
            with contextlib.suppress(OSError):
                self._save(segment, file_bytes)
            segment.truncate(segment.size_bytes)

    def _save(self, segment: Segment, file_bytes: int) -> None:
        path = self._free_path(segment.end)
        source, target = self._disk.open(segment.path), self._disk.open(path, create=True)
        try:
            self.saved_as.append(path)
            for position in range(segment.size_bytes, file_bytes, _COPY_BYTES):
                size_bytes = min(_COPY_BYTES, file_bytes - position)
                target.append(source.pread(size_bytes, position))
        finally:
            source.close()
            target.close()

    def _free_path(self, offset: Offset) -> str:
        path = cut_path(self._directory, offset, self._names)
        self._names.append(path.rpartition("/")[2])
        return path


def _remove_orphans(disk: Disk, directory: str, names: list[str]) -> None:
    """Remove indexes whose segment is gone: retention removes the segment first."""
    for base in set(index_bases(names)) - set(segment_bases(names)):
        remove_quietly(disk, index_path(directory, base))


def remove_quietly(disk: Disk, path: str) -> None:
    """Remove a file that nothing depends on; if that fails, a later opening tries again."""
    with contextlib.suppress(OSError):
        disk.remove(path)
