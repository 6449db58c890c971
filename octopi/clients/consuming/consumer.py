"""The consumer: hands out the messages of a topic, and knows its position.

It decides the order in which logs take turns.  The records of each log are read by
`octopi.clients.consuming.log_subscriber`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator

import attrs
import trio

from octopi.clients.consuming.consumer_session import Chunk, ConsumerSession
from octopi.clients.consuming.generation_follower import GenerationFollower
from octopi.clients.consuming.log_subscriber import LogSubscriber, is_stale
from octopi.clients.consuming.message_batch import MessageBatch
from octopi.clients.news import News
from octopi.errors import (
    ClosedError,
    HistoryForkedError,
    HistoryLostError,
    OctopiError,
    RecordError,
)
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.position import Anchor, Place, Position
from octopi.record import Message


class Consumer:
    """Reads messages.  Made by `Client.consumer`; for one task at a time.

    Iterate over it for single messages, or over `batches` for those that arrived together; both
    hand out each message of a log once and in the order of the log, across reconnects.  Logs
    (partitions) take turns as their records arrive.  A program may change between the two.

    If the topic gets other partitions meanwhile, their logs are read when the messages that may
    have the same keys were handed out: the order of a key holds.

    Iterating waits only where nothing has arrived; it is a checkpoint once a batch, not
    once a message.  If it is cancelled, `position` counts exactly what was handed out.

    Iterating raises:
      HistoryLostError: if retention has removed the next record (unless ``on_gap="skip"``).
      HistoryForkedError: if records that were read are gone from the log, and others may be in
          their place (unless ``on_fork="resume"``).
      DigestMismatchError: with ``proven=True``, if a relay sends something else than the digests
          say.
      RefusedError: WRONG_KIND, with ``proven=True``, if the topic is in logs.
      TopicReplacedError: if the topic was deleted and created again.
      UnknownTopicError: if the topic was deleted.
      OffsetOutOfRangeError, OffsetInsideRecordError: if no record starts at the start position.
      RefusedError: STALE_ROUTE, if the topic got other partitions, and the consumer reads only
          some that the program chose.
      RecordError: if a record arrived damaged; nothing behind it in that log is handed out.
      UnreachableError, ConnectionLostError, NotReadyError: if no broker was available for the
          reconnect time-out.
      ClosedError: if the consumer was closed.
    """

    def __init__(self, topic: TopicName, topic_id: TopicId) -> None:
        self._topic = topic
        self._topic_id = topic_id
        self._follower: GenerationFollower
        self._subscribers: dict[PartitionId, LogSubscriber] = {}
        """Of each log that is read, or was, the newest one."""
        self._offsets: dict[PartitionId, Offset] = {}
        """The offsets behind the messages that the program has dealt with: it asked for more."""
        self._in_hand: Message | MessageBatch | None = None
        """What the last call handed out, which the program works on; None: it has asked for more
        since."""
        self._anchors: dict[PartitionId, Anchor] = {}
        """The anchors of the places behind the last message (or batch) that was handed out."""
        self._ready: deque[tuple[LogSubscriber, Chunk] | _Fork | _End | OctopiError] = deque()
        self._opened: MessageBatch | None = None
        """The newest batch; None: there was none, or its damage is queued."""
        self._messages: Iterator[Message] = iter(())
        """The messages of the newest batch, if it is handed out one by one, that weren't yet."""
        self._is_closed = False
        self.news: News = News()
        """Told when there may be something for the methods that don't wait."""
        self.gaps: list[HistoryLostError] = []
        """The gaps that were skipped with ``on_gap="skip"``, oldest first."""
        self.forks: list[HistoryForkedError] = []
        """The forks behind which reading was resumed with ``on_fork="resume"``, oldest first."""

    def start(self, follower: GenerationFollower, nursery: trio.Nursery) -> None:
        """Begin to read what *follower* says, in tasks of *nursery*."""
        self._follower = follower
        self._begin(nursery)
        nursery.start_soon(self._follow, nursery)

    def _begin(self, nursery: trio.Nursery) -> None:
        for subscriber in self._follower.begin(nursery):
            self._subscribers[subscriber.session.partition] = subscriber
        for partition in self._follower.gates.partitions:
            self._offsets.setdefault(partition, self._follower.place(partition).offset)

    async def _follow(self, nursery: trio.Nursery) -> None:
        """Begin the readings of further logs when the topic got other partitions."""
        try:
            while True:
                await self._follower.follow()
                self._begin(nursery)
        except OctopiError as error:
            self._ready.append(error)
            self.news.tell()

    @property
    def position(self) -> Position:
        """The position behind the last message (or batch) that was handed out.

        Start a consumer with it, or with ``str`` of it, to continue there.
        """
        places = {partition: self._place(partition) for partition in self._offsets}
        return Position(self._topic, self._topic_id, places)

    def _place(self, partition: PartitionId) -> Place:
        anchor = self._anchors.get(partition)
        if anchor is None:
            subscriber = self._subscribers.get(partition)
            if subscriber is None:
                anchor = self._follower.place(partition).anchor
            else:
                anchor = subscriber.session.start_anchor
        return Place(self._offset(partition), anchor)

    def _offset(self, partition: PartitionId) -> Offset:
        """The offset behind the messages that were handed out."""
        if (item := self._in_hand) is not None and item.partition == partition:
            return item.next_offset
        return self._offsets[partition]

    @property
    def lag_bytes(self) -> int:
        """How far the position is behind the newest highwater marks that brokers have sent; the sum
        over all logs.  A log that is read later, since the topic got other partitions, counts up to
        its sealed end; the newest logs count as soon as they are read."""
        return sum(
            self._follower.gates.waiting_bytes(partition)
            if (one := self._subscribers.get(partition)) is None
            else max(0, one.session.highwater - self._offset(partition))
            for partition in self._offsets
        )

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Message:
        message = next(self._messages, None)
        while message is None:
            batch = await self._next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._messages = iter(batch)
            message = next(self._messages, None)
        self._in_hand = message
        return message

    def batches(self) -> AsyncIterator[MessageBatch]:
        """The messages in batches, each of one partition, as they arrive.  This is the fastest way.

        `position` is behind the whole batch once it was handed out.  If single messages were
        iterated before, the rest of their batch comes first.
        """
        return _Batches(self)

    async def next_batch(self) -> MessageBatch | None:
        """The next one of `batches`; None at the end."""
        batch = self._rest()
        if batch is None:
            batch = await self._next_batch()
        self._in_hand = batch
        return batch

    def next_at_hand(self) -> Message | None:
        """The next message, if it came together with the one before; None: it didn't."""
        message = next(self._messages, None)
        if message is not None:
            self._in_hand = message
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
        self._in_hand = batch
        return batch

    def close(self) -> None:
        """Hand out nothing more.  The end of the consumer's block calls this."""
        self._is_closed = True
        self._ready.clear()
        self._opened = None
        self._messages = iter(())
        self.news.tell()

    def _rest(self) -> MessageBatch | None:
        """The messages of the newest batch that weren't handed out yet; None: there are none."""
        messages = list(self._messages)
        return self._opened.rest(messages) if messages and self._opened is not None else None

    async def _next_batch(self) -> MessageBatch | None:
        """The messages of the next chunk; None at the end."""
        self.settle()
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._ready:
            await trio.lowlevel.cancel_shielded_checkpoint()
        while (batch := self.poll()) is None:
            if self.is_at_end:
                return None
            await self.news.lot.park()
        return batch

    def _next_batch_nowait(self) -> MessageBatch | None:
        self.settle()
        batch = self.poll()
        if batch is None and not self.is_at_end:
            raise trio.WouldBlock
        return batch

    def _go_back(self, fork: _Fork) -> None:
        """Messages behind the place of *fork* that were handed out are gone from the log: set the
        position back."""
        self.forks.append(fork.error)
        self._offsets[fork.partition] = fork.place.offset
        self._anchors[fork.partition] = fork.place.anchor

    def _open(self, subscriber: LogSubscriber, chunk: Chunk) -> MessageBatch | None:
        """The messages of *chunk*; None if the first one is damaged."""
        session = subscriber.session
        batch = MessageBatch(session.topic, session.partition, chunk.offset, chunk.records)
        self._opened = batch
        if batch.is_empty:
            return None
        subscriber.took(chunk)
        self._anchors[session.partition] = chunk.anchor
        return batch

    def _tell_damage(self, batch: MessageBatch, damage: RecordError) -> None:
        """The program has dealt with *batch*, which has ended before damaged records: raise that
        next.  The position points there."""
        self._opened = None
        where = f"{batch.topic}/{batch.partition}"
        self._ready.appendleft(type(damage)(f"{where}: {damage}"))

    # --- for a consumer of several topics ----------------------------------------------

    @property
    def is_at_end(self) -> bool:
        """Whether everything before the end has arrived; there may be messages to hand out."""
        return self._follower.gates.is_finished

    async def until_ready(self) -> None:
        """Wait until `poll` is worth a call: something has arrived, or nothing more will."""
        while not (self._ready or self._is_closed or self.is_at_end):
            await self.news.lot.park()

    def poll(self) -> MessageBatch | None:
        """The messages of the next chunk; None: no chunk has arrived.  Doesn't wait.

        Raises what iterating raises.
        """
        if (batch := self._opened) is not None and batch.damage is not None:
            self._tell_damage(batch, batch.damage)
        while self._ready and isinstance(mark := self._ready[0], _Fork | _End):
            self._ready.popleft()
            if isinstance(mark, _Fork):
                self._go_back(mark)
            else:
                self._follower.ended(mark.subscriber, is_stale=mark.is_stale)
        if not self._ready:
            if self._is_closed:
                raise ClosedError("the consumer was closed")
            return None
        item = self._ready[0]
        if isinstance(item, OctopiError):
            raise item  # it stays in the queue, and is raised again by the next call
        assert not isinstance(item, _Fork | _End), "they were taken before"
        self._ready.popleft()
        opened = self._open(*item)
        return self.poll() if opened is None else opened  # it raises the damage

    def hand_out(self, item: Message | MessageBatch) -> None:
        """The program works on this batch of `poll`, or on a message of it."""
        self._in_hand = item

    def settle(self) -> None:
        """The program has dealt with all messages that were handed out."""
        if (item := self._in_hand) is not None:
            self._offsets[item.partition] = item.next_offset
            self._in_hand = None

    # --- what subscribers report -------------------------------------------------------

    def take_chunk(self, subscriber: LogSubscriber, chunk: Chunk) -> None:
        """Records arrived."""
        self._ready.append((subscriber, chunk))
        self.news.tell()

    def dealt(self, subscriber: LogSubscriber) -> Offset:
        """See `octopi.clients.consuming.log_subscriber.SubscriberListener`.  The messages that the
        last call handed out don't count before the next call."""
        partition = subscriber.session.partition
        if (item := self._in_hand) is not None and item.partition == partition:
            return item.offset
        return self._offsets[partition]

    def take_gap(self, gap: HistoryLostError) -> None:
        """Records were skipped that retention had removed."""
        self.gaps.append(gap)

    def take_fork(self, session: ConsumerSession, fork: HistoryForkedError) -> None:
        """Records that were read are gone from the log.  The fork is queued behind those of them
        that wait to be handed out."""
        self._ready.append(_Fork(session.partition, session.place, fork))
        self.news.tell()

    def take_end(self, subscriber: LogSubscriber, why: OctopiError | None) -> None:
        """A subscriber has ended: everything arrived, or it failed because of *why*.  The end is
        queued behind the messages of the log."""
        if why is None or is_stale(why):
            self._ready.append(_End(subscriber, is_stale=why is not None))
        else:
            self._ready.append(why)
        self.news.tell()


@attrs.frozen
class _Fork:
    """Reading of a log is resumed at a place before records that were read."""

    partition: PartitionId
    place: Place
    error: HistoryForkedError


@attrs.frozen
class _End:
    """All that *subscriber* was to read was queued before this."""

    subscriber: LogSubscriber
    is_stale: bool
    """Whether the topic got other partitions."""


class _Batches:
    """An iterator and not a generator, so a loop over it may end early without clean-up."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> _Batches:
        return self

    async def __anext__(self) -> MessageBatch:
        batch = await self._consumer.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch
