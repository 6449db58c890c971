"""Durable subscriptions for asyncio programs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Generic, TypeVar

from octopi.aio.blocks import AsyncioBlock
from octopi.aio.wrapping import Wrapper, at_once, calling
from octopi.clients.subscribing.dealt import DealtBatch, DealtMessage
from octopi.clients.subscribing.mark_keeper import MarkKeeper
from octopi.clients.subscribing.queue_subscription import QueueSubscription
from octopi.clients.subscribing.subscribed_log import SubscribedLog
from octopi.clients.subscribing.subscription import Subscription
from octopi.errors import HistoryForkedError, HistoryLostError
from octopi.identifiers import Claim, PartitionId
from octopi.position import Place
from octopi.record import Message

_T = TypeVar("_T")


class AsyncioSubscription(Wrapper[Subscription]):
    """A member of a durable subscription; see `octopi.Subscription`, whose methods these are.  Made
    by `octopi.aio.Client.subscription`; for one task at a time."""

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
    def claims(self) -> dict[int, int]:
        """Partition -> claim, of the logs that this member has."""
        return self._inner.claims

    @property
    def claim(self) -> int:
        """The claim of the log whose message is in hand, or of the only log.

        Raises:
          LookupError: if there are several logs, or none, and no message is in hand.
        """
        return self._inner.claim

    @property
    def lag(self) -> int:
        """How far the marks are behind the newest highwater marks heard of, in all (bytes)."""
        return self._inner.lag

    @property
    def gaps(self) -> list[HistoryLostError]:
        """What was skipped with ``on_gap="skip"``, oldest first."""
        return self._inner.gaps

    @property
    def forks(self) -> list[HistoryForkedError]:
        """What was read or marked and then lost by all replicas."""
        return self._inner.forks

    def __aiter__(self) -> AsyncioSubscription:
        self._inner.__aiter__()
        return self

    async def __anext__(self) -> Message:
        message = self._inner.next_at_hand()
        if message is None:
            message = await self._run.taken(self._inner.next_nowait, self._inner.news)
        return message

    def batches(self) -> AsyncIterator[list[Message]]:
        """The messages in lists, each of one log, as they arrive: fastest."""
        self._inner.batches()
        return _Repeated(self.next_batch)

    async def next_batch(self) -> list[Message]:
        """The next list of `batches`."""
        return await self._run.taken(self._inner.next_batch_nowait, self._inner.news)

    def logs(self) -> AsyncIterator[AsyncioSubscribedLog]:
        """The logs that this member gets, as it gets them; each is worked off on its own, in its
        block (`octopi.SubscribedLog`)."""
        return _Repeated(self._next_log)

    async def _next_log(self) -> AsyncioSubscribedLog:
        log = await self._run.taken(self._inner.next_log_nowait, self._inner.news)
        return AsyncioSubscribedLog(self._run, log)

    mark = at_once(Subscription.mark)
    commit = calling(Subscription.commit)


class AsyncioSubscribedLog(Wrapper[SubscribedLog]):
    """A log that this member has; see `octopi.SubscribedLog`.  Given out by
    `octopi.aio.Subscription.logs`; for one task at a time."""

    __slots__ = ("_block",)

    _block: AsyncioBlock[SubscribedLog, SubscribedLog]

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
        return self._inner.ending.is_set()

    @property
    def is_lost(self) -> bool:
        """Whether another member has it, or may have: marks count no more."""
        return self._inner.is_lost

    async def __aenter__(self) -> AsyncioSubscribedLog:
        self._block = AsyncioBlock(self._guest_run, lambda: self._inner, lambda _, log: log)
        await self._block.__aenter__()
        return self

    async def __aexit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return await self._block.__aexit__(cls, error, traceback)

    def __aiter__(self) -> AsyncioSubscribedLog:
        return self

    async def __anext__(self) -> Message:
        message = await self._run.taken(self._inner.next_nowait, self._inner.news)
        if message is None:
            raise StopAsyncIteration
        return message

    mark = at_once(SubscribedLog.mark)
    commit = calling(SubscribedLog.commit)


class AsyncioQueueSubscription(Wrapper[QueueSubscription]):
    """A member of a queue; see `octopi.QueueSubscription`, whose methods these are.  Made by
    `octopi.aio.Client.subscription`; for any number of tasks of its loop at a time.  Its messages
    are those of the Trio client (`octopi.DealtMessage`), none of whose methods waits."""

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
        return self._inner.stale_count

    @property
    def gaps(self) -> list[HistoryLostError]:
        """Messages that retention removed before they were dealt, oldest first."""
        return self._inner.gaps

    @property
    def forks(self) -> list[HistoryForkedError]:
        """Messages that were settled, and were lost since by all replicas."""
        return self._inner.forks

    def __aiter__(self) -> AsyncioQueueSubscription:
        return self

    async def __anext__(self) -> DealtMessage:
        return await self._run.taken(self._inner.next_nowait, self._inner.news)

    def batches(self) -> AsyncIterator[DealtBatch]:
        """The messages in lists, each of one log, as they arrive: fastest."""
        return _Repeated(self.next_batch)

    async def next_batch(self) -> DealtBatch:
        """The next list of `batches`."""
        return await self._run.taken(self._inner.next_batch_nowait, self._inner.news)

    commit = calling(QueueSubscription.commit)


class AsyncioMarkKeeper(Wrapper[MarkKeeper]):
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


class _Repeated(Generic[_T]):
    """An iterator, not a generator: to leave it unfinished is no fault, and a cancellation or an
    error doesn't end it."""

    def __init__(self, take: Callable[[], Awaitable[_T]]) -> None:
        self._take = take

    def __aiter__(self) -> _Repeated[_T]:
        return self

    async def __anext__(self) -> _T:
        return await self._take()
