"""Durable subscriptions for blocking programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Generic, TypeVar

import trio

from octopi.blocking.blocks import BlockingBlock
from octopi.blocking.dealt import BlockingDealtBatch, BlockingDealtMessage
from octopi.blocking.trio_thread import TrioThread
from octopi.blocking.wrapping import BlockingWrapper, asking, calling
from octopi.clients.subscribing.mark_keeper import MarkKeeper
from octopi.clients.subscribing.mark_session import MARK_SENDING_S
from octopi.clients.subscribing.queue_subscription import QueueSubscription
from octopi.clients.subscribing.subscribed_log import SubscribedLog
from octopi.clients.subscribing.subscription import Subscription
from octopi.errors import HistoryForkedError, HistoryLostError
from octopi.identifiers import Claim, PartitionId
from octopi.position import Place
from octopi.record import Message

_T = TypeVar("_T")


class BlockingSubscription(BlockingWrapper[Subscription]):
    """A member of a durable subscription; see `octopi.Subscription`, whose methods these are.  Made
    by `octopi.blocking.Client.subscription`; for one thread at a time.

    Messages are carried to the program's thread a list at a time.  While it works on them, a task
    of Trio looks how far it is, and marks that; what was carried and not handed out goes back
    before anything else is asked.
    """

    __slots__ = ("_carried", "_is_watched", "_last", "_now", "_place", "_watch")

    def __init__(self, thread: TrioThread, inner: Subscription) -> None:
        super().__init__(thread, inner)
        self._carried: list[Message] = []
        """The newest list of messages of one log."""
        self._place = 0
        """Where in it the next one is."""
        self._last: Message | None = None
        """The message in hand, of that list; None: all is with the Trio client."""
        self._is_watched = False
        self._now: Callable[[], float] = thread.ask(
            lambda: trio.lowlevel.current_clock().current_time
        )

    @property
    def topic(self) -> str:
        """Whose subscription it is."""
        return self._inner.topic

    @property
    def name(self) -> str:
        """Of the subscription."""
        return self._inner.name

    @property
    def sid(self) -> str:
        """The id of this creation of the subscription."""
        return self._inner.sid

    @property
    def member(self) -> str:
        """What the other members call this one."""
        return self._inner.member

    @property
    def claims(self) -> dict[int, int]:
        """Partition -> claim, of the logs that this member has."""
        return self._thread.ask(lambda: self._inner.claims)

    @property
    def claim(self) -> int:
        """The claim of the log whose message is in hand, or of the only log.

        Raises:
          LookupError: if there are several logs, or none, and no message is in hand.
        """
        return self._thread.ask(lambda: self._inner.claim)

    @property
    def lag(self) -> int:
        """How far the marks are behind the newest highwater marks heard of, in all (bytes)."""
        return self._thread.ask(lambda: self._inner.lag)

    @property
    def gaps(self) -> list[HistoryLostError]:
        """What was skipped with ``on_gap="skip"``, oldest first."""
        return self._inner.gaps

    @property
    def forks(self) -> list[HistoryForkedError]:
        """What was read or marked and then lost by all replicas."""
        return self._inner.forks

    def __iter__(self) -> BlockingSubscription:
        self._thread.ask(self._inner.__aiter__)
        return self

    def __next__(self) -> Message:
        place = self._place
        if place < len(self._carried) and self._inner.may_go_on(self._now()):
            message = self._carried[place]
            self._place = place + 1
            self._last = message
            if not self._is_watched:
                self._is_watched = True
                self._thread.post(self._begin_watching)
            return message
        batch = self._thread.call(self._next_batch)
        self._carried, self._place, self._last = batch, 1, batch[0]
        return batch[0]

    def batches(self) -> Iterator[list[Message]]:
        """The messages in lists, each of one log, as they arrive: fastest."""
        self._thread.ask(self._inner.batches)
        return _EndlessIteration(self.next_batch)

    def next_batch(self) -> list[Message]:
        """The next list of `batches`."""
        batch = self._thread.call(self._next_batch)
        self._carried, self._place, self._last = [], 0, None
        return batch

    def logs(self) -> Iterator[BlockingSubscribedLog]:
        """The logs that this member gets, as it gets them; each is worked off on its own, in its
        block (`octopi.SubscribedLog`)."""
        return _EndlessIteration(
            lambda: BlockingSubscribedLog(self._thread, self._thread.call(self._next_log))
        )

    mark = asking(Subscription.mark)

    def commit(self) -> None:
        """Mark what was handed out (with ``mark="auto"``), and wait until all marks are committed;
        see `octopi.Subscription.commit`."""
        self._thread.call(self._commit)

    # --- in the thread of Trio ---------------------------------------------------------

    def give_back(self) -> None:
        """What was carried and not handed out goes back."""
        if self._last is not None:
            last, self._last = self._last, None
            rest, self._carried, self._place = self._carried[self._place :], [], 0
            self._inner.passed(last, rest)

    async def _next_batch(self) -> list[Message]:
        self.give_back()
        return await self._inner.next_batch()

    async def _commit(self) -> None:
        self.give_back()
        await self._inner.commit()

    async def _next_log(self) -> SubscribedLog:
        await trio.lowlevel.checkpoint()
        return await self._inner.news.taken(self._inner.next_log_nowait)

    def _begin_watching(self) -> None:
        self._thread.nursery.start_soon(self._watch_program)

    async def _watch_program(self) -> None:
        """Mark what the program has passed, as long as it goes on."""
        clock = self._inner.clock
        while (last := self._last) is not None:
            self._inner.passed(last, [])
            await clock.sleep_until(clock.now() + MARK_SENDING_S)
            if self._last is last:
                break
        self._is_watched = False
        if self._last is not last and self._last is not None:
            self._inner.passed(self._last, [])


class SubscriptionBlock(BlockingBlock[Subscription, BlockingSubscription]):
    """The block of a subscription."""

    def __init__(
        self,
        thread: TrioThread,
        open_block: Callable[[], AbstractAsyncContextManager[Subscription]],
    ) -> None:
        super().__init__(thread, open_block, BlockingSubscription)
        self._subscription: BlockingSubscription

    def __enter__(self) -> BlockingSubscription:
        self._subscription = super().__enter__()
        return self._subscription

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._thread.is_usable:
            self._thread.post(self._subscription.give_back)
        return super().__exit__(cls, error, traceback)


class BlockingSubscribedLog(BlockingWrapper[SubscribedLog]):
    """A log that this member has; see `octopi.SubscribedLog`.  Given out by
    `octopi.blocking.Subscription.logs`; for one thread at a time.

    When another member has the log, the iteration ends; the program's own work isn't interrupted.
    """

    __slots__ = ("_block",)

    _block: BlockingBlock[SubscribedLog, SubscribedLog]

    @property
    def partition(self) -> PartitionId:
        """Of the topic."""
        return self._inner.partition

    @property
    def claim(self) -> Claim:
        """Grows with each assignment of the log: a fencing token for stores of the program's."""
        return self._inner.claim

    @property
    def lag(self) -> int:
        """How far the mark is behind the newest highwater mark heard of (bytes)."""
        return self._inner.lag

    @property
    def is_ending(self) -> bool:
        """Whether the program is to finish, since another member is to have the log."""
        return self._inner.is_ending

    @property
    def is_lost(self) -> bool:
        """Whether another member has it, or may have: marks count no more."""
        return self._inner.is_lost

    def __enter__(self) -> BlockingSubscribedLog:
        self._block = BlockingBlock(self._thread, lambda: self._inner, lambda _, log: log)
        self._block.__enter__()
        return self

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return self._block.__exit__(cls, error, traceback)

    def __iter__(self) -> BlockingSubscribedLog:
        return self

    def __next__(self) -> Message:
        if hasattr(self, "_block") and self._block.is_over:
            raise StopIteration  # another member has the log
        message = self._thread.call(self._next)
        if message is None:
            raise StopIteration
        return message

    async def _next(self) -> Message | None:
        return await anext(self._inner, None)

    mark = asking(SubscribedLog.mark)
    commit = calling(SubscribedLog.commit)


class BlockingQueueSubscription(BlockingWrapper[QueueSubscription]):
    """A member of a queue; see `octopi.QueueSubscription`, whose methods these are.  Made by
    `octopi.blocking.Client.subscription`; for any number of threads at a time."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """Whose subscription it is."""
        return self._inner.topic

    @property
    def name(self) -> str:
        """Of the subscription."""
        return self._inner.name

    @property
    def sid(self) -> str:
        """The id of this creation of the subscription."""
        return self._inner.sid

    @property
    def member(self) -> str:
        """What the other members call this one."""
        return self._inner.member

    @property
    def stale_count(self) -> int:
        """Answers that did not count, and those of which that is unknown."""
        return self._thread.ask(lambda: self._inner.stale_count)

    @property
    def gaps(self) -> list[HistoryLostError]:
        """Messages that retention removed before they were dealt, oldest first."""
        return self._inner.gaps

    @property
    def forks(self) -> list[HistoryForkedError]:
        """Messages that were settled, and were lost since by all replicas."""
        return self._inner.forks

    def __iter__(self) -> BlockingQueueSubscription:
        return self

    def __next__(self) -> BlockingDealtMessage:
        return BlockingDealtMessage(self._thread, self._thread.call(self._inner.__anext__))

    def batches(self) -> Iterator[BlockingDealtBatch]:
        """The messages in lists, each of one log, as they arrive: fastest."""
        return _EndlessIteration(self.next_batch)

    def next_batch(self) -> BlockingDealtBatch:
        """The next list of `batches`."""
        return BlockingDealtBatch(self._thread, self._thread.call(self._inner.next_batch))

    commit = calling(QueueSubscription.commit)


class BlockingMarkKeeper(BlockingWrapper[MarkKeeper]):
    """The only member of a durable subscription, which keeps its marks; see `octopi.MarkKeeper`."""

    __slots__ = ()

    @property
    def places(self) -> dict[PartitionId, Place]:
        """Where the marks are: all messages before are processed."""
        return self._inner.places

    @property
    def losses(self) -> list[HistoryLostError | HistoryForkedError]:
        """What the logs lost before their marks, or from there on."""
        return self._inner.losses

    store = calling(MarkKeeper.store)


class _EndlessIteration(Generic[_T]):
    """An iterator, not a generator: to leave it unfinished is no fault, and an error doesn't end
    it."""

    def __init__(self, take: Callable[[], _T]) -> None:
        self._take = take

    def __iter__(self) -> _EndlessIteration[_T]:
        return self

    def __next__(self) -> _T:
        return self._take()
