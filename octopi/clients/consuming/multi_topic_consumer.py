"""The consumer of several topics: hands out their messages in turns, and knows its positions.

It decides the order in which topics take turns, and what the end of one of them means.  Each topic
is read by a `Consumer`; `octopi.clients.consuming.topic_opener` finds topics and makes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator

import attrs
import trio

from octopi.clients.consuming.consumer import Consumer
from octopi.clients.consuming.message_batch import MessageBatch
from octopi.clients.consuming.positions import Positions
from octopi.clients.news import News
from octopi.errors import (
    ClosedError,
    HistoryForkedError,
    HistoryLostError,
    OctopiError,
    RefusedError,
    Status,
    TopicReplacedError,
    UnknownTopicError,
)
from octopi.identifiers import TopicName
from octopi.record import Message


@attrs.frozen
class LeftTopic:
    """A topic that matched a pattern and is not read any more, or never was."""

    topic: TopicName
    why: OctopiError
    """`UnknownTopicError`: it was deleted; `TopicReplacedError`: it was deleted and created again,
    and is read from its beginning; `RefusedError` with ``Status.FORBIDDEN``: the token doesn't
    grant to read it."""


def leaves(error: OctopiError) -> bool:
    """Whether a topic that matched a pattern is left because of *error*, and others go on."""
    is_forbidden = isinstance(error, RefusedError) and error.status is Status.FORBIDDEN
    return is_forbidden or isinstance(error, UnknownTopicError | TopicReplacedError)


@attrs.define(eq=False)
class TopicReading:
    """One topic of a `MultiTopicConsumer`."""

    consumer: Consumer
    topic: TopicName
    is_named: bool
    """Whether the program named the topic; otherwise a pattern matched it."""
    scope: trio.CancelScope
    """Ends the task that reads the topic."""
    has_ended: bool = False
    _is_empty: trio.Event = attrs.field(factory=trio.Event)

    async def until_empty(self) -> None:
        """Wait until the program took all that had arrived."""
        await self._is_empty.wait()
        self._is_empty = trio.Event()

    def empty(self) -> None:
        """The program took all that had arrived."""
        self._is_empty.set()


class MultiTopicConsumer:
    """Reads messages of several topics.  Made by `Client.consumer`; for one task at a time.

    Iterate over it for single messages, or over `batches` for those that arrived together, each of
    one partition of one topic.  Within a log everything is as for `Consumer`.  Topics take turns:
    one that has messages waits for at most one batch of each other topic.

    `Message.topic` tells where a message is from.  A topic that is created while the consumer runs
    and matches a pattern joins in after some seconds, from its beginning; one that matched and was
    deleted is noted in `left`.

    Iterating raises what iterating a `Consumer` raises, and that the topic was deleted or created
    again only for topics that were named.  It also raises:
      InvalidOptionError: if more topics match than one consumer reads.
    """

    def __init__(self, *, stop_at_end: bool) -> None:
        self._stop_at_end = stop_at_end
        self._readings: dict[TopicName, TopicReading] = {}
        self._turns: deque[TopicReading] = deque()
        """The topics that may have something to hand out, the next one first."""
        self._current: TopicReading | None = None
        """Where the last messages that were handed out are from."""
        self._opened: MessageBatch | None = None
        """The newest batch; None: there was none."""
        self._messages: Iterator[Message] = iter(())
        """The messages of the newest batch, if it is handed out one by one, that weren't yet."""
        self._failure: OctopiError | None = None
        self._is_closed = False
        self.news: News = News()
        """Told when there may be something for the methods that don't wait."""
        self.gaps: list[HistoryLostError] = []
        """The gaps that were skipped with ``on_gap="skip"``, oldest first."""
        self.forks: list[HistoryForkedError] = []
        """The forks behind which reading was resumed with ``on_fork="resume"``, oldest first."""
        self.left: list[LeftTopic] = []
        """The topics that matched a pattern and were left, oldest first."""

    @property
    def topics(self) -> list[TopicName]:
        """The topics that are read now, in the order of their names."""
        return sorted(self._readings)

    @property
    def positions(self) -> Positions:
        """For each topic that is read, the position behind the last message (or batch) that was
        handed out.

        Start a consumer with it, or with ``str`` of it, to continue there.
        """
        return Positions((topic, self._readings[topic].consumer.position) for topic in self.topics)

    @property
    def lag_bytes(self) -> int:
        """The sum of `Consumer.lag_bytes` over all topics."""
        return sum(one.consumer.lag_bytes for one in self._readings.values())

    def __aiter__(self) -> MultiTopicConsumer:
        return self

    async def __anext__(self) -> Message:
        message = next(self._messages, None)
        while message is None:
            batch = await self._next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._messages = iter(batch)
            message = next(self._messages, None)
        self._hand_out(message)
        return message

    def batches(self) -> AsyncIterator[MessageBatch]:
        """The messages in batches, each of one partition of one topic, as they arrive.

        `positions` is behind the whole batch once it was handed out.  If single messages were
        iterated before, the rest of their batch comes first.
        """
        return _BatchesOfTopics(self)

    async def next_batch(self) -> MessageBatch | None:
        """The next one of `batches`; None at the end."""
        batch = self._rest()
        if batch is None:
            batch = await self._next_batch()
        if batch is not None:
            self._hand_out(batch)
        return batch

    def close(self) -> None:
        """Hand out nothing more.  The end of the consumer's block calls this."""
        self._is_closed = True
        self._messages = iter(())
        self.news.tell()

    def _hand_out(self, item: Message | MessageBatch) -> None:
        assert self._current is not None, "messages come from a topic"
        self._current.consumer.hand_out(item)

    def next_at_hand(self) -> Message | None:
        """The next message, if it came together with the one before; None: it didn't."""
        message = next(self._messages, None)
        if message is not None:
            self._hand_out(message)
        return message

    def next_nowait(self) -> Message | None:
        """The next message, from synchronous code; None at the end.

        Raises:
          trio.WouldBlock: if iterating would wait.
          Also the errors of iterating.
        """
        while (message := self.next_at_hand()) is None:
            batch = self._next_batch_nowait()
            if batch is None:
                return None
            self._messages = iter(batch)
        return message

    def next_batch_nowait(self) -> MessageBatch | None:
        """`next_batch` from synchronous code.

        Raises:
          trio.WouldBlock: if it would wait.
          Also the errors of iterating.
        """
        batch = self._rest()
        if batch is None:
            batch = self._next_batch_nowait()
        if batch is not None:
            self._hand_out(batch)
        return batch

    def _rest(self) -> MessageBatch | None:
        """The messages of the newest batch that weren't handed out yet; None: there are none."""
        messages = list(self._messages)
        return self._opened.rest(messages) if messages and self._opened is not None else None

    async def _next_batch(self) -> MessageBatch | None:
        """The messages of the next chunk of any topic; None at the end."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._turns:
            await trio.lowlevel.cancel_shielded_checkpoint()
        return await self.news.taken(self._next_batch_nowait)

    def _next_batch_nowait(self) -> MessageBatch | None:
        if self._current is not None:
            self._current.consumer.settle()
        if self._is_closed:
            raise ClosedError("the consumer was closed")
        if self._failure is not None:
            raise self._failure  # again by each call
        while self._turns:
            if (batch := self._take_turn(self._turns[0])) is not None:
                return batch
        if self._stop_at_end and all(one.has_ended for one in self._readings.values()):
            return None
        raise trio.WouldBlock

    def _take_turn(self, reading: TopicReading) -> MessageBatch | None:
        """What *reading*, the first of `_turns`, hands out; None: nothing, and its turn is over.

        Raises:
          OctopiError: why it can't be read on.  The turn is not over, so the next call raises this
              again.
        """
        consumer = reading.consumer
        try:
            batch = consumer.poll()
        except OctopiError as error:
            if reading.is_named or not leaves(error):
                raise
            self._turns.popleft()
            del self._readings[reading.topic]
            self.leave(reading.topic, error)
            reading.scope.cancel()
            return None
        self._turns.popleft()
        if batch is None:
            if consumer.is_at_end:
                reading.has_ended = True
            else:
                reading.empty()
            return None
        self._turns.append(reading)
        self._current, self._opened = reading, batch
        return batch

    # --- for what finds and opens topics -----------------------------------------------

    def reads(self, topic: str) -> bool:
        """Whether *topic* is read."""
        return topic in self._readings

    def join(self, reading: TopicReading) -> None:
        """Hand out the messages of another topic, too."""
        reading.consumer.gaps, reading.consumer.forks = self.gaps, self.forks
        self._readings[reading.topic] = reading

    def leave(self, topic: TopicName, why: OctopiError) -> None:
        """Note that *topic* isn't read."""
        self.left.append(LeftTopic(topic, why))

    def ready(self, reading: TopicReading) -> None:
        """*reading* has something to hand out, an error to raise, or has come to its end."""
        self._turns.append(reading)
        self.news.tell()

    def fail(self, error: OctopiError) -> None:
        """Topics can't be found or opened any more, because of *error*."""
        self._failure = error
        self.news.tell()


class _BatchesOfTopics:
    """An iterator and not a generator, so a loop over it may end early without clean-up."""

    def __init__(self, consumer: MultiTopicConsumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> _BatchesOfTopics:
        return self

    async def __anext__(self) -> MessageBatch:
        batch = await self._consumer.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch
