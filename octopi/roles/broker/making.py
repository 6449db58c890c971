"""Makes new logs: their directories, their checkpoints, and their entries in the files of ends.

The logs of one order are made together, so that they share what each would otherwise wait for: one
sync of the directory that they lie in, and one of the file that lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import StorageError
from octopi.identifiers import PartitionId
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_ends import ReplicaEnds
from octopi.storage.directories import make_durable_directories
from octopi.storage.flush_policy import FlushOptions
from octopi.storage.newest_records import NewestRecords
from octopi.wire.messages import TopicRecord


@attrs.define(eq=False)
class NewLog:
    """A log that is to be made."""

    directory: str
    topic: TopicRecord
    partition: PartitionId
    log: LocalLog | None = None
    """The log, once it is open."""
    error: StorageError | None = None
    """Why it was not made; the next attempt uses what was made by then."""

    async def fail(self, error: StorageError) -> None:
        """Give up, and close the files."""
        self.error = error
        if self.log is not None:
            await self.log.discard()


class LogMaking:
    """Opens the files of logs in one data directory, and makes those of new ones."""

    def __init__(
        self,
        environment: Environment,
        flusher: Flusher,
        flush_options: FlushOptions,
        logs: dict[tuple[str, PartitionId], LocalLog],
        ends: dict[PartitionId, ReplicaEnds],
        lasting: set[str],
        *,
        lost_power: bool,
    ) -> None:
        """*logs* and *ends*: see `octopi.roles.broker.opening.Opening`.  *lasting*: directories
        that survive a power failure."""
        self._environment = environment
        self._flusher = flusher
        self._flush_options = flush_options
        self._logs, self._ends, self._lasting = logs, ends, lasting
        self._lost_power = lost_power
        self._newest_records = NewestRecords()

    async def make(self, new: Sequence[NewLog]) -> None:
        """Make the logs *new*, of replicas that have files of ends, and add those that were made to
        the logs of this broker.  The others have an `error`."""
        await self._make_directories(new)
        async with trio.open_nursery() as nursery:
            for one in _good(new):
                nursery.start_soon(self._make_files, one)
        for partition in dict.fromkeys(one.partition for one in _good(new)):
            await self._list([one for one in _good(new) if one.partition == partition])
        for one in _good(new):
            assert one.log is not None
            one.log.note_checkpoint()
            self._logs[one.topic.topic, one.partition] = one.log

    async def _make_directories(self, new: Sequence[NewLog]) -> None:
        """Make their directories, durably."""
        directories = [one.directory for one in new]
        failed = await make_durable_directories(self._environment.disk, directories, self._lasting)
        for one in new:
            one.error = failed.get(one.directory)

    async def _make_files(self, new: NewLog) -> None:
        """Open the log, and store its first checkpoint."""
        ends = self._ends[new.partition]
        try:
            new.log = await self.open(new.directory, new.topic, new.partition, ends)
            await new.log.store_checkpoint()
        except StorageError as error:
            await new.fail(error)

    async def _list(self, new: list[NewLog]) -> None:
        """List logs of one partition in its file of ends."""
        try:
            # Also those that are listed, which may not be durable yet.
            await self._ends[new[0].partition].add([one.topic for one in new])
        except StorageError as error:
            for one in new:
                await one.fail(error)

    async def open(
        self,
        directory: str,
        topic: TopicRecord,
        partition: PartitionId,
        ends: ReplicaEnds,
        *,
        cut_altered: bool = True,
    ) -> LocalLog:
        """Open the log in *directory*: see `LocalLog.open`.

        Raises:
          AlteredTailError, StorageError: if the log can't be opened.
        """
        log = await LocalLog.open(
            self._environment,
            directory,
            topic,
            partition,
            self._flusher,
            self._flush_options,
            cut_altered=cut_altered,
            ends=ends,
            lost_power=self._lost_power,
        )
        log.keep_newest(self._newest_records)
        return log


def _good(new: Iterable[NewLog]) -> list[NewLog]:
    """Those of *new* that have not failed so far."""
    return [one for one in new if one.error is None]
