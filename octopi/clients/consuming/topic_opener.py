"""Finds the topics of a `MultiTopicConsumer`, and reads each in a task.

Named topics, and those that match a pattern when the block is entered, are opened before the
program gets the consumer.  After that the register is asked for its list from time to time, and
only for the parts of it in which names begin as those of a pattern do.  The register lists the
topics that the client's token may know of.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import trio

from octopi.clients.background import background_tasks
from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.consuming.multi_topic_consumer import MultiTopicConsumer, TopicReading, leaves
from octopi.clients.consuming.opening import ConsumerOptions, FindOffsetIn, open_consumer
from octopi.clients.consuming.start_position import Start
from octopi.clients.consuming.topic_selection import Starts, TopicSelection, before
from octopi.clients.consuming.waiting import FoundTopic, find_topic
from octopi.clients.routing import RequestRouter
from octopi.errors import InvalidOptionError, OctopiError, TopicReplacedError
from octopi.identifiers import PartitionId, TopicName
from octopi.limits import TOPIC_LIST_INTERVAL_S, TOPICS_PER_CONSUMER_MAX
from octopi.position import Position
from octopi.retry import may_pass, retry
from octopi.wire.messages import FoundOffset, ListTopics, TopicInfo, TopicList

_AT_ONCE: Final = 20
"""Topics that are looked up or opened at the same time when the block is entered."""

_PAUSE: Final = 20
"""The register rests from the questions of one consumer for so many times as long as it took to
answer them, so that long lists don't keep it busy."""

_FIRST_PAGE: Final = 50
_PAGE: Final = 500
"""Entries of the first page of a list, and of each later one: most patterns match few topics."""

_T = TypeVar("_T")


@asynccontextmanager
async def open_topics(
    cluster: ClusterHandle, selection: TopicSelection, starts: Starts, options: ConsumerOptions
) -> AsyncIterator[MultiTopicConsumer]:
    """A consumer of *selection*; see `octopi.clients.client.Client.consumer`."""
    named: dict[TopicName, FoundTopic] = {}

    async def find(name: TopicName) -> None:
        named[name] = await find_topic(cluster, name, options.wait_for_topic, create=options.create)

    await _each(selection.names, find)
    async with background_tasks() as nursery:
        consumer = MultiTopicConsumer(stop_at_end=options.stop_at_end)
        opener = _TopicOpener(cluster, selection, starts, options, consumer, nursery)
        try:
            await opener.open_first([named[name] for name in selection.names])
            if selection.patterns and not options.stop_at_end:
                nursery.start_soon(opener.watch)
            yield consumer
        finally:
            consumer.close()


class _TopicOpener:
    def __init__(
        self,
        cluster: ClusterHandle,
        selection: TopicSelection,
        starts: Starts,
        options: ConsumerOptions,
        consumer: MultiTopicConsumer,
        nursery: trio.Nursery,
    ) -> None:
        self._cluster = cluster
        self._selection = selection
        self._starts = starts
        self._options = options
        self._consumer = consumer
        self._nursery = nursery
        self._opening: set[TopicName] = set()
        """The topics that joined the list and are being opened."""
        self._left: set[str] = set()
        """The ids of listed topics that were left."""

    async def open_first(self, named: list[FoundTopic]) -> None:
        """Open the *named* topics, and all that match a pattern now."""
        matched = await list_matching(self._cluster.router, self._selection)
        if len(named) + len(matched) > TOPICS_PER_CONSUMER_MAX:
            raise _too_many()

        async def open_named(found: FoundTopic) -> None:
            start = found.start(self._starts.of(found.info.topic))
            read = partial(self._read, found.info, start, is_named=True)
            await self._nursery.start(read)

        async def open_matched(info: TopicInfo) -> None:
            start = self._start_of_matched(info, self._starts.of(info.topic))
            try:
                await self._nursery.start(partial(self._read, info, start))
            except OctopiError as error:
                self._leave(info, error)

        await _each(named, open_named)
        await _each(matched, open_matched)

    async def watch(self) -> None:
        """Read the topics that begin to match, without end."""
        clock, router = self._cluster.environment.clock, self._cluster.router
        took_s = 0.0
        while True:
            now = clock.now()
            await clock.sleep_until(now + max(TOPIC_LIST_INTERVAL_S, _PAUSE * took_s))
            asked_at = clock.now()
            try:
                matched = await list_matching(router, self._selection)
                took_s = clock.now() - asked_at
            except OctopiError as error:
                if may_pass(error):
                    continue  # what is read already goes on without the register
                self._consumer.fail(error)
                return
            self._left &= {one.topic_id for one in matched}
            for info in matched:
                name = TopicName(info.topic)
                known = self._consumer.reads(name) or name in self._opening
                if known or info.topic_id in self._left:
                    continue
                if self._count() >= TOPICS_PER_CONSUMER_MAX:
                    self._consumer.fail(_too_many())
                    return
                self._opening.add(name)
                self._nursery.start_soon(self._read_new, info)

    def _count(self) -> int:
        return len(self._consumer.topics) + len(self._opening)

    def _start_of_matched(self, info: TopicInfo, start: Start) -> Start:
        """*start*, unless it is a position in a creation of the topic that was deleted."""
        if not isinstance(start, Position) or start.topic_id == info.topic_id:
            return start
        why = "the topic was deleted and created again since the position was taken"
        self._consumer.leave(TopicName(info.topic), TopicReplacedError(f"{info.topic}: {why}"))
        return "earliest"

    async def _read_new(self, info: TopicInfo) -> None:
        start = self._starts.of_topics.get(info.topic, "earliest")
        if not isinstance(start, Position) or start.topic_id != info.topic_id:
            start = "earliest"  # the topic was not there when the program chose a start
        try:
            await self._read(info, start, find=self._find_offset_patiently)
        except OctopiError as error:
            try:
                self._leave(info, error)
            except OctopiError as fatal:
                self._consumer.fail(fatal)
        finally:
            self._opening.discard(TopicName(info.topic))

    async def _read(
        self,
        info: TopicInfo,
        start: Start,
        *,
        is_named: bool = False,
        find: FindOffsetIn | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Read a topic until it is left, or the consumer's block ends.

        Raises:
          OctopiError: if it can't be opened.
        """
        if not is_named:
            self._cluster.lookup.remember(info)
        name = TopicName(info.topic)
        with trio.CancelScope() as scope:
            async with open_consumer(
                self._cluster, info, start, None, self._options, find=find
            ) as consumer:
                reading = TopicReading(consumer, name, is_named, scope)
                self._consumer.join(reading)
                self._opening.discard(name)
                task_status.started()
                while True:
                    await consumer.until_ready()
                    self._consumer.ready(reading)
                    await reading.until_empty()
        self._left.add(info.topic_id)

    def _leave(self, info: TopicInfo, error: OctopiError) -> None:
        """A topic that matches can't be opened because of *error*.

        Raises:
          OctopiError: *error*, if it concerns not only this topic.
        """
        if not leaves(error):
            raise error
        self._left.add(info.topic_id)
        self._consumer.leave(TopicName(info.topic), error)

    async def _find_offset_patiently(
        self, topic: TopicName, partition: PartitionId, at: str, value: int | bytes
    ) -> FoundOffset:
        """Like `RequestRouter.find_offset`, for as long as a reading would look for a broker."""
        timeout_s = self._options.reconnect_timeout_s
        return await retry(
            self._cluster.environment,
            math.inf if timeout_s is None else timeout_s,
            f"open {topic}/{partition}",
            lambda: self._cluster.router.find_offset(topic, partition, at, value),
        )


async def list_matching(router: RequestRouter, selection: TopicSelection) -> list[TopicInfo]:
    """The topics that exist and match a pattern of *selection*.

    Raises:
      OctopiError: any error of a request to the register.
    """
    found: list[TopicInfo] = []
    for prefix in selection.prefixes:
        after, count = before(prefix), _FIRST_PAGE
        while True:

            def question(request: int, after: str = after, count: int = count) -> ListTopics:
                return ListTopics(request, after, count)

            page = await router.ask_register("list topics", question, TopicList)
            found += [one for one in page.topics if selection.is_matched(one.topic)]
            if not page.more or not page.topics or not page.topics[-1].topic.startswith(prefix):
                break
            after, count = page.topics[-1].topic, _PAGE
    return found


def _too_many() -> InvalidOptionError:
    return InvalidOptionError(
        f"more than {TOPICS_PER_CONSUMER_MAX} topics match, which is the most that one consumer "
        "reads: use several consumers, with narrower patterns"
    )


async def _each(items: Iterable[_T], work: Callable[[_T], Awaitable[None]]) -> None:
    """Do *work* for each of *items*, for some at a time.

    Raises:
      OctopiError: the first that *work* raised; then what has not begun isn't done.
    """
    waiting, errors = deque(items), list[OctopiError]()

    async def worker() -> None:
        while waiting and not errors:
            try:
                await work(waiting.popleft())
            except OctopiError as error:
                errors.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(min(len(waiting), _AT_ONCE)):
            nursery.start_soon(worker)
    if errors:
        raise errors[0]
