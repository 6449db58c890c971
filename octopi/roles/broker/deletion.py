"""Deleting the files of logs and of replicas that have no place on this broker any more.

What fails is tried again when the register asks again, and by the next life of the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from octopi import steps
from octopi.environment import Disk, Environment
from octopi.errors import StorageError
from octopi.identifiers import TopicId
from octopi.roles.broker import facts
from octopi.roles.broker.broker_log import BrokerLog
from octopi.roles.broker.replica_ends import ReplicaEnds

DELETED_SUFFIX = ".deleted"
"""No topic name ends like this within a partition's folder: ``!`` precedes it."""


class Deletion:
    """The logs that nobody uses any more, and whose files have to go."""

    def __init__(self, environment: Environment, ends: dict[int, ReplicaEnds]) -> None:
        """*ends*: what is noted of the logs, by partition; of replicas that stay."""
        self._environment = environment
        self._ends = ends
        self._doomed: list[BrokerLog] = []

    def doom(self, log: BrokerLog) -> None:
        """Have the files of *log* deleted by the next `delete` that means it."""
        self._doomed.append(log)

    @property
    def topic_ids(self) -> set[TopicId]:
        """The topics of which files have to go."""
        return {log.topic_id for log in self._doomed}

    async def delete(self, is_meant: Callable[[BrokerLog], bool]) -> None:
        """Delete those of the doomed logs; what fails is to be asked for again.

        Raises:
          StorageError: if the disk fails.
        """
        for log in [log for log in self._doomed if is_meant(log)]:
            await self._delete(log)
            self._doomed.remove(log)

    async def _delete(self, log: BrokerLog) -> None:
        """Delete a log's files; nobody uses it any more.

        Raises:
          StorageError: if the disk fails.
        """
        if (trace := self._environment.trace) is not None:
            trace(steps.T7_REMOVING, **facts.of_log(log, 0))
        await log.discard()
        ends = self._ends.get(log.partition)
        if ends is not None:  # else the whole replica goes
            await ends.remove(log.topic_id)
        parent, _, name = log.directory.rpartition("/")
        # The new name is what makes it gone; removing the files may take two lives.
        doomed = f"{log.directory}!{log.topic_id}{DELETED_SUFFIX}"
        try:
            if name in names_in(self._environment.disk, parent):  # else only not stored
                self._environment.disk.rename(log.directory, doomed)
            await self._environment.disk.sync_directory(parent)
        except OSError as error:
            raise StorageError(f"{log.directory} can't be removed: {error}") from error
        if trace is not None:
            trace(steps.T7_REMOVED, **facts.of_log(log, 0))
        remove_directory(self._environment.disk, doomed)


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
    """Remove a directory of files.

    Raises:
      StorageError: if that can't be done.
    """
    try:
        for name in names_in(disk, directory):
            disk.remove(f"{directory}/{name}")
        disk.remove_directory(directory)
    except OSError as error:
        raise StorageError(f"{directory} can't be removed: {error}") from error


def names_in(disk: Disk, directory: str) -> list[str]:
    """The names in a directory, sorted; empty if there is none.

    Raises:
      StorageError: if it can't be read.
    """
    try:
        return disk.list_directory(directory)
    except OSError as error:
        raise StorageError(f"{directory} can't be read: {error}") from error
