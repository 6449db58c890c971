"""One reading of a connection: a log's committed records, as far as its credit goes.

The reading's task reads from the log what the subscriber has not been sent yet, and only when the
connection has room for it, so nothing piles up for a slow subscriber.  When the subscriber has
everything, the broker's fan-out sends new records, and the task waits until the fan-out can't go
on.
"""

from __future__ import annotations

import math

import trio

from octopi.errors import ConnectionLostError, NeedsTimeError, NotLeaderError, OctopiError
from octopi.identifiers import Offset, PartitionId
from octopi.limits import FETCH_BYTES_DEFAULT, POSITION_REPORT_INTERVAL_S
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.local_stream import LocalStream
from octopi.roles.broker.reading_bounds import stale_reader
from octopi.roles.broker.services.context import NOT_SERVED, ServiceContext
from octopi.roles.broker.tail_broadcast import EncodedDelivery
from octopi.transport.peer_names import connection_name
from octopi.transport.turns import allowed, measured
from octopi.wire import messages as m


class Reading:
    """Delivers a log's committed records to one subscriber."""

    def __init__(
        self,
        context: ServiceContext,
        log: LocalStream,
        message: m.Subscribe,
    ) -> None:
        self.request = message.request
        self.position = Offset(message.offset)
        """The subscriber was sent the records below this offset."""
        self._context = context
        self._connection, self._readers = context.connection, context.readers
        self._log = log
        self._epoch = log.epoch
        """The epoch of the leader whose log was compared with what the subscriber was sent."""
        self._anchor: str = message.anchor
        """The subscriber's anchor for `position`; empty if it isn't known."""
        self._generation = message.generation
        """The subscriber knows the topic up to this generation."""
        self._is_proven = message.proven
        """Whether the subscriber computes digests itself; then its deliveries are its own."""
        self._credit = message.credit
        self._granted_at = self.position
        """The position when the credit was moved last."""
        self._dealt: Offset | None = None
        """The subscriber reported that its program has dealt with the messages below; None: it has
        reported nothing."""
        self._reported_at = -math.inf
        """The time of the last report that did not come too soon."""
        self._idle = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()

    def open(self) -> None:
        """Check the subscriber's offset and anchor, and tell the subscriber that the reading is
        open.

        Raises:
          NeedsTimeError: if the check takes long; then `run` can make it.
          OctopiError: see `octopi.roles.broker.local_stream.LocalStream`: its `read` and
              `check_anchor`.
        """
        log = self._log
        log.check_anchor(self.position, self._anchor)
        log.read(self.position, 0)  # checks the offset
        if self._is_proven:
            log.proof(self.position, self.position)  # checks that there are digests
        self._epoch = log.epoch
        self._anchor = log.anchor_opened(self.position, self._anchor)
        self._connection.post(
            m.Subscribed(
                self.request,
                log.topic_id,
                log.epoch,
                log.start,
                log.highwater,
                self._anchor,
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
        """Note that the subscriber's program has dealt with the messages below *offset*.  A report
        that goes back, or beyond what was sent, is ignored.  Returns False if the report changes
        nothing, or if reports come too often."""
        known = -1 if self._dealt is None else self._dealt
        if not known < offset <= self.position:
            return False
        self._dealt = offset
        is_due = now - self._reported_at >= POSITION_REPORT_INTERVAL_S / 2  # it may be late
        if is_due:
            self._reported_at = now
        return is_due

    def wake(self) -> None:
        """Check again the highwater mark, the credit and whether the log is served."""
        if self._idle:
            self._idle.unpark()

    def stop(self) -> None:
        """End the reading; nothing is sent from now on."""
        self._readers.tail_broadcast.leave(self._log, self)
        self._scope.cancel()

    async def run(self, *, opens: bool = False) -> None:
        """Deliver until stopped, or until the log can't be read on.  *opens*: check the offset and
        call `open` first."""
        self._readers.readings[self] = None
        try:
            with self._scope:
                if opens:
                    await self._log.prove(self.position)
                    self.open()
                await self._deliver()
        except ConnectionLostError:
            pass
        except OctopiError as error:
            self._context.refuse(self._log, self.request, error)
        finally:
            del self._readers.readings[self]

    @property
    def topic(self) -> str:
        """The topic that is read."""
        return self._log.name

    @property
    def log_partition(self) -> PartitionId | None:
        """The partition whose log is read; None: it is a stream in memory."""
        return self._log.partition if isinstance(self._log, LocalLog) else None

    def describe(self) -> m.ReadingInfo:
        """The reader, the log, and how far it is read."""
        log, greeting = self._log, self._connection.greeting
        # What retention removed can't be dealt with any more.
        dealt = None if self._dealt is None else max(self._dealt, log.start)
        return m.ReadingInfo(
            self._connection.peer,
            greeting.agent,
            self.request,
            log.name,
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
        bound = self._log.bound(self._generation)
        if bound is not None and delivery.end > bound.end:
            return False
        if not self._connection.try_send_encoded(delivery.data, now):
            return False
        self._log.delivered_bytes += delivery.end - self.position
        self.position = delivery.end
        self._anchor = delivery.anchor
        return True

    async def _deliver(self) -> None:
        while True:
            self._check_leader()
            self._check_generation()
            if self.position >= self._until:
                await self._wait()
                await trio.lowlevel.checkpoint_if_cancelled()  # it may have been stopped meanwhile
                continue
            turn = await allowed(self._connection.turn)
            room = min(self._credit - self.position, FETCH_BYTES_DEFAULT)
            outbox = self._connection.outbox
            # With that much room left, a single record that is larger does no harm.
            least_bytes = 1 if outbox.has_ample(room) else self._log.read_bytes_min(self.position)
            wanted_bytes = max(least_bytes, min(room, self._log.highwater - self.position))
            await self._connection.paced()
            try:
                async with outbox.room(wanted_bytes, least_bytes) as room_bytes:
                    self._check_leader()
                    with measured(turn):
                        self._deliver_next(room_bytes)
            except NeedsTimeError:
                await self._log.prove(self.position)
                continue
            if self.position < self._until:
                await trio.lowlevel.checkpoint()  # let other tasks run between two reads

    def _check_leader(self) -> None:
        """Check that the next records of the log continue those that the subscriber was sent."""
        if not self._log.epoch:
            raise NotLeaderError(NOT_SERVED)
        if self._log.epoch != self._epoch:
            # Another leader was elected: its log may not have what the subscriber was sent.
            self._log.check_anchor(self.position, self._anchor)
            self._epoch = self._log.epoch

    def _check_generation(self) -> None:
        """Check that the topic has nothing behind `position` that belongs to another list of
        partitions than the subscriber knows.

        Raises:
          RefusedError: STALE_ROUTE; to clients of earlier versions UNSUPPORTED_VERSION.
        """
        bound = self._log.bound(self._generation)
        if bound is not None and bound.is_sealed and self.position >= bound.end:
            raise stale_reader(self._connection.version, self.topic)

    @property
    def _until(self) -> Offset:
        """The records below this offset can be sent."""
        until = min(Offset(self._credit), self._log.highwater)
        bound = self._log.bound(self._generation)
        return until if bound is None else min(until, bound.end)

    def _deliver_next(self, room_bytes: int) -> None:
        if (bound := self._log.bound(self._generation)) is not None:
            room_bytes = min(room_bytes, max(0, bound.end - self.position))
            if not room_bytes:
                return  # the topic got other partitions meanwhile
        records = self._log.read(self.position, room_bytes)
        if not records:
            return  # what another leader has committed doesn't reach there yet
        self._anchor = self._log.anchor_behind(self.position)
        end = Offset(self.position + len(records))
        proof = self._log.proof(self.position, end) if self._is_proven else b""
        self._connection.post(
            m.Delivery(
                self.request, self.position, records, self._log.highwater, self._anchor, proof
            )
        )
        self._log.delivered_bytes += len(records)
        self.position = end

    async def _wait(self) -> None:
        """Wait until there are records that the fan-out doesn't send."""
        at_tail = self.position >= self._log.highwater
        if at_tail and not self._is_proven:
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
