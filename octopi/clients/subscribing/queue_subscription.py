"""A queue, as a program uses it: messages that are dealt to it, one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.news import News
from octopi.clients.subscribing.administration import SubscriptionAdministration
from octopi.clients.subscribing.dealt import DealtBatch, DealtMessage
from octopi.clients.subscribing.dealt_log import DealtLog, QueueReading
from octopi.clients.subscribing.group_session import GroupEffect, GroupSession
from octopi.clients.subscribing.membership import Membership, MembershipOptions
from octopi.errors import ClosedError, HistoryForkedError, HistoryLostError, OctopiError
from octopi.identifiers import MemberId, PartitionId
from octopi.model import SubscriptionDefinition

_T = TypeVar("_T")


class QueueSubscription:
    """A member of a durable subscription in the mode ``shared`` or ``key_shared``.  Made by
    `Client.subscription`; for any number of tasks at a time.

    Iterate over it for messages, or over `batches` for lists of them.  Each message goes to one
    member, and to one task of it, which answers it: see `DealtMessage`.  A message that is not
    answered within the ack timeout, or is released, is dealt again, and becomes a dead letter after
    its last attempt.

    In the mode ``shared`` messages come in any order.  In the mode ``key_shared`` messages of the
    same key come in their order, and to one member: one is handed out when those of its key before
    it are answered.  A list of `batches` may have several of a key.

    Leaving the block normally waits until all answers are committed.  What is open then goes back
    to the queue.

    Iterating raises:
      UnknownSubscriptionError: if the subscription was deleted.
      TopicReplacedError, UnknownTopicError, RecordError, UnreachableError,
          ConnectionLostError, NotReadyError: as iterating over a `Consumer` does.
      ClosedError: if the subscription's block was left.
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        nursery: trio.Nursery,
        definition: SubscriptionDefinition,
        reading: QueueReading,
        membership: MembershipOptions,
        static_member: MemberId | None,
    ) -> None:
        self._cluster = cluster
        self._nursery = nursery
        self._definition = definition
        self._membership = Membership(
            cluster, membership, GroupSession(static_member), self._perform
        )
        self._logs = deque(
            DealtLog(cluster, reading, partition, self) for partition in definition.partitions
        )
        """In the order in which they hand out messages."""
        self._error: OctopiError | None = None
        self._stale_before = 0
        """What `commit` has reported."""
        self.news: News = News()
        """Told when there may be something for the methods that don't wait."""
        self.gaps: list[HistoryLostError] = []
        """Messages that retention removed before they were dealt, oldest first."""
        self.forks: list[HistoryForkedError] = []
        """Messages that were settled, and were lost since by all replicas: what stands there now is
        dealt."""

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
        was deleted, has another id."""
        return self._definition.sid

    @property
    def member(self) -> str:
        """What the other members call this one."""
        return self._membership.session.member

    @property
    def stale_count(self) -> int:
        """Answers that did not count, since they came when the message was dealt to another member
        already, or another broker led its log; and those of which that is unknown.  These messages
        come again."""
        return sum(log.stale_count for log in self._logs)

    # --- messages ----------------------------------------------------------------------

    def __aiter__(self) -> QueueSubscription:
        return self

    async def __anext__(self) -> DealtMessage:
        return await self._next(DealtLog.next_message)

    def batches(self) -> AsyncIterator[DealtBatch]:
        """The messages in lists, each of one log, as they arrive: fastest."""
        return _DealtBatches(self)

    async def next_batch(self) -> DealtBatch:
        """The next list of `batches`."""
        return await self._next(DealtLog.next_batch)

    async def _next(self, take: Callable[[DealtLog], _T | None]) -> _T:
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self.news.taken(lambda: self._take(take))

    def next_nowait(self) -> DealtMessage:
        """The next message, from synchronous code.

        Raises:
          trio.WouldBlock: if iterating would wait.
          Also the errors of iterating.
        """
        return self._take(DealtLog.next_message)

    def next_batch_nowait(self) -> DealtBatch:
        """`next_batch` from synchronous code.

        Raises:
          trio.WouldBlock: if it would wait.
          Also the errors of iterating.
        """
        return self._take(DealtLog.next_batch)

    def _take(self, take: Callable[[DealtLog], _T | None]) -> _T:
        if self._error is not None:
            raise self._error
        for _ in range(len(self._logs)):
            self._logs.rotate(-1)
            found = take(self._logs[-1])
            if found is not None:
                return found
        for log in self._logs:
            if log.error is not None:
                raise log.error
        raise trio.WouldBlock

    # --- answers -----------------------------------------------------------------------

    async def commit(self) -> int:
        """Wait until all answers up to now are committed: no message that was acknowledged comes
        again, but for those that are counted by what this returns.

        Returns: how many answers since the last `commit` did not count, or may not: see
          `stale_count`.

        Raises:
          OctopiError: what iterating raises.
        """
        if self._error is not None:
            raise self._error
        await trio.lowlevel.checkpoint()
        for log in list(self._logs):
            await log.commit()
        stale = self.stale_count
        before, self._stale_before = self._stale_before, stale
        return stale - before

    # --- from begin to end -------------------------------------------------------------

    async def begin(self) -> None:
        """Join, and attach at each log.

        Raises:
          OctopiError: why joining failed.
        """
        error = await self._nursery.start(self._keep_membership)
        if error is not None:
            raise error
        for log in self._logs:
            self._nursery.start_soon(log.run)

    async def finish(self) -> None:
        """Wait until all answers are committed, give back what is open, and leave the group.

        Raises:
          OctopiError: what `commit` raises.
        """
        if self._error is None:
            await self.commit()
        self._close_logs(_left())
        await self._membership.leave()

    def close(self) -> None:
        """Hand out nothing more."""
        self._error = _left()
        self._close_logs(self._error)
        self.news.tell()

    # --- within ------------------------------------------------------------------------

    def _close_logs(self, why: OctopiError) -> None:
        for log in self._logs:
            log.close(why)

    async def _keep_membership(
        self, *, task_status: trio.TaskStatus[OctopiError | None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        why = await self._membership.run(task_status=task_status)
        if why is not None:
            self._error = self._error or why
            self._close_logs(self._error)
            self.news.tell()

    def _perform(self, effects: Iterable[GroupEffect]) -> None:
        """A queue's members are assigned no logs: each one attaches at all of them."""

    # --- what logs report --------------------------------------------------------------

    def take_news(self) -> None:
        """A log may have something to hand out, or an error."""
        self.news.tell()

    def take_gap(self, gap: HistoryLostError) -> None:
        """Messages were skipped that retention had removed."""
        self.gaps.append(gap)

    async def restore_mark(self, partition: PartitionId) -> None:
        """See `SubscriptionAdministration.restore_mark`."""
        administration = SubscriptionAdministration(self._cluster.router)
        await administration.restore_mark(self._definition, partition)

    def take_fork(self, fork: HistoryForkedError) -> None:
        """Messages that were settled are gone."""
        self.forks.append(fork)


def _left() -> ClosedError:
    return ClosedError("the subscription's block was left")


class _DealtBatches:
    """An iterator, not a generator: to leave it unfinished is no fault."""

    def __init__(self, subscription: QueueSubscription) -> None:
        self._subscription = subscription

    def __aiter__(self) -> _DealtBatches:
        return self

    async def __anext__(self) -> DealtBatch:
        return await self._subscription.next_batch()
