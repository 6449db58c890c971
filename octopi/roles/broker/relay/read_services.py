"""What a relay offers to readers: offsets, fetches, and readings of streams in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import trio

from octopi.errors import (
    ConnectionLostError,
    NotLeaderError,
    OctopiError,
    ProtocolError,
    RefusedError,
    Status,
)
from octopi.identifiers import Offset
from octopi.limits import BATCH_BYTES_MAX, FETCH_WAIT_S_MAX, READINGS_MAX, WAITING_FETCHES_MAX
from octopi.roles.answers import refuse
from octopi.roles.broker.relay.partition import RelayPartition
from octopi.roles.broker.relay.reading import StreamReading
from octopi.roles.broker.relay.services import RelayContext
from octopi.roles.broker.relay.stream_log import StreamLog
from octopi.security.authorization import not_granted
from octopi.security.grants import Verb
from octopi.transport.failures import failure
from octopi.transport.memory_budget import FETCHES, READINGS
from octopi.transport.services import Service
from octopi.wire import messages as m


class _ReadingService(Service):
    """What the two services here share."""

    _context: RelayContext

    def _served(self, topic: str, partition: int) -> tuple[StreamLog, RelayPartition]:
        """The stream, if this relay may serve it.

        Raises:
          NotLeaderError: if it may not.
          RefusedError: if there is no such topic or partition.
        """
        serving = self._context.serving
        name, found = serving.checked(topic, partition)
        log = serving.log(name, found)
        if not log.epoch:
            error = NotLeaderError(f"relay {serving.me} is part of no epoch of the partition")
            raise serving.redirected(found, error)
        return log, found

    @contextlib.contextmanager
    def _redirecting(self, partition: RelayPartition) -> Iterator[None]:
        """Name the sequencer in what the block raises because this relay is not it."""
        try:
            yield
        except NotLeaderError as error:
            raise self._context.serving.redirected(partition, error) from error


class RelayReadService(_ReadingService):
    """Answers fetches and look-ups of offsets."""

    def __init__(self, context: RelayContext) -> None:
        super().__init__({m.Fetch: self._fetch, m.FindOffset: self._find})
        self._context = context
        self._connection = context.connection
        self._waiting_count = 0

    @property
    def waiting_count(self) -> int:
        """The number of fetches that wait for records."""
        return self._waiting_count

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        return {"waiting fetches": self._waiting_count}

    def _find(self, message: m.FindOffset) -> None:
        log, partition = self._served(message.topic, message.partition)
        if message.at != "earliest":
            with self._redirecting(partition):
                log.require_end()
        found = log.find(message.at, message.value)
        self._connection.post(
            m.FoundOffset(
                message.request, found, log.start, log.highwater, log.anchor_before(found)
            )
        )

    def _fetch(self, message: m.Fetch) -> None:
        log, partition = self._served(message.topic, message.partition)
        with self._redirecting(partition):
            log.check_anchor(Offset(message.offset), message.anchor)
        if self._waiting_count >= WAITING_FETCHES_MAX:
            raise RefusedError(
                f"at most {WAITING_FETCHES_MAX} fetches of a connection wait for records",
                Status.TOO_MANY,
            )
        log.read(Offset(message.offset), 0)  # checks the offset
        self._context.charge_task(FETCHES)
        self._waiting_count += 1
        self._connection.set_aside(message.request)
        self._context.tasks.start_soon(self._fetch_later, log, partition, message)

    async def _fetch_later(
        self, log: StreamLog, partition: RelayPartition, message: m.Fetch
    ) -> None:
        """Answer when there are records and room for them, or when the request's time is over."""
        anchor = message.anchor or log.anchor_before(Offset(message.offset))
        try:
            with self._redirecting(partition):
                await self._wait(log, message)
                await self._answer(log, message, anchor)
        except ConnectionLostError:
            pass
        except OctopiError as error:
            refuse(self._connection, message.request, error)
        finally:
            self._waiting_count -= 1
            self._context.release_task(FETCHES)

    async def _wait(self, log: StreamLog, message: m.Fetch) -> None:
        arrived = trio.Event()

        def wake() -> None:
            if log.highwater > message.offset or not log.epoch:
                arrived.set()

        log.add_waker(wake)
        try:
            wait_s = min(message.wait_ms / 1000, FETCH_WAIT_S_MAX)
            with self._context.serving.environment.clock.timeout(wait_s):
                wake()
                await arrived.wait()
        finally:
            log.remove_waker(wake)

    async def _answer(self, log: StreamLog, message: m.Fetch, anchor: str) -> None:
        offset = Offset(message.offset)
        least_bytes = max(1, log.read_bytes_min(offset))
        most_bytes = min(message.bytes_max, BATCH_BYTES_MAX, max(0, log.highwater - offset))
        outbox = self._connection.outbox
        async with outbox.room(max(most_bytes, least_bytes), least_bytes) as room_bytes:
            if not log.epoch:
                raise NotLeaderError("this relay hears no quorum, or has no history (yet)")
            log.check_anchor(offset, anchor)  # meanwhile another timeline may have begun
            records = log.read(offset, min(room_bytes, max(most_bytes, least_bytes)))
            behind = log.anchor_behind(offset) if records else log.anchor_before(offset)
            self._connection.post(
                m.Fetched(message.request, log.topic_id, records, log.start, log.highwater, behind)
            )
            log.delivered_bytes += len(records)


class RelaySubscribeService(_ReadingService):
    """The readings of one connection; each has a task in the connection's nursery."""

    def __init__(self, context: RelayContext) -> None:
        super().__init__(
            {
                m.Subscribe: self._subscribe,
                m.Credit: self._grant,
                m.ReportPosition: self._take_position,
                m.Unsubscribe: self._unsubscribe,
            }
        )
        self._context = context
        self._connection = context.connection
        self._readings: dict[int, StreamReading] = {}

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        return {"readings": len(self._readings)}

    def token_refreshed(self) -> None:
        """End the readings that the new token doesn't grant."""
        for request, reading in list(self._readings.items()):
            if not self._connection.grants.allows(Verb.SUBSCRIBE, reading.topic):
                self._readings.pop(request)
                reading.stop()
                why = not_granted(Verb.SUBSCRIBE, reading.topic)
                self._connection.post(failure(request, Status.FORBIDDEN, why))

    def _grant(self, message: m.Credit) -> None:
        reading = self._readings.get(message.request)
        if reading is not None and reading.grant(message.until):
            self._was_of_use()

    def _take_position(self, message: m.ReportPosition) -> None:
        reading = self._readings.get(message.request)
        now = self._context.serving.environment.clock.now()
        if reading is not None and reading.dealt_with(message.offset, now):
            self._was_of_use()

    def _was_of_use(self) -> None:
        if self._connection.turn is not None:
            self._connection.turn.was_of_use()

    def _unsubscribe(self, message: m.Unsubscribe) -> None:
        reading = self._readings.pop(message.request, None)
        if reading is not None:
            reading.stop()
        self._connection.post(m.Done(message.request))

    def _subscribe(self, message: m.Subscribe) -> None:
        if message.request in self._readings:
            raise ProtocolError(f"reading {message.request} is open already")
        if len(self._readings) >= READINGS_MAX:
            raise RefusedError(f"a connection has at most {READINGS_MAX} readings", Status.TOO_MANY)
        serving = self._context.serving
        log, partition = self._served(message.topic, message.partition)
        reading = StreamReading(
            self._connection,
            serving.readers,
            log,
            message,
            lambda error: serving.redirected(partition, error),
        )
        self._context.charge_task(READINGS)
        entry = self._connection.entry
        try:
            if entry is not None:
                entry.account.subscribe(entry.identity.quota)
        except RefusedError:
            self._context.release_task(READINGS)
            raise
        try:
            with self._redirecting(partition):
                reading.open()
        except BaseException:
            self._unsubscribed()
            raise
        self._readings[message.request] = reading
        self._context.tasks.start_soon(self._run_reading, message.request, reading)

    async def _run_reading(self, request: int, reading: StreamReading) -> None:
        try:
            await reading.run()
        finally:
            self._unsubscribed()
            if self._readings.get(request) is reading:
                del self._readings[request]

    def _unsubscribed(self) -> None:
        self._context.release_task(READINGS)
        if self._connection.entry is not None:
            self._connection.entry.account.unsubscribed()
