"""Topics: looked up, created, altered, deleted and listed."""

from __future__ import annotations

from functools import partial
from typing import Final

from octopi.errors import RefusedError, Status, UnknownTopicError
from octopi.limits import LIST_MEMORY_BYTES
from octopi.roles.register.services.context import RegisterContext
from octopi.security.authorization import not_granted
from octopi.security.grants import Verb
from octopi.storage.time_slices import Slices, in_groups, in_turns
from octopi.transport.services import Service
from octopi.transport.turns import another
from octopi.wire import messages as m

_RECORDS_PER_PAGE: Final = 1_000
_TOPICS_PER_PAGE: Final = 500
_PARTITIONS_PER_PAGE: Final = 1_000


class TopicService(Service):
    """Answers what clients ask about topics, and carries out what they order."""

    def __init__(self, context: RegisterContext) -> None:
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
        self._node = context.node
        self._topics = context.node.topics
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
        record = await self._topics.create(
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
            self._connection.post(m.TopicList(message.request, topics, more))

    def _page_of_topics(self, after: str, wanted: int) -> Slices[tuple[list[m.TopicInfo], bool]]:
        state, grants = self._node.controller.state, self._connection.grants
        page, more = list[m.TopicRecord](), True
        while more and len(page) <= wanted:
            found = self._topics.page(after, _RECORDS_PER_PAGE)
            page += [one for one in found if grants.covers(one.topic)]
            after, more = found[-1].topic if found else after, len(found) == _RECORDS_PER_PAGE
            yield
        # What was deleted while others were asked for is no topic any more.
        newest = [state.topic(one.topic) for one in page[: wanted + 1]]
        page = [one for one in newest if one is not None]
        topics, partition_count = list[m.TopicInfo](), 0
        for some in in_groups(page[:wanted]):
            for record in some:
                if topics and partition_count + len(record.partitions) > _PARTITIONS_PER_PAGE:
                    return topics, True
                partition_count += len(record.partitions)
                topics.append(self._node.controller.view.topic(record))
            yield
        return topics, len(page) > wanted

    def _tell_topic(self, request: int, record: m.TopicRecord) -> None:
        info = self._node.controller.view.topic(record)
        self._connection.post(m.TopicDescription(request, info))
