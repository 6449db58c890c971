"""Keeps the file of ends of one replica: how far its logs are durable and committed.

`octopi.storage.ends_file` defines the file.  Notes are written to the page cache at once, where
they survive the end of the process.  One fsync for all logs of the replica follows within
`NOTES_SYNC_S`, so that they survive a power failure, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from octopi.environment import Environment
from octopi.errors import StorageError
from octopi.identifiers import Offset, TopicId, log_name_fault
from octopi.limits import NOTES_SYNC_S
from octopi.logger import get_logger
from octopi.roles.broker.flusher import Flusher
from octopi.storage import checkpoint
from octopi.storage.ends_file import ENDS_SUFFIX, EndsFile, NotedCheckpoint, NotedLog
from octopi.storage.recovery import NOTHING, Noted
from octopi.stored import topic_fields
from octopi.wire.messages import TopicRecord

_log = get_logger(__name__)


class ReplicaEnds:
    """The file of ends of one replica, and the task that syncs it."""

    __slots__ = ("_environment", "_failed", "_file", "_flusher", "_later")

    def __init__(self, environment: Environment, file: EndsFile, flusher: Flusher) -> None:
        self._environment = environment
        self._file = file
        self._flusher = flusher
        self._failed = False
        self._later: dict[TopicId, Callable[[], None]] = {}
        """What notes the ends of each log that has changed since the last `note_changed`."""

    def noted(self, topic_id: TopicId) -> NotedLog | None:
        """The entry of a log; None if the log isn't listed."""
        return self._file.logs.get(topic_id)

    @property
    def topic_ids(self) -> list[TopicId]:
        """The logs that are listed."""
        return [TopicId(topic_id) for topic_id in self._file.logs]

    def note(
        self, topic_id: TopicId, *, start: Offset, recovery_point: Offset, highwater: Offset
    ) -> None:
        """Note how far a log is durable and committed; neither waits nor fails."""
        if self._file.note(
            topic_id, start=start, recovery_point=recovery_point, highwater=highwater
        ):
            self._flusher.want(self._sync, self._environment.clock.now() + NOTES_SYNC_S)

    def note_later(self, topic_id: TopicId, note_ends: Callable[[], None]) -> None:
        """Have the next `note_changed` call *note_ends*, which notes the ends of a log."""
        self._later[topic_id] = note_ends

    def note_changed(self) -> None:
        """Note how far the logs are durable and committed that have changed; neither waits nor
        fails.  The others cost nothing: a broker may have many thousands."""
        later, self._later = self._later, {}
        for note_ends in later.values():
            note_ends()

    def note_power_failure(self, topic_id: TopicId, end: Offset) -> None:
        """Note that the machine lost power, and where the log has ended since; neither waits nor
        fails."""
        self._file.note_power_failure(topic_id, end)

    def note_checkpoint(self, topic_id: TopicId, stored: NotedCheckpoint) -> None:
        """Note which checkpoint of a log was stored last; neither waits nor fails."""
        if self._file.note_checkpoint(topic_id, stored):
            self._flusher.want(self._sync, self._environment.clock.now() + NOTES_SYNC_S)

    async def _sync(self) -> None:
        try:
            await self._file.sync()
        except StorageError as error:
            # The file then has less than what is true; the next sync replaces it.
            if not self._failed:
                _log.error("what is durable was not noted", file=self._file.path, why=str(error))
            self._failed = True
            self._flusher.want(self._sync, self._environment.clock.now() + NOTES_SYNC_S)
        else:
            self._failed = False

    async def sync(self) -> None:
        """Make the notes durable.

        Raises:
          StorageError: if the disk fails.
        """
        await self._file.sync()

    async def add(self, topics: Iterable[TopicRecord]) -> None:
        """List the logs of *topics*, durably, each with what describes its topic now.

        Raises:
          StorageError: if the disk fails; then the logs may be listed, but not durably.
        """
        await self._file.add({one.topic_id: topic_fields(one) for one in topics})

    async def remove(self, topic_id: TopicId) -> None:
        """Remove a log from the list, durably.

        Raises:
          StorageError: if the disk fails.
        """
        await self._file.remove(topic_id)

    async def set_back(self, topic_id: TopicId, start: Offset, end: Offset) -> None:
        """Lower the noted ends, durably, to what the log is sure to have after a change that leaves
        it the records from *start* to *end*.

        Raises:
          StorageError: if the disk fails.
        """
        log = self.noted(topic_id)
        if log is None:
            return
        says_more = max(log.recovery_point, log.highwater) > end or start != log.start
        # An earlier attempt may have failed after writing the note and before making it durable.
        if says_more or not self._file.is_synced:
            await self._file.set_back(topic_id, start, end)

    async def end(self) -> None:
        """Stop writing: the file is about to be removed."""
        await self._file.end()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def expected(log: NotedLog | None, *, lost_power: bool) -> Noted:
    """What the files of a log must contain, according to its entry *log*.  *lost_power*: the
    machine may have lost power since, so the page cache may be lost, too."""
    if log is None:
        return NOTHING
    # The highwater mark was in the page cache, which is lost only with the machine.
    kept = Offset(0) if lost_power else log.cached_end
    return Noted(log.start, log.recovery_point, kept, log.highwater)


def ends_path(replica_path: str) -> str:
    """The path of the file of ends that belongs to the state file of a replica."""
    return f"{replica_path}{ENDS_SUFFIX}"


def topic_of(described: Mapping[str, Any]) -> TopicRecord:
    """The topic, or the internal log, that a checkpoint or a file of ends describes.

    Raises:
      StorageError: if the fields describe no topic.  Its name and its id become parts of paths.
    """
    try:
        topic = checkpoint.typed(described, TopicRecord)
    except ValueError as error:
        raise StorageError(f"the fields describe no topic: {error}") from error
    if why := log_name_fault(topic.topic, topic.topic_id):
        raise StorageError(f"the fields describe no valid topic: {why}")
    return topic
