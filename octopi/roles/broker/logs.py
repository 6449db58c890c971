"""All logs of a broker, and which of them it leads.

Keeps on disk what the register decided (the partition table), because a broker leads on
while the register is away, and tells a register that lost its disk what existed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import NotLeaderError, StorageError
from octopi.identifiers import Epoch, PartitionId
from octopi.logger import get_logger
from octopi.roles.broker.broker_log import BrokerLog, FlushOptions, log_directory, stored_topic
from octopi.roles.broker.flusher import Flusher
from octopi.storage import checkpoint
from octopi.storage.directories import make_durable_directory
from octopi.wire.messages import LogInfo, PartitionRecord, TopicRecord

_log = get_logger(__name__)

_DELETED_SUFFIX = ".deleted"
"""No topic name ends like this within a partition's folder: ``!`` precedes it."""


class Logs:
    """The logs in one data directory."""

    def __init__(
        self,
        environment: Environment,
        data_directory: str,
        flusher: Flusher,
        tasks: trio.Nursery,
        flush_options: FlushOptions,
    ) -> None:
        self._environment = environment
        self._data_directory = data_directory
        self._flusher = flusher
        self._tasks = tasks
        self._flush_options = flush_options
        self._logs: dict[tuple[str, int], BrokerLog] = {}
        self._leading: dict[int, Epoch] = {}
        self.partitions: dict[int, PartitionRecord] = {}
        """The newest decision about each partition of the cluster that this broker heard of."""

    def open_all(self) -> None:
        """Open, and recover, every log in the data directory.

        A log that can't be opened is left out and said so: the others serve.

        Raises:
          StorageError: if the partition table can't be read.
        """
        disk = self._environment.disk
        stored = checkpoint.load(disk, f"{self._data_directory}/partitions")
        for fields in stored["partitions"] if stored else ():
            decided = PartitionRecord(**fields)
            self.partitions[decided.partition] = decided
        root = f"{self._data_directory}/logs"
        for partition in disk.list_directory(root):
            for name in disk.list_directory(f"{root}/{partition}"):
                directory = f"{root}/{partition}/{name}"
                if name.endswith(_DELETED_SUFFIX):
                    self._remove_directory(directory)
                    continue
                try:
                    self._open(directory, PartitionId(int(partition)))
                except StorageError as error:
                    _log.error("log left out", directory=directory, why=str(error))

    def _open(self, directory: str, partition: PartitionId) -> None:
        topic = stored_topic(self._environment, directory)
        if topic is None:
            self._remove_directory(directory)  # its creation was never finished
            return
        log = self._make(directory, topic, partition)
        self._logs[topic.topic, partition] = log
        recovery = log.recovery
        if recovery.cut_bytes:
            _log.warning(
                "a torn tail was cut",
                topic=topic.topic,
                partition=partition,
                cut_bytes=recovery.cut_bytes,
                log_end=recovery.end,
                why=recovery.why,
            )

    def _make(self, directory: str, topic: TopicRecord, partition: PartitionId) -> BrokerLog:
        return BrokerLog(
            self._environment,
            directory,
            topic,
            partition,
            self._flusher,
            self._tasks,
            self._flush_options,
        )

    # --- what the register decides -----------------------------------------------------

    async def install_partitions(
        self, records: list[PartitionRecord], broker: int, incarnation: int
    ) -> None:
        """Remember decisions, durably, then act on them.

        Raises:
          StorageError: if the disk fails; then nothing was done.
        """
        table = dict(self.partitions)
        for decided in records:
            known = table.get(decided.partition)
            if known is None or (known.epoch, known.version) <= (decided.epoch, decided.version):
                table[decided.partition] = decided
        if table != self.partitions:
            state: dict[str, Any] = {"partitions": [attrs.asdict(one) for one in table.values()]}
            await checkpoint.store(
                self._environment.disk, f"{self._data_directory}/partitions", state
            )
            self.partitions = table
        for decided in records:
            current = self.partitions[decided.partition]
            leads = current.leader == broker and current.leader_incarnation == incarnation
            if leads:
                self._leading[current.partition] = Epoch(current.epoch)
            else:
                self._leading.pop(current.partition, None)
            for (_, partition), log in self._logs.items():
                if partition == current.partition:
                    self._set_leadership(log)

    def _set_leadership(self, log: BrokerLog) -> None:
        epoch = self._leading.get(log.partition)
        if epoch is None:
            log.follow_nobody("another broker leads the partition")
        else:
            log.lead(epoch)

    async def install_topics(self, topics: list[TopicRecord], broker: int) -> None:
        """Have a log for each of *topics* in each partition that *broker* is a replica of.

        Raises:
          StorageError: if the disk fails.
        """
        for topic in topics:
            for partition in topic.partitions:
                decided = self.partitions.get(partition)
                if decided is None or broker not in decided.replicas:
                    continue
                known = self._logs.get((topic.topic, partition))
                if known is None:
                    await self._create(topic, PartitionId(partition))
                elif known.topic.topic_id != topic.topic_id:
                    _log.error(
                        "another creation of the topic is kept here",
                        topic=topic.topic,
                        here=known.topic.topic_id,
                        register=topic.topic_id,
                    )

    async def _create(self, topic: TopicRecord, partition: PartitionId) -> None:
        directory = log_directory(self._data_directory, partition, topic.topic)
        await make_durable_directory(self._environment.disk, directory)
        log = self._make(directory, topic, partition)
        await log.create()
        if (topic.topic, partition) not in self._logs:
            self._logs[topic.topic, partition] = log
            self._set_leadership(log)

    async def remove_topic(self, topic: str, topic_id: str) -> None:
        """Delete that creation of the topic; harmless if it isn't here.

        Raises:
          StorageError: if the disk fails.
        """
        found = [
            key
            for key, log in self._logs.items()
            if key[0] == topic and log.topic.topic_id == topic_id
        ]
        for key in found:
            log = self._logs.pop(key)
            log.discard()
            try:
                # The new name is what makes it gone; removing the files may take two lives.
                doomed = f"{log.directory}!{topic_id}{_DELETED_SUFFIX}"
                self._environment.disk.rename(log.directory, doomed)
                await self._environment.disk.sync_directory(
                    f"{self._data_directory}/logs/{log.partition}"
                )
                self._remove_directory(doomed)
            except OSError as error:
                raise StorageError(f"{log.directory} can't be removed: {error}") from error

    def _remove_directory(self, directory: str) -> None:
        disk = self._environment.disk
        for name in disk.list_directory(directory):
            disk.remove(f"{directory}/{name}")
        disk.remove_directory(directory)

    # --- looking up --------------------------------------------------------------------

    def find(self, topic: str, partition: int) -> BrokerLog:
        """The log of (topic, partition).

        Raises:
          NotLeaderError: if it isn't here; the register knows where it is, or that it is
              nowhere.
        """
        log = self._logs.get((topic, partition))
        if log is None:
            raise NotLeaderError(
                f"this broker keeps no log of topic {topic[:200]!r} in partition {partition}: "
                "ask the register"
            )
        return log

    def __iter__(self) -> Iterator[BrokerLog]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def describe(self, topic: str, after: tuple[str, int], count_max: int) -> list[LogInfo]:
        """Up to *count_max* logs behind *after* in order, of *topic* or (empty) of all."""
        keys = sorted(key for key in self._logs if key > after and topic in {"", key[0]})
        return [self._logs[key].describe() for key in keys[:count_max]]

    def topics(self) -> list[TopicRecord]:
        """The topics that have logs here, each once."""
        return list({log.topic.topic_id: log.topic for log in self._logs.values()}.values())

    async def close(self) -> None:
        """Close all, cleanly, a few at a time."""
        limit = trio.CapacityLimiter(8)

        async def close_one(log: BrokerLog) -> None:
            async with limit:
                await log.close()

        async with trio.open_nursery() as nursery:
            for log in self:
                nursery.start_soon(close_one, log)
