"""Where a broker keeps a topic's log, and how its files are kept."""

from __future__ import annotations

from functools import lru_cache

from octopi.environment import Environment
from octopi.limits import SEGMENT_BYTES_MAX
from octopi.roles.broker.replica_ends import topic_of
from octopi.storage import checkpoint
from octopi.storage.log_options import LogOptions
from octopi.wire.messages import TopicOptions, TopicRecord


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
