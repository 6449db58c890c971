"""The register's durable memory: a log of the entries that it decided.

The journal is a log like any other (`octopi.storage`); each record is a version 1 record
whose payload is one entry as a CBOR map.  When the journal has grown long, the register writes its
state as the first entries of a fresh log, and a small file is changed to name that log.  So a
snapshot is read like any other journal.
"""

from __future__ import annotations

from typing import Final

import attrs
from cattrs.gen import make_dict_unstructure_fn, override
from cattrs.preconf.cbor2 import make_converter
from cattrs.strategies import configure_tagged_union

from octopi import record
from octopi.coordination.journal_entries import BrokerRegistered, Entry
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
from octopi.model import PartitionRecord, RegisterGeneration, TopicRecord
from octopi.storage import checkpoint
from octopi.storage.checkpoint import DamagedCheckpointError
from octopi.storage.log_options import LogOptions
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.time_slices import at_once
from octopi.stored import partition_fields, register_fields, topic_fields
from octopi.tracing import steps

_log = get_logger(__name__)

_CONVERTER: Final = make_converter(forbid_extra_keys=True)
_CONVERTER.register_unstructure_hook(TopicRecord, topic_fields)
_CONVERTER.register_unstructure_hook(PartitionRecord, partition_fields)
_CONVERTER.register_unstructure_hook(RegisterGeneration, register_fields)
_CONVERTER.register_unstructure_hook(
    BrokerRegistered,
    make_dict_unstructure_fn(BrokerRegistered, _CONVERTER, host=override(omit_if_default=True)),
)
configure_tagged_union(Entry, _CONVERTER, tag_name="entry")


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


class Journal:
    """An open journal.  `append` takes effect at once, `flush` makes it last."""

    def __init__(
        self,
        environment: Environment,
        directory: str,
        number: int,
        flushed: Offset,
        snapshot_entries: int,
        *,
        lost_power: bool,
    ) -> None:
        """*flushed*: the journal's first bytes that are known to be durable; if any of these are
        missing or damaged, that is damage and not a torn tail.  *lost_power*: the machine, not only
        the process, stopped since the journal was written, so the bytes after *flushed* may be torn
        anywhere."""
        self._environment = environment
        self._directory = directory
        self._number = number
        self._snapshot_entries = snapshot_entries
        self._log = self._open(number, flushed, cut_altered=lost_power)
        self._entry_count = 0
        self._replacing = False

    @classmethod
    async def open(
        cls,
        environment: Environment,
        directory: str,
        *,
        snapshot_entries: int = JOURNAL_SNAPSHOT_ENTRIES,
    ) -> tuple[Journal, list[Entry]]:
        """Open or begin the journal in *directory*, which exists; return it and its entries.

        *snapshot_entries*: see `wants_snapshot`.

        Raises:
          StorageError: if the disk fails.
          CorruptLogError: if anything that was durable is missing, damaged or can't be
              read.  A register that started without it could contradict itself.
        """
        current = _current(environment, directory)
        if not current.page_cache:
            _refuse_to_begin_beside_others(environment.disk, directory)
        lost_power = current.page_cache != environment.disk.page_cache_id()
        journal = cls(
            environment,
            directory,
            current.journal,
            Offset(current.flushed),
            snapshot_entries,
            lost_power=lost_power,
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

    def append(self, entries: list[Entry]) -> None:
        """Append *entries*, all or none.

        Raises:
          StorageError: if that fails; then none of them is in the journal.
          NotReadyError: while the journal is being replaced; likewise.
        """
        if self._replacing:
            raise NotReadyError("the register is writing a snapshot of its state")
        if not entries:
            return
        if (trace := self._environment.trace) is not None:
            trace(steps.R2Appending(entries=entries))
        self._append_to(self._log, entries)
        self._entry_count += len(entries)
        if trace is not None:
            trace(steps.R2Appended(entries=entries))

    def _append_to(self, log: SegmentedLog, entries: list[Entry]) -> None:
        data = b"".join(
            record.encode_opaque(record.NO_REQUEST, _encode(entry)) for entry in entries
        )
        log.append(data, record.scan(data), self._environment.clock.wall_ms())

    async def flush(self) -> None:
        """Wait until everything appended so far is durable.

        Raises:
          LogReadOnlyError: if the disk failed; the register must stop.
        """
        log, end = self._log, self._log.end
        if log.flushed_end >= end:
            return
        if (trace := self._environment.trace) is not None:
            trace(steps.R3Flushing(log_end=end))
        while log.flushed_end < end:
            await log.flush()
        if trace is not None:
            trace(steps.R3Flushed(log_end=end))

    @property
    def wants_snapshot(self) -> bool:
        """Whether reading the journal takes much longer than reading a snapshot of the state: more
        than *snapshot_entries* entries were appended since its snapshot."""
        return self._entry_count > self._snapshot_entries

    async def replace(self, entries: list[Entry]) -> None:
        """Begin a fresh journal with *entries*, the whole state.

        Appends are refused meanwhile: they would be lost if this failed.  After a failure the
        old journal is in force.

        Raises:
          StorageError: if it can't be done.
          LogReadOnlyError: if it is unknown what a restart would read; the register must stop.
        """
        if (trace := self._environment.trace) is not None:
            trace(steps.R4Snapshot(entries=entries))
        self._replacing = True
        try:
            # Tasks that wait for its flush must not wait for the fresh journal, which may fail.
            await self.flush()
            number, fresh = await self._begin_afresh(entries)
        finally:
            self._replacing = False
        old, self._log, self._number = self._log, fresh, number
        if trace is not None:
            trace(steps.R4Switched())
        self._entry_count = 0  # what it starts with is not counted: it can't be shortened
        old.close()
        self._remove_others()
        if trace is not None:
            trace(steps.R4Replaced())

    async def _begin_afresh(self, entries: list[Entry]) -> tuple[int, SegmentedLog]:
        number = self._unused_number()
        log = self._open(number, Offset(0))
        try:
            try:
                for at in range(0, len(entries), 1000):
                    self._append_to(log, entries[at : at + 1000])
                await log.flush()
            except LogReadOnlyError as error:  # it concerns the fresh journal only
                raise StorageError(str(error)) from error
            await self._switch(number, log)
        except BaseException as error:
            log.close()
            # After any other error the fresh journal may be in force, or the register is stopping.
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

    def _read(self) -> list[Entry]:
        entries: list[Entry] = []
        position = self._log.start
        while position < self._log.end:
            data = self._log.read(position, FETCH_BYTES_DEFAULT, self._log.end)
            for message in record.decode(data, position, TopicName("journal"), PartitionId(0)):
                try:
                    entries.append(_decode(message.value))
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


def _refuse_to_begin_beside_others(disk: Disk, directory: str) -> None:
    """Refuse to begin a journal if one was in force before.  The first one has the number 0.

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
            "force: put it back from a copy, or move that directory away, and the register learns "
            "from its brokers"
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
        raise DamagedCheckpointError(f"{path} says what no register wrote: {found}")
    return found


def _current(environment: Environment, directory: str) -> InForce:
    return journal_in_force(environment.disk, f"{directory}/current")


def _encode(entry: Entry) -> bytes:
    data: bytes = _CONVERTER.dumps(entry, unstructure_as=Entry)
    assert len(data) < BATCH_BYTES_MAX // 1000
    return data


def _decode(data: bytes) -> Entry:
    entry: Entry = _CONVERTER.loads(data, Entry)  # type: ignore[arg-type]
    return entry
