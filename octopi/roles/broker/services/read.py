"""Answers fetches, each with a page of committed records at an offset, and looks up offsets.

A fetch is answered at once where possible.  If it has to wait for records, for room in the outbox
or for the proof that a record starts at its offset, it gets a task in the connection's nursery.
"""

from __future__ import annotations

import attrs
import trio

from octopi.errors import NeedsTimeError, NotLeaderError, RefusedError, Status
from octopi.identifiers import Offset
from octopi.limits import BATCH_BYTES_MAX, FETCH_WAIT_S_MAX, WAITING_FETCHES_MAX
from octopi.roles.broker.local_stream import LocalStream
from octopi.roles.broker.reading_bounds import stale_reader
from octopi.roles.broker.services.context import NOT_SERVED, ServiceContext
from octopi.storage.brief_lock import BriefLock
from octopi.storage.time_slices import Slices, in_turns
from octopi.transport.memory_budget import FETCHES
from octopi.transport.services import Service
from octopi.transport.turns import allowed, another, measured
from octopi.wire import messages as m


class ReadService(Service):
    """Answers fetches and offset look-ups."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__({m.Fetch: self._fetch, m.FindOffset: self._find})
        self._context = context
        self._connection = context.connection
        self._waiting_count = 0
        """The number of fetches that wait for records."""
        self._walking = BriefLock()
        """Held by the connection's long look-up."""

    @property
    def waiting_count(self) -> int:
        """The number of fetches that wait for records."""
        return self._waiting_count

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        return {"waiting fetches": self._waiting_count}

    def _find(self, message: m.FindOffset) -> None:
        log = self._context.served(message.topic, message.partition)
        if message.at != "earliest":
            log.require_end()
        if message.at == "message":
            self._post_found(message.request, log, log.find_message(message.id))
            return
        found = log.find(message.at, message.value)
        if isinstance(found, int):
            self._post_found(message.request, log, found)
        else:
            self._context.tasks.start_soon(self._find_later, message.request, log, found)

    def _post_found(self, request: int, log: LocalStream, offset: Offset) -> None:
        anchor = log.anchor_before(offset)
        self._connection.post(m.FoundOffset(request, offset, log.start, log.highwater, anchor))

    async def _find_later(self, request: int, log: LocalStream, work: Slices[Offset]) -> None:
        """Look the offset up when this request has its turn."""
        with self._context.refusing(log, request):
            async with self._context.readers.slow_lookups.turn(self._walking):
                offset = await in_turns(work, another(self._connection.turn))
            self._post_found(request, log, offset)

    def _fetch(self, message: m.Fetch) -> None:
        log = self._context.served(message.topic, message.partition)
        if message.offset > log.highwater:
            log.check_anchor(Offset(message.offset), message.anchor)
            log.require_reach(Offset(message.offset))
        room_bytes = self._connection.outbox.room_now(*_size_of_answer(log, message))
        try:
            if room_bytes and self._answer_fetch(log, message, room_bytes):
                return
        except NeedsTimeError:
            self._context.charge_task(FETCHES)
            self._context.tasks.start_soon(self._fetch_in_turn, log, message, True)
            return
        if room_bytes:
            self._wait_for_records(log, message)
        else:
            self._context.charge_task(FETCHES)
            self._context.tasks.start_soon(self._fetch_in_turn, log, message, False)

    async def _fetch_in_turn(
        self, log: LocalStream, message: m.Fetch, proves: bool = False
    ) -> None:
        """Answer when there is room.  *proves*: check first whether a record starts at the offset,
        which takes long."""
        with self._context.refusing(log, message.request):
            try:
                is_answered = await self._answer_with_room(log, message, proves=proves)
            finally:
                self._context.release_task(FETCHES)
            if not is_answered:
                self._wait_for_records(log, message)

    async def _answer_with_room(
        self, log: LocalStream, message: m.Fetch, *, proves: bool = False, last: bool = False
    ) -> bool:
        """Call `_answer_fetch` when there is room for the records that it reads."""
        while True:
            if proves:
                await log.prove(Offset(message.offset))
            await self._connection.paced()
            turn = await allowed(self._connection.turn)
            size = _size_of_answer(log, message)
            try:
                async with self._connection.outbox.room(*size) as room_bytes:
                    if not log.epoch:
                        raise NotLeaderError(NOT_SERVED)
                    with measured(turn):
                        return self._answer_fetch(log, message, room_bytes, last=last)
            except NeedsTimeError:
                proves = True

    def _wait_for_records(self, log: LocalStream, message: m.Fetch) -> None:
        """Have *message* answered when there are records.

        Raises:
          RefusedError: with TOO_MANY.
        """
        if self._waiting_count >= WAITING_FETCHES_MAX:
            raise RefusedError(
                f"at most {WAITING_FETCHES_MAX} fetches of a connection wait for records",
                Status.TOO_MANY,
            )
        self._context.charge_task(FETCHES)
        self._waiting_count += 1
        self._connection.set_aside(message.request)
        self._context.tasks.start_soon(self._fetch_later, log, message)

    def _answer_fetch(
        self, log: LocalStream, message: m.Fetch, room_bytes: int, *, last: bool = False
    ) -> bool:
        """Answer with at most *room_bytes* of records, or with one record.  Returns false if there
        are none yet."""
        offset = Offset(message.offset)
        log.check_anchor(offset, message.anchor)
        if (bound := log.bound(message.generation)) is not None:
            if bound.is_sealed and offset >= bound.end:
                raise stale_reader(self._connection.version, log.name)
            room_bytes = min(room_bytes, max(0, bound.end - offset))
        records = log.read(offset, room_bytes) if room_bytes else b""
        if not (records or last or message.wait_ms == 0):
            return False
        anchor = log.anchor_behind(offset) if records else log.anchor_before(offset)
        self._connection.post(
            m.Fetched(message.request, log.topic_id, records, log.start, log.highwater, anchor)
        )
        log.delivered_bytes += len(records)
        return True

    async def _fetch_later(self, log: LocalStream, message: m.Fetch) -> None:
        """Answer when there are records, or when the time of the request is over."""
        if not message.anchor:
            # Meanwhile another leader may take over, whose log isn't the one that was asked for.
            anchor = log.anchor_before(Offset(message.offset))
            message = attrs.evolve(message, anchor=anchor)
        try:
            with self._context.refusing(log, message.request):
                await self._wait_and_answer(log, message)
        finally:
            self._waiting_count -= 1
            self._context.release_task(FETCHES)

    async def _wait_and_answer(self, log: LocalStream, message: m.Fetch) -> None:
        arrived = trio.Event()

        def wake() -> None:
            # The log also wakes this for appends of which nothing is committed yet.
            bound = log.bound(message.generation)
            if bound is not None and message.offset >= bound.end:
                has_news = bound.is_sealed
            else:
                has_news = log.highwater > message.offset
            if has_news or not log.epoch:
                arrived.set()

        log.add_waker(wake)
        try:
            with self._context.environment.clock.timeout(
                min(message.wait_ms / 1000, FETCH_WAIT_S_MAX)
            ):
                wake()
                await arrived.wait()
        finally:
            log.remove_waker(wake)
        # Many tasks may wake up at once.
        await self._answer_with_room(log, message, last=True)


def _size_of_answer(log: LocalStream, message: m.Fetch) -> tuple[int, int]:
    """The most and the least bytes of records that the answer has."""
    offset = Offset(message.offset)
    least_bytes = max(1, log.read_bytes_min(offset))
    asked_bytes = min(message.bytes_max, BATCH_BYTES_MAX, log.highwater - offset)
    return max(asked_bytes, least_bytes), least_bytes
