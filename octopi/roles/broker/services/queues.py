"""Reads what a queue deals to one attach of a connection, and sends it as there is room."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from octopi.errors import (
    ConnectionLostError,
    NeedsTimeError,
    OctopiError,
    ProtocolError,
    RefusedError,
    StorageError,
)
from octopi.identifiers import Offset, SubscriptionId
from octopi.limits import DEAL_COUNT_MAX, FETCH_BYTES_DEFAULT, SETTLE_COUNT_MAX
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.services.context import ClientContext
from octopi.roles.broker.subscriptions.led_partition import LedPartition
from octopi.subscriptions.effects import DealMessages, Dealt, Session
from octopi.subscriptions.log_queue import Answers
from octopi.wire import messages as m

_DEAL_BYTES: Final = 2 * FETCH_BYTES_DEFAULT
"""The most bytes of records that are sent together, unless a single one is larger."""
_AGAIN_S: Final = 1.0
"""After this time a message that can't be read is dealt again."""


def answers_of(message: m.Settle) -> Answers:
    """The answers of a member in *message*.

    Raises:
      ProtocolError: if its lists don't match, or are too long together.
    """
    if len(message.acknowledged) != len(message.attempts):
        raise ProtocolError("settle: there are as many attempts as acknowledged messages")
    lists = (message.acknowledged, message.released, message.rejected, message.extended)
    count = sum(len(one) for one in lists)
    if count > SETTLE_COUNT_MAX:
        raise ProtocolError(f"settle: at most {SETTLE_COUNT_MAX} answers together, not {count}")
    acknowledged = zip(message.acknowledged, message.attempts, strict=True)
    return Answers(
        [(Offset(at), attempt) for at, attempt in acknowledged],
        [(Offset(one.offset), one.attempt, one.delay_ms / 1000) for one in message.released],
        [(Offset(one.offset), one.attempt, one.reason) for one in message.rejected],
        [(Offset(one.offset), one.attempt) for one in message.extended],
    )


def seen_in(message: m.Detach) -> frozenset[tuple[Offset, int]] | None:
    """The deliveries that the program of a leaving member was given; None: that is not said.

    Raises:
      ProtocolError: if the lists of *message* don't match.
    """
    if message.seen is None:
        return None
    if len(message.seen) != len(message.attempts):
        raise ProtocolError("detach: there are as many attempts as messages that were seen")
    return frozenset(zip(map(Offset, message.seen), message.attempts, strict=True))


class QueueDeals:
    """The messages that were dealt to one attach and wait to be sent."""

    def __init__(
        self, context: ClientContext, request: int, led: LedPartition, session: Session
    ) -> None:
        self._context = context
        self._connection = context.connection
        self._request = request
        self._led = led
        self._session = session
        self._waiting: deque[Dealt] = deque()
        self._is_sending = False
        self.is_over = False
        """Whether nothing is sent any more."""

    def add(self, effect: DealMessages) -> None:
        """Send the messages of *effect* after those that already wait."""
        self._waiting.extend(effect.messages)
        if not self._is_sending:
            self._is_sending = True
            self._context.tasks.start_soon(self._send, effect)

    async def _send(self, effect: DealMessages) -> None:
        """Send the messages that wait."""
        try:
            with contextlib.suppress(ConnectionLostError):
                while self._waiting and not self.is_over:
                    log = self._led.leadership.log(effect.topic_id)
                    if log is None:
                        break  # the topic is being removed
                    await self._send_some(log, effect)
        finally:
            self._is_sending = False

    async def _send_some(self, log: LocalLog, effect: DealMessages) -> None:
        first = self._waiting[0]
        least_bytes = first.end - first.offset
        wanted_bytes = max(least_bytes, _DEAL_BYTES)
        await self._connection.paced()
        taken: list[Dealt] = []
        try:
            await log.prove(first.offset)
            async with self._connection.outbox.room(wanted_bytes, least_bytes) as room_bytes:
                if self.is_over or self._drop_ended(effect.sid):
                    return
                taken, records = self._read(log, room_bytes)
                offsets, attempts = zip(*((o.offset, o.attempt) for o in taken), strict=True)
                deal = m.Deal(self._request, list(offsets), list(attempts), records)
                tracer = self._led.tracer
                self._led.traced(
                    None if tracer is None else tracer.send(effect.sid, self._session, taken),
                    partial(self._connection.post, deal),
                )
                log.delivered_bytes += len(records)
        except NeedsTimeError:
            return
        except ConnectionLostError:
            raise
        except (StorageError, RefusedError):
            if not self._waiting or self._waiting[0] is not first:
                return
            self._waiting.popleft()
            with contextlib.suppress(OctopiError):  # the leadership ended, and so did the session
                self._take_back(log, effect.sid, first)
            return
        for _ in taken:
            self._waiting.popleft()

    def _drop_ended(self, sid: SubscriptionId) -> bool:
        """Drop deliveries that ended while they waited; return whether there were any."""
        machine, now = self._led.machine, self._context.environment.clock.now()
        queue, session = machine.queue(sid), self._session
        if queue is None:
            return False  # it was deleted
        next_ones = list(islice(self._waiting, DEAL_COUNT_MAX))
        ended = [one for one in next_ones if not queue.queue.is_open(session, one)]
        if not ended:
            return False
        gone = set(ended)
        for _ in next_ones:
            self._waiting.popleft()
        self._waiting.extendleft(one for one in reversed(next_ones) if one not in gone)
        effects = [e for one in ended for e in machine.take_back(sid, session, one, 0.0, now)]
        self._led.perform(effects)
        return True

    def _take_back(self, log: LocalLog, sid: SubscriptionId, dealt: Dealt) -> None:
        """A message can't be read: retention has removed it, or it is damaged here, and another
        replica has it."""
        machine, now = self._led.machine, self._context.environment.clock.now()
        effects = machine.take_back(sid, self._session, dealt, _AGAIN_S, now)
        if dealt.offset < log.start:
            effects += machine.lose_message(sid, dealt.offset, now)
        self._led.perform(effects)

    def _read(self, log: LocalLog, room_bytes: int) -> tuple[list[Dealt], bytes]:
        """The messages for which there is room, at least one, and their records.

        Raises:
          NeedsTimeError, StorageError, RefusedError: if the first one can't be read.
        """
        taken: list[Dealt] = []
        parts: list[bytes] = []
        for run in _runs(islice(self._waiting, DEAL_COUNT_MAX), room_bytes):
            try:
                records = _read_run(log, run)
            except (NeedsTimeError, StorageError, RefusedError):
                if taken:
                    break  # it comes first next time
                raise
            parts.append(records)
            read_end = run[0].offset + len(records)
            whole = [one for one in run if one.end <= read_end]
            taken += whole
            if len(whole) < len(run):
                break
        return taken, b"".join(parts)


def _runs(waiting: Iterable[Dealt], room_bytes: int) -> Iterator[list[Dealt]]:
    """Groups of *waiting* messages that are adjacent in the log, as far as there is room.  There is
    always room for the first message."""
    run: list[Dealt] = []
    is_first = True
    for one in waiting:
        room_bytes -= one.end - one.offset
        if room_bytes < 0 and not is_first:
            break
        is_first = False
        if run and one.offset != run[-1].end:
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def _read_run(log: LocalLog, run: Sequence[Dealt]) -> bytes:
    """The records of *run*, or only the first ones if a segment ends within it or a record is
    damaged.

    Raises:
      NeedsTimeError, StorageError, RefusedError: if the first one can't be read.
    """
    first = run[0]
    if len(run) > 1:
        with contextlib.suppress(StorageError):  # the first record may still be readable alone
            return log.read(first.offset, run[-1].end - first.offset)
    return log.read(first.offset, first.end - first.offset)
