"""What durable subscriptions need of the rest of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from octopi.errors import NotLeaderError
from octopi.identifiers import Epoch, PartitionId, TopicId, TopicName
from octopi.replication.effects import Answer
from octopi.roles.broker.local_log import LocalLog


class LoadedStates(Protocol):
    """What was read from the log ``~subscriptions`` of a partition."""

    @property
    def values(self) -> Mapping[str, Mapping[str, Any]]:
        """The newest value of each key."""


class StateLogs(Protocol):
    """The logs ``~subscriptions`` of this broker's replicas."""

    async def load(self, partition: PartitionId) -> LoadedStates:
        """Read the log of *partition*, which this broker leads, once all of it is committed.

        Raises:
          NotLeaderError: if this broker doesn't lead it, or not any more.
          StorageError: if it can't be read.
        """

    def append(
        self, partition: PartitionId, key: str, value: Mapping[str, Any] | None, done: Answer
    ) -> None:
        """Append *value* under *key*; None removes the key.  *done* is called once, from here or
        later, with the receipt when that is committed, or with the refusal."""

    def require_in_sync(self, partition: PartitionId, count: int) -> None:
        """Commit nothing from here on while fewer replicas than *count* are in sync."""


class Leadership(Protocol):
    """One leadership of a partition by this broker."""

    @property
    def partition(self) -> PartitionId:
        """Of which one."""

    @property
    def epoch(self) -> Epoch:
        """That of the leadership."""

    @property
    def is_over(self) -> bool:
        """Whether this broker leads no more, or leads anew."""

    def log(self, topic_id: TopicId) -> LocalLog | None:
        """The partition's log of a topic, as long as the topic exists."""

    def log_named(self, topic: TopicName) -> LocalLog | None:
        """The partition's log of the topic that has that name now."""

    def is_removed(self, topic_id: TopicId) -> bool:
        """Whether the topic was deleted, as far as is known here.  One without a log may only have
        none here yet."""

    def produce(self, log: LocalLog, records: bytes, done: Answer) -> None:
        """Append *records* to a log of a topic in this partition.  *done* is called once, from here
        or later, with the receipt when they are committed, or with the refusal.

        Raises:
          RefusedError: if they are no valid records.
        """

    def redirect(self) -> NotLeaderError:
        """Says who leads, as far as that is known here."""
