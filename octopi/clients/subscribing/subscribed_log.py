"""One log that a member of a subscription has: its messages, and its mark.

Two things go on side by side: records are read from any in-sync replica, as a consumer does, and a
session with the log's leader takes marks.  `MarkSession` decides what is told to the leader and
whether messages may be handed out.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType

import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.news import News
from octopi.clients.subscribing.leader_session import LeaderSession
from octopi.clients.subscribing.log_owner import LogOwner
from octopi.clients.subscribing.log_reading import LogReading, RestartableReading
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
)
from octopi.identifiers import Claim, MemberId, Offset, PartitionId
from octopi.position import Anchor, Place
from octopi.record import Message
from octopi.wire.messages import Attach, Attached, Detach, Mark, Marked


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
        owner: LogOwner[SubscribedLog],
    ) -> None:
        self._member = member
        self.partition = partition
        """Of the topic."""
        self.claim = claim
        """Grows with each assignment of the log: a fencing token for stores of the program's."""
        self.ending: trio.Event = trio.Event()
        """Set when the program is to finish, since another member is to have the log."""
        self._cluster = cluster
        self._clock = cluster.environment.clock
        self._reading = reading
        self._owner = owner
        self._marks = MarkSession(reading.session_timeout_s)
        self._link = LeaderSession(cluster, reading.topic, partition, self._restore)
        self._records = RestartableReading(
            cluster, reading, partition, self, dealt=lambda: self._marks.marked
        )
        self._messages: Iterator[Message] = iter(())
        self._in_hand: Offset | None = None
        """Behind the last message that was handed out, and is not marked."""
        self._handed = Offset(0)
        """Behind the last one that was handed out and is done."""
        self._has_begun_again = False
        """Whether messages were handed out that all replicas lost."""
        self._read_until: int | None = None
        """Up to there the log was read before it began again; None: the leader's mark is known."""
        self._void: HistoryForkedError | None = None
        """Why what was marked, or is in hand, is not confirmed, until a newer message is."""
        self.error: OctopiError | None = None
        """Why nothing more can be read, or marked."""
        self._is_over = False
        self._woken = trio.Event()
        self.news: News = News()
        """Told when there may be something for `next_nowait`."""
        self._scope = trio.CancelScope()
        """Of the tasks here."""
        self._attachment = trio.CancelScope()
        """Of the session with the leader."""
        self._program: trio.CancelScope | None = None
        """Of the program's block, while it is in it."""
        self._block: AbstractAsyncContextManager[SubscribedLog]

    def __repr__(self) -> str:
        return f"<{self._reading.topic}/{self.partition}, claim {self.claim}>"

    # --- what the program uses ---------------------------------------------------------

    @property
    def lag(self) -> int:
        """How far the mark is behind the newest highwater mark heard of (bytes)."""
        return max(0, self._records.highwater - self._marks.marked)

    @property
    def is_ending(self) -> bool:
        """Whether `ending` is set."""
        return self.ending.is_set()

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
                # What isn't marked comes again, to another member or behind a fork.
                with contextlib.suppress(MemberFencedError, HistoryForkedError):
                    await self.commit()
            finally:
                self._program = None
                self._in_hand = None
                self.end()

    def __aiter__(self) -> SubscribedLog:
        return self

    async def __anext__(self) -> Message:
        await trio.lowlevel.checkpoint_if_cancelled()
        message = await self.news.taken(self.next_nowait)
        if message is None:
            raise StopAsyncIteration
        return message

    def next_nowait(self) -> Message | None:
        """The next message, from synchronous code; None if the log is to go to another member.

        Raises:
          trio.WouldBlock: if iterating would wait.
          Also the errors of iterating.
        """
        if self._program is None:
            raise RuntimeError("enter the log before reading it: `async with log:`")
        self.settle()
        message = self.next_message()
        if message is not None:
            return message
        if self.error is not None:
            raise self.error
        if self.ending.is_set() or self._is_over:
            return None
        raise trio.WouldBlock

    def mark(self, message: Message) -> None:
        """Everything of the log up to *message* is processed."""
        if not self._has_begun_again or message.next_offset <= self._done:  # else it was lost
            self._mark(message.next_offset, self._clock.now())

    async def commit(self) -> None:
        """Mark what was handed out (with ``mark="auto"``), and wait until the mark is committed.

        Raises:
          MemberFencedError: if another member has the log.
          HistoryForkedError: if all replicas lost messages of it before it was committed; what the
              log has from its mark on is handed out next.
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
                await self._records.run()

    def settle(self) -> None:
        """The message that was handed out last is done."""
        if self._in_hand is not None:
            self._settle(self._in_hand, self._clock.now())

    def _settle(self, offset: Offset, now: float) -> None:
        self._in_hand, self._handed = None, offset
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

    def next_at_hand(self) -> Message | None:
        """`settle`, then `next_message`, if it came together with the one before."""
        now = self._clock.now()  # once for both: most messages take this way
        if self._in_hand is not None:
            self._settle(self._in_hand, now)
        if not self.may_hand_out(now):
            return None
        message = next(self._messages, None)
        if message is not None:
            self._in_hand = message.next_offset
        return message

    def next_message(self) -> Message | None:
        """The next message, if one may be handed out now."""
        while (message := self.next_at_hand()) is None:
            if not self.may_hand_out(self._clock.now()) or not self._open_chunk():
                return None
        return message

    def next_batch(self) -> list[Message]:
        """The messages that are next to be handed out, of those that came together."""
        if not self.may_hand_out(self._clock.now()):
            return []
        batch = list(self._messages)
        while not batch and self._open_chunk():
            batch = list(self._messages)
        if batch:
            self._in_hand = batch[-1].next_offset
        return batch

    def passed(self, message: Message, rest: list[Message]) -> None:
        """Of the list in hand, what comes before *message* is done; *rest* comes again."""
        if (in_hand := self._in_hand) is not None and self._handed <= message.offset < in_hand:
            self._settle(message.offset, self._clock.now())
            self._in_hand = message.next_offset if rest else in_hand
            if rest and not self._is_over:
                self._messages = iter(rest)

    async def confirmed(self) -> None:
        """Wait until the mark is committed; see `commit`."""
        self._check_void()
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
            self._check_void()
            if self.error is not None:
                raise self.error
            await self.news.wait()
        await trio.lowlevel.checkpoint_if_cancelled()

    def _check_void(self) -> None:
        if self._void is not None:
            void, self._void = self._void, None
            raise void

    async def finish(self) -> None:
        """The log is to go to another member: give the program the release timeout to finish."""
        self.ending.set()
        self._tell()
        with self._clock.timeout(self._reading.release_timeout_s):
            while (self._program is not None or self.has_in_hand) and not self._is_over:
                await self.news.wait()
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
        self._records.stop()
        self._messages = iter(())
        self._scope.cancel()
        self._tell()

    # --- records -----------------------------------------------------------------------

    def may_hand_out(self, now: float) -> bool:
        """Whether a message may be handed out at *now*.  In any thread."""
        is_ours = not (self._is_over or self.ending.is_set())
        return is_ours and self._marks.may_hand_out(now)

    def _open_chunk(self) -> bool:
        """Begin with the next records that arrived; false if there are none."""
        if not self._records.has_chunks:
            self._marks.is_wanted = False
            return False
        self._messages, damage = self._records.open_chunk()
        self.error, self._void = self.error or damage, None
        return True

    def take_records(self) -> None:
        """See `octopi.clients.subscribing.log_reading.ReadingListener`."""
        self._marks.is_wanted = True
        self._woken.set()
        self._tell()

    def take_gap(self, gap: HistoryLostError) -> None:
        """See `octopi.clients.subscribing.log_reading.ReadingListener`."""
        self._owner.take_gap(gap)

    def take_end(self, why: OctopiError) -> None:
        """See `octopi.clients.subscribing.log_reading.ReadingListener`."""
        self._fail(why)

    def take_lost(self, fork: HistoryForkedError) -> None:
        """See `octopi.clients.subscribing.log_reading.ReadingListener`."""
        if fork.offset is None or fork.offset < (done := self._done):
            self._begin_again(fork.read_until or 0)
            self._attachment.cancel()
        else:  # what was handed out is still there, and the rest is read again
            self._owner.take_fork(fork)
            self._messages = iter(())
            self._records.read_from(Place(done, self._records.anchor_at(done)))

    @property
    def _done(self) -> Offset:
        """Behind all that was handed out, or was processed before."""
        return max(self._marks.marked, self._handed, self._in_hand or self._handed)

    def _fail(self, why: OctopiError) -> None:
        if self.error is None:
            self.error = why
            self._records.is_over = True
            self._tell()

    def _tell(self) -> None:
        self.news.tell()
        self._owner.take_news()

    def _begin_again(self, read_until: int = 0) -> None:
        """All replicas lost records that were read: drop what is not handed out, and have the
        leader's mark told, to read from there.  *read_until*: where reading had come to."""
        until = max(read_until, self._done, self._records.wanted, self._read_until or 0)
        if self.has_unconfirmed:
            name = self._reading.topic, self.partition
            self._void = HistoryForkedError.of_range(*name, self._marks.confirmed, until)
        self._read_until, self._has_begun_again = until, True
        self._in_hand, self._handed = None, Offset(0)
        self._marks.begin_again()
        self._messages = iter(())
        self._records.stop()
        self._tell()

    # --- the leader --------------------------------------------------------------------

    async def _keep_attached(self) -> None:
        reading = self._reading

        def question(request: int) -> Attach:
            self._marks.attaching(self._clock.now())
            return Attach(
                request, reading.topic, self.partition, reading.sid, self._member, self.claim
            )

        while True:
            try:
                with trio.CancelScope() as self._attachment:
                    await self._link.run(question, self._take, Detach)
            except OctopiError as error:
                self._marks.disconnected()
                remedy = attach_remedy(error)
                if remedy is AttachRemedy.BEGIN_AGAIN:
                    self._begin_again()
                elif remedy is AttachRemedy.LOST:
                    self.abandon()
                    self._owner.fenced(self)
                    return
                why = self._link.why_given_up(error, reading.reconnect_timeout_s)
                if why is not None or remedy is AttachRemedy.STOP:
                    self._fail(why or error)
                    return
                try:
                    await self._link.before_again(error)
                except OctopiError as unrestored:
                    self._fail(unrestored)
                    return

    async def _restore(self, partition: PartitionId) -> None:
        await self._owner.restore_mark(partition)
        self._read_until = self._read_until or 0  # the loss is told

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
        place, lost = Place(message.mark, Anchor(message.anchor)), None
        if message.lost_from is not None and message.lost_to is not None:
            lost = message.lost_from, message.lost_to
        fork = lost if place.offset >= message.log_start else None
        if self._marks.is_set_back(place.offset, fork):
            self._begin_again()
        is_first = self._marks.start is None
        self._send(self._marks.attached(place.offset, self._clock.now(), place.anchor))
        if not is_first:
            return
        topic, partition = self._reading.topic, self.partition
        if fork is not None or self._read_until is not None:
            until = max(place.offset, self._read_until or 0, fork[1] if fork else 0)
            self._read_until = None
            fault = HistoryForkedError.of_range(topic, partition, place.offset, until)
            self._owner.take_fork(fault)
        if lost is not None and fork is None:
            gap = HistoryLostError(topic, partition, *lost)
            if not self._reading.skip_gaps:
                self._fail(gap)
                return
            self._owner.take_gap(gap)
            self._mark(lost[1], self._clock.now())
            place = Place(lost[1])
        self._records.read_from(place)

    def _mark(self, offset: Offset, now: float) -> None:
        self._send(self._marks.mark(offset, now, self._records.anchor_at(offset)))
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
    return lambda request: Mark(request, one.offset, number is not None, number or 0, one.anchor)
