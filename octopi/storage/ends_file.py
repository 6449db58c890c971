"""The durable facts about the logs of one replica, in one file that is appended to.

A replica of a partition has one log for each topic.  Each flush of a log moves what is
durable of it, so this is written often and has to be cheap: a new entry is a few dozen bytes
in the page cache, which survive the end of the process, and one fsync a second makes the
entries of all logs survive the machine.  Each entry is true when it is written: what it says
is durable was flushed before.  So the newest entry of a log counts, and an entry that a
failure of power takes leaves an older one, which says less and is true as well.

The file begins with a header, entries follow one behind the other.  Numbers are unsigned, in
network byte order.

==========  =====  ====================================================================
header
---------------------------------------------------------------------------------------
magic       8      ``octopi\\r\\n``
version     4      3
checksum    4      CRC-32 (IEEE 802.3) of the two
==========  =====  ====================================================================

==========  =====  ====================================================================
entry
---------------------------------------------------------------------------------------
length      4      bytes of the content
checksum    4      CRC-32 (IEEE 802.3) of the content
content     rest   kind (1 byte), length of the topic id (1 byte), the topic id (UTF-8),
                   and what belongs to that kind
==========  =====  ====================================================================

====  =======  ========================================================================
kind  meaning  what belongs to it
====  =======  ========================================================================
1     made     a CBOR map (RFC 8949) that describes the topic: the replica has this log
2     moved    start, recovery point, highwater mark and cached end of the log, 8 bytes each
3     deleted  nothing: the replica has this log no more
4     stored   of the checkpoint that was stored last: its number, the start and the recovery
               point that stand in it, 8 bytes each; then its epochs, 16 bytes each: the
               epoch, and where its records begin.  The newest 2,000 epochs.
====  =======  ========================================================================

The checkpoint of a log is a file beside its segments, and its number grows with each one that is
stored.  So a file with a smaller number than the one that is noted here is an older copy, and
what is noted is enough, with the records, to make a new one.

An entry that isn't sound at the very end is one that a process died in, or that the power
took, and is ignored.  One with a sound entry behind it was damaged later, if the machine
didn't lose its power since: then it isn't known any more which logs there were.
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
"""No entry is longer: what says that it is, is none."""

_REPLACED_AT_BYTES_MIN: Final = 64 * KIB
"""A shorter file isn't replaced by one with the newest entries alone."""


_EPOCHS_MAX: Final = 2_000
"""Of a checkpoint, no more epochs are noted: so many fit into an entry."""


@attrs.frozen
class NotedCheckpoint:
    """What is noted of the checkpoint of a log that was stored last."""

    number: int
    """How many were stored of this log, this one included."""
    start: Offset
    """Where the log begins by it."""
    recovery_point: Offset
    """What lies before it was flushed when it was stored."""
    epochs: tuple[tuple[int, int], ...] = ()
    """Each epoch, and the offset where its records begin; the newest `_EPOCHS_MAX`."""


@attrs.frozen
class NotedLog:
    """What is noted of one log."""

    topic: Mapping[str, Any]
    """Describes it, for the log's owner."""
    start: Offset = _BEGINNING
    """Nothing before it is kept."""
    recovery_point: Offset = _BEGINNING
    """What lies before it was flushed."""
    highwater: Offset = _BEGINNING
    """What lies before it was committed."""
    cached_end: Offset = _BEGINNING
    """What lies before it was committed, and is in the page cache at least: the machine didn't
    lose its power since.  Smaller than `highwater` if it did, and took some of it."""
    checkpoint: NotedCheckpoint | None = None
    """None if none was noted yet."""


@attrs.frozen
class StoredEnds:
    """What a file of ends says."""

    logs: dict[str, NotedLog]
    """By topic id."""
    torn_bytes: int
    """What follows the last sound entry."""
    damage: str
    """Why it can't be relied on; empty if it can."""


def load_ends(disk: Disk, path: str) -> StoredEnds | None:
    """What the file at *path* says; None if there is none.

    Safe beside a broker that goes on: it appends whole entries, and replaces whole files.

    Raises:
      StorageError: if it can't be read, or another version of this program wrote it.
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
    """A version that can be believed: a flipped bit is damage, not another format."""
    return crc32(MAGIC + version.to_bytes(4, "big"))


def _content(data: bytes, position: int) -> bytes | None:
    """The content of the entry at *position*; None if none is there, or it isn't sound."""
    if position + _FRAME.size > len(data):
        return None
    size_bytes, checksum = _FRAME.unpack_from(data, position)
    begin = position + _FRAME.size
    if not _KIND.size <= size_bytes <= min(_CONTENT_BYTES_MAX, len(data) - begin):
        return None
    content = data[begin : begin + size_bytes]
    return content if crc32(content) == checksum else None


def _take(logs: dict[str, NotedLog], content: bytes) -> bool:
    """Whether *content* is one that is written here; then *logs* say what it says."""
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
    """A topic id, and what is noted of its log from *content* on; None: there is no such log.

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
        return topic_id, NotedLog(topic)
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
    """All that is noted of a log that is listed, but for what describes it."""
    stored = _checkpoint(topic_id, log.checkpoint) if log.checkpoint is not None else b""
    return _moved(topic_id, log) + stored


class EndsFile:
    """The file of one replica, open for writing; nothing else writes it.

    `note` never waits and never fails: where the disk doesn't take an entry, the file is
    replaced as a whole the next time that it is synced.
    """

    def __init__(self, disk: Disk, path: str, logs: Mapping[str, NotedLog]) -> None:
        """*logs* is what it is to say; `store` must follow."""
        self.path = path
        self._disk = disk
        self._logs = dict(logs)
        self._file: File | None = None
        self._is_whole = False
        """Whether the file has all that `_logs` has; else it has to be replaced."""
        self._changes = 0
        """Counts entries."""
        self._synced_changes = 0
        self._stored_bytes = 0
        """How long it was when it was replaced last."""
        self._replacing: dict[str, None] | None = None
        """While the file is being replaced: the logs that moved meanwhile."""
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
        """Note how far a log has come, in the page cache; return whether that is news.

        The recovery point and the highwater mark only grow here: see `set_back`.  A log that
        isn't listed is left alone: it is being deleted.
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
        """Note that the machine lost its power, and that the log ends at *end* since; return
        whether that is news.

        This need not be durable: another failure of power is noted again.
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
        is news.

        Numbers only grow.  A log that isn't listed is left alone.
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
            self._is_whole = False  # and what is there of the entry ends the file

    async def add(self, topic_id: str, topic: Mapping[str, Any]) -> None:
        """List a log, durably; what is noted of one that is listed stays.

        Raises:
          StorageError: if the disk fails; then it is listed, and maybe not durably: try again.
        """
        async with self._writing:
            if topic_id not in self._logs:
                log = self._logs[topic_id] = NotedLog(topic)
                self._append(topic_id, _made(topic_id, log) + _moved(topic_id, log))
            await self._sync()

    async def remove(self, topic_id: str) -> None:
        """List a log no more, durably; harmless if it isn't listed.

        Raises:
          StorageError: if the disk fails; then it may be listed or not.
        """
        async with self._writing:
            if self._logs.pop(topic_id, None) is not None:
                self._append(topic_id, _entry(_DELETED, topic_id))
            await self._sync()

    async def set_back(self, topic_id: str, start: Offset, end: Offset) -> None:
        """Note, durably, that a log goes from *start* and is about to end at *end* at the most.

        Raises:
          StorageError: if the disk fails; then what is noted is the old or the new.
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
        """Make durable what is noted; replace the file if it has grown long, or is not whole.

        Raises:
          StorageError: if the disk fails.
        """
        async with self._writing:
            await self._sync()

    async def store(self) -> None:
        """Replace the file by one that says what is noted, durably.

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
                    self._is_whole = False  # nobody knows what the device has of it
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
        for topic_id in moved:  # such entries went into the old file
            self._append(topic_id, _known(topic_id, self._logs[topic_id]))

    async def end(self) -> None:
        """Write nothing any more, and let go of the file, which is about to be removed: a sync
        that is under way, or due, must not make it anew."""
        self._has_ended = True
        async with self._writing:
            self.close()

    def close(self) -> None:
        """Let go of the file; what is noted from now on is stored with the next `store`."""
        if self._file is not None:
            self._file.close()
        self._file, self._is_whole = None, False
