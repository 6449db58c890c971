"""Recovery: opens a log's files, checks what was not flushed, and cuts a torn tail.

Everything below the *recovery point* had been made durable, index included, and is not read
again.  Records behind it are checked one by one.  The facts in `Noted` may say that the log had
been durable, or at least in the page cache, beyond the recovery point.  Records that are missing
or not sound below any of these offsets are damage, and recovery doesn't drop damaged records:
nothing is cut, the log ends where the damage begins, and nothing can be appended until
`octopi.storage.segmented_log.SegmentedLog.set_aside` is called.

What is not known to be durable is written once more before it is checked: a sync of it may have
failed, and then no further one would make it durable.

Records behind all of these offsets were never promised to be there.  The first one that isn't
sound ends the log; the rest is a torn tail.  It is copied to ``.cut`` files
(`octopi.storage.file_names`), as far as the disk allows, and cut off.

A process that ends while it writes leaves a part of one record at the end, and nothing behind it.
Any other tail has lost records that had been written completely (an *altered* tail).  After a
power failure that is to be expected; otherwise the caller may have to report it before the records
are dropped.
"""

from __future__ import annotations

import contextlib
import re
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
from octopi.record import LENGTH_BYTES, Scan, check_record
from octopi.storage.file_names import (
    cut_path,
    index_bases,
    index_path,
    segment_bases,
    segment_path,
)
from octopi.storage.record_file import ScannedChunk
from octopi.storage.segment import Segment
from octopi.storage.time_slices import Slices

_COPY_BYTES: Final = MIB
_VERSION: Final = re.compile(rb"[\x01\x02]")

_BEGINNING: Final = Offset(0)


@attrs.frozen
class Noted:
    """What another file notes about a log."""

    start: Offset | None = None
    """The log starts there or before, so records from there on have to exist; None: not known."""
    durable_end: Offset = _BEGINNING
    """Records before it were flushed."""
    end: Offset = _BEGINNING
    """Records before it were at least in the page cache when the process ended, and the machine
    has not lost its power since."""
    highwater: Offset | None = None
    """Records from there on are not known to be committed.  They are checked even if they were
    flushed, since this replica may come to commit them alone.  None: not known."""


NOTHING: Final = Noted()
"""Nothing is noted about the log."""


@attrs.frozen
class RecoveryReport:
    """What recovery has found and done."""

    start: Offset
    """The log's start."""
    end: Offset
    """The log's end (exclusive)."""
    scanned_bytes: int
    """How many bytes of records were checked."""
    cut_bytes: int
    """How many bytes were cut off at `end`."""
    why: str
    """Why they were cut: file, position and fault; empty if none were."""
    saved_as: list[str]
    """The files with the bytes that were cut; not all of them if the disk is full or fails."""


@attrs.frozen
class Recovered:
    """A log's segments after recovery, in order and without a gap."""

    segments: list[Segment]
    report: RecoveryReport
    damage: CorruptLogError | None
    """Where records are missing or not sound that have to be there; None: nowhere."""
    failure: LogReadOnlyError | None
    """Why nothing can be appended: the disk failed while the tail was cut; None: it didn't."""


def recover(
    disk: Disk,
    directory: str,
    recovery_point: Offset,
    on_records: Callable[[Offset, Scan], None] | None,
    *,
    cut_altered: bool,
    noted: Noted = NOTHING,
) -> Slices[Recovered]:
    """Open the log in *directory*, in slices; a log that doesn't exist is empty.

    Records behind *recovery_point* are checked, and those behind the noted highwater mark.
    *on_records* is called with the sound ones, in order, a chunk at a time: with the chunk's offset
    and its scan, of which only the valid prefix counts.

    Raises:
      AlteredTailError: if *cut_altered* is false, and the tail has lost records that had been
        written completely.  Nothing was cut.
      StorageError: if the files can't be read.
    """
    segments: list[Segment] = []
    try:
        names = disk.list_directory(directory)
        segments += (Segment.existing(disk, directory, base) for base in segment_bases(names))
    except OSError as error:
        raise StorageError(f"the log in {directory} can't be opened: {error}") from error
    _remove_orphans(disk, directory, names)
    floor = max(recovery_point, noted.durable_end, noted.end)
    damage = _find_damage(segments, directory, floor, noted.start)
    tail = _UnverifiedTail(disk, directory, names, on_records, floor, cut_altered=cut_altered)
    try:
        lacks_beginning = damage is not None and bool(segments) and damage.offset < segments[0].base
        if damage is not None and not lacks_beginning:
            segments = [one for one in segments if one.base < damage.offset]
            damage = yield from _sound_end(segments, damage)
        durable_end = max(recovery_point, noted.durable_end)
        unwritten = yield from _rewrite(segments, directory, durable_end)
        begin = recovery_point if noted.highwater is None else min(recovery_point, noted.highwater)
        failure = yield from tail.check(segments, begin)
    except BaseException:
        for one in segments:
            one.close()
        raise
    if not lacks_beginning:
        damage = tail.damage or damage
    start = end = Offset(damage.offset if damage is not None else noted.start or 0)
    if segments:
        start, end = segments[0].base, segments[-1].end
    report = RecoveryReport(start, end, tail.scanned_bytes, tail.cut_bytes, tail.why, tail.saved_as)
    return Recovered(segments, report, damage, failure or unwritten)


def _rewrite(
    segments: list[Segment], directory: str, durable_end: Offset
) -> Slices[LogReadOnlyError | None]:
    """Write what is behind *durable_end* once more.  Return the failure of the disk, if there was
    one.

    A sync by an earlier process may have failed.  Then the page cache may have records that the
    device lacks and that a further sync doesn't write (Rebello et al., *Can applications recover
    from fsync failures?*, USENIX ATC 2020).
    """
    for segment in segments:
        if segment.end > durable_end:
            try:
                yield from segment.rewrite(max(0, durable_end - segment.base))
            except OSError as error:
                return LogReadOnlyError(
                    f"the end of the log in {directory} can't be written once more: "
                    f"{error.strerror}; look at the disk, then restart the broker"
                )
            if segment is not segments[-1]:
                segment.close()  # there may be many
    return None


def _sound_end(segments: list[Segment], damage: CorruptLogError) -> Slices[CorruptLogError]:
    """End the last of *segments* with a whole record at or before *damage*, since a file that is
    too short may end inside a record.  Return the damage at that place.

    Raises:
      StorageError: if the file can't be read.
    """
    if not segments:
        return damage
    last = segments[-1]
    # Bytes behind the damage belong to the next segment.
    last.size_bytes = min(last.size_bytes, damage.offset - last.base)
    fault = yield from last.recover(0, lambda chunk: None)
    if fault is None:
        return damage
    return CorruptLogError(last.path, last.size_bytes, last.end, str(fault))


def _find_damage(
    segments: list[Segment], directory: str, floor: Offset, start: Offset | None
) -> CorruptLogError | None:
    """The first gap below *floor*: between two segments, behind the last one, or from *start* to
    the first one.

    A log never starts behind its noted start, so a missing first segment is damage even above
    *floor*: a power failure may take the name of the first file and leave the names of others."""
    if segments and start is not None and start < segments[0].base:
        return CorruptLogError(
            directory,
            0,
            start,
            f"the log began there, and its first segment begins at {segments[0].base}",
        )
    for segment, following in pairwise(segments):
        offset = min(segment.end, following.base)
        if segment.end != following.base and offset < floor:
            return CorruptLogError(
                segment.path,
                offset - segment.base,
                offset,
                f"it ends at offset {segment.end} and the next segment begins at {following.base}",
            )
    if not segments and start is not None and floor <= start:
        return None  # nothing was appended since the log was restarted at *start*
    path, base, end = directory, Offset(0), Offset(0)
    if segments:
        path, base, end = segments[-1].path, segments[-1].base, segments[-1].end
    if end < floor:
        end = max(end, start or end)
        return CorruptLogError(
            path,
            end - base,
            end,
            f"the log ends there, but had been durable up to offset {floor}",
        )
    return None


class _UnverifiedTail:
    """Checks the records behind the recovery point, and cuts the log at the first unsound one."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        names: list[str],
        on_records: Callable[[Offset, Scan], None] | None,
        floor: Offset,
        *,
        cut_altered: bool,
    ) -> None:
        """*floor*: an unsound record below this offset is damage, and nothing is cut."""
        self._cut_altered = cut_altered
        self._floor = floor
        self._disk = disk
        self._directory = directory
        self._names = list(names)
        self._on_records = on_records
        self.scanned_bytes = 0
        self.cut_bytes = 0
        self.why = ""
        self.saved_as: list[str] = []
        self.damage: CorruptLogError | None = None

    def check(self, segments: list[Segment], begin: Offset) -> Slices[LogReadOnlyError | None]:
        """Check the records of *segments* from *begin* on, and remove segments that are cut from
        the list.  Return the failure of the disk while it was cut, if there was one.

        Raises:
          AlteredTailError: if the tail must not be cut.
          StorageError: if a file can't be read.
        """
        for number, segment in enumerate(segments):
            following = segments[number + 1 :]
            joined = not following or following[0].base == segment.end
            if segment.end <= begin and following and joined:
                continue
            file_bytes = segment.size_bytes
            start = min(max(0, begin - segment.base), file_bytes)
            if not (yield from self._is_boundary(segment, start)):
                start = 0  # the offset is wrong: check the whole segment, don't cut there
            fault = yield from segment.recover(start, partial(self._note, segment))
            if fault is not None:
                self.why = f"{segment.path} at byte {segment.size_bytes}: {fault}"
            elif not joined:
                self.why = f"{following[0].path} doesn't begin where {segment.path} ends"
            if self.why and segment.end < self._floor:
                self.damage = CorruptLogError(
                    segment.path, segment.size_bytes, segment.end, self.why
                )
                self.why = ""
                _drop(segments, number + 1)
                return None
            if self.why:
                self.cut_bytes = file_bytes - segment.size_bytes
                self.cut_bytes += sum(one.size_bytes for one in following)
                if not self._cut_altered and (following or self._is_altered(segment, fault)):
                    raise AlteredTailError(segment.path, segment.size_bytes, segment.end, self.why)
                _drop(segments, number + 1)
                return self._try_cut(segment, file_bytes, following)
            if following:
                segment.close()
        return None

    def _is_boundary(self, segment: Segment, position: int) -> Slices[bool]:
        try:
            return (yield from segment.is_boundary(position))
        except CorruptLogError:
            return True  # there is damage before it; readers will meet that

    def _note(self, segment: Segment, chunk: ScannedChunk) -> None:
        self.scanned_bytes += chunk.scan.valid_bytes
        if self._on_records is not None and chunk.scan.count:
            self._on_records(Offset(segment.base + chunk.position), chunk.scan)

    def _is_altered(self, segment: Segment, fault: RecordError | None) -> bool:
        """Whether the last file ends with anything but a part of one record.

        No checksum covers a record's length.  If a length was changed to a larger one, the record
        seems to be incomplete, and includes the records behind it.  So look for a record there.
        """
        if not isinstance(fault, IncompleteRecordError):
            return True
        try:
            file = self._disk.open(segment.path)
            try:
                return _holds_record(file.pread(self.cut_bytes, segment.size_bytes)[1:])
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
          OSError: if the disk fails; recovery can be tried again with what is left.
        """
        for one in reversed(following):  # the segments have no gap after each step
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


def _drop(segments: list[Segment], number: int) -> None:
    """Close the segments from *number* on, and remove them from the list."""
    for one in segments[number:]:
        one.close()
    del segments[number:]


def _holds_record(buffer: bytes) -> bool:
    """Whether there is a sound record anywhere in *buffer*."""
    for version in _VERSION.finditer(buffer, LENGTH_BYTES):
        with contextlib.suppress(RecordError):
            check_record(buffer, version.start() - LENGTH_BYTES)
            return True
    return False


async def set_bytes_aside(disk: Disk, directory: str, offset: Offset) -> list[str]:
    """Move all bytes of the log in *directory* from *offset* on, where a record ends, out of its
    segments into ``.cut`` files; return the paths of these.

    The copies are durable before anything is cut.  After a failure, call this again for the rest.

    Raises:
      OSError: if the disk fails.
    """
    names = disk.list_directory(directory)
    saved: list[str] = []

    def free_path(at: Offset) -> str:
        path = cut_path(directory, at, names)
        names.append(path.rpartition("/")[2])
        saved.append(path)
        return path

    for base in reversed(segment_bases(names)):
        source_path = segment_path(directory, base)
        if base >= offset:
            disk.rename(source_path, free_path(base))
            remove_quietly(disk, index_path(directory, base))
            continue
        source = disk.open(source_path)
        try:
            if source.size_bytes > offset - base:
                target = disk.open(free_path(offset), create=True)
                try:
                    for position in range(offset - base, source.size_bytes, _COPY_BYTES):
                        target.append(source.pread(_COPY_BYTES, position))
                    await target.sync()
                finally:
                    target.close()
                await disk.sync_directory(directory)
                source.truncate(offset - base)
                await source.sync()
        finally:
            source.close()
        break
    await disk.sync_directory(directory)
    return saved[::-1]


def _remove_orphans(disk: Disk, directory: str, names: list[str]) -> None:
    """Remove indexes without a segment; retention removes the segment's file first."""
    for base in set(index_bases(names)) - set(segment_bases(names)):
        remove_quietly(disk, index_path(directory, base))


def remove_quietly(disk: Disk, path: str) -> None:
    """Remove a file that is not needed.  Errors are ignored: a later recovery tries it again."""
    with contextlib.suppress(OSError):
        disk.remove(path)
