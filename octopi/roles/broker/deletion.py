"""Deletes the files of logs and replicas that don't belong on this broker any more.

A deletion that fails is tried again every few seconds, when the register orders it again, and in
the next incarnation of the broker.
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
"""No name of a topic ends like this within a partition's folder, because ``!`` precedes it."""

UNFINISHED: Final[tuple[list[str], ...]] = ([], ["checkpoint.new"])
"""The contents of a log's directory if the creation of the log was never finished."""


@attrs.frozen
class PendingDeletion:
    """A log to delete, with the files of it that are on this broker."""

    directory: str
    """Empty: the log has no directory, and is only listed in the file of ends."""
    topic: str
    topic_id: TopicId
    partition: PartitionId
    log: LocalLog | None
    """None: the log could not be made, or could not be opened."""

    @property
    def new_directory(self) -> str:
        """The name of the directory from when it counts as deleted until its files are removed."""
        return f"{self.directory}!{self.topic_id}{DELETED_SUFFIX}"

    @property
    def log_fields(self) -> tuple[str, str, PartitionId, Epoch]:
        """The fields for traces; see `octopi.tracing.common.ReplicaLogStep`."""
        return self.topic, self.topic_id, self.partition, NO_EPOCH


class LogDeletion:
    """The logs whose files are to be deleted."""

    def __init__(
        self,
        environment: Environment,
        data_directory: str,
        ends: dict[PartitionId, ReplicaEnds],
        flush_internal: Callable[[PartitionId], Awaitable[None]],
    ) -> None:
        """*ends*: the files of ends, by partition, of replicas that stay.  *flush_internal*: makes
        the internal logs of a replica durable."""
        self._flush_internal = flush_internal
        self._environment = environment
        self._disk = environment.disk
        self._logs_directory = f"{data_directory}/logs"
        self._ends = ends
        self._doomed: list[PendingDeletion] = []
        self._leftovers: dict[str, None] = {}
        """Directories that already have the name of a deleted one."""
        self._deleting = BriefLock()

    def doom(self, log: LocalLog) -> None:
        """Have the next `delete` that selects *log* delete its files."""
        self._doomed.append(doomed_log(log))

    async def doom_unused(
        self, topics: Iterable[RemovedTopic], used: Container[tuple[str, PartitionId]]
    ) -> None:
        """Doom each log of *topics* on this broker that isn't in *used*, also if it is only listed
        in a file of ends.

        Raises:
          StorageError: if the directories can't be read.
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
        """Whether *directory* belongs to the topic *topic_id*, or its creation was begun and its
        files don't say for which topic.

        Raises:
          StorageError: if the files can't be read.
        """
        try:
            topic = stored_topic(self._environment, directory)
        except DamagedCheckpointError:
            return False  # the next start sets it aside
        if topic is None:
            return names_in(self._disk, directory) in UNFINISHED
        return topic.topic_id == topic_id

    def leave(self, directory: str) -> None:
        """Have the next `try_again` remove *directory*, whose name says that it is deleted."""
        self._leftovers[directory] = None

    @property
    def topic_ids(self) -> set[TopicId]:
        """The topics of the logs whose files are still to be deleted."""
        return {one.topic_id for one in self._doomed}

    async def delete(self, is_meant: Callable[[PendingDeletion], bool]) -> None:
        """Delete the doomed logs for which *is_meant* is true.  The caller has to ask again for
        those that fail.

        Raises:
          StorageError: if the disk fails.
        """
        async with self._deleting:
            for one in [one for one in self._doomed if is_meant(one)]:
                await self._delete(one)
                self._doomed.remove(one)

    async def try_again(self) -> None:
        """Delete, as far as possible, what could not be deleted before."""
        for one in list(self._doomed):
            with suppress(StorageError):
                await self.delete(one.__eq__)
        for directory in list(self._leftovers):
            with suppress(StorageError):
                remove_directory(self._disk, directory)
                del self._leftovers[directory]

    async def _delete(self, doomed: PendingDeletion) -> None:
        """Delete what is left of a doomed log.

        Raises:
          StorageError: if the disk fails.
        """
        if (trace := self._environment.trace) is not None:
            trace(steps.T7Removing(*doomed.log_fields))
        if doomed.log is not None:
            await doomed.log.discard()
        # Without this topic, all logs that are left may be flushed before they are acknowledged.
        # Then the replica would count as intact after a power failure, so the internal logs are
        # flushed first.
        await self._flush_internal(doomed.partition)
        ends = self._ends.get(doomed.partition)
        if ends is not None:  # otherwise the whole replica is deleted
            await ends.remove(doomed.topic_id)
        if doomed.directory:
            await self._remove(doomed)
        if trace is not None:
            trace(steps.T7Removed(*doomed.log_fields))
        if doomed.directory:
            remove_directory(self._disk, doomed.new_directory)

    async def _remove(self, doomed: PendingDeletion) -> None:
        """Rename the directory durably to the name of a deleted one.

        Raises:
          StorageError: if the disk fails.
        """
        # An invalid name or id could lead out of the partition's folder.
        if why := log_name_fault(doomed.topic, doomed.topic_id):
            raise StorageError(f"{doomed.directory!r} is not deleted: {why}")
        _require_own(self._disk, doomed.directory)
        parent, _, name = doomed.directory.rpartition("/")
        # The log counts as deleted once it has the new name; removing the files may take longer
        # than this incarnation.
        try:
            if name in names_in(self._disk, parent):  # otherwise only the new name was not durable
                self._disk.rename(doomed.directory, doomed.new_directory)
            await self._disk.sync_directory(parent)
        except OSError as error:
            raise StorageError(f"{doomed.directory} can't be removed: {error}") from error


def doomed_log(log: LocalLog) -> PendingDeletion:
    """A `PendingDeletion` of *log*."""
    return PendingDeletion(log.directory, log.topic.topic, log.topic_id, log.partition, log)


def remove_file(disk: Disk, path: str) -> None:
    """Remove a file, if it exists.

    Raises:
      StorageError: if the file can't be removed.
    """
    try:
        with suppress(FileNotFoundError):
            disk.remove(path)
    except OSError as error:
        raise StorageError(f"{path} can't be removed: {error}") from error


def remove_directory(disk: Disk, directory: str) -> None:
    """Remove a directory of files.  The target of a symbolic link stays, since it may belong to
    others.

    Raises:
      StorageError: if the directory can't be removed, or is reached through a link.
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
    """Check that *directory* isn't reached through a link.

    Raises:
      StorageError: if the parent of *directory* is a symbolic link.
    """
    parent = directory.rpartition("/")[0]
    if disk.is_link(parent):
        raise StorageError(
            f"{directory} is not deleted: {parent} is a symbolic link, so the files there may "
            "belong to others"
        )


def names_in(disk: Disk, directory: str) -> list[str]:
    """The names in a directory, sorted; empty if the directory doesn't exist.

    Raises:
      StorageError: if the directory can't be read.
    """
    try:
        return disk.list_directory(directory)
    except OSError as error:
        raise StorageError(f"{directory} can't be read: {error}") from error
