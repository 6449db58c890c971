"""Topics: looked up, created, altered, deleted and listed."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final, Protocol

from octopi.errors import RefusedError, Status, UnknownTopicError
from octopi.identifiers import PartitionId
from octopi.limits import LIST_MEMORY_BYTES
from octopi.roles.decider_context import DeciderContext
from octopi.roles.earlier_clients import described_to, listed_to
from octopi.security.authorization import not_granted
from octopi.security.grants import Verb
from octopi.security.quotas import NOBODY, Creator
from octopi.storage.time_slices import Slices, in_groups, in_turns
from octopi.transport.services import Service
from octopi.transport.turns import another
from octopi.wire import messages as m

_RECORDS_PER_PAGE: Final = 1_000
_TOPICS_PER_PAGE: Final = 500
_PARTITIONS_PER_PAGE: Final = 1_000


class KeptTopics(Protocol):
    """The topics that a node decides about."""

    def ready(self, name: str) -> m.TopicRecord | None:
        """The topic, if it can be described without waiting."""

    def newest(self, name: str) -> m.TopicRecord | None:
        """The topic as it is decided now; None: there is none."""

    def info(self, record: m.TopicRecord) -> m.TopicInfo:
        """Where *record*'s partitions are now."""

    async def find(self, name: str, *, creator: Creator | None) -> m.TopicRecord:
        """The topic of that name, once it can be used.  If it is missing, *creator* creates it.

        Raises:
          OctopiError: UnknownTopicError, or why that can't be told or done.
        """

    async def create(
        self,
        name: str,
        *,
        partition_count: int = 1,
        partitions: list[PartitionId] | None = None,
        beside: str = "",
        options: m.TopicOptions | None = None,
        creator: Creator = NOBODY,
        stream: m.StreamDefinition | None = None,
    ) -> m.TopicRecord:
        """Create a topic, and wait until it can be used.

        Raises:
          OctopiError: why it can't be created, or not now.
        """

    async def create_relayed(
        self,
        name: str,
        *,
        partition_count: int,
        partitions: list[PartitionId] | None,
        beside: str,
        options: m.TopicOptions,
        creator: Creator,
        stream: m.StreamDefinition | None,
    ) -> m.TopicRecord:
        """Create a topic in memory, and wait until it can be used.

        Raises:
          OctopiError: why it can't be created, or not now.
        """
        raise RefusedError(
            f"topic {name} can't be in memory: brokers without a register (--join) keep topics in "
            "logs only; such topics take a cluster with a register, or brokers of their own "
            "(--relay-peers)",
            Status.INVALID_OPTION,
        )

    async def alter(
        self, name: str, options: m.TopicOptions, names: Collection[str]
    ) -> m.TopicRecord:
        """Give the options *names* of a topic the values that they have in *options*.

        Raises:
          OctopiError: why that can't be done, or not now.
        """

    async def delete(self, name: str) -> None:
        """Delete a topic.

        Raises:
          OctopiError: why that can't be done, or not now.
        """

    async def delete_by_id(self, topic_id: str) -> None:
        """Delete the topic with that id, whatever its name is.

        Raises:
          OctopiError: why that can't be done, or not now.
        """

    def page(self, after: str, count_max: int) -> list[m.TopicRecord]:
        """Topics behind *after*, in order.

        Raises:
          NotReadyError: if not all are known now.
        """


class TopicService(Service):
    """Answers what clients ask about topics, and carries out what they order."""

    def __init__(self, topics: KeptTopics, context: DeciderContext) -> None:
        start = context.start
        super().__init__(
            {
                m.DescribeTopic: self._look_up,
                m.CreateTopic: lambda asked: start(asked.request, partial(self._create, asked)),
                m.AlterTopic: lambda asked: start(asked.request, partial(self._alter, asked)),
                m.DeleteTopic: lambda asked: start(asked.request, partial(self._delete, asked)),
                m.DeleteTopicById: lambda asked: start(
                    asked.request, partial(self._delete_by_id, asked)
                ),
                m.ListTopics: lambda asked: start(asked.request, partial(self._list, asked)),
            }
        )
        self._context = context
        self._topics = topics
        self._connection = context.connection

    def _look_up(self, message: m.DescribeTopic) -> None:
        ready = self._topics.ready(message.topic)
        if ready is None:
            self._context.start(message.request, partial(self._describe, message))
        else:
            self._tell_topic(message.request, ready)

    async def _describe(self, message: m.DescribeTopic) -> None:
        creates = message.create and self._connection.grants.allows(Verb.CREATE, message.topic)
        try:
            record = await self._topics.find(
                message.topic, creator=self._context.creator() if creates else None
            )
        except UnknownTopicError:
            if message.create:
                why = not_granted(Verb.CREATE, message.topic)
                raise RefusedError(why, Status.FORBIDDEN) from None
            raise
        self._tell_topic(message.request, record)

    async def _create(self, message: m.CreateTopic) -> None:
        beside = message.beside
        if beside and not self._connection.grants.covers(beside):
            # The answer would tell whether there is one, and where.
            raise RefusedError(f"the token grants nothing on topic {beside!r}", Status.FORBIDDEN)
        is_relay = message.kind == m.TopicKind.RELAY
        create = self._topics.create_relayed if is_relay else self._topics.create
        record = await create(
            message.topic,
            partition_count=message.partition_count,
            partitions=message.partitions,
            beside=beside,
            options=message.options,
            creator=self._context.creator(),
            stream=message.stream,
        )
        self._tell_topic(message.request, record)

    async def _alter(self, message: m.AlterTopic) -> None:
        record = await self._topics.alter(message.topic, message.options, message.names)
        self._tell_topic(message.request, record)

    async def _delete(self, message: m.DeleteTopic) -> None:
        await self._topics.delete(message.topic)
        self._connection.post(m.Done(message.request))

    async def _delete_by_id(self, message: m.DeleteTopicById) -> None:
        await self._topics.delete_by_id(message.topic_id)
        self._connection.post(m.Done(message.request))

    async def _list(self, message: m.ListTopics) -> None:
        """A page of the topics that the asker may know of."""
        work = self._page_of_topics(message.after, max(1, min(message.count_max, _TOPICS_PER_PAGE)))
        outbox = self._connection.outbox
        async with outbox.room(LIST_MEMORY_BYTES, LIST_MEMORY_BYTES, holds=True):
            topics, more = await in_turns(work, another(self._connection.turn))
            topics = listed_to(self._connection.version, topics)
            self._connection.post(m.TopicList(message.request, topics, more))

    def _page_of_topics(self, after: str, wanted: int) -> Slices[tuple[list[m.TopicInfo], bool]]:
        grants = self._connection.grants
        page, more = list[m.TopicRecord](), True
        while more and len(page) <= wanted:
            found = self._topics.page(after, _RECORDS_PER_PAGE)
            page += [one for one in found if grants.covers(one.topic)]
            after, more = found[-1].topic if found else after, len(found) == _RECORDS_PER_PAGE
            yield
        # What was deleted while others were asked for is no topic any more.
        newest = [self._topics.newest(one.topic) for one in page[: wanted + 1]]
        page = [one for one in newest if one is not None]
        topics, partition_count = list[m.TopicInfo](), 0
        for some in in_groups(page[:wanted]):
            for record in some:
                told = len(record.log_partitions)
                if topics and partition_count + told > _PARTITIONS_PER_PAGE:
                    return topics, True
                partition_count += told
                topics.append(self._topics.info(record))
            yield
        return topics, len(page) > wanted

    def _tell_topic(self, request: int, record: m.TopicRecord) -> None:
        info = described_to(self._connection.version, self._topics.info(record))
        self._connection.post(m.TopicDescription(request, info))
