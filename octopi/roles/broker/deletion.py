"""Deleting the files of logs and of replicas that have no place on this broker any more.

What fails is tried again every few seconds, when the register asks again, and by the next
incarnation of the broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable
from contextlib import suppress
from typing import Final

import attrs
import trio

from octopi.environment import Disk, Environment
from octopi.errors import StorageError
from octopi.identifiers import NO_EPOCH, Epoch, PartitionId, TopicId, log_name_fault
from octopi.logger import get_logger
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.log_files import partition_number, stored_topic
from octopi.roles.broker.replica_ends import ReplicaEnds
from octopi.storage.brief_lock import BriefLock
from octopi.storage.checkpoint import DamagedCheckpointError
from octopi.tracing import steps
from octopi.wire.messages import RemovedTopic

_log = get_logger(__name__)

DELETED_SUFFIX = ".deleted"
"""No topic name ends like this within a partition's folder: ``!`` precedes it."""

UNFINISHED: Final[tuple[list[str], ...]] = ([], ["checkpoint.new"])
"""What a directory of a log holds whose making was never finished."""


@attrs.frozen
class PendingDeletion:
    """What lies here of a log that has no place any more."""

    directory: str
    """Empty: there is none, and the log is only noted."""
    topic: str
    topic_id: TopicId
    partition: PartitionId
    log: LocalLog | None
    """None: it could not be made, or not be opened."""

    @property
    def new_directory(self) -> str:
        """What the directory is called until its files are removed."""
        return f"{self.directory}!{self.topic_id}{DELETED_SUFFIX}"

    @property
    def log_fields(self) -> tuple[str, str, PartitionId, Epoch]:
        """For traces; see `octopi.tracing.common.ReplicaLogStep`."""
        return self.topic, self.topic_id, self.partition, NO_EPOCH


class LogDeletion:
    """Logs that are not used any more, and whose files have to go."""

    def __init__(
        self,
        environment: Environment,
        data_directory: str,
        ends: dict[PartitionId, ReplicaEnds],
        flush_internal: Callable[[PartitionId], Awaitable[None]],
    ) -> None:
        """*ends*: what is noted of the logs, by partition; of replicas that stay.
        *flush_internal*: makes the internal logs of a replica durable."""
        self._flush_internal = flush_internal
        self._environment = environment
        self._disk = environment.disk
        self._logs_directory = f"{data_directory}/logs"
        self._ends = ends
        self._doomed: list[PendingDeletion] = []
        self._leftovers: dict[str, None] = {}
        """Directories that have the name of what is deleted."""
        self._deleting = BriefLock()

    def doom(self, log: LocalLog) -> None:
        """Have the files of *log* deleted by the next `delete` that means it."""
        self._doomed.append(doomed_log(log))

    async def doom_unused(
        self, topics: Iterable[RemovedTopic], used: Container[tuple[str, PartitionId]]
    ) -> None:
        """The same for what lies here of *topics* and is no log in *used*, or is only noted as
        one.

        Raises:
          StorageError: if it can't be known what lies here.
        """
        names = {TopicId(one.topic_id): one.topic for one in topics}
        known = {(one.topic_id, one.partition) for one in self._doomed}
        for number in {*names_in(self._disk, self._logs_directory), *map(str, self._ends)}:
            partition = partition_number(number)
            if partition is None:
                continue
            ends = self._ends.get(partition)
            noted = set(ends.topic_ids) if ends is not None else set()
            present = names_in(self._disk, f"{self._logs_directory}/{number}")
            for topic_id, topic in names.items():
                if (topic_id, partition) in known:
                    continue
                directory = f"{self._logs_directory}/{number}/{topic}"
                is_spare = topic in present and (topic, partition) not in used
                if not (is_spare and self._holds(directory, topic_id)):
                    directory = ""
                if directory or topic_id in noted:
                    self._doomed.append(
                        PendingDeletion(directory, topic, topic_id, partition, None)
                    )
            await trio.lowlevel.checkpoint()

    def _holds(self, directory: str, topic_id: TopicId) -> bool:
        """Whether *directory* belongs to that creation of a topic, or its making was begun and its
        files don't say for which one.

        Raises:
          StorageError: if that can't be read.
        """
        try:
            topic = stored_topic(self._environment, directory)
        except DamagedCheckpointError:
            return False  # it is set aside at the next start
        if topic is None:
            return names_in(self._disk, directory) in UNFINISHED
        return topic.topic_id == topic_id

    def leave(self, directory: str) -> None:
        """Have *directory*, whose name says that it is deleted, removed with the next
        `try_again`."""
        self._leftovers[directory] = None

    @property
    def topic_ids(self) -> set[TopicId]:
        """The topics of which files have to go."""
        return {one.topic_id for one in self._doomed}

    async def delete(self, is_meant: Callable[[PendingDeletion], bool]) -> None:
        """Delete those of what is doomed; what fails is to be asked for again.

        Raises:
          StorageError: if the disk fails.
        """
        async with self._deleting:
            for one in [one for one in self._doomed if is_meant(one)]:
                await self._delete(one)
                self._doomed.remove(one)

    async def try_again(self) -> None:
        """Delete all that could not be deleted before, as far as that can be done now."""
        for one in list(self._doomed):
            with suppress(StorageError):
                await self.delete(one.__eq__)
        for directory in list(self._leftovers):
            with suppress(StorageError):
                remove_directory(self._disk, directory)
                del self._leftovers[directory]

    async def _delete(self, doomed: PendingDeletion) -> None:
        """Delete what is left of a log that is not used any more.

        Raises:
          StorageError: if the disk fails.
        """
        if (trace := self._environment.trace) is not None:
            trace(steps.T7Removing(*doomed.log_fields))
        if doomed.log is not None:
            await doomed.log.discard()
        # Without this topic the logs that are left may all be flushed before they are acknowledged.
        # After a failure of power the replica would count as intact then.
        await self._flush_internal(doomed.partition)
        ends = self._ends.get(doomed.partition)
        if ends is not None:  # else the whole replica goes
            await ends.remove(doomed.topic_id)
        if doomed.directory:
            await self._remove(doomed)
        if trace is not None:
            trace(steps.T7Removed(*doomed.log_fields))
        if doomed.directory:
            remove_directory(self._disk, doomed.new_directory)

    async def _remove(self, doomed: PendingDeletion) -> None:
        """Give the directory the name of what is deleted, durably.

        Raises:
          StorageError: if the disk fails.
        """
        # A name or an id that is none may lead out of the partition's folder.
        if why := log_name_fault(doomed.topic, doomed.topic_id):
            raise StorageError(f"{doomed.directory!r} is not deleted: {why}")
        _require_own(self._disk, doomed.directory)
        parent, _, name = doomed.directory.rpartition("/")
        # The new name is what makes it gone; removing the files may take two incarnations.
        try:
            if name in names_in(self._disk, parent):  # else only not stored
                self._disk.rename(doomed.directory, doomed.new_directory)
            await self._disk.sync_directory(parent)
        except OSError as error:
            raise StorageError(f"{doomed.directory} can't be removed: {error}") from error


def doomed_log(log: LocalLog) -> PendingDeletion:
    """*log* as one that has no place any more."""
    return PendingDeletion(log.directory, log.topic.topic, log.topic_id, log.partition, log)


def remove_file(disk: Disk, path: str) -> None:
    """Remove a file, if it is there.

    Raises:
      StorageError: if that can't be done.
    """
    try:
        with suppress(FileNotFoundError):
            disk.remove(path)
    except OSError as error:
        raise StorageError(f"{path} can't be removed: {error}") from error


def remove_directory(disk: Disk, directory: str) -> None:
    """Remove a directory of files.  What a symbolic link points to stays: it belongs to others.

    Raises:
      StorageError: if that can't be done, or the directory is reached through a link.
    """
    try:
        _require_own(disk, directory)
        if disk.is_link(directory):
            _log.error("a link was removed, and not what it points to", path=directory)
            disk.remove(directory)
            return
        for name in names_in(disk, directory):
            disk.remove(f"{directory}/{name}")
        with suppress(FileNotFoundError):
            disk.remove_directory(directory)
    except OSError as error:
        raise StorageError(f"{directory} can't be removed: {error}") from error


def _require_own(disk: Disk, directory: str) -> None:
    """See that what *directory* names lies where its path says.

    Raises:
      StorageError: if its parent is a symbolic link.
    """
    parent = directory.rpartition("/")[0]
    if disk.is_link(parent):
        raise StorageError(
            f"{directory} is not deleted: {parent} is a symbolic link, and leads to files that "
            "may be of others"
        )


def names_in(disk: Disk, directory: str) -> list[str]:
    """The names in a directory, sorted; empty if there is none.

    Raises:
      StorageError: if it can't be read.
    """
    try:
        return disk.list_directory(directory)
    except OSError as error:
        raise StorageError(f"{directory} can't be read: {error}") from error
