"""Sends the new records of a log to all readers at its tail: read once and encoded once.

A few readers are sent new records in the call that commits them; for more than that, one task sends
to all.

A reader is at the tail of its log when it was sent all that is committed.  The next records are the
same bytes for all readers whose readings have the same number.  A reader that can't be sent them
now, because of its credit, its connection or a fault of the log, leaves the tail and continues in
its own task, at its own pace.

This module knows no connections: a reader sends its deliveries itself.
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
"""How much is sent before other tasks run: it takes less than a millisecond.  Readers that are
served later get in the same delivery what is committed meanwhile."""

_CALL_BYTES: Final = 32 * KIB
"""The cost of serving a reader, expressed in bytes to copy."""

_READERS_AT_ONCE_MAX: Final = 4
"""Up to so many readers of a log are sent new records in the call that commits them, so that the
producer's receipt waits for no more."""

_MESSAGES_KEPT_MAX: Final = 16
"""Bounds the memory: each reading may have another number, and a message may have half a
megabyte."""


@attrs.frozen
class EncodedDelivery:
    """A delivery for all readers at the same position whose readings have the same number."""

    data: bytes
    end: Offset
    """The end of its records."""
    anchor: str
    """The anchor for each offset behind the first of its records."""


class ReadLog(Protocol):
    """The log that a tail reads; see `octopi.roles.broker.readable_log.ReadableLog`."""

    epoch: Epoch

    @property
    def generation(self) -> int:
        """When this changes, readers look up how far they may read."""

    @property
    def highwater(self) -> Offset:
        """Readers are sent the records below this offset."""

    def read(self, offset: Offset, bytes_max: int) -> bytes:
        """Read committed records.

        Raises:
          OctopiError: if there are none at *offset*, or they can't be read.
        """

    def anchor_behind(self, offset: Offset) -> str:
        """The anchor for each offset behind the first of the records at *offset*."""

    def add_waker(self, wake: Callable[[], None]) -> None:
        """Have *wake* called when the highwater mark has moved, or the log isn't served any
        more."""

    def remove_waker(self, wake: Callable[[], None]) -> None:
        """Remove a waker."""


class Reader(Protocol):
    """A reader that wants all committed records."""

    request: int
    """The number of its reading."""
    position: Offset
    """It was sent the records below this offset."""

    def take(self, delivery: EncodedDelivery, now: float) -> bool:
        """Send *delivery*, which begins at the reader's position, without waiting.  Returns False
        if that isn't possible now; then nothing was sent."""

    def wake(self) -> None:
        """The reader has left the tail, and continues in its own task."""


class TailBroadcast:
    """The tails of a broker's logs.  A broker makes it, and runs `run` in its nursery."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tails: dict[ReadLog, _TailReaders] = {}
        """The tails that have readers."""
        self._due: deque[_TailReaders] = deque()
        self._work = trio.lowlevel.ParkingLot()

    def join(self, log: ReadLog, reader: Reader) -> None:
        """Send *reader*, which was sent all that is committed, the next records, or wake it."""
        tail = self._tails.get(log)
        if tail is None:
            tail = self._tails[log] = _TailReaders(log, self)
            log.add_waker(tail.wake)
        tail.readers[reader] = None

    def leave(self, log: ReadLog, reader: Reader) -> None:
        """Send *reader* nothing more; harmless if it hasn't joined."""
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

    @property
    def has_work(self) -> bool:
        """Whether any log is due."""
        return bool(self._due)

    def now(self) -> float:
        """The time of the broker's clock."""
        return self._clock.now()

    async def run(self) -> None:
        """Serve the readers until cancelled, in portions, between which other tasks run."""
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

    Invariant: each reader that isn't in `_round` was sent all that was committed when the round
    began, or another round will follow.
    """

    def __init__(self, log: ReadLog, tail_broadcast: TailBroadcast) -> None:
        self.readers: dict[Reader, None] = {}
        self._log = log
        self._tail_broadcast = tail_broadcast
        self._round: deque[Reader] = deque()
        """The readers that are still to be served in this round."""
        self._has_news = False
        """Whether `wake` was called since the round began."""
        self._messages: dict[tuple[Offset, int], EncodedDelivery] = {}
        """Deliveries by position and reading number, up to the highwater mark `_until`."""
        self._until = Offset(0)
        self._generation = log.generation

    @property
    def is_due(self) -> bool:
        """Whether any reader is still to be served."""
        return self._has_news or bool(self._round)

    def wake(self) -> None:
        """The highwater mark has moved, the log isn't served any more, or its topic got other
        partitions."""
        log = self._log
        if log.generation != self._generation:
            self._generation = log.generation
            for reader in list(self.readers):
                self._tail_broadcast.leave(log, reader)
                reader.wake()
            return
        if self.is_due:
            self._has_news = True
            return
        if log.epoch and log.highwater == self._until:
            return  # there are new records, but they are not committed
        if len(self.readers) <= _READERS_AT_ONCE_MAX:
            self.serve(_BYTES_IN_A_ROW, self._tail_broadcast.now())
        else:
            self._has_news = True
        if self.is_due:
            self._tail_broadcast.want(self)

    def serve(self, left_bytes: int, now: float) -> int:
        """Send new records to the readers that are still to be served, while bytes are left; return
        how many bytes are left."""
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
            self._messages.clear()  # the next round has other deliveries, and these may be large
        return left_bytes

    def _give(self, reader: Reader, now: float) -> bool:
        """Send *reader* its next delivery; return whether it has all that is committed now."""
        key = (reader.position, reader.request)
        message = self._messages.get(key)
        if message is None:
            try:
                message = self._encoded(*key)
            except OctopiError:
                return False  # the reader's own task meets the same error
            if len(self._messages) >= _MESSAGES_KEPT_MAX:
                self._messages.clear()
            self._messages[key] = message
        return reader.take(message, now) and message.end == self._until

    def _encoded(self, position: Offset, request: int) -> EncodedDelivery:
        records = self._log.read(position, FETCH_BYTES_DEFAULT)
        anchor = self._log.anchor_behind(position)
        data = encode(Delivery(request, position, records, self._until, anchor))
        return EncodedDelivery(data, Offset(position + len(records)), anchor)
