"""The logs in a broker's data directory: opened, made, found and deleted.

How logs are opened and deleted is in `octopi.roles.broker.opening` and
`octopi.roles.broker.deletion`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

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
from octopi.roles.broker.opening import Opening
from octopi.security.quotas import LogName
from octopi.storage.flush_policy import FlushOptions
from octopi.storage.time_slices import Slices, in_groups
from octopi.tracing import steps
from octopi.wire.messages import LogInfo, RemovedTopic, TopicRecord

_log = get_logger(__name__)


class LogStore:
    """The logs in one data directory, whichever replicas they belong to."""

    def __init__(
        self,
        environment: Environment,
        data_directory: str,
        flusher: Flusher,
        flush_options: FlushOptions,
        *,
        lost_power: bool,
        keep_retired_s: float,
    ) -> None:
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
        """Replicas that were given up, and are kept for a while."""
        self.logs, self.ends = self.opening.logs, self.opening.ends
        self._deletion = self.opening.deletion
        self._removed: dict[str, None] = {}

    # --- making and deleting -------------------------------------------------------------

    async def create(self, topic: TopicRecord, partition_id: PartitionId) -> LocalLog | None:
        """Have a log of *topic* in the partition; return it if it is a new one.

        Raises:
          StorageError: if the disk fails, or keeps records of another creation of the topic:
              until the register has those removed, this one has no place.
        """
        known = self.logs.get((topic.topic, partition_id))
        if known is None:
            return await self._create(topic, partition_id)
        if known.topic.topic_id != topic.topic_id:
            raise StorageError(
                f"{known.directory} keeps records of an older topic of that name, with id "
                f"{known.topic.topic_id}, which the register has not had removed here"
            )
        return None

    async def create_internal(self, partition_id: PartitionId) -> None:
        """Have the internal logs of a replica.

        Raises:
          StorageError: if the disk fails, or is full; what was made is of use the next time.
        """
        for name in INTERNAL_LOGS:
            if (name, partition_id) not in self.logs:
                await self._create(internal_log(name, partition_id), partition_id)

    async def _create(self, topic: TopicRecord, partition_id: PartitionId) -> LocalLog:
        directory = log_directory(self._data_directory, partition_id, topic.topic)
        if (trace := self._environment.trace) is not None:
            trace(steps.T3Making(topic.topic, topic.topic_id, partition_id))
        await self._deletion.delete(lambda log: log.directory == directory)
        log = await self.opening.make(directory, topic, partition_id)
        if trace is not None:
            trace(steps.T3Made(topic.topic, topic.topic_id, partition_id))
        return log

    def doom(self, topic_ids: Collection[str]) -> Iterator[LocalLog]:
        """Have the logs of those creations of topics deleted by the next `delete`; each is given
        when it is no log of this store any more, and its replica has to let it go."""
        self._removed |= dict.fromkeys(topic_ids)
        while len(self._removed) > REMOVED_TOPICS_MAX:
            del self._removed[next(iter(self._removed))]
        for key, log in list(self.logs.items()):
            if log.topic_id in topic_ids:
                self._deletion.doom(self.logs.pop(key))
                yield log

    def is_removed(self, topic_id: TopicId) -> bool:
        """Whether that creation of a topic was deleted, as the register has said to this
        incarnation of the broker.  False: not as far as is known here."""
        return topic_id in self._removed

    async def doom_unused(self, topics: list[RemovedTopic]) -> None:
        """The same for what lies here of *topics* and is no log, or is only noted as one.

        Raises:
          StorageError: if it can't be known what lies here.
        """
        await self._deletion.doom_unused(topics, self.logs)

    @property
    def doomed(self) -> set[TopicId]:
        """The topics of which files have to go."""
        return self._deletion.topic_ids

    async def delete(self, topic_id: str) -> None:
        """Delete what is doomed of that creation of a topic; what fails stays doomed.

        Raises:
          StorageError: if the disk fails.
        """
        await self._deletion.delete(lambda log: log.topic_id == topic_id)

    async def delete_again(self) -> None:
        """Delete what could not be deleted before, as far as that can be done now."""
        await self._deletion.try_again()

    # --- looking up --------------------------------------------------------------------

    def find(self, topic: str, partition: PartitionId) -> LocalLog:
        """The log of (topic, partition) that clients may use: internal logs are for nodes alone.

        Raises:
          NotLeaderError: if it isn't here; the register knows where it is, or that it is
              nowhere.
        """
        log = None if is_internal(topic) else self.logs.get((topic, partition))
        if log is None:
            raise NotLeaderError(
                f"this broker keeps no log of topic {topic[:200]!r} in partition {partition}: "
                "ask the register"
            )
        return log

    def bounds(self, name: LogName) -> tuple[Offset, Offset] | None:
        """Where a log begins and ends; None: it is not here any more."""
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
        """Up to *count_max* logs behind *after* in order, of *topic* or (empty) of all that
        *covers* is true of."""
        keys: list[tuple[str, PartitionId]] = []
        for some in in_groups(list(self.logs)):
            keys += [
                key for key in some if key > after and topic in {"", key[0]} and covers(key[0])
            ]
            yield
        found: list[LogInfo] = []
        for some in in_groups(sorted(keys)[:count_max]):
            found += [self.logs[key].describe() for key in some if key in self.logs]
            yield
        return found

    def topics(self) -> list[TopicRecord]:
        """The topics that have logs here, each once.  Internal logs are of no topic."""
        found = {log.topic.topic_id: log.topic for log in self.logs.values()}
        return [topic for topic_id, topic in found.items() if not is_internal(topic_id)]

    async def close(self) -> None:
        """Close all, cleanly, a few at a time."""
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
