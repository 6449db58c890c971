"""What a queue deals to one attach of a connection: read, and sent as there is room."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
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
from octopi.identifiers import Offset
from octopi.limits import DEAL_COUNT_MAX, FETCH_BYTES_DEFAULT, SETTLE_COUNT_MAX
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.services.context import ClientContext
from octopi.roles.broker.subscriptions.led_partition import LedPartition
from octopi.subscriptions.effects import DealMessages, Dealt
from octopi.subscriptions.log_queue import Answers
from octopi.wire import messages as m

_DEAL_BYTES: Final = 2 * FETCH_BYTES_DEFAULT
"""Records that are sent together, but for one that is larger."""


def answers_of(message: m.Settle) -> Answers:
    """What a member answers.

    Raises:
      ProtocolError: if its lists don't fit each other, or are too long together.
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


class QueueDeals:
    """Messages that were dealt to one attach, and are to be sent."""

    def __init__(self, context: ClientContext, request: int, led: LedPartition) -> None:
        self._context = context
        self._connection = context.connection
        self._request = request
        self._led = led
        self._waiting: deque[Dealt] = deque()
        self._is_sending = False
        self.is_over = False
        """Nothing is sent any more."""

    def add(self, effect: DealMessages) -> None:
        """These are sent next."""
        self._waiting.extend(effect.messages)
        if not self._is_sending:
            self._is_sending = True
            self._context.tasks.start_soon(self._send, effect)

    async def _send(self, effect: DealMessages) -> None:
        """Send what waits."""
        try:
            with contextlib.suppress(ConnectionLostError):
                while self._waiting and not self.is_over:
                    log = self._led.leadership.log(effect.topic_id)
                    if log is None:
                        break  # the topic is just being removed
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
                if self.is_over:
                    return
                taken, records = self._read(log, room_bytes)
                offsets, attempts = zip(*((o.offset, o.attempt) for o in taken), strict=True)
                self._connection.post(m.Deal(self._request, list(offsets), list(attempts), records))
                log.delivered_bytes += len(records)
        except NeedsTimeError:
            return
        except ConnectionLostError:
            raise
        except (StorageError, RefusedError):
            # Retention has removed it, or it is damaged.
            self._waiting.popleft()
            with contextlib.suppress(OctopiError):  # the leadership ended, and so did the session
                now = self._context.environment.clock.now()
                machine = self._led.machine
                self._led.perform(machine.lose_message(effect.sid, first.offset, now))
            return
        for _ in taken:
            self._waiting.popleft()

    def _read(self, log: LocalLog, room_bytes: int) -> tuple[list[Dealt], bytes]:
        """Messages for which there is room, at least one, and their records.

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
                    break  # it is the first one next time
                raise
            parts.append(records)
            read_end = run[0].offset + len(records)
            whole = [one for one in run if one.end <= read_end]
            taken += whole
            if len(whole) < len(run):
                break
        return taken, b"".join(parts)


def _runs(waiting: Iterable[Dealt], room_bytes: int) -> Iterator[list[Dealt]]:
    """Groups of *waiting* that are adjacent in the log, as far as there is room; there is always
    room for the first message."""
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
    """The records of *run*: all of them, or, if a segment ends there or one is damaged, only the
    first ones.

    Raises:
      NeedsTimeError, StorageError, RefusedError: if the first one can't be read.
    """
    first = run[0]
    if len(run) > 1:
        with contextlib.suppress(StorageError):  # perhaps the first one can be read alone
            return log.read(first.offset, run[-1].end - first.offset)
    return log.read(first.offset, first.end - first.offset)
