"""The logs of a data directory, read from its segment files, also while its broker runs.

Only records that don't change any more are read.  They are those below the highwater mark that the
file of ends (`octopi.storage.ends_file`) has, at the latest a second after it moved, or that the
log's checkpoint file has.  No file is written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import attrs

from octopi.errors import HistoryLostError, InvalidOptionError, StorageError
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName, is_internal
from octopi.limits import RECORD_BYTES_MAX
from octopi.operating_system import SystemDisk
from octopi.position import NO_ANCHOR, Anchor, Place
from octopi.spark.frames import find_records
from octopi.spark.logs import PIECE_BYTES, Bounds, Piece, SourceLog, SourceLogs
from octopi.storage import checkpoint
from octopi.storage.ends_file import ENDS_SUFFIX, load_ends
from octopi.storage.file_names import index_path, segment_bases
from octopi.storage.offset_index import FIRST, DamagedIndexError, IndexEntry, OffsetIndex
from octopi.storage.record_file import RecordFile

_CHECKPOINT = "checkpoint"


@attrs.frozen
class LogFolder:
    """The folder of one log."""

    log: SourceLog
    directory: str
    highwater: Offset
    """The newest highwater mark in the file of ends or in the checkpoint; 0 if there is none."""


def find_folders(disk: SystemDisk, path: str) -> list[LogFolder]:
    """The logs in *path*: a broker's data directory, or the folder of one log; sorted.

    Raises:
      InvalidOptionError: if it is neither.
      StorageError: if a checkpoint can't be read.
    """
    path = path.removeprefix("file://").rstrip("/") or "/"
    names = disk.list_directory(path)
    if segment_bases(names):
        partition = path.split("/")[-2] if path.count("/") > 1 else ""
        folder = _folder(disk, path, partition if partition.isdecimal() else "0")
        return [folder]
    if "logs" not in names:
        raise InvalidOptionError(
            f"path {path} is neither a broker's data directory nor the folder of a log on this "
            "machine; the driver and every executor must be able to read it"
        )
    root = f"{path}/logs"
    found = [
        _folder(disk, f"{root}/{partition}/{name}", partition)
        for partition in disk.list_directory(root)
        if partition.isdecimal()
        for name in disk.list_directory(f"{root}/{partition}")
        # Leave out topics that are being deleted, and records that were set aside.
        if "!" not in name and not is_internal(name)
    ]
    found += _missing(disk, path, {one.log for one in found})
    return sorted(found, key=lambda one: one.log)


def _folder(disk: SystemDisk, directory: str, partition: str) -> LogFolder:
    name = directory.rsplit("/", 1)[-1]
    stored: dict[str, Any] = checkpoint.load(disk, f"{directory}/{_CHECKPOINT}") or {}
    topic = stored.get("topic", {"topic": name, "topic_id": "0"})
    log = SourceLog(
        TopicName(topic["topic"]), PartitionId(int(partition)), TopicId(topic["topic_id"])
    )
    highwater = stored.get("highwater", 0)
    data_directory = directory.rsplit("/", 3)[0]
    ends = load_ends(disk, f"{data_directory}/replicas/{partition}{ENDS_SUFFIX}")
    noted = ends.logs.get(log.topic_id) if ends is not None else None
    if noted is not None:
        highwater = max(highwater, noted.highwater)
    return LogFolder(log, directory, Offset(highwater))


def _missing(disk: SystemDisk, path: str, found: Collection[SourceLog]) -> Iterator[LogFolder]:
    """The logs that the files of ends list, and that have no folder."""
    for name in disk.list_directory(f"{path}/replicas"):
        partition = name.removesuffix(ENDS_SUFFIX)
        if partition == name or not partition.isdecimal():
            continue
        for attempt in (0, 1):  # look twice: a log may have been created or deleted just now
            ends = load_ends(disk, f"{path}/replicas/{name}")
            listed = ends.logs if ends is not None else {}
            folders = disk.list_directory(f"{path}/logs/{partition}")
            missing = [
                LogFolder(log, f"{path}/logs/{partition}/{log.topic}", noted.highwater)
                for topic_id, noted in listed.items()
                if noted.topic and not is_internal(topic_id)
                if (log := _log(noted.topic["topic"], partition, topic_id)) not in found
                if log.topic not in folders
            ]
            if attempt or not missing:
                yield from missing
                break


def _log(topic: str, partition: str, topic_id: str) -> SourceLog:
    return SourceLog(TopicName(topic), PartitionId(int(partition)), TopicId(topic_id))


class StoredLogs(SourceLogs):
    """The logs in one data directory that the options name."""

    def __init__(
        self, path: str, subscribe: tuple[TopicName, ...], pattern: str, *, skip_gaps: bool
    ) -> None:
        """*skip_gaps*: whether to continue behind records that retention has removed."""
        self._disk = SystemDisk()
        self._path = path
        self._subscribe = subscribe
        self._pattern = re.compile(pattern) if pattern else None
        self._skip_gaps = skip_gaps
        self._folders: dict[SourceLog, LogFolder] = {}

    def find(self) -> list[SourceLog]:
        found = [one for one in find_folders(self._disk, self._path) if self._is_named(one.log)]
        for name in self._subscribe:
            if all(one.log.topic != name for one in found):
                raise InvalidOptionError(f"there is no log of topic {name} in {self._path}")
        self._folders = {one.log: one for one in found}
        return list(self._folders)

    def bounds(self, log: SourceLog) -> Bounds:
        folder = self._folder(log)
        segments = self._segments(folder)
        if not segments:
            if folder.highwater and not self._disk.list_directory(folder.directory):
                raise StorageError(
                    f"{folder.directory} is missing or empty, but was committed up to offset "
                    f"{folder.highwater}: read another replica, or the cluster"
                )
            return Bounds(folder.highwater, folder.highwater)
        start, last = segments[0].base, segments[-1]
        end = max(start, min(folder.highwater, last.end))
        return Bounds(start, end, last.end - end)

    def boundary(self, log: SourceLog, offset: Offset) -> Offset:
        bounds = self.bounds(log)
        if offset <= bounds.start or offset >= bounds.end:
            return max(bounds.start, min(offset, bounds.end))
        segment = self._at(self._segments(self._folder(log)), offset)
        target = offset - segment.base
        entry = self._entry(log, segment, lambda index: index.find_position(target, segment.end))
        start = entry.position
        try:
            for end in segment.record_ends(start, target):
                if end > target:
                    break
                start = end
        finally:
            segment.close()
        return Offset(segment.base + start)

    def at_time(self, log: SourceLog, timestamp_ms: int) -> Offset:
        bounds = self.bounds(log)
        for segment in self._segments(self._folder(log)):
            if segment.base >= bounds.end:
                break
            size_bytes = segment.size_bytes
            entry = self._entry(
                log,
                segment,
                lambda index, size=size_bytes: index.find_timestamp(timestamp_ms, size),
            )
            try:
                for position, stamp in segment.checked_records(entry.position, size_bytes):
                    if stamp >= timestamp_ms:
                        return min(bounds.end, Offset(segment.base + position))
            finally:
                segment.close()
        return bounds.end

    def anchor(self, log: SourceLog, offset: Offset) -> Anchor:
        return NO_ANCHOR

    def common(self, log: SourceLog, place: Place) -> Offset | None:
        return None

    def read(self, log: SourceLog, start: Place, end: Offset) -> Iterator[Piece]:
        at = start.offset
        segments = self._segments(self._folder(log))
        if at < end and (not segments or at < segments[0].base):
            available = segments[0].base if segments else end
            if not self._skip_gaps:
                raise HistoryLostError(log.topic, log.partition, at, available)
            at = available
        while at < end:
            segment = self._at(segments, at)
            try:
                stop = min(end, segment.end)
                if at >= stop:
                    raise StorageError(
                        f"{segment.path} ends at offset {stop}, before what is committed: "
                        "run `octopi-node verify` on the data directory"
                    )
                for piece in _pieces(segment, at - segment.base, stop - segment.base):
                    yield piece
                    at = Offset(piece.offset + piece.frames.size_bytes)
            finally:
                segment.close()

    def _is_named(self, log: SourceLog) -> bool:
        if self._subscribe:
            return log.topic in self._subscribe
        return self._pattern is None or self._pattern.fullmatch(log.topic) is not None

    def _folder(self, log: SourceLog) -> LogFolder:
        if log not in self._folders:
            self.find()
        if log not in self._folders:
            raise StorageError(f"the log {log} (topic id {log.topic_id}) is not in {self._path}")
        return self._folders[log]

    def _segments(self, folder: LogFolder) -> list[RecordFile]:
        found: list[RecordFile] = []
        for base in segment_bases(self._disk.list_directory(folder.directory)):
            with suppress(FileNotFoundError):  # retention may have removed it just now
                found.append(RecordFile.existing(self._disk, folder.directory, base))
        return found

    def _at(self, segments: list[RecordFile], offset: Offset) -> RecordFile:
        return segments[bisect_right(segments, offset, key=lambda one: one.base) - 1]

    def _entry(self, log: SourceLog, segment: RecordFile, find: Any) -> IndexEntry:
        """The entry that *find* finds in the segment's index; if the index is damaged, the
        segment's start."""
        directory = self._folder(log).directory
        index = OffsetIndex(self._disk, index_path(directory, segment.base))
        try:
            entry: IndexEntry = find(index)
        except DamagedIndexError:
            return FIRST
        finally:
            index.close()
        return entry


def _pieces(segment: RecordFile, position: int, stop: int) -> Iterator[Piece]:
    """The records of a segment between two boundaries."""
    size_bytes = PIECE_BYTES
    while position < stop:
        data = segment.pread(min(size_bytes, stop - position), position)
        frames = find_records(data)
        if not len(frames):
            if size_bytes >= RECORD_BYTES_MAX:
                raise segment.damaged(position, "a record ends behind the committed records")
            size_bytes = RECORD_BYTES_MAX
            continue
        yield Piece(Offset(segment.base + position), frames)
        position += frames.size_bytes
        size_bytes = PIECE_BYTES
