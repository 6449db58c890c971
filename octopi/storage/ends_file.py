"""The durable facts about the logs of one replica, in one file that is appended to.

A replica of a partition has one log for each topic.  Each flush of a log moves its recovery point,
so entries are written often and have to be cheap.  A new entry takes a few dozen bytes in the page
cache, which survive the end of the process; one fsync a second makes the entries of all logs
survive a power failure.  An entry is written after the flush that it tells of, so it is always
true.  The newest entry of a log counts; if a power failure takes that one, an older one counts,
which is true as well, although it claims less.

The file begins with a header; the entries follow.  Numbers are unsigned, in network byte order.

==========  =====  ====================================================================
header
---------------------------------------------------------------------------------------
magic       8      ``octopi\\r\\n``
version     4      3
checksum    4      CRC-32 (IEEE 802.3) of magic and version
==========  =====  ====================================================================

==========  =====  ====================================================================
entry
---------------------------------------------------------------------------------------
length      4      bytes of the content
checksum    4      CRC-32 (IEEE 802.3) of the content
content     rest   kind (1 byte), length of the topic id (1 byte), the topic id (UTF-8),
                   and the fields of that kind
==========  =====  ====================================================================

====  =======  ========================================================================
kind  meaning  fields
====  =======  ========================================================================
1     made     the replica has this log: a CBOR map (RFC 8949) that describes the topic; again
               if the topic was altered
2     moved    start, recovery point, highwater mark and cached end of the log, 8 bytes each
3     deleted  none: the replica doesn't have this log any more
4     stored   of the checkpoint that was stored last: its number, its start and its
               recovery point, 8 bytes each; then its newest 2,000 epochs, 16 bytes each:
               the epoch, and the offset where its records begin
====  =======  ========================================================================

The checkpoint of a log is a file beside its segments, and its number grows each time it is stored.
So a checkpoint with a smaller number than the noted one is an older copy; the noted facts and the
records suffice to make a new one.

A damaged entry at the very end was being written when the process or the machine failed; it is
ignored.  A damaged entry with a sound one behind it was damaged later, unless the machine has lost
its power since; then it is not known any more which logs the replica had.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

import attrs
import cbor2

from octopi.environment import Disk, File
from octopi.errors import StorageError
from octopi.identifiers import Offset
from octopi.limits import KIB
from octopi.storage.brief_lock import BriefLock
from octopi.storage.full_disk import FULL, disk_full

ENDS_SUFFIX: Final = ".ends"
"""How the name of the file ends; the rest is that of its replica's state file."""

MAGIC: Final = b"octopi\r\n"
VERSION: Final = 3
_HEADER: Final = struct.Struct(">8sII")
_FRAME: Final = struct.Struct(">II")
_KIND: Final = struct.Struct(">BB")
_ENDS: Final = struct.Struct(">QQQQ")
_STORED: Final = struct.Struct(">QQQ")
_EPOCH: Final = struct.Struct(">QQ")

_MADE: Final = 1
_MOVED: Final = 2
_DELETED: Final = 3
_CHECKPOINT: Final = 4

_BEGINNING: Final = Offset(0)

_CONTENT_BYTES_MAX: Final = 64 * KIB
"""The longest entry; a length above it is damage."""

_REPLACED_AT_BYTES_MIN: Final = 64 * KIB
"""A file up to this size isn't replaced by one with only the newest entries."""


_EPOCHS_MAX: Final = 2_000
"""How many epochs of a checkpoint are noted, at most: as many as fit into an entry."""


@attrs.frozen
class NotedCheckpoint:
    """What is noted of the checkpoint of a log that was stored last."""

    number: int
    """How many checkpoints of this log were stored, this one included."""
    start: Offset
    """The log start in it."""
    recovery_point: Offset
    """The recovery point in it."""
    epochs: tuple[tuple[int, int], ...] = ()
    """Each epoch, and the offset where its records begin; the newest `_EPOCHS_MAX`."""


@attrs.frozen
class NotedLog:
    """What is noted of one log."""

    topic: Mapping[str, Any]
    """Describes the topic; callers define its keys."""
    start: Offset = _BEGINNING
    """The log start."""
    recovery_point: Offset = _BEGINNING
    """Records before it were flushed."""
    highwater: Offset = _BEGINNING
    """Records before it were committed."""
    cached_end: Offset = _BEGINNING
    """Records before it were committed, and are at least in the page cache.  Smaller than
    `highwater` if a power failure has taken committed records from this log."""
    checkpoint: NotedCheckpoint | None = None
    """None if none was noted yet."""


@attrs.frozen
class StoredEnds:
    """The content of a file of ends."""

    logs: dict[str, NotedLog]
    """By topic id."""
    torn_bytes: int
    """How many bytes follow the last sound entry."""
    damage: str
    """Why the file can't be relied on; empty if it can."""


def load_ends(disk: Disk, path: str) -> StoredEnds | None:
    """Read the file at *path*; None if there is none.

    Another process may read the file of a running broker, which appends whole entries and replaces
    the file atomically.

    Raises:
      StorageError: if the file can't be read, or has another format version.
    """
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} can't be read: {error.strerror}") from error
    if len(data) < _HEADER.size:
        return StoredEnds({}, 0, f"{path} has only {len(data)} bytes")
    magic, version, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC or checksum != _header_checksum(version):
        return StoredEnds({}, 0, f"{path} doesn't begin like a file of ends")
    if version != VERSION:
        raise StorageError(
            f"{path} has format version {version}, this program knows {VERSION}: "
            "use the program that wrote it"
        )
    logs: dict[str, NotedLog] = {}
    position, fault_at = _HEADER.size, -1
    sound_end = position
    damage = ""
    while position < len(data):
        content = _content(data, position)
        if content is None or not _take(logs, content):
            fault_at = position if fault_at < 0 else fault_at
            position += 1
            continue
        if fault_at >= 0 and not damage:
            damage = f"{path} is damaged at byte {fault_at}: an entry isn't sound"
        fault_at = -1
        position += _FRAME.size + len(content)
        sound_end = position
    return StoredEnds(logs, len(data) - sound_end, damage)


def _header_checksum(version: int) -> int:
    """The checksum covers the version, so a flipped bit there is damage, not another format."""
    return crc32(MAGIC + version.to_bytes(4, "big"))


def _content(data: bytes, position: int) -> bytes | None:
    """The content of the entry at *position*; None if there is no sound entry."""
    if position + _FRAME.size > len(data):
        return None
    size_bytes, checksum = _FRAME.unpack_from(data, position)
    begin = position + _FRAME.size
    if not _KIND.size <= size_bytes <= min(_CONTENT_BYTES_MAX, len(data) - begin):
        return None
    content = data[begin : begin + size_bytes]
    return content if crc32(content) == checksum else None


def _take(logs: dict[str, NotedLog], content: bytes) -> bool:
    """Apply *content* to *logs*.  False: it is not the content of an entry."""
    try:
        topic_id, log = _after(logs, content)
    except (UnicodeDecodeError, struct.error, cbor2.CBORDecodeError):
        return False
    if log is None:
        logs.pop(topic_id, None)
    else:
        logs[topic_id] = log
    return True


def _after(logs: Mapping[str, NotedLog], content: bytes) -> tuple[str, NotedLog | None]:
    """The topic id in *content*, and the new state of its log; None: the log is deleted.

    Raises:
      UnicodeDecodeError, struct.error, cbor2.CBORDecodeError: if it is no content of an entry.
    """
    kind, id_bytes = _KIND.unpack_from(content)
    topic_id = content[_KIND.size : _KIND.size + id_bytes].decode()
    rest = content[_KIND.size + id_bytes :]
    known = logs.get(topic_id, NotedLog({}))
    if kind == _MADE:
        topic = cbor2.loads(rest)
        if not isinstance(topic, dict):
            raise struct.error("a topic is described by a map")
        return topic_id, attrs.evolve(known, topic=topic)
    if kind == _MOVED:
        start, recovery_point, highwater, cached_end = map(Offset, _ENDS.unpack(rest))
        moved = attrs.evolve(
            known,
            start=start,
            recovery_point=recovery_point,
            highwater=highwater,
            cached_end=cached_end,
        )
        return topic_id, moved
    if kind == _CHECKPOINT:
        number, start, recovery_point = _STORED.unpack_from(rest)
        epochs = tuple(_EPOCH.iter_unpack(rest[_STORED.size :]))
        noted = NotedCheckpoint(number, Offset(start), Offset(recovery_point), epochs)
        return topic_id, attrs.evolve(known, checkpoint=noted)
    if kind != _DELETED or rest:
        raise struct.error(f"there is no entry of kind {kind}")
    return topic_id, None


def _entry(kind: int, topic_id: str, rest: bytes = b"") -> bytes:
    name = topic_id.encode()
    content = _KIND.pack(kind, len(name)) + name + rest
    return _FRAME.pack(len(content), crc32(content)) + content


def _made(topic_id: str, log: NotedLog) -> bytes:
    return _entry(_MADE, topic_id, cbor2.dumps(dict(log.topic)))


def _moved(topic_id: str, log: NotedLog) -> bytes:
    ends = _ENDS.pack(log.start, log.recovery_point, log.highwater, log.cached_end)
    return _entry(_MOVED, topic_id, ends)


def _checkpoint(topic_id: str, noted: NotedCheckpoint) -> bytes:
    stored = _STORED.pack(noted.number, noted.start, noted.recovery_point)
    return _entry(_CHECKPOINT, topic_id, stored + b"".join(_EPOCH.pack(*e) for e in noted.epochs))


def _known(topic_id: str, log: NotedLog) -> bytes:
    """The entries for all that is noted of a log, without the description of its topic."""
    stored = _checkpoint(topic_id, log.checkpoint) if log.checkpoint is not None else b""
    return _moved(topic_id, log) + stored


class EndsFile:
    """The file of one replica, open for writing; only this object writes it.

    `note` never waits and never fails: if the disk doesn't take an entry, the next sync replaces
    the whole file.
    """

    def __init__(self, disk: Disk, path: str, logs: Mapping[str, NotedLog]) -> None:
        """*logs*: what is noted so far.  `store` has to be called next."""
        self.path = path
        self._disk = disk
        self._logs = dict(logs)
        self._file: File | None = None
        self._is_whole = False
        """Whether the file has all that `_logs` has; if not, it has to be replaced."""
        self._changes = 0
        """Counts entries."""
        self._synced_changes = 0
        self._stored_bytes = 0
        """How long the file was when it was replaced last."""
        self._replacing: dict[str, None] | None = None
        """The logs that changed while the file is being replaced; None: it isn't."""
        self._writing = BriefLock()
        self._has_ended = False

    @property
    def logs(self) -> Mapping[str, NotedLog]:
        """What is noted, by topic id."""
        return self._logs

    @property
    def is_synced(self) -> bool:
        """Whether the device has all that is noted."""
        return self._is_whole and self._changes == self._synced_changes

    def note(
        self, topic_id: str, *, start: Offset, recovery_point: Offset, highwater: Offset
    ) -> bool:
        """Note start, recovery point and highwater mark of a log, in the page cache; return
        whether any of them changed.

        They only grow here; `set_back` moves them back.  A log that isn't listed is ignored, since
        it is being deleted.
        """
        known = self._logs.get(topic_id)
        if known is None:
            return False
        log = attrs.evolve(
            known,
            start=max(start, known.start),
            recovery_point=max(recovery_point, known.recovery_point),
            highwater=max(highwater, known.highwater),
            cached_end=max(highwater, known.cached_end),
        )
        return self._move(topic_id, known, log)

    def note_power_failure(self, topic_id: str, end: Offset) -> bool:
        """Note that the machine lost its power, and that the log ends at *end* now; return whether
        that changed anything.

        This need not be durable: after another power failure it is noted again.
        """
        known = self._logs.get(topic_id)
        if known is None:
            return False
        return self._move(
            topic_id, known, attrs.evolve(known, cached_end=min(known.cached_end, end))
        )

    def _move(self, topic_id: str, known: NotedLog, log: NotedLog) -> bool:
        if log == known:
            return False
        self._logs[topic_id] = log
        self._append(topic_id, _moved(topic_id, log))
        return True

    def note_checkpoint(self, topic_id: str, stored: NotedCheckpoint) -> bool:
        """Note which checkpoint of a log was stored last, in the page cache; return whether that
        changed anything.

        A checkpoint with a smaller or the same number, and a log that isn't listed, are ignored.
        """
        known = self._logs.get(topic_id)
        if known is None:
            return False
        if known.checkpoint is not None and stored.number <= known.checkpoint.number:
            return False
        stored = attrs.evolve(stored, epochs=stored.epochs[-_EPOCHS_MAX:])
        self._logs[topic_id] = attrs.evolve(known, checkpoint=stored)
        self._append(topic_id, _checkpoint(topic_id, stored))
        return True

    def _append(self, topic_id: str, entry: bytes) -> None:
        self._changes += 1
        if self._replacing is not None:
            self._replacing[topic_id] = None
        if not self._is_whole or self._file is None:
            return
        try:
            self._file.append(entry)
        except OSError:
            self._is_whole = False  # the file may end with a part of the entry

    async def add(self, topics: Mapping[str, Mapping[str, Any]]) -> None:
        """List logs, durably, by topic id with what describes their topics.  Of a log that is
        listed already, only that changes.

        Raises:
          StorageError: if the disk fails; then they are listed, but maybe not durably: call this
              again.
        """
        for topic_id, topic in topics.items():
            known = self._logs.get(topic_id)
            if known is None or known.topic != topic:
                log = self._logs[topic_id] = attrs.evolve(known or NotedLog(topic), topic=topic)
                self._append(topic_id, _made(topic_id, log) + _moved(topic_id, log))
        await self.sync()  # logs that are listed meanwhile share it

    async def remove(self, topic_id: str) -> None:
        """Remove a log from the list, durably; harmless if it isn't listed.

        Raises:
          StorageError: if the disk fails; then the file may list it or not.
        """
        async with self._writing:
            if self._logs.pop(topic_id, None) is not None:
                self._append(topic_id, _entry(_DELETED, topic_id))
            await self._sync()

    async def set_back(self, topic_id: str, start: Offset, end: Offset) -> None:
        """Note, durably, that a log starts at *start* and is about to be cut at *end* or before.

        Raises:
          StorageError: if the disk fails; then the file has the old or the new entry.
        """
        async with self._writing:
            known = self._logs.get(topic_id)
            if known is not None:
                log = attrs.evolve(
                    known,
                    start=start,
                    recovery_point=min(known.recovery_point, end),
                    highwater=min(known.highwater, end),
                    cached_end=min(known.cached_end, end),
                )
                self._move(topic_id, known, log)
            await self._sync()

    async def sync(self) -> None:
        """Make durable what is noted; replace the file if it is too long, or lacks entries.

        Raises:
          StorageError: if the disk fails.
        """
        async with self._writing:
            await self._sync()

    async def store(self) -> None:
        """Replace the file by one with the newest entries only, durably.

        Raises:
          StorageError: if the disk fails; the old or the new file is there.
        """
        async with self._writing:
            await self._replace()

    async def _sync(self) -> None:
        if self._has_ended:
            return
        if self._is_whole and self._file is not None:
            if self._changes == self._synced_changes:
                return
            longest = max(_REPLACED_AT_BYTES_MIN, 2 * self._stored_bytes)
            if self._file.size_bytes <= longest:
                changes = self._changes
                try:
                    await self._file.sync()
                except OSError:
                    self._is_whole = False  # it is not known which entries the device has
                else:
                    self._synced_changes = changes
                    if self._is_whole:
                        return
        await self._replace()

    async def _replace(self) -> None:
        changes = self._changes
        self._replacing = {}
        entries = (
            _made(topic_id, log) + _known(topic_id, log) for topic_id, log in self._logs.items()
        )
        header = _HEADER.pack(MAGIC, VERSION, _header_checksum(VERSION))
        data = header + b"".join(entries)
        try:
            await self._disk.replace_file(self.path, data)
            file = self._disk.open(self.path)
        except OSError as error:
            self._is_whole = False
            if error.errno in FULL:
                raise disk_full(f"{self.path} was not replaced", error) from error
            raise StorageError(f"{self.path} can't be replaced: {error.strerror}") from error
        finally:
            moved, self._replacing = self._replacing, None
        self.close()
        self._file, self._is_whole = file, True
        self._stored_bytes = len(data)
        self._synced_changes = changes
        for topic_id in moved:  # their entries went into the old file
            log = self._logs[topic_id]
            self._append(topic_id, _made(topic_id, log) + _known(topic_id, log))

    async def end(self) -> None:
        """Close the file and write nothing any more, because the file is about to be removed: a
        sync that is under way, or due, must not create it again."""
        self._has_ended = True
        async with self._writing:
            self.close()

    def close(self) -> None:
        """Close the file; what is noted from now on is written by the next `store`."""
        if self._file is not None:
            self._file.close()
        self._file, self._is_whole = None, False
