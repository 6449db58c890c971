"""One log of a queue: its leader deals messages to this member, and hears what became of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import attrs
import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.options import within
from octopi.clients.subscribing.dealt import DealtBatch, DealtMessage
from octopi.clients.subscribing.key_turns import OpenDelivery
from octopi.clients.subscribing.leader_session import LeaderSession
from octopi.clients.subscribing.queue_answers import (
    QueueEffect,
    QueueRemedy,
    SendCredit,
    SendSettle,
    queue_remedy,
)
from octopi.clients.subscribing.queue_session import QueueSession
from octopi.errors import (
    ConnectionLostError,
    HistoryForkedError,
    HistoryLostError,
    InvalidOptionError,
    OctopiError,
    ProtocolError,
)
from octopi.identifiers import NO_CLAIM, MemberId, Offset, PartitionId, SubscriptionId, TopicName
from octopi.limits import DELAY_MS_MAX, TEXT_BYTES_MAX
from octopi.record import Message, decode, record_end
from octopi.wire.messages import (
    Attach,
    Attached,
    Deal,
    Detach,
    Extension,
    QueueCredit,
    QueueSettled,
    Rejection,
    Release,
    Settle,
)

_LOOKS: Final = 6
"""How often in an ack timeout a member looks at the clock, at least."""
_PAUSE_SHARE: Final = 2 / 3
"""A member that did nothing for this share of the ack timeout was paused."""


@attrs.frozen
class QueueReading:
    """How the logs of a queue are read."""

    topic: TopicName
    sid: SubscriptionId
    ack_timeout_s: float
    prefetch_count: int
    prefetch_bytes: int
    """What may be open at this member, of each log."""
    reconnect_timeout_s: float | None
    is_ordered: bool = False
    """Whether messages of a key are handed out one by one."""


class QueueOwner(Protocol):
    """The subscription, as its logs see it."""

    @property
    def member(self) -> str:
        """What the coordinator calls this member."""

    async def restore_mark(self, partition: PartitionId) -> None:
        """See `SubscriptionAdministration.restore_mark`."""

    def take_news(self) -> None:
        """A log may have something to hand out, or an error."""

    def take_gap(self, gap: HistoryLostError) -> None:
        """Messages were skipped that retention had removed."""

    def take_fork(self, fork: HistoryForkedError) -> None:
        """Messages that were settled are gone."""


class DealtLog:
    """One log, as long as its subscription's block lasts."""

    def __init__(
        self,
        cluster: ClusterHandle,
        reading: QueueReading,
        partition: PartitionId,
        owner: QueueOwner,
    ) -> None:
        self._clock = cluster.environment.clock
        self._reading = reading
        self._partition = partition
        self._owner = owner
        self._link = LeaderSession(cluster, reading.topic, partition, self._restore)
        self._session = QueueSession(
            reading.ack_timeout_s,
            reading.prefetch_count,
            reading.prefetch_bytes,
            is_ordered=reading.is_ordered,
        )
        self._error: OctopiError | None = None
        self._woken = trio.Event()
        self._waits_until = math.inf
        """When the timer goes off."""
        self._looked_at = self._clock.now()
        """When the timer went off last, at the latest."""
        self._was_paused = False
        """Whether that was late, since the member attached."""
        self._losses: set[tuple[Offset, Offset]] = set()
        """Those that were told already."""
        self._news = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()

    # --- what the subscription uses ----------------------------------------------------

    @property
    def error(self) -> OctopiError | None:
        """Why nothing more is dealt from this log."""
        return self._error

    @property
    def stale_count(self) -> int:
        """Answers that did not count, or of which that is unknown."""
        return self._session.stale_count

    def next_message(self) -> DealtMessage | None:
        """The next message, if one waits."""
        delivery = self._session.take(self._clock.now())
        if self._session.is_resuming:
            self._wake()
        return None if delivery is None else self._dealt(delivery)

    def next_batch(self) -> DealtBatch | None:
        """All messages that wait, if there are any."""
        taken = self._session.take_all(self._clock.now())
        if self._session.is_resuming:
            self._wake()
        return DealtBatch([self._dealt(one) for one in taken], self) if taken else None

    async def commit(self) -> None:
        """Wait until all that was answered is committed, or never will be.

        Raises:
          OctopiError: why nothing more can be.
        """
        number, effects = self._session.confirm(self._clock.now())
        self._send(effects)
        while not self._session.is_confirmed(number):
            if self._error is not None:
                raise self._error
            await self._news.park()
        await trio.lowlevel.checkpoint_if_cancelled()

    def close(self, why: OctopiError) -> None:
        """Send what was answered.  What is open goes back to the queue, and waiting for a commit
        ends by *why*."""
        self._send(self._session.flush(self._clock.now()))
        self._error = self._error or why
        self._scope.cancel()
        self._tell()

    async def run(self) -> None:
        """Attach, again whenever that ends, until `close`."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_time)
                await self._keep_attached()

    # --- what messages use -------------------------------------------------------------

    def acknowledge(self, deliveries: Sequence[OpenDelivery]) -> None:
        """They are processed."""
        self._send(self._session.acknowledge(deliveries, self._clock.now()))

    def release(self, deliveries: Sequence[OpenDelivery], delay_s: float) -> None:
        """They are to be dealt again."""
        within("delay_s", delay_s, 0, DELAY_MS_MAX / 1000)
        self._send(self._session.release(deliveries, round(delay_s * 1000), self._clock.now()))

    def reject(self, delivery: OpenDelivery, reason: str) -> None:
        """It can't be processed."""
        if len(reason.encode(errors="replace")) > TEXT_BYTES_MAX:
            raise InvalidOptionError(f"reason is too long; it has at most {TEXT_BYTES_MAX} bytes")
        self._send(self._session.reject(delivery, reason, self._clock.now()))

    def extend(self, delivery: OpenDelivery) -> None:
        """It takes longer."""
        self._send(self._session.extend(delivery, self._clock.now()))

    def deadline(self, delivery: OpenDelivery) -> float:
        """When it may be dealt to another member."""
        return self._session.deadline(delivery)

    # --- the leader --------------------------------------------------------------------

    async def _keep_attached(self) -> None:
        reading = self._reading

        def question(request: int) -> Attach:
            credit = self._session.attaching()
            return Attach(
                request,
                reading.topic,
                self._partition,
                reading.sid,
                MemberId(self._owner.member),
                NO_CLAIM,
                credit.messages,
                credit.size_bytes,
            )

        while True:
            try:
                await self._link.run(question, self._take, self._farewell)
            except OctopiError as error:
                self._session.disconnected()
                self._tell()
                if queue_remedy(error) is QueueRemedy.STOP:
                    self._error = error
                else:
                    self._error = self._link.why_given_up(error, reading.reconnect_timeout_s)
                if self._error is None:
                    try:
                        await self._link.before_again(error)
                    except OctopiError as unrestored:
                        self._error = unrestored
                if self._error is not None:
                    self._tell()
                    return

    def _farewell(self, request: int) -> Detach:
        seen = self._session.seen
        return Detach(request, [offset for offset, _ in seen], [attempt for _, attempt in seen])

    async def _restore(self, partition: PartitionId) -> None:
        await self._owner.restore_mark(partition)
        fork = HistoryForkedError.of_range(self._reading.topic, partition, 0, 0)
        self._owner.take_fork(fork)

    def _take(self, message: object) -> None:
        match message:
            case Attached():
                self._session.attached()
                self._was_paused, self._looked_at = False, self._clock.now()
                self._take_losses(message)
            case Deal():
                self._see_pause()
                if self._was_paused:
                    # These may have waited in a buffer until the leader dealt them to others.
                    raise ConnectionLostError(
                        f"{self._reading.topic}/{self._partition}: this member was paused for most "
                        "of the ack timeout, so it attaches again"
                    )
                self._take_deal(message)
            case QueueSettled(_, number, stale):
                self._send(self._session.settled(number, stale, self._clock.now()))
            case _:
                raise ProtocolError(f"{type(message).__name__} is no part of an attachment")
        self._wake()
        self._tell()

    def _take_losses(self, message: Attached) -> None:
        lost_from, lost_to = message.lost_from, message.lost_to
        if lost_from is None or lost_to is None or (lost_from, lost_to) in self._losses:
            return
        self._losses.add((lost_from, lost_to))
        topic = self._reading.topic
        if message.mark >= message.log_start:
            fork = HistoryForkedError.of_range(topic, self._partition, message.mark, lost_to)
            self._owner.take_fork(fork)
        else:
            self._owner.take_gap(HistoryLostError(topic, self._partition, lost_from, lost_to))

    def _take_deal(self, message: Deal) -> None:
        if not self._session.is_attached:
            raise ProtocolError("messages were dealt before the attachment was answered")
        if len(message.offsets) != len(message.attempts):
            raise ProtocolError("messages were dealt with more offsets than attempts, or fewer")
        messages = _messages(message.records, message.offsets, self._reading.topic, self._partition)
        deliveries = self._session.dealt(
            message.offsets,
            message.attempts,
            [one.next_offset - one.offset for one in messages],
            self._clock.now(),
            [one.key for one in messages],
        )
        for delivery, one in zip(deliveries, messages, strict=True):
            delivery.message = one

    def _dealt(self, delivery: OpenDelivery) -> DealtMessage:
        assert delivery.message is not None
        return DealtMessage(delivery.message, delivery, self)

    def _send(self, effects: Iterable[QueueEffect]) -> None:
        for one in effects:
            self._link.post(_notice(one))
        self._wake()

    # --- time --------------------------------------------------------------------------

    def _see_pause(self) -> None:
        """Note whether this program did nothing at all for so long that what it was dealt before,
        or meanwhile, may be at other members."""
        now = self._clock.now()
        self._was_paused |= now - self._looked_at >= self._reading.ack_timeout_s * _PAUSE_SHARE
        self._looked_at = now

    async def _keep_time(self) -> None:
        look_s = self._reading.ack_timeout_s / _LOOKS
        while True:
            self._see_pause()
            self._woken = trio.Event()
            due_at = self._session.due_at()
            look_at = self._looked_at + look_s
            self._waits_until = look_at if due_at is None else min(look_at, due_at)
            with self._clock.timeout(max(0.0, self._waits_until - self._clock.now())):
                await self._woken.wait()
            self._send(self._session.tick(self._clock.now()))

    def _wake(self) -> None:
        """Something may be due sooner now."""
        due_at = self._session.due_at()
        if due_at is not None and due_at < self._waits_until:
            self._woken.set()

    def _tell(self) -> None:
        self._news.unpark_all()
        self._owner.take_news()


def _messages(
    records: bytes, offsets: Sequence[Offset], topic: TopicName, partition: PartitionId
) -> list[Message]:
    """The messages of *records*, one behind the other, that begin at *offsets* of their log.

    Raises:
      ProtocolError: if it isn't one record for each offset.
      RecordError: if one is damaged.
    """
    messages: list[Message] = []
    begin = position = 0
    for place, offset in enumerate(offsets):
        if position >= len(records):
            raise ProtocolError("fewer records were dealt than offsets")
        end = record_end(records, position)
        is_last = place + 1 == len(offsets)
        if is_last or offsets[place + 1] != offset + end - position:
            base = Offset(offset - (position - begin))
            messages += decode(records[begin:end], base, topic, partition)
            begin = end
        position = end
    if position != len(records):
        raise ProtocolError("more records were dealt than offsets")
    return messages


def _notice(effect: QueueEffect) -> Callable[[int], Settle | QueueCredit]:
    match effect:
        case SendCredit(messages, size_bytes):
            return lambda request: QueueCredit(request, messages, size_bytes)
        case SendSettle(acknowledged, released, rejected, extended, confirm):
            return lambda request: Settle(
                request,
                [offset for offset, _ in acknowledged],
                [attempt for _, attempt in acknowledged],
                [Release(*one) for one in released],
                [Rejection(*one) for one in rejected],
                [Extension(*one) for one in extended],
                confirm is not None,
                confirm or 0,
            )
