"""One log that a member of a subscription has: its messages, and its mark.

Two things go on side by side: records are read from any in-sync replica, as a consumer does, and a
session with the log's leader takes marks.  `MarkSession` decides what is told to the leader and
whether messages may be handed out.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Protocol

import attrs
import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.consuming.consumer_session import Chunk, ConsumerSession
from octopi.clients.consuming.log_subscriber import LogSubscriber, SubscriberOptions
from octopi.clients.subscribing.leader_session import LeaderSession
from octopi.clients.subscribing.mark_session import (
    AttachRemedy,
    MarkSession,
    SendMark,
    attach_remedy,
)
from octopi.errors import (
    HistoryForkedError,
    HistoryLostError,
    MemberFencedError,
    OctopiError,
    ProtocolError,
    RecordError,
)
from octopi.identifiers import (
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    TopicId,
    TopicName,
)
from octopi.position import Anchor, Place
from octopi.record import Message, decode, scan
from octopi.retry import reworded
from octopi.wire.messages import Attach, Attached, Detach, Mark, Marked


@attrs.frozen
class LogReading:
    """How the logs of a subscription are read, and marked."""

    topic: TopicName
    topic_id: TopicId
    sid: SubscriptionId
    window_bytes: int
    is_auto: bool
    """Whether asking for the next message marks the one before."""
    skip_gaps: bool
    reconnect_timeout_s: float | None
    session_timeout_s: float
    release_timeout_s: float


class LogOwner(Protocol):
    """The subscription, as its logs see it."""

    def take_news(self) -> None:
        """A log may have something to hand out, or an error."""

    def take_gap(self, gap: HistoryLostError) -> None:
        """Records were skipped that retention had removed."""

    def take_fork(self, fork: HistoryForkedError) -> None:
        """Records that were marked are gone; reading goes on before them."""

    def released(self, log: SubscribedLog) -> None:
        """The program has finished with the log."""

    def fenced(self, log: SubscribedLog) -> None:
        """The log's leader knows a newer claim."""


class SubscribedLog:
    """A log that this member has.  Given out by `Subscription.logs`; for one task at a time.

    Enter it, and iterate over it for its messages::

        async with log:
            async for message in log:
                ...

    The block ends when the log is to go to another member: the iteration ends as soon as the
    message in hand is done, and if that takes longer than the release timeout of the subscription,
    the block is cancelled.  The block is cancelled at once when another member has the log already.
    Leaving the block marks the message in hand and waits until that is committed; leaving it by an
    exception, or cancelled, marks nothing more.  Either way the log goes back to the group.

    Iterating raises what iterating over a `Consumer` raises.
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        reading: LogReading,
        member: MemberId,
        partition: PartitionId,
        claim: Claim,
        owner: LogOwner,
    ) -> None:
        self._member = member
        self.partition = partition
        """Of the topic."""
        self.claim = claim
        """Grows with each assignment of the log: a fencing token for stores of the program's."""
        self.ending = trio.Event()
        """Set when the program is to finish, since another member is to have the log."""
        self._cluster = cluster
        self._clock = cluster.environment.clock
        self._reading = reading
        self._owner = owner
        self._marks = MarkSession(reading.session_timeout_s)
        self._link = LeaderSession(cluster, reading.topic, partition)
        self._session: ConsumerSession | None = None
        self._reader: LogSubscriber | None = None
        self._chunks: deque[Chunk] = deque()
        self._messages: Iterator[Message] = iter(())
        self._in_hand: Offset | None = None
        """Behind the last message that was handed out, and is not marked."""
        self._error: OctopiError | None = None
        self._is_over = False
        self._begun = trio.Event()
        self._woken = trio.Event()
        self._news = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()
        """Of the tasks here."""
        self._program: trio.CancelScope | None = None
        """Of the program's block, while it is in it."""
        self._block: AbstractAsyncContextManager[SubscribedLog]

    def __repr__(self) -> str:
        return f"<{self._reading.topic}/{self.partition}, claim {self.claim}>"

    # --- what the program uses ---------------------------------------------------------

    @property
    def lag(self) -> int:
        """How far the mark is behind the newest highwater mark heard of (bytes)."""
        if self._session is None:
            return 0
        return max(0, self._session.highwater - self._marks.marked)

    @property
    def is_lost(self) -> bool:
        """Whether another member has it, or may have: marks count no more."""
        return self._is_over

    async def __aenter__(self) -> SubscribedLog:
        self._block = self._entered()
        return await self._block.__aenter__()

    async def __aexit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._block.__aexit__(cls, error, traceback)

    @asynccontextmanager
    async def _entered(self) -> AsyncIterator[SubscribedLog]:
        with trio.CancelScope() as self._program:
            if self._is_over:
                self._program.cancel()
            try:
                yield self
                with contextlib.suppress(MemberFencedError):  # its messages come again elsewhere
                    await self.commit()
            finally:
                self._program = None
                self._in_hand = None
                self.end()

    def __aiter__(self) -> SubscribedLog:
        return self

    async def __anext__(self) -> Message:
        if self._program is None:
            raise RuntimeError("enter the log before reading it: `async with log:`")
        await trio.lowlevel.checkpoint_if_cancelled()
        self.settle()
        while True:
            message = self.next_message()
            if message is not None:
                return message
            if self._error is not None:
                raise self._error
            if self.ending.is_set() or self._is_over:
                raise StopAsyncIteration
            await self._news.park()

    def mark(self, message: Message) -> None:
        """Everything of the log up to *message* is processed."""
        self._mark(message.next_offset, self._clock.now())

    async def commit(self) -> None:
        """Mark what was handed out (with ``mark="auto"``), and wait until the mark is committed.

        Raises:
          MemberFencedError: if another member has the log.
          OctopiError: whatever else keeps it from being committed.
        """
        self.settle()
        await self.confirmed()

    # --- what the subscription uses ----------------------------------------------------

    async def run(self) -> None:
        """Attach and read, until `end` or until the log is lost."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_attached)
                nursery.start_soon(self._keep_time)
                await self._begun.wait()
                assert self._reader is not None
                await self._reader.run()

    def settle(self) -> None:
        """The message that was handed out last is done."""
        if self._in_hand is not None:
            self._settle(self._in_hand, self._clock.now())

    def _settle(self, offset: Offset, now: float) -> None:
        self._in_hand = None
        if self._reading.is_auto:
            self._mark(offset, now)
        if self.ending.is_set():
            self._tell()

    @property
    def has_in_hand(self) -> bool:
        """Whether a message was handed out that may still be worked on."""
        return self._in_hand is not None

    @property
    def has_unconfirmed(self) -> bool:
        """Whether a message was handed out that may come again."""
        return self.has_in_hand or not self._marks.is_settled

    @property
    def error(self) -> OctopiError | None:
        """Why nothing more can be read, or marked."""
        return self._error

    def next_at_hand(self) -> Message | None:
        """`settle`, then `next_message`, if it came together with the one before."""
        now = self._clock.now()  # once for both: most messages take this way
        if self._in_hand is not None:
            self._settle(self._in_hand, now)
        if not self._may_hand_out(now):
            return None
        message = next(self._messages, None)
        if message is not None:
            self._in_hand = message.next_offset
        return message

    def next_message(self) -> Message | None:
        """The next message, if one may be handed out now."""
        while (message := self.next_at_hand()) is None:
            if not self._may_hand_out(self._clock.now()) or not self._open_chunk():
                return None
        return message

    def next_batch(self) -> list[Message]:
        """The messages that are next to be handed out, of those that came together."""
        if not self._may_hand_out(self._clock.now()):
            return []
        batch = list(self._messages)
        while not batch and self._open_chunk():
            batch = list(self._messages)
        if batch:
            self._in_hand = batch[-1].next_offset
        return batch

    async def confirmed(self) -> None:
        """Wait until the mark is committed; see `commit`."""
        if self._marks.start is None:
            return
        offset = self._marks.marked
        self._send(self._marks.commit(self._clock.now()))
        while not self._marks.is_committed(offset):
            if self._is_over:
                raise MemberFencedError(
                    f"{self._reading.topic}/{self.partition}: another member may have the log, so "
                    "messages since the last confirmed mark come again"
                )
            if self._error is not None:
                raise self._error
            await self._news.park()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def finish(self) -> None:
        """The log is to go to another member: give the program the release timeout to finish."""
        self.ending.set()
        self._tell()
        with self._clock.timeout(self._reading.release_timeout_s):
            while (self._program is not None or self.has_in_hand) and not self._is_over:
                await self._news.park()
            # If it can't be committed, nobody can be told here: what is not marked comes again.
            with contextlib.suppress(OctopiError):
                await self.confirmed()
        if not self._is_over:
            self.abandon()
            self._owner.released(self)

    def end(self) -> None:
        """The program has finished: the log goes back to the group."""
        if not self._is_over:
            self._stop()
            self._owner.released(self)

    def abandon(self) -> None:
        """Another member may have the log: cancel the program's block."""
        self._stop()
        if self._program is not None:
            self._program.cancel()

    def _stop(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._send(self._marks.flush(self._clock.now()))
        self._chunks.clear()
        self._messages = iter(())
        self._scope.cancel()
        self._tell()

    # --- records -----------------------------------------------------------------------

    def _may_hand_out(self, now: float) -> bool:
        if self._is_over or self.ending.is_set():
            return False
        return self._marks.may_hand_out(now)

    def _open_chunk(self) -> bool:
        """Begin with the next records that arrived; false if there are none."""
        if not self._chunks:
            self._marks.is_wanted = False
            return False
        assert self._reader is not None
        chunk = self._chunks.popleft()
        topic, records = self._reading.topic, chunk.records
        try:
            messages = decode(records, chunk.offset, topic, self.partition)
        except RecordError as error:
            valid = records[: scan(records).valid_bytes]
            messages = decode(valid, chunk.offset, topic, self.partition)
            self._chunks.clear()
            self._error = type(error)(f"{topic}/{self.partition}: {error}")
        else:
            self._reader.took(chunk)
        self._messages = iter(messages)
        return True

    def take_chunk(self, subscriber: LogSubscriber, chunk: Chunk) -> None:
        """See `octopi.clients.consuming.log_subscriber.SubscriberListener`."""
        if self._error is None and not self._is_over:
            self._chunks.append(chunk)
            self._marks.is_wanted = True
            self._woken.set()
            self._tell()

    def take_gap(self, gap: HistoryLostError) -> None:
        """See `octopi.clients.consuming.log_subscriber.SubscriberListener`."""
        self._owner.take_gap(gap)

    def take_fork(self, session: ConsumerSession, fork: HistoryForkedError) -> None:
        """See `octopi.clients.consuming.log_subscriber.SubscriberListener`."""
        raise AssertionError("forks are errors here")

    def take_end(self, why: OctopiError | None) -> None:
        """See `octopi.clients.consuming.log_subscriber.SubscriberListener`."""
        self._fail(why)

    def _fail(self, why: OctopiError | None) -> None:
        if why is not None and self._error is None:
            self._error = why
            self._tell()

    def _tell(self) -> None:
        self._news.unpark_all()
        self._owner.take_news()

    # --- the leader --------------------------------------------------------------------

    async def _keep_attached(self) -> None:
        reading = self._reading
        lost_at = self._clock.now()

        def question(request: int) -> Attach:
            self._marks.attaching(self._clock.now())
            return Attach(
                request, reading.topic, self.partition, reading.sid, self._member, self.claim
            )

        while True:
            try:
                await self._link.run(question, self._take, Detach)
            except OctopiError as error:
                if self._marks.is_attached:
                    lost_at = self._clock.now()
                self._marks.disconnected()
                remedy = attach_remedy(error)
                if remedy is AttachRemedy.LOST:
                    self.abandon()
                    self._owner.fenced(self)
                    return
                timeout_s = reading.reconnect_timeout_s
                if timeout_s is not None and self._clock.now() - lost_at >= timeout_s:
                    text = f"{reading.topic}/{self.partition}: no leader for {timeout_s:g} s"
                    error, remedy = (
                        reworded(error, f"{text}; last: {error.args[0]}"),
                        AttachRemedy.STOP,
                    )
                if remedy is AttachRemedy.STOP:
                    self._fail(error)
                    return
                await self._link.before_again(error)

    def _take(self, message: object) -> None:
        match message:
            case Attached():
                self._attached(message)
            case Marked(_, number):
                self._marks.acknowledged(number)
            case _:
                raise ProtocolError(f"{type(message).__name__} is no part of an attachment")
        self._woken.set()
        self._tell()

    def _attached(self, message: Attached) -> None:
        self._send(self._marks.attached(message.mark, self._clock.now()))
        if self._begun.is_set():
            return
        reading, place = self._reading, Place(message.mark, Anchor(message.anchor))
        lost_from, lost_to = message.lost_from, message.lost_to
        if lost_from is not None and lost_to is not None and message.mark >= message.log_start:
            self._owner.take_fork(
                HistoryForkedError.of_range(reading.topic, self.partition, message.mark, lost_to)
            )
        elif lost_from is not None and lost_to is not None:
            gap = HistoryLostError(reading.topic, self.partition, lost_from, lost_to)
            if not reading.skip_gaps:
                self._fail(gap)
                return
            self._owner.take_gap(gap)
            place = Place(lost_to)
            self._mark(lost_to, self._clock.now())
        self._session = ConsumerSession(
            reading.topic, self.partition, reading.topic_id, place, reading.window_bytes
        )
        options = SubscriberOptions(reading.reconnect_timeout_s, reading.skip_gaps, False)
        self._reader = LogSubscriber(self._cluster, self._session, options, self)
        self._begun.set()

    def _mark(self, offset: Offset, now: float) -> None:
        self._send(self._marks.mark(offset, now))
        self._woken.set()

    def _send(self, marks: Iterable[SendMark]) -> None:
        for one in marks:
            self._link.post(_notice(one))

    async def _keep_time(self) -> None:
        while True:
            self._woken = trio.Event()
            due_at = self._marks.due_at()
            wait_s = math.inf if due_at is None else max(0.0, due_at - self._clock.now())
            with self._clock.timeout(wait_s):
                await self._woken.wait()
            self._send(self._marks.tick(self._clock.now()))


def _notice(one: SendMark) -> Callable[[int], Mark]:
    number = one.acknowledge
    return lambda request: Mark(request, one.offset, number is not None, number or 0)
