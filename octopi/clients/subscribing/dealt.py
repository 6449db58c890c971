"""Messages of a queue in a program's hands: each one is acknowledged, released or rejected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Protocol, overload

from octopi.clients.subscribing.key_turns import OpenDelivery
from octopi.identifiers import Offset, PartitionId, TimestampMs, TopicName
from octopi.record import Message


class Dealer(Protocol):
    """The log that messages were dealt from, as they see it."""

    def acknowledge(self, deliveries: Sequence[OpenDelivery]) -> None:
        """They are processed."""

    def release(self, deliveries: Sequence[OpenDelivery], delay_s: float) -> None:
        """They are to be dealt again."""

    def reject(self, delivery: OpenDelivery, reason: str) -> None:
        """It can't be processed."""

    def extend(self, delivery: OpenDelivery) -> None:
        """It takes longer."""

    def deadline(self, delivery: OpenDelivery) -> float:
        """When it may be dealt to another member."""


class DealtMessage:
    """A message of a queue, dealt to this member.  Made by a `QueueSubscription`.

    As a block it is answered at the end: acknowledged, or, if the block ends by an exception or is
    cancelled, released, so that another member gets it::

        async with order:
            await book(order)

    Or answer it by `acknowledge`, `release` or `reject`.  The first answer counts; further ones
    have no effect.  None of them waits: `QueueSubscription.commit` does.  An answer that comes
    after `deadline` may be too late: then the message was dealt to another member, and
    `QueueSubscription.stale_count` counts it.
    """

    __slots__ = ("_dealer", "_delivery", "message")

    def __init__(self, message: Message, delivery: OpenDelivery, dealer: Dealer) -> None:
        self.message: Message = message
        """As a consumer would get it."""
        self._delivery = delivery
        self._dealer = dealer

    def __repr__(self) -> str:
        return (
            f"<{self.topic}/{self.partition} offset {self.offset}, attempt {self.attempt}: "
            f"{self.value[:40]!r}>"
        )

    # --- what it says ------------------------------------------------------------------

    @property
    def topic(self) -> TopicName:
        """Its topic."""
        return self.message.topic

    @property
    def partition(self) -> PartitionId:
        """Of the topic."""
        return self.message.partition

    @property
    def offset(self) -> Offset:
        """Its id in its log."""
        return self.message.offset

    @property
    def timestamp_ms(self) -> TimestampMs | None:
        """When it was produced, by its producer's clock; None in version 1 records."""
        return self.message.timestamp_ms

    @property
    def timestamp(self) -> datetime | None:
        """`timestamp_ms` as an aware datetime in UTC."""
        return self.message.timestamp

    @property
    def key(self) -> bytes | None:
        """What its producer gave as key."""
        return self.message.key

    @property
    def value(self) -> bytes:
        """What its producer sent."""
        return self.message.value

    @property
    def headers(self) -> Mapping[str, bytes]:
        """What its producer gave as headers."""
        return self.message.headers

    # --- its delivery ------------------------------------------------------------------

    @property
    def attempt(self) -> int:
        """How often it was dealt, this time included: 1 the first time."""
        return self._delivery.attempt

    @property
    def deadline(self) -> float:
        """When the ack timeout ends, on the clock of `trio.current_time`; `extend` moves it."""
        return self._dealer.deadline(self._delivery)

    @property
    def is_answered(self) -> bool:
        """Whether the program has acknowledged, released or rejected it."""
        return self._delivery.is_answered

    def acknowledge(self) -> None:
        """It is processed."""
        self._dealer.acknowledge((self._delivery,))

    def release(self, *, delay_s: float = 0.0) -> None:
        """Deal it again, to any member, at once or after *delay_s* (up to 12 hours).

        Raises:
          InvalidOptionError: if *delay_s* is out of its range.
        """
        self._dealer.release((self._delivery,), delay_s)

    def reject(self, reason: str) -> None:
        """It can't be processed: make it a dead letter, which carries *reason*.

        Raises:
          InvalidOptionError: if *reason* is longer than 1,000 bytes.
        """
        self._dealer.reject(self._delivery, reason)

    def extend(self) -> None:
        """It takes longer: the ack timeout begins anew."""
        self._dealer.extend(self._delivery)

    async def __aenter__(self) -> DealtMessage:
        return self

    async def __aexit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.acknowledge()
        else:
            self.release()


class DealtBatch(Sequence[DealtMessage]):
    """Messages of one log, dealt to this member.  As a block they are answered together: all are
    acknowledged at its end, or released if it ends by an exception or is cancelled.  What was
    answered by itself stays so."""

    def __init__(self, messages: Sequence[DealtMessage], dealer: Dealer) -> None:
        self._messages = messages
        self._dealer = dealer

    @overload
    def __getitem__(self, index: int) -> DealtMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[DealtMessage]: ...
    def __getitem__(self, index: int | slice) -> DealtMessage | Sequence[DealtMessage]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[DealtMessage]:
        return iter(self._messages)

    def acknowledge(self) -> None:
        """All are processed."""
        self._dealer.acknowledge([one._delivery for one in self._messages])

    def release(self, *, delay_s: float = 0.0) -> None:
        """Deal all of them again, at once or after *delay_s* (up to 12 hours).

        Raises:
          InvalidOptionError: if *delay_s* is out of its range.
        """
        self._dealer.release([one._delivery for one in self._messages], delay_s)

    async def __aenter__(self) -> DealtBatch:
        return self

    async def __aexit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.acknowledge()
        else:
            self.release()
