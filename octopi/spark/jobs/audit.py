"""Reads the files of all replicas, and checks that they agree and that nothing is missing.

Each task reads one segment file of one replica: it checks every record, hashes the bytes by
stretches of the log, which don't depend on the files' bounds, and collects the request ids.  The
driver compares the results:

=============  =========================================================================
fault          meaning
=============  =========================================================================
damage         a record's bytes are not what was written, or a file can't be read
gap            a file doesn't begin where the file before ends
short          a replica ends before the highwater mark that it noted itself, or has no files
difference     replicas differ below the highwater mark
duplicate      one request is in a log twice
=============  =========================================================================

No file is written.  Brokers may run meanwhile, since records below the highwater mark don't change.
Records above it are not judged, and the result says so: they may be cut, and may differ from
replica to replica.  The mark is the greatest that any of the replicas has noted; they note it at
the latest a second after it moved.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from octopi.errors import CorruptLogError, RecordError, StorageError
from octopi.identifiers import Offset
from octopi.limits import MIB, RECORD_BYTES_MAX
from octopi.operating_system import SystemDisk
from octopi.record import HEADER_BYTES, STRUCTURED, record_end
from octopi.spark.frames import Frames, RecordFaultError, check_records, find_records
from octopi.spark.logs import PIECE_BYTES, SourceLog
from octopi.spark.stored_logs import LogFolder, find_folders
from octopi.storage.file_names import index_path, segment_bases
from octopi.storage.offset_index import OffsetIndex
from octopi.storage.record_file import RecordFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRETCH_BYTES: Final = 4 * MIB

_PRODUCER_AT: Final = 9
_SEQUENCE_AT: Final = 33
_FINDINGS_MAX: Final = 100
"""How many damages of one file are reported; a file with more is broken as a whole."""


@attrs.frozen(order=True)
class AuditFault:
    """A fault that the audit found."""

    log: str
    offset: int
    kind: str
    path: str
    """The file; of several replicas that differ, that of the replica that is probably wrong."""
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}: {self.log} at offset {self.offset}: {self.what}"


@attrs.frozen
class Audit:
    """The result of an audit."""

    logs: int
    replicas: int
    size_bytes: int
    """The size of the records that were judged, in all replicas."""
    faults: list[AuditFault]
    not_judged: list[NotJudged] = attrs.field(factory=list)


@attrs.frozen(order=True)
class NotJudged:
    """Records of one replica that are not known to be committed."""

    log: str
    directory: str
    offset: int
    """The offset of the first such record."""
    size_bytes: int

    def __str__(self) -> str:
        return (
            f"not judged: {self.directory}: {self.size_bytes} bytes of {self.log} from offset "
            f"{self.offset} on, which are not known to be committed"
        )


@attrs.frozen
class _Replica:
    """One replica of a log."""

    number: int
    """The index of its data directory."""
    directory: str
    highwater: Offset
    files: tuple[tuple[Offset, int], ...]
    """The base offset and the size of each segment."""

    @property
    def start(self) -> Offset:
        return self.files[0][0]

    @property
    def end(self) -> Offset:
        base, size_bytes = self.files[-1]
        return Offset(base + size_bytes)

    def path(self, offset: int) -> str:
        """The file that holds *offset*."""
        at = bisect_right(self.files, offset, key=lambda one: one[0]) - 1
        return RecordFile(SystemDisk(), self.directory, self.files[max(0, at)][0]).path


@attrs.frozen
class _Task:
    log: SourceLog
    replica: _Replica
    base: Offset
    until: Offset
    """Where checking ends; the rest may have a torn tail, and isn't compared."""


@attrs.frozen
class _RequestRun:
    """Consecutive records of one producer with consecutive sequences."""

    producer: bytes
    first: int
    count: int
    offset: int


@attrs.frozen
class _Seen:
    """The result of a task."""

    log: SourceLog
    replica: int
    faults: list[AuditFault]
    digests: list[tuple[int, int, bytes]]
    """For each stretch, or part of a stretch at the file's ends: its first offset, its end, and the
    hash of the bytes between."""
    runs: list[_RequestRun]
    size_bytes: int


def audit(spark: SparkSession, directories: Sequence[Path]) -> Audit:
    """Audit the replicas in the brokers' data *directories*, which all executors must be able to
    read.

    Raises:
      InvalidOptionError: if one is no data directory.
    """
    replicas, faults = _find(directories)
    tasks: list[_Task] = []
    not_judged: list[NotJudged] = []
    for log, group in replicas.items():
        committed = max(one.highwater for one in group)
        for one in group:
            until = Offset(min(committed, one.end))
            judged_to = max(until, one.start)
            if one.end > judged_to:
                rest = NotJudged(str(log), one.directory, judged_to, one.end - judged_to)
                not_judged.append(rest)
            tasks += [_Task(log, one, base, until) for base, _ in one.files]
    longest = {log: max(group, key=lambda one: one.end).number for log, group in replicas.items()}
    seen: list[_Seen] = []
    if tasks:
        sizes = {one: dict(one.replica.files)[one.base] for one in tasks}
        tasks.sort(key=lambda one: -sizes[one])  # the largest files first
        slices = min(len(tasks), spark.sparkContext.defaultParallelism * 4)
        seen = spark.sparkContext.parallelize(tasks, slices).map(_look).collect()
    for found in seen:
        faults += found.faults
    faults += _differences(replicas, seen)
    for log, number in longest.items():
        runs = [run for one in seen if (one.log, one.replica) == (log, number) for run in one.runs]
        replica = next(one for one in replicas[log] if one.number == number)
        faults += _duplicates(log, replica, runs)
    return Audit(
        len(replicas),
        sum(map(len, replicas.values())),
        sum(one.size_bytes for one in seen),
        sorted(set(faults)),
        sorted(not_judged),
    )


def _find(directories: Sequence[Path]) -> tuple[dict[SourceLog, list[_Replica]], list[AuditFault]]:
    """The replicas of each log, and the faults that show in the names and sizes of files."""
    disk = SystemDisk()
    replicas: defaultdict[SourceLog, list[_Replica]] = defaultdict(list)
    faults: list[AuditFault] = []
    for number, directory in enumerate(directories):
        for folder in find_folders(disk, str(directory.absolute())):
            files = tuple(_files(disk, folder))
            if not files:
                if folder.highwater:
                    what = f"it has no files, but was committed up to {folder.highwater}"
                    faults.append(AuditFault(str(folder.log), 0, "short", folder.directory, what))
                continue
            replica = _Replica(number, folder.directory, folder.highwater, files)
            replicas[folder.log].append(replica)
            name = str(folder.log)
            for (base, size_bytes), (following, _) in pairwise(files):
                if base + size_bytes != following:
                    what = f"it ends at offset {base + size_bytes}, the next begins at {following}"
                    faults.append(
                        AuditFault(name, base + size_bytes, "gap", replica.path(base), what)
                    )
            if replica.end < folder.highwater:
                what = f"it ends there, but was committed up to {folder.highwater}"
                faults.append(
                    AuditFault(name, replica.end, "short", replica.path(replica.end), what)
                )
    return dict(replicas), faults


def _files(disk: SystemDisk, folder: LogFolder) -> Iterator[tuple[Offset, int]]:
    for base in segment_bases(disk.list_directory(folder.directory)):
        yield base, RecordFile.existing(disk, folder.directory, base).size_bytes


# --- what a task does --------------------------------------------------------------------


def _look(task: _Task) -> _Seen:
    """Check one file."""
    segment = RecordFile.existing(SystemDisk(), task.replica.directory, task.base)
    reading = _Reading(task, segment)
    try:
        reading.read()
    except (StorageError, OSError) as error:
        offset = error.offset if isinstance(error, CorruptLogError) else task.base
        reading.fault(offset, str(error))
    finally:
        segment.close()
    return reading.seen()


class _Reading:
    """One pass over a file."""

    def __init__(self, task: _Task, segment: RecordFile) -> None:
        self._task = task
        self._segment = segment
        self._stop = max(0, min(segment.size_bytes, task.until - task.base))
        """The position at which checking ends."""
        self._digests: list[tuple[int, int, bytes]] = []
        self._hash = hashlib.blake2b(digest_size=16)
        self._hashed_from = self._hashed_to = int(task.base)
        self._faults: list[AuditFault] = []
        self._runs = _Runs()

    def read(self) -> None:
        """Check and hash the file, and collect its request ids."""
        position, size_bytes = 0, PIECE_BYTES
        while position < self._stop:
            data = self._segment.pread(min(size_bytes, self._stop - position), position)
            try:
                frames = find_records(data)
                check_records(frames, self._task.base + position)
                whole = frames.size_bytes
                if not whole and len(data) < min(RECORD_BYTES_MAX, self._stop - position):
                    size_bytes = RECORD_BYTES_MAX
                    continue
                if not whole:
                    raise RecordError("a record ends behind the committed records")
            except RecordError as error:
                position = self._behind_damage(position, data, error)
                continue
            self._digest(memoryview(data)[:whole])
            self._runs.add(frames, self._task.base + position)
            position, size_bytes = position + whole, PIECE_BYTES
        if self._hashed_to > self._hashed_from:
            self._end_stretch()

    def fault(self, offset: int, what: str) -> None:
        """Add damage at *offset* to the faults."""
        if len(self._faults) < _FINDINGS_MAX:
            path, log = self._segment.path, str(self._task.log)
            self._faults.append(AuditFault(log, offset, "damage", path, what))

    def seen(self) -> _Seen:
        """The result of the task."""
        task = self._task
        runs = self._runs.runs
        return _Seen(task.log, task.replica.number, self._faults, self._digests, runs, self._stop)

    def _behind_damage(self, position: int, data: bytes, error: RecordError) -> int:
        """Add the damage in *data* to the faults; return the position of the next sound record."""
        bad = position
        if isinstance(error, RecordFaultError):
            bad = error.offset - self._task.base
            self.fault(error.offset, str(error.why))
        else:
            bad = position + _sound_bytes(data)
            self.fault(self._task.base + bad, str(error))
        good = bad - position
        if good:
            self._runs.add(find_records(data[:good]), self._task.base + position)
        index = OffsetIndex(SystemDisk(), index_path(self._task.replica.directory, self._task.base))
        try:
            sound = self._segment.next_sound(bad, sorted(index.positions_behind(bad)))
        finally:
            index.close()
        sound = self._stop if sound is None else min(sound, self._stop)
        self._digest(self._segment.pread(sound - position, position))
        return sound

    def _digest(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            room = STRETCH_BYTES - self._hashed_to % STRETCH_BYTES
            part = view[:room]
            self._hash.update(part)
            self._hashed_to += len(part)
            view = view[room:]
            if self._hashed_to % STRETCH_BYTES == 0:
                self._end_stretch()

    def _end_stretch(self) -> None:
        self._digests.append((self._hashed_from, self._hashed_to, self._hash.digest()))
        self._hash = hashlib.blake2b(digest_size=16)
        self._hashed_from = self._hashed_to


class _Runs:
    """The requests of a file, as runs."""

    def __init__(self) -> None:
        self.runs: list[_RequestRun] = []

    def add(self, frames: Frames, base_offset: int) -> None:
        """Add the records of *frames*, the first of which is at *base_offset* + its position."""
        if not len(frames):
            return
        if not frames.is_structured:
            self._add_mixed(frames, base_offset)
            return
        producers = np.stack([frames.words(_PRODUCER_AT + 4 * n) for n in range(5)], axis=1)
        high, low = frames.words(_SEQUENCE_AT), frames.words(_SEQUENCE_AT + 4)
        sequences = (high.astype(np.int64) << 32) | low
        breaks = np.flatnonzero(
            (producers[1:] != producers[:-1]).any(axis=1) | (np.diff(sequences) != 1)
        )
        firsts = np.concatenate(([0], breaks + 1)).tolist()
        for first, stop in pairwise([*firsts, len(frames)]):
            at = int(frames.starts[first])
            producer = frames.buffer[at + _PRODUCER_AT : at + _PRODUCER_AT + 20]
            run = _RequestRun(producer, int(sequences[first]), stop - first, base_offset + at)
            self._append(run)

    def _add_mixed(self, frames: Frames, base_offset: int) -> None:
        for start in frames.starts.tolist():
            request_id = frames.buffer[start + _PRODUCER_AT : start + HEADER_BYTES]
            if frames.buffer[start + 4] == STRUCTURED:
                sequence = int.from_bytes(request_id[24:], "big")
                self._append(_RequestRun(request_id[:20], sequence, 1, base_offset + start))
            else:
                self._append(_RequestRun(request_id, 0, 1, base_offset + start))

    def _append(self, run: _RequestRun) -> None:
        last = self.runs[-1] if self.runs else None
        if last and last.producer == run.producer and last.first + last.count == run.first:
            self.runs[-1] = attrs.evolve(last, count=last.count + run.count)
        else:
            self.runs.append(run)


def _sound_bytes(data: bytes) -> int:
    """The position in *data* up to which the lengths of records are valid."""
    position = 0
    try:
        while True:
            position = record_end(data, position)
    except RecordError:
        return min(position, len(data))


# --- what the driver does ----------------------------------------------------------------


def _differences(
    replicas: dict[SourceLog, list[_Replica]], seen: list[_Seen]
) -> Iterator[AuditFault]:
    """The differences between replicas, found by hashes and then byte by byte."""
    hashes: defaultdict[tuple[SourceLog, int], dict[int, list[tuple[int, int, bytes]]]]
    hashes = defaultdict(lambda: defaultdict(list))
    for one in seen:
        for start, end, digest in one.digests:
            stretch = hashes[one.log, start // STRETCH_BYTES]
            stretch[one.replica].append((start, end, digest))
    for (log, number), by_replica in sorted(hashes.items()):
        parts = [sorted(one) for one in by_replica.values()]
        if len(parts) < 2 or all(one == parts[0] for one in parts):
            continue
        # The files of replicas may end at different offsets: then the bytes have to be compared.
        group = [one for one in replicas[log] if one.number in by_replica]
        start = max(number * STRETCH_BYTES, *(one.start for one in group))
        committed = max(one.highwater for one in replicas[log])
        ends = [min(one.end, committed) for one in group]
        yield from _compare(log, group, start, min((number + 1) * STRETCH_BYTES, *ends))


def _compare(log: SourceLog, group: list[_Replica], start: int, end: int) -> Iterator[AuditFault]:
    contents = {one.number: _bytes(one, start, end) for one in group}
    counts: defaultdict[bytes, list[_Replica]] = defaultdict(list)
    for one in group:
        counts[contents[one.number]].append(one)
    # Of two replicas it is not known which is right; the longer one is assumed to be.
    right, *wrong = sorted(counts, key=lambda one: (-len(counts[one]), -len(one)))
    for content in wrong:
        common = min(len(content), len(right))
        pair = np.frombuffer(content[:common], np.uint8), np.frombuffer(right[:common], np.uint8)
        differs = np.flatnonzero(pair[0] != pair[1])
        at = int(differs[0]) if len(differs) else common
        for one in counts[content]:
            other = counts[right][0].directory
            what = f"from there on it differs from {other}"
            yield AuditFault(str(log), start + at, "difference", one.path(start + at), what)


def _bytes(replica: _Replica, start: int, end: int) -> bytes:
    """The bytes of a replica between two offsets; zeros where it has no file."""
    found = bytearray(max(0, end - start))
    for base, size_bytes in replica.files:
        low, high = max(start, base), min(end, base + size_bytes)
        if low < high:
            segment = RecordFile.existing(SystemDisk(), replica.directory, base)
            found[low - start : high - start] = segment.pread(high - low, low - base)
            segment.close()
    return bytes(found)


def _duplicates(log: SourceLog, replica: _Replica, runs: list[_RequestRun]) -> Iterator[AuditFault]:
    by_producer: defaultdict[bytes, list[_RequestRun]] = defaultdict(list)
    for run in runs:
        by_producer[run.producer].append(run)
    for group in by_producer.values():
        group.sort(key=lambda one: (one.first, one.offset))
        furthest: _RequestRun | None = None
        for run in group:
            if furthest is not None and run.first < furthest.first + furthest.count:
                later, earlier = max(run, furthest, key=_offset), min(run, furthest, key=_offset)
                first = max(run.first, furthest.first)
                offset = _offset_of(replica, later, first)
                where = _offset_of(replica, earlier, first)
                what = f"the request {run.producer.hex()} {first} is also at offset {where}"
                yield AuditFault(str(log), offset, "duplicate", replica.path(offset), what)
            if furthest is None or run.first + run.count > furthest.first + furthest.count:
                furthest = run


def _offset(run: _RequestRun) -> int:
    return run.offset


def _offset_of(replica: _Replica, run: _RequestRun, sequence: int) -> int:
    """The offset of the record in *run* that has *sequence*."""
    offset = run.offset
    for _ in range(sequence - run.first):
        segment_base = max(base for base, _ in replica.files if base <= offset)
        segment = RecordFile.existing(SystemDisk(), replica.directory, segment_base)
        head = segment.pread(HEADER_BYTES, offset - segment_base)
        segment.close()
        offset += record_end(head, 0)
    return offset
