"""Gives the replicas of this broker logs of the topics that their partitions have, and takes the
logs of deleted topics away.

Each replica reads its own log ``~topics`` as far as it is committed, and then does what that says
by its end: what stands before it may be outdated by what comes behind it.  After a restart a
replica may know less to be committed than before.  So it removes a log only if it has read that the
topic is gone, or if it leads and has read everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import OctopiError, StorageError
from octopi.identifiers import TOPICS_LOG, Offset, PartitionId, TopicId, is_internal
from octopi.limits import FETCH_BYTES_DEFAULT, ORDER_RETRY_S, REPLICA_TICK_S
from octopi.logger import get_logger
from octopi.model import TopicRecord
from octopi.replication.internal_log import decode_records
from octopi.ring.homes import TopicsOfPartition
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.wire import messages as m

_log = get_logger(__name__)


@attrs.define(eq=False)
class _ReadTopics:
    """How far one log ``~topics`` was read and carried out."""

    log: LocalLog
    end: Offset
    """Up to where it was read."""
    done: Offset
    """Up to where it was carried out."""
    content: TopicsOfPartition = attrs.field(factory=TopicsOfPartition)
    touched: dict[TopicId, None] = attrs.field(factory=dict)
    """The topics of which something was read that is not carried out yet."""
    changed: trio.Event = attrs.field(factory=trio.Event)
    """Set when `done` has moved."""


class HostedTopics:
    """The topics of all replicas of this broker.  `run` is one task of the broker's nursery."""

    def __init__(
        self,
        environment: Environment,
        replicas: ReplicaManager,
        require: Callable[[PartitionId, int], None],
    ) -> None:
        """*require*: tells the controller the least number of replicas in sync that a topic of a
        partition asks for; this broker leads there."""
        self._environment = environment
        self._replicas = replicas
        self._require = require
        self._read: dict[PartitionId, _ReadTopics] = {}
        self._reading: set[PartitionId] = set()
        self._wanted = trio.Event()
        self.taken_over = 0
        """How many partitions, from 0, a register handed over."""

    def awaits_topics(self, partition: PartitionId) -> bool:
        """Whether the log of *partition* may lack topics that a register handed over, as far as it
        was read here."""
        read = self._read.get(partition)
        return partition < self.taken_over and (read is None or not read.content.is_taken_over)

    def is_behind(self, replica: ReplicaDriver) -> bool:
        """Whether a replica that leads has not carried out yet what former leaders may have
        committed.  Until then it may lack the log of a topic, or have the log of a deleted one."""
        leader = replica.machine.leader
        led = None if leader is None else leader.logs.get(TopicId(TOPICS_LOG))
        if led is None:
            return leader is not None
        read = self._read.get(replica.partition)
        own = replica.logs.get(TopicId(TOPICS_LOG))
        return read is None or read.log is not own or read.done < led.started_at

    async def is_complete(self, replica: ReplicaDriver) -> bool:
        """Whether all entries of the log are committed, and there are logs here of the topics that
        it names, and of no other ones.

        Logs of other topics are removed: if a snapshot has left out that a topic was deleted, this
        replica was never told.
        """
        partition, log = replica.partition, replica.logs.get(TopicId(TOPICS_LOG))
        read = self._read.get(partition)
        if log is None or read is None or read.log is not log:
            return False
        if not log.highwater == log.end == read.done:
            return False
        if spare := [one for one in self._topics_here(partition) if one not in read.content.hosted]:
            try:
                await self._remove(spare)
            except StorageError as error:
                sparing = _log.sparing(self._environment.clock)
                sparing.error("logs of deleted topics stay", partition=partition, why=str(error))
                return False
        return self._topics_here(partition) == read.content.hosted.keys()

    def _topics_here(self, partition: PartitionId) -> set[TopicId]:
        """The topics of which there are logs here in *partition*."""
        logs = [one for one in self._replicas.store if one.partition == partition]
        return {one.topic_id for one in logs if not is_internal(one.topic_id)}

    async def carried_out(self, partition: PartitionId) -> None:
        """Wait until this broker has carried out what is committed in *partition* now.

        Raises:
          StorageError: if the broker has no replica of it any more.
        """
        end: Offset | None = None
        while True:
            replica = self._replicas.replica(partition)
            log = None if replica is None else replica.logs.get(TopicId(TOPICS_LOG))
            if log is None:
                raise StorageError(f"this broker has no replica of partition {partition} any more")
            end = log.highwater if end is None else end
            read = self._read.get(partition)
            if read is not None and read.log is log and read.done >= end:
                return
            self._wanted.set()
            if read is None:
                await self._environment.clock.sleep_until(self._environment.clock.now() + 0.01)
            else:
                await read.changed.wait()

    # --- tasks -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read on in all logs, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._wanted = trio.Event()
                for replica in self._replicas.replicas:
                    self._look_at(replica, nursery)
                with self._environment.clock.timeout(REPLICA_TICK_S):
                    await self._wanted.wait()

    def _look_at(self, replica: ReplicaDriver, tasks: trio.Nursery) -> None:
        partition, log = replica.partition, replica.logs.get(TopicId(TOPICS_LOG))
        if log is None or partition in self._reading:
            return
        read = self._read.get(partition)
        # A follower that was far behind may have begun its log anew, at a snapshot.
        if read is None or read.log is not log or read.end < log.start:
            read = self._read[partition] = _ReadTopics(log, log.start, log.start)
            log.add_waker(self._wake)
        if read.done < log.highwater:
            self._reading.add(partition)
            tasks.start_soon(self._read_on, replica, read)

    def _wake(self) -> None:
        self._wanted.set()

    async def _read_on(self, replica: ReplicaDriver, read: _ReadTopics) -> None:
        clock, log = self._environment.clock, read.log
        try:
            while (end := log.highwater) > read.done and self._read.get(log.partition) is read:
                while read.end < end:
                    await self._read_some(read, end)
                await self._carry_out(replica, read)
                read.done = end
                changed, read.changed = read.changed, trio.Event()
                changed.set()
                self._tell_least(replica, read)
                replica.look_at_fence()
        except (OctopiError, ValueError) as error:
            _log.sparing(clock).error(
                "topics of a partition are not carried out",
                partition=log.partition,
                why=str(error),
            )
            await clock.sleep_until(clock.now() + ORDER_RETRY_S)
        finally:
            self._reading.discard(log.partition)
            self._wanted.set()

    @staticmethod
    async def _read_some(read: _ReadTopics, end: Offset) -> None:
        log = read.log
        await log.prove(read.end)
        records = log.read_uncommitted(read.end, FETCH_BYTES_DEFAULT)[: end - read.end]
        for entry in decode_records(TOPICS_LOG, log.partition, records, read.end):
            read.content.read(entry.key, entry.value)
            kind, _, topic_id = entry.key.partition("/")
            if kind == "h":
                read.touched[TopicId(topic_id)] = None
        read.end = Offset(read.end + len(records))
        await trio.lowlevel.checkpoint()

    async def _carry_out(self, replica: ReplicaDriver, read: _ReadTopics) -> None:
        """Do what was read.

        Raises:
          StorageError: if the disk refuses.
        """
        partition, hosted = replica.partition, read.content.hosted
        gone = [one for one in read.touched if one not in hosted]
        leader = replica.machine.leader
        led = None if leader is None else leader.logs.get(TopicId(TOPICS_LOG))
        may_lack = self.awaits_topics(partition)
        if led is not None and read.done < led.started_at <= read.end and not may_lack:
            # Entries that say so may have been left out by a snapshot.
            gone += [one for one in self._topics_here(partition) if one not in hosted]
        await self._remove(gone)
        topics = [hosted[one] for one in read.touched if one in hosted]
        _check(await self._replicas.host_topics(topics, partition))
        read.touched.clear()

    async def _remove(self, topic_ids: Collection[TopicId]) -> None:
        wanted = set(topic_ids)
        removed = {
            one.topic_id: m.RemovedTopic(one.topic.topic, one.topic_id)
            for one in self._replicas.store
            if one.topic_id in wanted
        }
        _check(await self._replicas.remove_topics(list(removed.values())))

    def _tell_least(self, replica: ReplicaDriver, read: _ReadTopics) -> None:
        if replica.machine.leader is not None and not self.awaits_topics(replica.partition):
            topics: list[TopicRecord] = list(read.content.hosted.values())
            least = min((one.options.min_insync for one in topics), default=1)
            self._require(replica.partition, least)


def _check(undone: list[m.Undone]) -> None:
    """Raise StorageError if an order was not carried out."""
    if undone:
        raise StorageError(undone[0].reason)
