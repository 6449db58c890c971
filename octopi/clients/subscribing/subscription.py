"""A durable subscription, as a program uses it: messages, and marks for what is processed."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.news import News
from octopi.clients.subscribing.administration import SubscriptionAdministration
from octopi.clients.subscribing.group_session import (
    AbandonLog,
    BeginLog,
    FinishLog,
    GroupEffect,
    GroupSession,
)
from octopi.clients.subscribing.log_reading import LogReading
from octopi.clients.subscribing.membership import Membership, MembershipOptions
from octopi.clients.subscribing.subscribed_log import SubscribedLog
from octopi.environment import Clock
from octopi.errors import (
    ClosedError,
    HistoryForkedError,
    HistoryLostError,
    MemberFencedError,
    OctopiError,
)
from octopi.identifiers import MemberId, PartitionId
from octopi.model import SubscriptionDefinition, SubscriptionMode
from octopi.record import Message

_T = TypeVar("_T")


class Subscription:
    """A member of a durable subscription.  Made by `Client.subscription`; for one task at a time.

    Iterate over it for messages, or over `batches` for lists of them; or, if logs are to be worked
    off by tasks of their own, over `logs`.  Use one of these ways only.

    The messages of a log come in its order, from its mark on.  With ``mark="auto"`` the block of
    the loop is the unit: asking for the next message marks the one before.  Leaving the block of
    the subscription normally marks the message in hand, and waits until all marks are committed.
    Leaving it by an exception, or cancelled, marks nothing more.

    If all replicas of a log lose messages that were read, others may come in their place: `forks`
    notes that, the lost ones are marked no more, and what the log has from its mark on comes next.

    Iterating raises:
      MemberFencedError: if another member took over, in the mode ``exclusive``.
      UnknownSubscriptionError: if the subscription was deleted.
      HistoryLostError: if retention removed what comes next (unless ``on_gap="skip"``).
      TopicReplacedError, UnknownTopicError, RecordError, UnreachableError,
          ConnectionLostError, NotReadyError: as iterating over a `Consumer` does.
      ClosedError: if the subscription's block was left.
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        nursery: trio.Nursery,
        definition: SubscriptionDefinition,
        reading: LogReading,
        membership: MembershipOptions,
        static_member: MemberId | None,
    ) -> None:
        self._cluster = cluster
        self.clock: Clock = cluster.environment.clock
        """The client's clock."""
        self._nursery = nursery
        self._definition = definition
        self._reading = reading
        self._is_exclusive = definition.mode == SubscriptionMode.EXCLUSIVE
        self._membership = Membership(
            cluster, membership, GroupSession(static_member), self._perform
        )
        self._logs: dict[PartitionId, SubscribedLog] = {}
        self._turns: deque[SubscribedLog] = deque()
        """Logs in the order in which they hand out messages."""
        self._in_hand: SubscribedLog | None = None
        """Whose message was handed out last."""
        self._fresh: deque[SubscribedLog] = deque()
        """Logs that `logs` has not given out yet."""
        self._lost_unconfirmed: set[PartitionId] = set()
        """Logs that were lost with marks that were not confirmed, since the last `commit`."""
        self._by_logs: bool | None = None
        """Whether the program uses `logs`; None: it has not begun."""
        self._error: OctopiError | None = None
        self._is_error_told = False
        """Whether the program was told `_error`."""
        self.news: News = News()
        """Told when there may be something for the methods that don't wait."""
        self.gaps: list[HistoryLostError] = []
        """What was skipped with ``on_gap="skip"``, oldest first."""
        self.forks: list[HistoryForkedError] = []
        """What was read or marked and then lost by all replicas: reading went on before it."""

    # --- facts -------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """Whose subscription it is."""
        return self._definition.topic

    @property
    def name(self) -> str:
        """Of the subscription."""
        return self._definition.name

    @property
    def sid(self) -> str:
        """The id of this creation of the subscription: another one, made under its name when it
        was deleted, has another id, and begins with its claims anew."""
        return self._definition.sid

    @property
    def member(self) -> str:
        """What the other members call this one."""
        return self._membership.session.member

    @property
    def claims(self) -> dict[int, int]:
        """Partition -> claim, of the logs that this member has."""
        return {int(one.partition): int(one.claim) for one in self._logs.values()}

    @property
    def claim(self) -> int:
        """The claim of the log whose message is in hand, or of the only log: it grows with each
        assignment of the log, so stores of the program's can refuse a member that was replaced.

        Raises:
          LookupError: if there are several logs, or none, and no message is in hand.
        """
        if self._in_hand is not None and self._in_hand.has_in_hand:
            return self._in_hand.claim
        if len(self._logs) != 1:
            raise LookupError(f"{len(self._logs)} logs, and no message in hand: see `claims`")
        return next(iter(self._logs.values())).claim

    @property
    def lag(self) -> int:
        """How far the marks are behind the newest highwater marks heard of, in all (bytes)."""
        return sum(one.lag for one in self._logs.values())

    def _first_index(self, partition: PartitionId) -> int | None:
        """The index in the topic's first list of partitions of the log whose keys *partition* got;
        None: this member doesn't know the list yet that has it."""
        gates = self._reading.gates
        assert gates is not None, "the subscription was opened without them"
        return gates.first_index(partition) if gates.knows(partition) else None

    # --- messages ----------------------------------------------------------------------

    def __aiter__(self) -> Subscription:
        self._use(by_logs=False)
        return self

    async def __anext__(self) -> Message:
        if (log := self._in_hand) is not None:
            # Most messages take this way: of those that came together, one behind the other.
            message = log.next_at_hand()
            if message is not None:
                return message
        return await self._next(SubscribedLog.next_message)

    def batches(self) -> AsyncIterator[list[Message]]:
        """The messages in lists, each of one log, as they arrive: fastest.  A list is the unit:
        asking for the next list marks the one before."""
        self._use(by_logs=False)
        return _SubscriptionBatches(self)

    async def next_batch(self) -> list[Message]:
        """The next list of `batches`."""
        return await self._next(SubscribedLog.next_batch)

    def next_at_hand(self) -> Message | None:
        """The next message, if it came together with the one before; None: it didn't."""
        return None if self._in_hand is None else self._in_hand.next_at_hand()

    def next_nowait(self) -> Message:
        """The next message, from synchronous code.

        Raises:
          trio.WouldBlock: if iterating would wait.
          Also the errors of iterating.
        """
        return self._take(SubscribedLog.next_message)

    def next_batch_nowait(self) -> list[Message]:
        """`next_batch` from synchronous code.

        Raises:
          trio.WouldBlock: if it would wait.
          Also the errors of iterating.
        """
        return self._take(SubscribedLog.next_batch)

    def may_go_on(self, now: float) -> bool:
        """Whether the program may begin with the next message of the list in hand.  In any
        thread."""
        return self._in_hand is not None and self._in_hand.may_hand_out(now)

    def passed(self, message: Message, rest: list[Message]) -> None:
        """Of the list that `next_batch` returned last, the program has *message* in hand, and what
        comes before is done.  *rest*: what is behind it is handed out again."""
        if self._in_hand is not None:
            self._in_hand.passed(message, rest)

    async def logs(self) -> AsyncIterator[SubscribedLog]:
        """The logs that this member gets, as it gets them; each is worked off on its own, in its
        block (`SubscribedLog`)."""
        self._use(by_logs=True)
        while True:
            await trio.lowlevel.checkpoint()
            try:
                log = self.next_log_nowait()
            except trio.WouldBlock:
                await self.news.wait()
            else:
                yield log

    def next_log_nowait(self) -> SubscribedLog:
        """The next log of `logs`, from synchronous code.

        Raises:
          trio.WouldBlock: if it would wait.
          Also the errors of iterating.
        """
        self._use(by_logs=True)
        self._check()
        while self._fresh:
            log = self._fresh.popleft()
            if not log.is_lost:
                return log
        raise trio.WouldBlock

    # --- marks -------------------------------------------------------------------------

    def mark(self, message: Message) -> None:
        """Everything of its log up to *message* is processed.  It is stored a moment later.

        Raises:
          MemberFencedError: if this member doesn't have the log any more.
        """
        log = self._logs.get(message.partition)
        if log is None or log.is_lost:
            raise MemberFencedError(
                f"{self.topic}/{message.partition}: this member doesn't have the log any more"
            )
        log.mark(message)

    async def commit(self) -> None:
        """Mark what was handed out (with ``mark="auto"``), and wait until all marks are committed:
        no message below them comes again, but by a reset.

        Raises:
          MemberFencedError: if another member has a log that was marked here.
          HistoryForkedError: if all replicas lost messages that were handed out, and none that came
              after them was; see `forks`.
          OctopiError: what iterating raises.
        """
        self._check()
        await trio.lowlevel.checkpoint()
        lost, self._lost_unconfirmed = self._lost_unconfirmed, set()
        if lost:
            raise MemberFencedError(
                f"{self.topic}/{', '.join(map(str, sorted(lost)))}: this member lost the log "
                "before its marks were confirmed, so messages since the last confirmed one come "
                "again"
            )
        for log in list(self._logs.values()):
            await log.commit()

    # --- from begin to end -------------------------------------------------------------

    async def begin(self) -> None:
        """Join.

        Raises:
          SubscriptionBusyError: if another member has the subscription.
          OctopiError: why joining failed.
        """
        error = await self._nursery.start(self._keep_membership)
        if error is not None:
            raise error

    async def finish(self) -> None:
        """Mark and confirm what was processed, and leave the group.

        Raises:
          OctopiError: what `commit` raises, unless the program was told that already.
        """
        if not self._is_exclusive:
            self._lost_unconfirmed.clear()  # others have these logs: that is no fault of theirs
        if not self._is_error_told:
            await self.commit()
        for log in list(self._logs.values()):
            log.abandon()
        await self._membership.leave()

    def close(self) -> None:
        """Hand out nothing more."""
        self._error = ClosedError("the subscription's block was left")
        for log in list(self._logs.values()):
            log.abandon()
        self.news.tell()

    # --- within ------------------------------------------------------------------------

    def _use(self, *, by_logs: bool) -> None:
        if self._by_logs is None:
            self._by_logs = by_logs
        if self._by_logs != by_logs:
            raise RuntimeError("use either `logs` or the messages of all logs together")

    async def _next(self, take: Callable[[SubscribedLog], _T | None]) -> _T:
        while True:
            await trio.lowlevel.checkpoint()
            try:
                return self._take(take)
            except trio.WouldBlock:
                await self.news.wait()

    def _take(self, take: Callable[[SubscribedLog], _T | None]) -> _T:
        """What the logs have to hand out next; what was handed out before is done.

        Raises:
          trio.WouldBlock: if they have nothing now.
        """
        if self._in_hand is not None:
            log, self._in_hand = self._in_hand, None
            log.settle()
        self._check()
        for _ in range(len(self._turns)):
            self._turns.rotate(-1)
            log = self._turns[-1]
            found = take(log)
            if found:
                self._in_hand = log
                return found
        for log in self._turns:
            if log.error is not None:
                raise log.error
        raise trio.WouldBlock

    def _check(self) -> None:
        if self._error is not None:
            self._is_error_told = True
            raise self._error

    async def _keep_membership(
        self, *, task_status: trio.TaskStatus[OctopiError | None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        why = await self._membership.run(task_status=task_status)
        if why is not None:
            self._fail(why)

    def fail(self, why: OctopiError) -> None:
        """Hand out nothing more, because of *why*."""
        self._fail(why)

    def _fail(self, why: OctopiError) -> None:
        self._error = self._error or why
        for log in list(self._logs.values()):
            log.abandon()
        self.news.tell()

    def _perform(self, effects: Iterable[GroupEffect]) -> None:
        for effect in effects:
            match effect:
                case BeginLog(partition, claim):
                    log = SubscribedLog(
                        self._cluster,
                        self._reading,
                        self._membership.session.member,
                        partition,
                        claim,
                        self,
                    )
                    self._logs[partition] = log
                    self._turns.append(log)
                    self._fresh.append(log)
                    self._nursery.start_soon(log.run)
                case FinishLog(partition, _):
                    self._nursery.start_soon(self._logs[partition].finish)
                case AbandonLog(partition, _):
                    self._logs[partition].abandon()
                    self._forget(self._logs[partition])
        self.news.tell()

    def _forget(self, log: SubscribedLog) -> None:
        if self._logs.get(log.partition) is log:
            if log.has_unconfirmed and not self._by_logs:
                self._lost_unconfirmed.add(log.partition)
            del self._logs[log.partition]
            self._turns.remove(log)

    # --- what logs report --------------------------------------------------------------

    def take_news(self) -> None:
        """A log may have something to hand out, or an error."""
        self.news.tell()

    def take_gap(self, gap: HistoryLostError) -> None:
        """Records were skipped that retention had removed."""
        self.gaps.append(gap)

    def take_fork(self, fork: HistoryForkedError) -> None:
        """Records that were marked are gone; reading goes on before them."""
        self.forks.append(fork)

    async def restore_mark(self, partition: PartitionId) -> None:
        """See `SubscriptionAdministration.restore_mark`."""
        administration = SubscriptionAdministration(self._cluster.router)
        await administration.restore_mark(self._definition, partition)

    def released(self, log: SubscribedLog) -> None:
        """The program has finished with the log."""
        self._forget(log)
        session = self._membership.session
        self._membership.perform(session.finished(log.partition, log.claim))

    def fenced(self, log: SubscribedLog) -> None:
        """The log's leader knows a newer claim."""
        session = self._membership.session
        if self._is_exclusive and not log.ending.is_set():
            self._fail(
                MemberFencedError(
                    f"{self.topic}/{log.partition}: another member has the subscription "
                    f"{self.name} now, or its mark was reset"
                )
            )
        self._membership.perform(session.lost(log.partition, log.claim))


class _SubscriptionBatches:
    """An iterator, not a generator: to leave it unfinished is no fault."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __aiter__(self) -> _SubscriptionBatches:
        return self

    async def __anext__(self) -> list[Message]:
        return await self._subscription.next_batch()
