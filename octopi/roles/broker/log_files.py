"""The directory of a topic's log on a broker, and how the files in it are opened."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import attrs
import trio

from octopi import record
from octopi.environment import Disk, Environment
from octopi.errors import DiskFullError, OffsetInsideRecordError, StorageError
from octopi.identifiers import Offset, PartitionId, TopicId, is_internal, topic_name_fault
from octopi.limits import FETCH_BYTES_DEFAULT, LIST_COUNT_MAX, SEGMENT_BYTES_MAX
from octopi.logger import get_logger
from octopi.replication.epoch_history import EpochHistory
from octopi.replication.generation_seals import note_generations
from octopi.replication.log_state import LogState
from octopi.replication.producer_sequences import ProducerSequences
from octopi.roles.broker.replica_ends import ReplicaEnds, topic_of
from octopi.storage import checkpoint
from octopi.storage.checkpoint import DamagedCheckpointError
from octopi.storage.ends_file import NotedLog
from octopi.storage.file_names import segment_bases, segment_path
from octopi.storage.log_options import LogOptions
from octopi.storage.recovery import Noted
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.time_slices import in_turns
from octopi.wire.messages import TopicOptions, TopicRecord

_log = get_logger(__name__)


def stored_topic(environment: Environment, directory: str) -> TopicRecord | None:
    """The topic whose log lies in *directory*; None if the creation of the log was never finished.

    Raises:
      DamagedCheckpointError: if the checkpoint is damaged, or describes no topic.
      StorageError: if the checkpoint can't be read.
    """
    path = f"{directory}/checkpoint"
    stored = checkpoint.load(environment.disk, path)
    if stored is None:
        return None
    try:
        return topic_of(stored["topic"])
    except (KeyError, StorageError) as error:
        raise DamagedCheckpointError(f"{path} describes no topic: {error}") from error


def partition_number(name: str) -> PartitionId | None:
    """The number of the partition that a file or folder is named after; None if *name* is no such
    name."""
    if not (name.isascii() and name.isdecimal()) or (name[0] == "0" and name != "0"):
        return None
    return PartitionId(int(name)) if len(name) < 20 and int(name) < LIST_COUNT_MAX else None


def fault_of_age(disk: Disk, directory: str, topic_id: TopicId, ends: ReplicaEnds) -> str:
    """Why the checkpoint in *directory*, of the log of *topic_id*, is an older copy of itself;
    empty if *ends* doesn't show that it is.

    Raises:
      StorageError: if the checkpoint can't be read.
    """
    noted = ends.noted(topic_id)
    if noted is None:
        name = directory.rpartition("/")[2]
        listed = (ends.noted(one) for one in ends.topic_ids)
        if any(one is not None and one.topic.get("topic") == name for one in listed):
            return "its checkpoint is of another topic of that name"
        return ""
    number = (checkpoint.load(disk, f"{directory}/checkpoint") or {}).get("number", 0)
    if noted.checkpoint is None or number >= noted.checkpoint.number:
        return ""
    return f"its checkpoint is number {number}, and number {noted.checkpoint.number} was stored"


def is_of_topic(environment: Environment, directory: str, topic_id: TopicId) -> bool:
    """Whether nothing shows that the log in *directory* is of another topic than *topic_id*.

    Raises:
      StorageError: if the checkpoint can't be read.
    """
    try:
        topic = stored_topic(environment, directory)
    except DamagedCheckpointError:
        return True
    return topic is None or topic.topic_id == topic_id


def log_directory(data_directory: str, partition: PartitionId, topic: str) -> str:
    """The directory of a log's files.  The grammar of names of topics and of internal logs makes
    them safe as names of folders.

    Raises:
      StorageError: if *topic* is no such name, or *partition* is no number of a partition, so that
          the path could lead anywhere.
    """
    why = "" if is_internal(topic) else topic_name_fault(topic)
    if why or not 0 <= partition < LIST_COUNT_MAX:
        raise StorageError(
            f"partition {partition} can't have a log of topic {topic[:200]!r}"
            f"{': ' if why else ''}{why}"
        )
    return f"{data_directory}/logs/{partition}/{topic}"


@lru_cache(maxsize=100)
def shared_options(options: TopicOptions) -> TopicOptions:
    """Return one object for all topics with equal options, since most topics have the same."""
    return options


def with_shared_options(topic: TopicRecord) -> TopicRecord:
    """*topic*, with an object for its options that is shared with other topics."""
    return attrs.evolve(topic, options=shared_options(topic.options))


@lru_cache(maxsize=100)
def log_options(options: TopicOptions) -> LogOptions:
    """The options of the log's files."""
    return LogOptions(
        segment_bytes_max=options.segment_bytes or SEGMENT_BYTES_MAX,
        retention_ms=options.retention_ms,
        retention_bytes=options.retention_bytes,
        hold_ms=options.hold_ms,
        hold_bytes=options.hold_bytes,
    )


def sequences_of(stored: dict[str, Any]) -> ProducerSequences:
    """The producers' sequences in a log's checkpoint."""
    return ProducerSequences.load(stored.get("producers", []), stored.get("requests", []))


async def sequences_below(
    end: Offset, files: SegmentedLog, known: ProducerSequences, behind: Offset
) -> ProducerSequences:
    """The producers' sequences of all records below *end*, in *known*, which has those of the
    records below *behind*.

    Raises:
      StorageError: if the records can't be read, or *end* is inside a record.
    """
    position = behind
    try:
        await in_turns(files.prove(end))  # otherwise a cut there could take long
    except OffsetInsideRecordError as error:
        raise StorageError(f"no sound leader has a log cut there: {error.args[0]}") from error
    while position < end:
        position = max(position, files.start)  # retention may have removed the next ones
        await in_turns(files.prove(position))
        data = files.read(position, FETCH_BYTES_DEFAULT, end)
        known.note(record.scan(data), position)
        position = Offset(position + len(data))
        await trio.lowlevel.checkpoint()
    return known


def opened_state(
    topic: TopicRecord,
    files: SegmentedLog,
    stored: Mapping[str, Any],
    noted: NotedLog | None,
    sequences: ProducerSequences,
) -> LogState:
    """The state of a log that was opened with the checkpoint *stored* and the entry *noted* in the
    file of ends; *sequences* are those of all its records."""
    highwater = Offset(stored.get("highwater", 0))
    if noted is not None:
        highwater = max(highwater, noted.highwater)
    state = LogState(
        end=files.end,
        highwater=max(files.start, min(highwater, files.end)),
        flushed_end=files.flushed_end,
        start=files.start,
        epochs=EpochHistory.load(stored.get("epochs", [])),
        sequences=sequences,
        flush_before_ack=topic.options.flush_before_ack,
        min_insync=topic.options.min_insync,
        sound=files.damage is None,
        held_end=max(
            Offset(stored.get("recovery_point", 0)),
            highwater,
            noted.recovery_point if noted else highwater,
        ),
    )
    note_generations(state, topic)
    return state


def alter_files(files: SegmentedLog, state: LogState, topic: TopicRecord) -> None:
    """Have a log go by the record *topic* from now on."""
    note_generations(state, topic)
    files.alter(log_options(topic.options))


def restart_begun(disk: Disk, directory: str) -> Offset | None:
    """The offset where the log in *directory* shall begin, if the process died in
    `LocalLog.restart`, while it dropped all records; else None.

    The checkpoint of such a log has a log start above its recovery point; no other checkpoint has.

    Raises:
      StorageError: if the checkpoint can't be read.
    """
    stored = checkpoint.load(disk, f"{directory}/checkpoint") or {}
    start = Offset(stored.get("start", 0))
    if stored.get("recovery_point", 0) >= start:
        return None
    bases = _bases(disk, directory)
    return start if not bases or bases[0] < start else None


def _finish_restart(disk: Disk, directory: str, begin: Offset) -> None:
    """Remove the segments that a log had before it was restarted at *begin*.  The last segment goes
    first, so after a failure the rest is removed the same way.

    These segments are of no use: the leader's log begins at *begin*, and the checkpoint doesn't
    describe them.

    Raises:
      StorageError: if the disk fails.
    """
    try:
        for base in reversed(_bases(disk, directory)):
            if base < begin:
                disk.remove(segment_path(directory, base))
    except OSError as error:
        raise StorageError(f"{error.filename} can't be removed: {error.strerror}") from error


def has_segments(disk: Disk, directory: str) -> bool:
    """Whether records were ever appended to the log in *directory*.

    Raises:
      StorageError: if the directory can't be read.
    """
    return bool(_bases(disk, directory))


def _bases(disk: Disk, directory: str) -> list[Offset]:
    try:
        return segment_bases(disk.list_directory(directory))
    except OSError as error:
        raise StorageError(f"{directory} can't be read: {error.strerror}") from error


async def open_files(
    environment: Environment,
    directory: str,
    topic: TopicRecord,
    partition: PartitionId,
    recovery_point: Offset,
    sequences: ProducerSequences,
    noted: Noted,
    *,
    cut_altered: bool,
) -> SegmentedLog:
    """Open a log's files.  *sequences* has the sequences up to the recovery point, and those of the
    records that are read are added.  A restart that was not finished is finished first.  Other
    tasks run meanwhile.

    Raises:
      AlteredTailError, StorageError: see `octopi.storage.segmented_log.SegmentedLog.open`.
    """

    disk = environment.disk
    begin = restart_begun(disk, directory)
    if begin is not None:
        _finish_restart(disk, directory, begin)

    def rebuild(base: Offset, scan: record.Scan) -> None:
        if base < recovery_point:
            sequences.forget(base)  # it has those of this chunk: records before it are read, too
        sequences.note(scan, base)

    opening = SegmentedLog.open(
        disk,
        directory,
        log_options(topic.options),
        recovery_point=recovery_point,
        now_ms=environment.clock.wall_ms(),
        on_records=rebuild,
        cut_altered=cut_altered,
        noted=noted,
    )
    files, recovery = await in_turns(opening)
    if begin is not None and not files.segment_count and files.fault is None:
        with suppress(DiskFullError):  # the log begins there all the same
            files.restart(begin)
    if files.damage is not None:
        _log.error(
            "a log is damaged",
            topic=topic.topic,
            partition=partition,
            log_end=recovery.end,
            why=str(files.damage),
        )
    if recovery.cut_bytes:
        _log.warning(
            "a torn tail was cut",
            topic=topic.topic,
            partition=partition,
            cut_bytes=recovery.cut_bytes,
            log_end=recovery.end,
            why=recovery.why,
        )
    return files
