"""Where a broker keeps a topic's log, and how its files are kept."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from octopi import record
from octopi.environment import Environment
from octopi.identifiers import Offset, PartitionId
from octopi.limits import SEGMENT_BYTES_MAX
from octopi.logger import get_logger
from octopi.replication.producer_sequences import ProducerSequences
from octopi.roles.broker.replica_ends import topic_of
from octopi.storage import checkpoint
from octopi.storage.log_options import LogOptions
from octopi.storage.recovery import Noted
from octopi.storage.segmented_log import SegmentedLog
from octopi.wire.messages import TopicOptions, TopicRecord

_log = get_logger(__name__)


def stored_topic(environment: Environment, directory: str) -> TopicRecord | None:
    """The topic whose log lies in *directory*; None if it was never finished.

    Raises:
      StorageError: if the checkpoint there is damaged.
    """
    stored = checkpoint.load(environment.disk, f"{directory}/checkpoint")
    if stored is None:
        return None
    return topic_of(stored["topic"])


def log_directory(data_directory: str, partition: int, topic: str) -> str:
    """Where a log's files lie; topic names are safe as names of folders by their grammar."""
    return f"{data_directory}/logs/{partition}/{topic}"


@lru_cache(maxsize=100)
def shared_options(options: TopicOptions) -> TopicOptions:
    """The same object for all topics that are kept alike, as most are."""
    return options


@lru_cache(maxsize=100)
def log_options(options: TopicOptions) -> LogOptions:
    """How its files are kept."""
    return LogOptions(
        segment_bytes_max=options.segment_bytes or SEGMENT_BYTES_MAX,
        retention_ms=options.retention_ms,
        retention_bytes=options.retention_bytes,
    )


def sequences_of(stored: dict[str, Any]) -> ProducerSequences:
    """What a log's checkpoint says about producers."""
    return ProducerSequences.load(stored.get("producers", []), stored.get("requests", []))


def open_files(
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
    """Open a log's files, and have *sequences*, which are those up to the recovery point, know the
    records behind it.

    Raises:
      AlteredTailError, StorageError: see `octopi.storage.segmented_log.SegmentedLog.open`.
    """

    def rebuild(base: Offset, scan: record.Scan) -> None:
        sequences.note(scan, base)

    files, recovery = SegmentedLog.open(
        environment.disk,
        directory,
        log_options(topic.options),
        recovery_point=recovery_point,
        now_ms=environment.clock.wall_ms(),
        on_records=rebuild,
        cut_altered=cut_altered,
        noted=noted,
    )
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
