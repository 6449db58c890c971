"""The logs in a broker's data directory: opened, made, looked up and deleted.

`octopi.roles.broker.opening` opens logs, and `octopi.roles.broker.deletion` deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

import trio

from octopi.environment import Environment
from octopi.errors import NotLeaderError, StorageError
from octopi.identifiers import INTERNAL_LOGS, Offset, PartitionId, TopicId, is_internal
from octopi.limits import REMOVED_TOPICS_MAX
from octopi.logger import get_logger
from octopi.replication.internal_log import internal_log
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.log_files import log_directory
from octopi.roles.broker.making import NewLog
from octopi.roles.broker.opening import Opening
from octopi.security.quotas import LogName
from octopi.storage.flush_policy import FlushOptions
from octopi.storage.time_slices import Slices, in_groups
from octopi.tracing import steps
from octopi.wire.messages import LogCount, LogInfo, RemovedTopic, TopicRecord

_log = get_logger(__name__)


class LogStore:
    """The logs in one data directory, of all replicas."""

    def __init__(
        self,
        environment: Environment,
        data_directory: str,
        flusher: Flusher,
        flush_options: FlushOptions,
        *,
        lost_power: bool,
        internal_logs: Sequence[str] = INTERNAL_LOGS,
        keep_retired_s: float,
    ) -> None:
        self._internal_logs = internal_logs
        self._environment = environment
        self._data_directory = data_directory
        self.opening = Opening(
            environment,
            data_directory,
            flusher,
            flush_options,
            lost_power=lost_power,
            keep_retired_s=keep_retired_s,
        )
        self.retired = self.opening.retired
        """The replicas that this broker gave up and keeps for a while."""
        self.logs, self.ends = self.opening.logs, self.opening.ends
        self._deletion = self.opening.deletion
        self._removed: dict[str, None] = {}

    # --- making and deleting -------------------------------------------------------------

    async def create(
        self, wanted: Sequence[tuple[TopicRecord, PartitionId]]
    ) -> dict[tuple[str, PartitionId], LocalLog | StorageError]:
        """Ensure that there is a log of each topic in its partition.  Return, by topic and
        partition, those that were made now, and why others can't be made.

        The reason may be that the log of an older topic of the same name is still there.  Then the
        new log can't be made before the register has the older one removed.
        """
        found: dict[tuple[str, PartitionId], LocalLog | StorageError] = {}
        missing: list[NewLog] = []
        for topic, partition in wanted:
            key = topic.topic, partition
            known = self.logs.get(key)
            if known is not None and known.topic.topic_id != topic.topic_id:
                found[key] = StorageError(
                    f"{known.directory} keeps records of an older topic of that name, with id "
                    f"{known.topic.topic_id}, which the register has not had removed here"
                )
            elif known is None:
                try:
                    directory = log_directory(self._data_directory, partition, topic.topic)
                    missing.append(await self._begin(NewLog(directory, topic, partition)))
                except StorageError as error:
                    found[key] = error
        await self.opening.making.make(missing)
        trace = self._environment.trace
        for one in missing:
            result = one.error or one.log
            assert result is not None
            found[one.topic.topic, one.partition] = result
            if trace is not None and one.error is None:
                trace(steps.T3Made(one.topic.topic, one.topic.topic_id, one.partition))
        return found

    async def _begin(self, new: NewLog) -> NewLog:
        """Delete what an older topic of that name has left where *new* will be.

        Raises:
          StorageError: if the disk fails.
        """
        if (trace := self._environment.trace) is not None:
            trace(steps.T3Making(new.topic.topic, new.topic.topic_id, new.partition))
        await self._deletion.delete(lambda log: log.directory == new.directory)
        return new

    async def create_internal(self, partition_id: PartitionId) -> None:
        """Ensure that a replica has its internal logs.

        Raises:
          StorageError: if the disk fails or is full; the next call uses what was made.
        """
        made = await self.create(
            [(internal_log(name, partition_id), partition_id) for name in self._internal_logs]
        )
        for one in made.values():
            if isinstance(one, StorageError):
                raise one

    def doom(self, topic_ids: Collection[str]) -> Iterator[LocalLog]:
        """Have the next `delete` delete the logs of *topic_ids*.  Yields each log after it was
        taken out of this store; its replica has to let it go then."""
        self._removed |= dict.fromkeys(topic_ids)
        while len(self._removed) > REMOVED_TOPICS_MAX:
            del self._removed[next(iter(self._removed))]
        for key, log in list(self.logs.items()):
            if log.topic_id in topic_ids:
                self._deletion.doom(self.logs.pop(key))
                yield log

    def is_removed(self, topic_id: TopicId) -> bool:
        """Whether the register has told this incarnation of the broker that the topic *topic_id*
        was deleted.  Only the last `REMOVED_TOPICS_MAX` ids are kept."""
        return topic_id in self._removed

    async def doom_unused(self, topics: list[RemovedTopic]) -> None:
        """Doom each log of *topics* that has files here, or is listed in a file of ends, but isn't
        a log of this store.

        Raises:
          StorageError: if the directories can't be read.
        """
        await self._deletion.doom_unused(topics, self.logs)

    @property
    def doomed(self) -> set[TopicId]:
        """The topics of the logs whose files are still to be deleted."""
        return self._deletion.topic_ids

    async def delete(self, topic_id: str) -> None:
        """Delete the doomed logs of the topic *topic_id*; a log that can't be deleted stays doomed.

        Raises:
          StorageError: if the disk fails.
        """
        await self._deletion.delete(lambda log: log.topic_id == topic_id)

    async def delete_again(self) -> None:
        """Delete, as far as possible, what could not be deleted before."""
        await self._deletion.try_again()

    # --- looking up --------------------------------------------------------------------

    def find(self, topic: str, partition: PartitionId) -> LocalLog:
        """The log of (topic, partition), for clients; internal logs are for nodes alone.

        Raises:
          NotLeaderError: if the log isn't here.  The register knows where it is, or that it doesn't
              exist.
        """
        log = None if is_internal(topic) else self.logs.get((topic, partition))
        if log is None:
            raise NotLeaderError(
                f"this broker keeps no log of topic {topic[:200]!r} in partition {partition}: "
                "ask the register"
            )
        return log

    def bounds(self, name: LogName) -> tuple[Offset, Offset] | None:
        """Where a log begins and ends; None if it isn't here any more."""
        topic, topic_id, partition = name
        log = self.logs.get((topic, PartitionId(partition)))
        return None if log is None or log.topic.topic_id != topic_id else (log.start, log.end)

    def __iter__(self) -> Iterator[LocalLog]:
        return iter(list(self.logs.values()))

    def __len__(self) -> int:
        return len(self.logs)

    def describe(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[LogInfo]]:
        """Up to *count_max* logs that come after *after* in order: the logs of *topic*, or, if it
        is empty, those of all topics for which *covers* is true."""
        found: list[LogInfo] = []
        for some in in_groups((yield from self._page(topic, after, count_max, covers))):
            found += [self.logs[key].describe() for key in some if key in self.logs]
            yield
        return found

    def count(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[LogCount]]:
        """How many messages the logs have that `describe` finds."""
        found: list[LogCount] = []
        for key in (yield from self._page(topic, after, count_max, covers)):
            if (log := self.logs.get(key)) is not None:
                with suppress(StorageError):  # it was closed meanwhile
                    found.append((yield from log.count()))
        return found

    def _page(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[tuple[str, PartitionId]]]:
        """The logs that `describe` finds, in order."""
        keys: list[tuple[str, PartitionId]] = []
        known = [(topic, one) for one in self.ends] if topic else list(self.logs)
        for some in in_groups(known):
            keys += [key for key in some if key > after and key in self.logs and covers(key[0])]
            yield
        return sorted(keys)[:count_max]

    def topics(self) -> list[TopicRecord]:
        """The topics that have logs here, each once.  Internal logs belong to no topic."""
        found = {log.topic.topic_id: log.topic for log in self.logs.values()}
        return [topic for topic_id, topic in found.items() if not is_internal(topic_id)]

    async def close(self) -> None:
        """Close all logs cleanly, a few at a time."""
        limit = trio.CapacityLimiter(8)

        async def close_one(log: LocalLog) -> None:
            async with limit:
                await log.close()

        async with trio.open_nursery() as nursery:
            for log in self:
                nursery.start_soon(close_one, log)
        for ends in self.ends.values():
            try:
                await ends.sync()
            except StorageError as error:
                _log.error("what is durable was not noted", why=str(error))
            ends.close()
