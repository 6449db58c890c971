"""Serves readings: sends a log's records as they are committed, within the client's credit."""

from __future__ import annotations

from octopi.errors import NeedsTimeError, ProtocolError, RefusedError, Status
from octopi.limits import READINGS_MAX
from octopi.roles.broker.reading import Reading
from octopi.roles.broker.services.context import ServiceContext
from octopi.security.authorization import not_granted
from octopi.security.grants import Verb
from octopi.transport.failures import failure
from octopi.transport.memory_budget import READINGS
from octopi.transport.services import Service
from octopi.wire import messages as m


class SubscribeService(Service):
    """The readings of one connection; each has a task in the connection's nursery."""

    def __init__(self, context: ServiceContext) -> None:
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
        self._readings: dict[int, Reading] = {}

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
        now = self._context.environment.clock.now()
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
        log = self._context.served(message.topic, message.partition)
        reading = Reading(self._context, log, message)
        self._context.charge_task(READINGS)
        opens = False
        entry = self._connection.entry
        if entry is not None:
            try:
                entry.account.subscribe(entry.identity.quota)
            except RefusedError:
                self._context.release_task(READINGS)
                raise
        try:
            reading.open()
        except NeedsTimeError:
            opens = True  # its task opens it
        except BaseException:
            self._unsubscribed()
            raise
        self._readings[message.request] = reading
        self._context.tasks.start_soon(self._run_reading, message.request, reading, opens)

    async def _run_reading(self, request: int, reading: Reading, opens: bool) -> None:
        try:
            await reading.run(opens=opens)
        finally:
            self._unsubscribed()
            if self._readings.get(request) is reading:
                del self._readings[request]

    def _unsubscribed(self) -> None:
        self._context.release_task(READINGS)
        if self._connection.entry is not None:
            self._connection.entry.account.unsubscribed()
