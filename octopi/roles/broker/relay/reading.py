"""One reading of a connection: the committed records of a stream in memory, as far as its credit
goes.

The reading's task sends what the subscriber has not been sent yet, when the connection has room for
it.  When the subscriber has everything, the fan-out sends new records
(`octopi.roles.broker.tail_broadcast`).  So nothing piles up for a slow subscriber; who is slower
than the buffer of the stream is told that records are gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from octopi.errors import ConnectionLostError, NotLeaderError, OctopiError
from octopi.identifiers import Offset
from octopi.limits import FETCH_BYTES_DEFAULT, POSITION_REPORT_INTERVAL_S
from octopi.roles.answers import refuse
from octopi.roles.broker.readers import Readers
from octopi.roles.broker.relay.stream_log import StreamLog
from octopi.roles.broker.tail_broadcast import EncodedDelivery
from octopi.transport.connection import Connection
from octopi.transport.peer_names import connection_name
from octopi.transport.turns import allowed, measured
from octopi.wire import messages as m

Redirect = Callable[[NotLeaderError], OctopiError]
"""The error with where to go instead."""


class StreamReading:
    """Delivers a stream's committed records to one subscriber."""

    def __init__(
        self,
        connection: Connection,
        readers: Readers,
        log: StreamLog,
        message: m.Subscribe,
        redirect: Redirect,
    ) -> None:
        self.request = message.request
        self.position = Offset(message.offset)
        """The subscriber was sent the records below this offset."""
        self._connection = connection
        self._readers = readers
        self._log = log
        self._redirect = redirect
        self._epoch = log.epoch
        self._anchor: str = message.anchor
        self._credit = message.credit
        self._granted_at = self.position
        self._dealt: Offset | None = None
        self._reported_at = -math.inf
        self._idle = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()

    def open(self) -> None:
        """Check the subscriber's offset and anchor, and tell it that the reading is open.

        Raises:
          NotLeaderError: if this relay can't tell.
          RefusedError: if the stream does not have that offset, or other records before it.
        """
        log = self._log
        log.check_anchor(self.position, self._anchor)
        log.read(self.position, 0)  # checks the offset
        self._anchor = self._anchor or log.anchor_before(self.position)
        self._connection.post(
            m.Subscribed(
                self.request, log.topic_id, log.epoch, log.start, log.highwater, self._anchor
            )
        )

    def grant(self, until: int) -> bool:
        """Move the credit; it never goes back.  Returns False if the subscriber was sent nothing
        since the last call."""
        if until > self._credit:
            self._credit = until
            if self.position < self._log.highwater:
                self.wake()
        was_sent_more = self.position > self._granted_at
        self._granted_at = self.position
        return was_sent_more

    def dealt_with(self, offset: Offset, now: float) -> bool:
        """Note that the subscriber's program has dealt with the messages below *offset*.  Returns
        False if the report changes nothing, or if reports come too often."""
        known = -1 if self._dealt is None else self._dealt
        if not known < offset <= self.position:
            return False
        self._dealt = offset
        is_due = now - self._reported_at >= POSITION_REPORT_INTERVAL_S / 2
        if is_due:
            self._reported_at = now
        return is_due

    def wake(self) -> None:
        """Check again the highwater mark, the credit and whether the stream is served."""
        if self._idle:
            self._idle.unpark()

    def stop(self) -> None:
        """End the reading; nothing is sent from now on."""
        self._readers.tail_broadcast.leave(self._log, self)
        self._scope.cancel()

    async def run(self) -> None:
        """Deliver until stopped, or until the stream can't be read on."""
        self._readers.readings[self] = None
        try:
            with self._scope:
                await self._deliver()
        except ConnectionLostError:
            pass
        except NotLeaderError as error:
            refuse(self._connection, self.request, self._redirect(error))
        except OctopiError as error:
            refuse(self._connection, self.request, error)
        finally:
            del self._readers.readings[self]

    @property
    def topic(self) -> str:
        """The topic that is read."""
        return self._log.topic

    def describe(self) -> m.ReadingInfo:
        """The reader, the stream, and how far it is read."""
        log, greeting = self._log, self._connection.greeting
        dealt = None if self._dealt is None else max(self._dealt, log.start)
        return m.ReadingInfo(
            self._connection.peer,
            greeting.agent,
            self.request,
            log.topic,
            log.partition,
            self.position,
            self._credit,
            log.highwater,
            dealt,
            connection_name(greeting),
        )

    def take(self, delivery: EncodedDelivery, now: float) -> bool:
        """See `octopi.roles.broker.tail_broadcast.Reader`."""
        if self._log.epoch != self._epoch or not self.position < delivery.end <= self._credit:
            return False
        if not self._connection.try_send_encoded(delivery.data, now):
            return False
        self._log.delivered_bytes += delivery.end - self.position
        self.position = delivery.end
        self._anchor = delivery.anchor
        return True

    async def _deliver(self) -> None:
        while True:
            self._check_epoch()
            if self.position >= min(self._credit, self._log.highwater):
                await self._wait()
                await trio.lowlevel.checkpoint_if_cancelled()  # it may have been stopped meanwhile
                continue
            turn = await allowed(self._connection.turn)
            room = min(self._credit - self.position, FETCH_BYTES_DEFAULT)
            outbox = self._connection.outbox
            least_bytes = 1 if outbox.has_ample(room) else self._log.read_bytes_min(self.position)
            wanted_bytes = max(least_bytes, min(room, self._log.highwater - self.position))
            await self._connection.paced()
            async with outbox.room(wanted_bytes, least_bytes) as room_bytes:
                self._check_epoch()
                with measured(turn):
                    self._deliver_next(room_bytes)
            if self.position < min(self._credit, self._log.highwater):
                await trio.lowlevel.checkpoint()  # let other tasks run between two reads

    def _check_epoch(self) -> None:
        """Check that the next records of the stream continue those that the subscriber was sent."""
        if not self._log.epoch:
            raise NotLeaderError("this relay hears no quorum, or has no history (yet)")
        if self._log.epoch != self._epoch:
            self._log.check_anchor(self.position, self._anchor)
            self._epoch = self._log.epoch

    def _deliver_next(self, room_bytes: int) -> None:
        records = self._log.read(self.position, room_bytes)
        if not records:
            return  # what was delivered here is not yet committed again, in another timeline
        self._anchor = self._log.anchor_behind(self.position)
        self._connection.post(
            m.Delivery(self.request, self.position, records, self._log.highwater, self._anchor)
        )
        self._log.delivered_bytes += len(records)
        self.position = Offset(self.position + len(records))

    async def _wait(self) -> None:
        """Wait until there are records that the fan-out doesn't send."""
        if self.position >= self._log.highwater:
            self._readers.tail_broadcast.join(self._log, self)
            try:
                await self._idle.park()
            finally:
                self._readers.tail_broadcast.leave(self._log, self)
        else:
            self._log.add_waker(self.wake)
            try:
                await self._idle.park()
            finally:
                self._log.remove_waker(self.wake)
