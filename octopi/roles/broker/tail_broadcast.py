"""What is new in a log, for all who have the rest of it: read once, encoded once, sent by one task.

A reader is at the tail of its log when it was sent all that is committed.  What comes then is
the same bytes for all of them that call their reading by the same number.  Whoever can't be
sent it now, for its credit, its connection or a fault of the log, leaves the tail and goes on by
itself, at its own pace.

Knows no connection: how a reader is sent its delivery is its own business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import attrs
import trio

from octopi.environment import Clock
from octopi.errors import OctopiError
from octopi.identifiers import Epoch, Offset
from octopi.limits import FETCH_BYTES_DEFAULT, KIB, MIB
from octopi.wire.codec import encode
from octopi.wire.messages import Delivery

_BYTES_IN_A_ROW: Final = 2 * MIB
"""So much is sent before other tasks have their turn: less than a millisecond.  What is
committed meanwhile goes to those who come after them in the same delivery."""

_CALL_BYTES: Final = 32 * KIB
"""What it takes to serve a reader, in bytes to copy."""

_MESSAGES_KEPT_MAX: Final = 16
"""Readers may all have other numbers, and a message may have half a megabyte."""


@attrs.frozen
class EncodedDelivery:
    """A delivery for whoever was sent all before it."""

    data: bytes
    end: Offset
    """Of its records."""
    anchor: str
    """Of every place behind the first of them."""


class ReadLog(Protocol):
    """What a tail needs of a log; see `octopi.roles.broker.readable_log.ReadableLog`."""

    epoch: Epoch

    @property
    def highwater(self) -> Offset:
        """Readers are sent what lies below."""

    def read(self, offset: Offset, bytes_max: int) -> bytes:
        """Committed records.

        Raises:
          OctopiError: if there are none at *offset*, or they can't be read.
        """

    def anchor_behind(self, offset: Offset) -> str:
        """What stands before every place behind the first of the records at *offset*."""

    def add_waker(self, wake: Callable[[], None]) -> None:
        """Have *wake* called when the highwater mark has moved, or the log isn't served any
        more."""

    def remove_waker(self, wake: Callable[[], None]) -> None:
        """The opposite."""


class Reader(Protocol):
    """Who wants all that is committed."""

    request: int
    """The number of its reading."""
    position: Offset
    """It was sent what lies below."""

    def take(self, delivery: EncodedDelivery, now: float) -> bool:
        """Send it what begins at its position, without waiting.  False: that can't be done now,
        and nothing was sent."""

    def wake(self) -> None:
        """It has left the tail, and goes on by itself."""


class TailBroadcast:
    """The tails of a broker's logs; made by a broker, which runs `run` in its nursery."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tails: dict[ReadLog, _TailReaders] = {}
        """Those with readers."""
        self._due: deque[_TailReaders] = deque()
        self._work = trio.lowlevel.ParkingLot()

    def join(self, log: ReadLog, reader: Reader) -> None:
        """*reader*, who was sent all that is committed, is sent what comes, or woken."""
        tail = self._tails.get(log)
        if tail is None:
            tail = self._tails[log] = _TailReaders(log, self)
            log.add_waker(tail.wake)
        tail.readers[reader] = None

    def leave(self, log: ReadLog, reader: Reader) -> None:
        """Send *reader* nothing more; harmless if it isn't there."""
        tail = self._tails.get(log)
        if tail is None:
            return
        tail.readers.pop(reader, None)
        if not tail.readers:
            log.remove_waker(tail.wake)
            del self._tails[log]

    def want(self, tail: _TailReaders) -> None:
        """Have *tail* served."""
        self._due.append(tail)
        if self._work:
            self._work.unpark()

    async def run(self) -> None:
        """Serve the readers until cancelled: some, then other tasks have their turn."""
        while True:
            if self._due:
                await trio.lowlevel.checkpoint()
            else:
                await self._work.park()
            now, left_bytes = self._clock.now(), _BYTES_IN_A_ROW
            while self._due and left_bytes > 0:
                tail = self._due.popleft()
                left_bytes = tail.serve(left_bytes, now)
                if tail.is_due:
                    self._due.append(tail)


class _TailReaders:
    """The readers at the tail of one log.

    Invariant: whoever isn't in `_round` was sent all that was committed when the round began, or
    another round will come.
    """

    def __init__(self, log: ReadLog, tail_broadcast: TailBroadcast) -> None:
        self.readers: dict[Reader, None] = {}
        self._log = log
        self._tail_broadcast = tail_broadcast
        self._round: deque[Reader] = deque()
        """Who is still to be looked at."""
        self._has_news = False
        """Since the round began."""
        self._messages: dict[tuple[Offset, int], EncodedDelivery] = {}
        """By position and number, up to the highwater mark `_until`."""
        self._until = Offset(0)

    @property
    def is_due(self) -> bool:
        """Whether any reader is to be looked at."""
        return self._has_news or bool(self._round)

    def wake(self) -> None:
        """The highwater mark has moved, or the log isn't served any more."""
        was_due = self.is_due
        self._has_news = True
        if not was_due:
            self._tail_broadcast.want(self)

    def serve(self, left_bytes: int, now: float) -> int:
        """Send what is new to those who are still to be looked at, as long as bytes are left;
        return how many are."""
        if not self._round:
            self._round.extend(self.readers)
            self._has_news = False
        highwater = self._log.highwater
        if highwater != self._until:
            self._messages.clear()
            self._until = highwater
        is_served = bool(self._log.epoch)
        while self._round and left_bytes > 0:
            reader = self._round.popleft()
            left_bytes -= _CALL_BYTES
            if reader not in self.readers or (is_served and reader.position == highwater):
                continue
            begin = reader.position
            if not (is_served and self._give(reader, now)):
                self._tail_broadcast.leave(self._log, reader)
                reader.wake()
            left_bytes -= reader.position - begin
        if not self._round:
            self._messages.clear()  # the next round has others, and these may be large
        return left_bytes

    def _give(self, reader: Reader, now: float) -> bool:
        """Whether *reader* was sent all that is committed."""
        key = (reader.position, reader.request)
        message = self._messages.get(key)
        if message is None:
            try:
                message = self._encoded(*key)
            except OctopiError:
                return False  # it finds out by itself
            if len(self._messages) >= _MESSAGES_KEPT_MAX:
                self._messages.clear()
            self._messages[key] = message
        return reader.take(message, now) and message.end == self._until

    def _encoded(self, position: Offset, request: int) -> EncodedDelivery:
        records = self._log.read(position, FETCH_BYTES_DEFAULT)
        anchor = self._log.anchor_behind(position)
        data = encode(Delivery(request, position, records, self._until, anchor))
        return EncodedDelivery(data, Offset(position + len(records)), anchor)
