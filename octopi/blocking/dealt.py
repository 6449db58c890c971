"""Messages of a queue in the hands of a blocking program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import overload

import trio

from octopi.blocking.trio_thread import TrioThread
from octopi.blocking.wrapping import BlockingWrapper, asking
from octopi.clients.subscribing.dealt import DealtBatch, DealtMessage
from octopi.identifiers import Offset, PartitionId, TimestampMs, TopicName
from octopi.operating_system import monotonic
from octopi.record import Message


class BlockingDealtMessage(BlockingWrapper[DealtMessage]):
    """A message of a queue, dealt to this member; see `octopi.DealtMessage`, whose methods these
    are.  Made by `octopi.blocking.QueueSubscription`; as a block it is answered at the end."""

    __slots__ = ()

    @property
    def message(self) -> Message:
        """As a consumer would get it."""
        return self._inner.message

    @property
    def topic(self) -> TopicName:
        """Its topic."""
        return self._inner.topic

    @property
    def partition(self) -> PartitionId:
        """Of the topic."""
        return self._inner.partition

    @property
    def offset(self) -> Offset:
        """Its id in its log."""
        return self._inner.offset

    @property
    def timestamp_ms(self) -> TimestampMs | None:
        """When it was produced, by its producer's clock; None in version 1 records."""
        return self._inner.timestamp_ms

    @property
    def timestamp(self) -> datetime | None:
        """`timestamp_ms` as an aware datetime in UTC."""
        return self._inner.timestamp

    @property
    def key(self) -> bytes | None:
        """What its producer gave as key."""
        return self._inner.key

    @property
    def value(self) -> bytes:
        """What its producer sent."""
        return self._inner.value

    @property
    def headers(self) -> Mapping[str, bytes]:
        """What its producer gave as headers."""
        return self._inner.headers

    @property
    def attempt(self) -> int:
        """How often it was dealt, this time included: 1 the first time."""
        return self._inner.attempt

    @property
    def deadline(self) -> float:
        """When the ack timeout ends, on the clock of ``time.monotonic``; `extend` moves it."""
        return self._thread.ask(self._deadline)

    def _deadline(self) -> float:
        return self._inner.deadline - trio.lowlevel.current_clock().current_time() + monotonic()

    @property
    def is_answered(self) -> bool:
        """Whether the program has acknowledged, released or rejected it."""
        return self._thread.ask(lambda: self._inner.is_answered)

    def acknowledge(self) -> None:
        """It is processed."""
        self._thread.check()
        self._thread.post(self._inner.acknowledge)

    release = asking(DealtMessage.release)
    reject = asking(DealtMessage.reject)

    def extend(self) -> None:
        """It takes longer: the ack timeout begins anew."""
        self._thread.check()
        self._thread.post(self._inner.extend)

    def __enter__(self) -> BlockingDealtMessage:
        return self

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.check()
        self._thread.post(self._inner.acknowledge if error is None else self._inner.release)


class BlockingDealtBatch(Sequence[BlockingDealtMessage]):
    """Messages of one log, dealt to this member; see `octopi.DealtBatch`.  As a block they are
    answered together."""

    def __init__(self, thread: TrioThread, inner: DealtBatch) -> None:
        self._thread = thread
        self._inner = inner

    @overload
    def __getitem__(self, index: int) -> BlockingDealtMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[BlockingDealtMessage]: ...
    def __getitem__(
        self, index: int | slice
    ) -> BlockingDealtMessage | Sequence[BlockingDealtMessage]:
        if isinstance(index, slice):
            return [BlockingDealtMessage(self._thread, one) for one in self._inner[index]]
        return BlockingDealtMessage(self._thread, self._inner[index])

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[BlockingDealtMessage]:
        return iter([BlockingDealtMessage(self._thread, one) for one in self._inner])

    def acknowledge(self) -> None:
        """All are processed."""
        self._thread.check()
        self._thread.post(self._inner.acknowledge)

    def release(self, *, delay_s: float = 0.0) -> None:
        """Deal all of them again, at once or after *delay_s* (up to 12 hours).

        Raises:
          InvalidOptionError: if *delay_s* is out of its range.
        """
        self._thread.ask(partial(self._inner.release, delay_s=delay_s))

    def __enter__(self) -> BlockingDealtBatch:
        return self

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.check()
        self._thread.post(self._inner.acknowledge if error is None else self._inner.release)
