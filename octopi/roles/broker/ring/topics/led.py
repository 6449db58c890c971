"""The topics of one partition while this broker leads it: those whose home it is, and those of
which it has logs.

What is decided is in the log ``~topics`` of the partition before it is told.  If an entry is not
known to be committed, this object ends, and another one begins with what is in the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs
import trio

from octopi.coordination.consistent_hash import HashCircle
from octopi.coordination.topic_rules import check_options, chosen_partitions
from octopi.errors import (
    InvalidTopicError,
    NotLeaderError,
    NotReadyError,
    OctopiError,
    RefusedError,
    Status,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
)
from octopi.identifiers import PartitionId, TopicName, system_name_fault, topic_name
from octopi.limits import (
    ORDER_RETRY_S,
    TOPIC_COUNT_MAX,
    TOPIC_ENTRIES_AT_ONCE_MAX,
    TOPIC_ORDER_S,
)
from octopi.logger import get_logger
from octopi.model import StreamDefinition, TopicOptions, TopicRecord
from octopi.ring.homes import (
    Entry,
    HomeTopic,
    OrderNumber,
    TopicsOfPartition,
    TopicState,
    topics_of,
)
from octopi.roles.broker.ring.topics.carrying_out import appended, carried_out
from octopi.roles.broker.ring.topics.hosted import HostedTopics
from octopi.roles.broker.ring.topics.ports import TopicCluster, TopicLogs
from octopi.roles.broker.subscriptions.ports import Leadership
from octopi.roles.noted_events import changed_options
from octopi.security.quotas import Creator, exceeded
from octopi.storage.brief_lock import BriefLock
from octopi.wire import messages as m

_log = get_logger(__name__)

_NOT_YET = "this broker has just begun to lead the partition that keeps the topic's record"


class LedTopics:
    """The topics of one led partition."""

    def __init__(
        self,
        leadership: Leadership,
        cluster: TopicCluster,
        logs: TopicLogs,
        hosted: HostedTopics,
        tasks: trio.Nursery,
    ) -> None:
        """*tasks*: the broker's nursery."""
        self.leadership = leadership
        self.partition = leadership.partition
        self._cluster = cluster
        self._logs = logs
        self._hosted = hosted
        self._tasks = tasks
        self._content: TopicsOfPartition | None = None
        """None: it is not read yet."""
        self._locks: dict[TopicName, BriefLock] = {}
        self._orders: dict[PartitionId, BriefLock] = {}
        """Orders to a partition are sent one after the other."""
        self.has_ended = False

    # --- from the beginning to the end -------------------------------------------------------

    async def begin(self) -> None:
        """Read what is stored, and go on with what is not finished."""
        clock = self._cluster.clock
        while not self.is_over:
            try:
                loaded = await self._logs.load(self.partition)
                content = topics_of(loaded.values)
                if content.is_taken_over or not await self._take_over():
                    self._content = content
                    break
            except NotLeaderError:
                self.has_ended = True
            except (OctopiError, ValueError) as error:
                _log.sparing(clock).error("no topics", partition=self.partition, why=str(error))
                await clock.sleep_until(clock.now() + ORDER_RETRY_S)
        topics = [] if self._content is None else list(self._content.topics.values())
        for topic in topics:
            if topic.state is not TopicState.READY:
                self._tasks.start_soon(self._go_on, topic.topic.topic)

    async def _take_over(self) -> bool:
        """If a register handed the partition over, write down its topics; say whether it did.

        Raises:
          NotReadyError: if they are not known to be all committed.
        """
        entries = self._cluster.handed_over(self.partition)
        if entries is None:
            return False
        for at in range(0, len(entries), TOPIC_ENTRIES_AT_ONCE_MAX):
            some = list(entries[at : at + TOPIC_ENTRIES_AT_ONCE_MAX])
            if refusal := await appended(self._logs, self.partition, some):
                raise NotReadyError(f"not stored: {refusal.reason}")
        return True

    @property
    def is_over(self) -> bool:
        """Whether this broker leads no more, or what it decided last is not known."""
        self.has_ended = self.has_ended or self.leadership.is_over
        return self.has_ended

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered."""
        return self._content is not None and not self.is_over

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is being done, or is still to be done, about its topics."""
        if not self.is_ready or self._locks:
            return False
        return all(one.state is TopicState.READY for one in self.topics.values())

    @property
    def content(self) -> TopicsOfPartition:
        """What is decided.

        Raises:
          NotReadyError: if that is not known.
        """
        if self._content is None or self.is_over:
            raise NotReadyError(_NOT_YET)
        return self._content

    @property
    def topics(self) -> dict[TopicName, HomeTopic]:
        """The topics whose home this is."""
        return self.content.topics

    # --- requests to the home ----------------------------------------------------------------

    def known(self, name: str) -> TopicRecord | None:
        """The topic, if it is there for clients."""
        topic = self.topics.get(TopicName(name))
        if topic is None or topic.state in {TopicState.CREATING, TopicState.DELETING}:
            return None
        return topic.topic

    async def settled(self, name: TopicName) -> TopicRecord | None:
        """The topic, when what is done about it is finished; None: there is none.

        Raises:
          NotReadyError: if that takes long.
        """
        topic = self.topics.get(name)
        if topic is not None and topic.state is TopicState.CREATING:
            await carried_out(self._tasks, lambda: self._finish(name))
        return self.known(name)

    async def create(
        self,
        name: TopicName,
        partition_count: int,
        partitions: list[PartitionId] | None,
        options: TopicOptions,
        creator: Creator,
        stream: StreamDefinition | None,
    ) -> TopicRecord:
        """Create a topic, even if this is cancelled.

        Raises:
          OctopiError: see `octopi.coordination.topic_decisions.TopicDecisions.create`.
        """
        if fault := system_name_fault(name):
            raise InvalidTopicError(fault)
        check_options(options, stream)

        async def work() -> TopicRecord:
            async with self._lock(name):
                self._cluster.require_open(self.partition)
                self._require_room(name, creator)
                circle = HashCircle(self._cluster.partition_count)
                chosen = chosen_partitions(
                    partition_count,
                    partitions,
                    circle.partition_count,
                    partial(circle.partitions, name),
                )
                topic_id = self._cluster.new_id()
                record = TopicRecord(name, topic_id, chosen, options, stream=stream)
                if chosen == [self.partition]:  # the usual case: one entry says it all
                    await self._set(HomeTopic(record, TopicState.READY, creator.subject))
                    await self._hosted.carried_out(self.partition)
                else:
                    await self._set(HomeTopic(record, TopicState.CREATING, creator.subject))
                    await self._finish_locked(name)
                _log.info("topic created", topic=name, partitions=chosen)
                self._cluster.events.topic_created(name)
                return record

        return await carried_out(self._tasks, work)

    def _require_room(self, name: TopicName, creator: Creator) -> None:
        """Check that a topic of that name can be created.

        Raises:
          TopicExistsError, NotReadyError, RefusedError.
        """
        known = self.topics.get(name)
        if known is not None and known.state is TopicState.DELETING:
            raise NotReadyError(f"an older topic {name} is being deleted")
        if known is not None:
            raise TopicExistsError(f"topic {name} exists already")
        if len(self.topics) >= TOPIC_COUNT_MAX:
            raise RefusedError(f"a cluster has at most {TOPIC_COUNT_MAX} topics", Status.TOO_MANY)
        created = sum(one.creator == creator.subject for one in self.topics.values())
        if creator.topics_max is not None and created >= creator.topics_max:
            raise exceeded("topics that it created", creator.topics_max)

    async def alter(
        self, name: TopicName, options: TopicOptions, names: Collection[str]
    ) -> TopicRecord:
        """Give the options *names* of a topic the values that they have in *options*, even if this
        is cancelled.

        Raises:
          OctopiError: see `octopi.coordination.topic_decisions.TopicDecisions.alter`.
        """

        async def work() -> TopicRecord:
            async with self._lock(name):
                self._cluster.require_open(self.partition)
                topic = self._require(name)
                record = topic.topic
                changes = {one: getattr(options, one) for one in names}
                altered = attrs.evolve(record.options, **changes)
                check_options(altered)
                if altered.min_insync > record.options.min_insync:
                    self._check_min_insync(record, altered.min_insync)
                if altered != record.options:
                    version = record.version + 1
                    record = attrs.evolve(record, options=altered, version=version)
                    await self._set(attrs.evolve(topic, topic=record, state=TopicState.ALTERING))
                    changed = changed_options(topic.topic.options, altered)
                    self._cluster.events.topic_altered(name, changed)
                await self._finish_locked(name)
                return record

        return await carried_out(self._tasks, work)

    def _check_min_insync(self, record: TopicRecord, count: int) -> None:
        for partition in record.partitions:
            replicas = self._cluster.replicas(partition)
            if len(replicas) < count:
                raise RefusedError(
                    f"partition {partition} of topic {record.topic} has {len(replicas)} replicas, "
                    f"so {count} can't be in sync: messages would wait for ever",
                    Status.INVALID_OPTION,
                )

    async def delete(self, name: TopicName) -> None:
        """Delete a topic, even if this is cancelled.  Partitions whose leaders are away are told
        later.

        Raises:
          UnknownTopicError, NotReadyError.
        """

        async def work() -> None:
            async with self._lock(name):
                self._cluster.require_open(self.partition)
                topic = self._require(name)
                await self._set(attrs.evolve(topic, state=TopicState.DELETING))
                _log.info("topic deleted", topic=name)
                self._cluster.events.topic_deleted(name)
                try:
                    await self._finish_locked(name)
                except NotReadyError:
                    self._tasks.start_soon(self._go_on, name)

        await carried_out(self._tasks, work)

    def _require(self, name: TopicName) -> HomeTopic:
        """The topic of that name.

        Raises:
          UnknownTopicError: if there is none.
        """
        topic = self.topics.get(name)
        if topic is None or topic.state is TopicState.DELETING:
            raise UnknownTopicError(f"there is no topic {name}")
        return topic

    # --- finishing ---------------------------------------------------------------------------

    async def _go_on(self, name: str) -> None:
        """Finish what was begun, however long that takes."""
        clock = self._cluster.clock
        while not self.is_over:
            try:
                await self._finish(topic_name(name))
                break
            except OctopiError as error:
                _log.sparing(clock).info("topic not finished", topic=name, why=str(error))
            await clock.sleep_until(clock.now() + ORDER_RETRY_S)

    async def _finish(self, name: TopicName) -> None:
        async with self._lock(name):
            await self._finish_locked(name)

    async def _finish_locked(self, name: TopicName) -> None:
        """Tell all partitions of a topic what they don't know yet.

        Raises:
          NotReadyError: if one of them has no leader that answers in time.
        """
        topic = self.topics.get(name)
        if topic is None or topic.state is TopicState.READY:
            return
        with self._cluster.clock.timeout(TOPIC_ORDER_S) as limit:
            async with trio.open_nursery() as nursery:
                for partition in topic.topic.partitions:
                    nursery.start_soon(self._tell, partition, topic)
        if limit.cancelled_caught:
            raise NotReadyError(f"not all partitions of topic {name} could be told in time")
        if topic.state is TopicState.DELETING:
            await self._append([topic.removal])
            self.topics.pop(name, None)
        else:
            await self._set(attrs.evolve(topic, state=TopicState.READY), tells=False)

    async def _set(self, topic: HomeTopic, *, tells: bool = True) -> None:
        """Decide about a topic; *tells*: also that this partition has a log of it, or none, if it
        is one of the topic's."""
        entries = [topic.entry]
        if tells and self.partition in topic.topic.partitions:
            entries.append(topic.hosting)
        await self._append(entries)
        self.topics[TopicName(topic.topic.topic)] = topic

    async def _tell(self, partition: PartitionId, topic: HomeTopic) -> None:
        """Have the leader of *partition* know *topic*; the caller limits the time."""
        clock = self._cluster.clock
        if partition == self.partition:
            with suppress(StorageError):  # it has no replica any more, so it leads no more
                await self._hosted.carried_out(partition)
            return
        async with self._orders.setdefault(partition, BriefLock()):
            while not self.is_over:
                order = m.HostTopic(
                    1,
                    self.partition,
                    self.leadership.epoch,
                    self._cluster.next_number(),
                    partition,
                    topic.topic,
                    topic.state is TopicState.DELETING,
                )
                try:
                    await self._cluster.order(order)
                    return
                except OctopiError as error:
                    _log.sparing(clock).info("topic not told", to=partition, why=str(error))
                await clock.sleep_until(clock.now() + ORDER_RETRY_S)

    # --- orders of other homes ---------------------------------------------------------------

    async def host(self, order: m.HostTopic) -> None:
        """Carry out what the leader of another partition orders about a topic whose home that is.

        Raises:
          NotReadyError: if this broker can't, or a later order was carried out.
        """
        number = OrderNumber(order.epoch, order.number)
        known = self.content.orders.get(order.home)
        if known is not None and number <= known:
            raise NotReadyError(f"the order is older than one of partition {order.home} before")
        self.content.orders[order.home] = number
        state = TopicState.DELETING if order.is_gone else TopicState.READY
        await self._append([number.entry(order.home), HomeTopic(order.topic, state).hosting])
        await self._hosted.carried_out(self.partition)

    # --- the log -----------------------------------------------------------------------------

    async def _append(self, entries: list[Entry]) -> None:
        """Append *entries*, and wait until they are committed.

        Raises:
          NotReadyError: if they aren't known to be.
        """
        if self.is_over:
            raise NotReadyError("this broker does not lead the partition any more")
        refusal = await appended(self._logs, self.partition, entries)
        if refusal is not None:
            # Perhaps they will be committed: begin anew with what the log says then.
            self.has_ended = True
            raise NotReadyError(f"not stored: {refusal.reason}")

    @asynccontextmanager
    async def _lock(self, name: TopicName) -> AsyncIterator[None]:
        """What is done about one topic is done one after the other."""
        lock = self._locks.setdefault(name, BriefLock())
        try:
            async with lock:
                yield
        finally:
            if lock.is_free:
                self._locks.pop(name, None)
