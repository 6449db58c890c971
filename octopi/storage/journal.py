"""A node's durable memory of what it decided: a log of entries.

A journal is a log like any other (`octopi.storage.segmented_log`); each record is a version 1
record whose payload is one entry, encoded by the `JournalFormat`.  When the journal has grown long,
the node writes its state as the first entries of a fresh log, and a small file is changed to name
that log.  So a snapshot is read like any other journal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import attrs

from octopi import record
from octopi.environment import Disk, Environment
from octopi.errors import (
    CorruptLogError,
    DiskFullError,
    LogReadOnlyError,
    NotReadyError,
    StorageError,
)
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.limits import BATCH_BYTES_MAX, FETCH_BYTES_DEFAULT, JOURNAL_SNAPSHOT_ENTRIES
from octopi.logger import get_logger
from octopi.storage import checkpoint
from octopi.storage.checkpoint import DamagedCheckpointError
from octopi.storage.log_options import LogOptions
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.time_slices import at_once

_log = get_logger(__name__)

EntryT = TypeVar("EntryT")


@attrs.frozen
class JournalFormat(Generic[EntryT]):
    """What a journal's entries are, and who keeps it."""

    encode: Callable[[EntryT], bytes]
    decode: Callable[[bytes], EntryT]
    """Raises any exception if the bytes are no entry."""
    entry_bytes_max: int
    """The greatest length of an encoded entry."""
    owner: str
    """Who keeps the journal, such as "the register"; for messages."""
    if_unknown: str
    """What to do if the file is gone that names the journal in force; for messages."""


class JournalObserver(Protocol[EntryT]):
    """Is told what a journal does, just before and just after it."""

    def appending(self, entries: list[EntryT]) -> None: ...
    def appended(self, entries: list[EntryT]) -> None: ...
    def flushing(self, end: Offset) -> None: ...
    def flushed(self, end: Offset) -> None: ...
    def replacing(self, entries: list[EntryT]) -> None: ...
    def switched(self) -> None:
        """The fresh journal is in force."""

    def replaced(self) -> None:
        """The old journal is removed."""


@attrs.frozen
class InForce:
    """The content of the file beside the journals that names the journal in force: the one that is
    read at the next start."""

    journal: int = 0
    """Its number."""
    flushed: int = 0
    """The length of the part of the journal that is known to be durable (bytes)."""
    page_cache: str = ""
    """The page cache in which the journal was written; empty: there is no journal yet."""


class Journal(Generic[EntryT]):
    """An open journal.  `append` takes effect at once, `flush` makes it last."""

    def __init__(
        self,
        environment: Environment,
        directory: str,
        entry_format: JournalFormat[EntryT],
        current: InForce,
        *,
        snapshot_entries: int,
        observer: JournalObserver[EntryT] | None,
    ) -> None:
        """*current*: what the file says that names the journal in force.  If any of the bytes are
        missing or damaged that it says are durable, that is damage and not a torn tail.  If the
        machine, not only the process, has stopped since, the bytes after these may be torn
        anywhere."""
        self._environment = environment
        self._directory = directory
        self._format = entry_format
        self._number = current.journal
        self._snapshot_entries = snapshot_entries
        self._observer = observer
        lost_power = current.page_cache != environment.disk.page_cache_id()
        self._log = self._open(current.journal, Offset(current.flushed), cut_altered=lost_power)
        self._entry_count = 0
        self._replacing = False

    @classmethod
    async def open(
        cls,
        environment: Environment,
        directory: str,
        entry_format: JournalFormat[EntryT],
        *,
        snapshot_entries: int = JOURNAL_SNAPSHOT_ENTRIES,
        observer: JournalObserver[EntryT] | None = None,
    ) -> tuple[Journal[EntryT], list[EntryT]]:
        """Open or begin the journal in *directory*, which exists; return it and its entries.

        *snapshot_entries*: see `wants_snapshot`.

        Raises:
          StorageError: if the disk fails.
          CorruptLogError: if anything that was durable is missing, damaged or can't be
              read.  A node that started without it could contradict itself.
        """
        current = _current(environment, directory)
        if not current.page_cache:
            _refuse_to_begin_beside_others(environment.disk, directory, entry_format.if_unknown)
        journal = cls(
            environment,
            directory,
            entry_format,
            current,
            snapshot_entries=snapshot_entries,
            observer=observer,
        )
        if journal._log.fault is not None:
            raise journal._log.fault
        journal._remove_others()
        entries = journal._read()
        journal._entry_count = len(entries)
        await journal.flush()
        await journal._note_flushed()
        return journal, entries

    async def _note_flushed(self) -> None:
        """Store how much of the journal is durable: from now on, damage there is no torn tail."""
        await self._put_in_force(self._number, self._log)

    async def _put_in_force(self, number: int, log: SegmentedLog) -> None:
        """Put *log* in force: a restart reads it."""
        disk = self._environment.disk
        current = InForce(number, log.flushed_end, disk.page_cache_id())
        await checkpoint.store(disk, f"{self._directory}/current", attrs.asdict(current))

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return self._log.end - self._log.start

    @property
    def is_flushed(self) -> bool:
        """Whether everything appended is durable."""
        return self._log.flushed_end >= self._log.end

    def append(self, entries: list[EntryT]) -> None:
        """Append *entries*, all or none.

        Raises:
          StorageError: if that fails; then none of them is in the journal.
          NotReadyError: while the journal is being replaced; likewise.
        """
        if self._replacing:
            raise NotReadyError(f"{self._format.owner} is writing a snapshot of its state")
        if not entries:
            return
        if (observer := self._observer) is not None:
            observer.appending(entries)
        self._append_to(self._log, entries)
        self._entry_count += len(entries)
        if observer is not None:
            observer.appended(entries)

    def _append_to(self, log: SegmentedLog, entries: list[EntryT]) -> None:
        data = b"".join(
            record.encode_opaque(record.NO_REQUEST, self._encode(entry)) for entry in entries
        )
        log.append(data, record.scan(data), self._environment.clock.wall_ms())

    def _encode(self, entry: EntryT) -> bytes:
        data = self._format.encode(entry)
        assert len(data) < self._format.entry_bytes_max
        return data

    async def flush(self) -> None:
        """Wait until everything appended so far is durable.

        Raises:
          LogReadOnlyError: if the disk failed; the node must stop.
        """
        log, end = self._log, self._log.end
        if log.flushed_end >= end:
            return
        if (observer := self._observer) is not None:
            observer.flushing(end)
        while log.flushed_end < end:
            await log.flush()
        if observer is not None:
            observer.flushed(end)

    @property
    def wants_snapshot(self) -> bool:
        """Whether reading the journal takes much longer than reading a snapshot of the state: more
        than *snapshot_entries* entries were appended since its snapshot."""
        return self._entry_count > self._snapshot_entries

    async def replace(self, entries: list[EntryT]) -> None:
        """Begin a fresh journal with *entries*, the whole state.

        Appends are refused meanwhile: they would be lost if this failed.  After a failure the
        old journal is in force.

        Raises:
          StorageError: if it can't be done.
          LogReadOnlyError: if it is unknown what a restart would read; the node must stop.
        """
        if (observer := self._observer) is not None:
            observer.replacing(entries)
        self._replacing = True
        try:
            # Tasks that wait for its flush must not wait for the fresh journal, which may fail.
            await self.flush()
            number, fresh = await self._begin_afresh(entries)
        finally:
            self._replacing = False
        old, self._log, self._number = self._log, fresh, number
        if observer is not None:
            observer.switched()
        self._entry_count = 0  # what it starts with is not counted: it can't be shortened
        old.close()
        self._remove_others()
        if observer is not None:
            observer.replaced()

    async def _begin_afresh(self, entries: list[EntryT]) -> tuple[int, SegmentedLog]:
        number = self._unused_number()
        log = self._open(number, Offset(0))
        try:
            try:
                count = BATCH_BYTES_MAX // self._format.entry_bytes_max
                for at in range(0, len(entries), count):
                    self._append_to(log, entries[at : at + count])
                await log.flush()
            except LogReadOnlyError as error:  # it concerns the fresh journal only
                raise StorageError(str(error)) from error
            await self._switch(number, log)
        except BaseException as error:
            log.close()
            # After any other error the fresh journal may be in force, or the node is stopping.
            if isinstance(error, StorageError) and not isinstance(error, LogReadOnlyError):
                self._remove_others()
            raise
        return number, log

    async def _switch(self, number: int, log: SegmentedLog) -> None:
        """Put another journal in force.

        Raises:
          StorageError: if that failed; the journal in force is the same as before.
          LogReadOnlyError: if it is unknown which journal is in force.
        """
        try:
            await self._put_in_force(number, log)
        except StorageError as failure:
            try:
                # A disk that was full before anything happened would refuse this, too.
                if not isinstance(failure, DiskFullError) or self._names_another():
                    await self._note_flushed()  # put the old journal in force again, if it wasn't
            except StorageError as error:
                raise LogReadOnlyError(f"{error}; before that: {failure}") from error
            raise

    def _names_another(self) -> bool:
        """Whether a restart might read another journal.

        Raises:
          StorageError: if that can't be seen.
        """
        return _current(self._environment, self._directory).journal != self._number

    def _unused_number(self) -> int:
        """A number above those of all journals on the disk, including unfinished ones."""
        try:
            names = self._environment.disk.list_directory(self._directory)
        except OSError as error:
            raise StorageError(f"{self._directory} can't be read: {error}") from error
        return 1 + max([self._number, *(int(name) for name in names if name.isdecimal())])

    async def close(self) -> None:
        """Make everything durable, store how much that is, and close the files."""
        try:
            await self.flush()
            await self._note_flushed()
        except StorageError as error:
            _log.error("the journal could not be closed in order", why=str(error))
        finally:
            self._log.close()

    def _open(self, number: int, flushed: Offset, *, cut_altered: bool = True) -> SegmentedLog:
        log, recovery = at_once(
            SegmentedLog.open(
                self._environment.disk,
                f"{self._directory}/{number:06d}",
                LogOptions(),
                recovery_point=flushed,
                now_ms=self._environment.clock.wall_ms(),
                cut_altered=cut_altered,
            )
        )
        if recovery.cut_bytes:
            _log.warning(
                "the journal's tail was torn and is cut", bytes=recovery.cut_bytes, why=recovery.why
            )
        return log

    def _read(self) -> list[EntryT]:
        entries: list[EntryT] = []
        position = self._log.start
        while position < self._log.end:
            data = self._log.read(position, FETCH_BYTES_DEFAULT, self._log.end)
            for message in record.decode(data, position, TopicName("journal"), PartitionId(0)):
                try:
                    entries.append(self._format.decode(message.value))
                except Exception as error:
                    raise CorruptLogError(
                        f"{self._directory}/{self._number:06d}",
                        message.offset,
                        message.offset,
                        f"an entry that this version can't read ({type(error).__name__})",
                    ) from error
            position = Offset(position + len(data))
        return entries

    def _remove_others(self) -> None:
        """Remove journals that are not in force, as far as that can be done now: replaced ones,
        and unfinished ones."""
        disk = self._environment.disk
        try:
            for name in disk.list_directory(self._directory):
                if name.isdecimal() and int(name) != self._number:
                    for file in disk.list_directory(f"{self._directory}/{name}"):
                        disk.remove(f"{self._directory}/{name}/{file}")
                    disk.remove_directory(f"{self._directory}/{name}")
        except OSError as error:
            _log.warning("an old journal could not be removed", why=str(error))


def _refuse_to_begin_beside_others(disk: Disk, directory: str, advice: str) -> None:
    """Refuse to begin a journal if one was in force before.  The first one has the number 0.
    *advice*: see `JournalFormat.if_unknown`.

    Raises:
      StorageError: if one was, or that can't be seen.
    """
    try:
        numbers = sorted(int(one) for one in disk.list_directory(directory) if one.isdecimal())
    except OSError as error:
        raise StorageError(f"{directory} can't be read: {error}") from error
    if numbers[-1:] > [0]:
        raise StorageError(
            f"{directory}/current is gone, which says which of the journals {numbers} there is in "
            f"force: {advice}"
        )


def journal_in_force(disk: Disk, path: str) -> InForce:
    """The content of the file at *path*; without a file, one that says there is no journal yet.

    Raises:
      StorageError: if it can't be read, or isn't what was written.
    """
    stored = checkpoint.load(disk, path)
    if stored is None:
        return InForce()
    found = checkpoint.structured(path, stored, InForce)
    if min(found.journal, found.flushed) < 0:
        raise DamagedCheckpointError(f"{path} says what no node wrote: {found}")
    return found


def _current(environment: Environment, directory: str) -> InForce:
    return journal_in_force(environment.disk, f"{directory}/current")
