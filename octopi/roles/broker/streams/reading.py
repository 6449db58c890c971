"""Reads of a stream that this broker leads: what is there, the next content, or all that comes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.identifiers import Offset
from octopi.limits import (
    HTTP_PAGE_BYTES,
    KIB,
    LONG_POLL_S,
    SEND_TIMEOUT_S,
    SSE_LIFE_S,
    SSE_PAGE_BYTES,
    WAITING_TASK_MEMORY_BYTES,
)
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.streams.content import (
    SharedEvents,
    checked_offset,
    gone,
    is_closed,
    page,
    text,
)
from octopi.roles.streams import exchange
from octopi.roles.streams.exchange import ANYWHERE, NO_STORE, StreamCaller
from octopi.roles.streams.fixed_lists import check_fixed_list
from octopi.streams import content_types, offsets, sse
from octopi.streams.cursors import cursor
from octopi.streams.definitions import content_type_of, expiry_headers
from octopi.streams.json_mode import array_of
from octopi.streams.problems import Headers, invalid
from octopi.streams.writing import CLOSED_TRUE
from octopi.transport.http_requests import HttpAnswer, HttpRequest, Send
from octopi.transport.memory_budget import OUTBOX, READINGS, MemoryBudget

_UP_TO_DATE: Final = ("stream-up-to-date", "true")
_WEIGHT_ZERO: Final = re.compile(r"q=0(\.0*)?")
_GZIP_BYTES_MIN: Final = 1 * KIB


@attrs.define
class ReaderCounts:
    """The readers that wait for content now."""

    long_poll: int = 0
    sse: int = 0

    @contextmanager
    def counting(self, mode: str) -> Iterator[None]:
        """Count a reader for the block."""
        setattr(self, mode, getattr(self, mode) + 1)
        try:
            yield
        finally:
            setattr(self, mode, getattr(self, mode) - 1)


class StreamReader:
    """One read."""

    def __init__(
        self,
        environment: Environment,
        manager: ReplicaManager,
        memory: MemoryBudget,
        counts: ReaderCounts,
        events: SharedEvents,
    ) -> None:
        self._environment = environment
        self._clock = environment.clock
        self._manager = manager
        self._memory = memory
        self._counts = counts
        self._events = events

    async def answer(self, request: HttpRequest, caller: StreamCaller, log: LocalLog) -> HttpAnswer:
        """The answer to a ``GET``.

        Raises:
          OctopiError: if it can't be answered.
        """
        asked = exchange.parameters(request)
        live, offset = asked.get("live"), asked.get("offset")
        if live not in {None, "long-poll", "sse"}:
            raise invalid(f"live is long-poll or sse, not {str(live)[:40]!r}")
        if offset is None and live is not None:
            raise invalid(f"live={live} needs an offset: -1, now, or one of an answer")
        begin = self._begin(log, offsets.BEGINNING if offset is None else offset)
        shown = self._cursor(asked.get("cursor", ""))
        if live is None:
            return await self._catch_up(request, caller, log, begin, offset == offsets.NOW)
        memory = caller.accounts(self._memory)
        if not memory.tasks.room(WAITING_TASK_MEMORY_BYTES, WAITING_TASK_MEMORY_BYTES):
            raise RefusedError(
                "the broker has no memory left for more readers (--memory-budget)", Status.TOO_MANY
            )
        memory.tasks.charge(READINGS, WAITING_TASK_MEMORY_BYTES)
        if not request.asker.settle():
            raise RefusedError("the node has no place for another reader", Status.OVER_LIMIT)
        if live == "long-poll":
            return await self._long_poll(request, caller, log, begin, shown)
        return self._sse(caller, log, begin, shown)

    def _begin(self, log: LocalLog, given: str) -> Offset:
        """Where the read begins.

        Raises:
          OctopiError: if *given* is no place in the stream.
        """
        if given == offsets.BEGINNING:
            return log.start
        if given == offsets.NOW:
            return log.highwater
        offset = checked_offset(log, given)
        if offset < log.start:
            raise gone(log)
        return offset

    def _cursor(self, shown: str) -> str:
        return cursor(self._clock.wall_ms(), shown, self._environment.randomness.token_bytes(1)[0])

    # --- what is there -----------------------------------------------------------------------

    async def _catch_up(
        self, request: HttpRequest, caller: StreamCaller, log: LocalLog, begin: Offset, is_now: bool
    ) -> HttpAnswer:
        if is_now:
            return _answer(log, b"", begin, NO_STORE, at_end=True)
        return await self._page(request, caller, log, begin, ())

    async def _page(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        log: LocalLog,
        begin: Offset,
        further: Headers,
    ) -> HttpAnswer:
        memory = caller.accounts(self._memory)
        await exchange.room(
            self._clock, memory, OUTBOX, _memory_of_page(log, begin, HTTP_PAGE_BYTES)
        )
        found = await page(log, begin, HTTP_PAGE_BYTES)
        check_fixed_list(log.topic)  # what was read before that is of the first list
        content_type = content_type_of(log.topic.stream)
        if content_types.is_json(content_type):
            body = array_of(found.values)
        else:
            body = b"".join(found.values)
        log.delivered_bytes += found.end - begin
        at_end = found.end >= log.highwater
        closed = at_end and is_closed(log)
        tag = f'"{log.topic_id}:{begin}:{found.end}{":closed" if closed else ""}"'
        scope = "public" if caller.entry is None else "private"
        lasts = "no-cache" if at_end else "max-age=60, stale-while-revalidate=300"
        headers = [("cache-control", f"{scope}, {lasts}"), ("etag", tag), *further]
        known = request.headers.get("if-none-match", "")
        if any(one.strip().removeprefix("W/") == tag for one in known.split(",")):
            return HttpAnswer(304, b"", "", (ANYWHERE, *headers))
        if len(body) >= _GZIP_BYTES_MIN and _takes_gzip(request):
            body = await _compressed(body)
            headers.append(("content-encoding", "gzip"))
        headers.append(("vary", "accept-encoding"))
        return _answer(log, body, found.end, *headers, at_end=at_end)

    # --- the next content --------------------------------------------------------------------

    async def _long_poll(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        log: LocalLog,
        begin: Offset,
        shown: str,
    ) -> HttpAnswer:
        with self._counts.counting("long_poll"):
            news = _News(log)
            try:
                with self._clock.timeout(LONG_POLL_S):
                    while log.highwater <= begin and not is_closed(log) and log.epoch:
                        await news.wait()
                        check_fixed_list(log.topic)
            finally:
                news.close()
        if not log.epoch:
            raise NotReadyError("this broker doesn't serve the stream any more")
        if log.highwater > begin:
            # The mark of the end may be all that came.
            answer = await self._page(request, caller, log, begin, (("stream-cursor", shown),))
            if answer.body or answer.status == 304:
                return answer
        return _answer(log, None, log.highwater, NO_STORE, ("stream-cursor", shown), at_end=True)

    # --- all that comes ----------------------------------------------------------------------

    def _sse(self, caller: StreamCaller, log: LocalLog, begin: Offset, shown: str) -> HttpAnswer:
        content_type = content_type_of(log.topic.stream)
        headers: list[tuple[str, str]] = [
            ANYWHERE,
            ("cache-control", "no-cache, no-store"),
            ("x-accel-buffering", "no"),
        ]
        if not content_types.is_text(content_type):
            headers.append(("stream-sse-data-encoding", "base64"))

        async def send_events(send: Send) -> None:
            with self._counts.counting("sse"):
                await self._events_to(send, caller, log, begin, shown)

        return HttpAnswer(200, b"", sse.CONTENT_TYPE, tuple(headers), stream=send_events)

    async def _events_to(
        self, send: Send, caller: StreamCaller, log: LocalLog, at: Offset, shown: str
    ) -> None:
        """Send the content from *at* on as events, until the stream is closed, or for
        `SSE_LIFE_S`.

        No send is cancelled: what follows a part that was sent in half would be read as content.
        """
        memory, news = caller.accounts(self._memory), _News(log)
        ends_at = self._clock.now() + SSE_LIFE_S
        content_type = content_type_of(log.topic.stream)
        is_first = True
        try:
            while log.epoch and self._clock.now() < ends_at:
                closed = is_closed(log) and at >= log.highwater
                if at < log.highwater or is_first or closed:
                    size_bytes = _memory_of_page(log, at, SSE_PAGE_BYTES)
                    await exchange.room(self._clock, memory, OUTBOX, size_bytes)
                    try:
                        event, end = await self._events.next(log, content_type, at, SSE_PAGE_BYTES)
                        check_fixed_list(log.topic)
                        log.delivered_bytes += end - at
                        at, is_first = end, False
                        closed = is_closed(log) and at >= log.highwater
                        at_end = at >= log.highwater
                        # With what it is about in one piece, if that is small.
                        event += sse.control_event(
                            text(log, at), shown, up_to_date=at_end, closed=closed
                        )
                        # It may be longer than what it was made of: a line of no character is one
                        # byte there, and six here.
                        further_bytes = len(event) - size_bytes
                        if further_bytes > 0:
                            await exchange.room(self._clock, memory, OUTBOX, further_bytes)
                            size_bytes += further_bytes
                        for begin in range(0, len(event), SSE_PAGE_BYTES):
                            if self._clock.now() >= ends_at + SEND_TIMEOUT_S:
                                raise RefusedError("the reader is too slow", Status.TOO_MANY)
                            await send(event[begin : begin + SSE_PAGE_BYTES])
                        del event
                    finally:
                        memory.outgoing.release(OUTBOX, size_bytes)
                if closed:
                    return
                if at >= log.highwater:
                    with self._clock.timeout(max(0.0, ends_at - self._clock.now())):
                        await news.wait()
                    check_fixed_list(log.topic)
        finally:
            news.close()


def _memory_of_page(log: LocalLog, begin: Offset, bytes_max: int) -> int:
    """The memory for a page of content from *begin* on: its records, and what is made of them."""
    ready_bytes = log.highwater - begin
    return 2 * max(1, log.read_bytes_min(begin) if ready_bytes else 0, min(bytes_max, ready_bytes))


class _News:
    """Waits for what happens to a log."""

    def __init__(self, log: LocalLog) -> None:
        self._log = log
        self._event = trio.Event()
        log.add_waker(self._wake)

    def _wake(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Wait until the log was woken since the last call."""
        await self._event.wait()
        self._event = trio.Event()

    def close(self) -> None:
        """Stop waiting."""
        self._log.remove_waker(self._wake)


def _answer(
    log: LocalLog, body: bytes | None, end: Offset, *headers: tuple[str, str], at_end: bool
) -> HttpAnswer:
    """The answer with content up to *end*; None: there is none."""
    content_type = content_type_of(log.topic.stream)
    found = [ANYWHERE, ("stream-next-offset", text(log, end)), *headers]
    found += expiry_headers(log.topic.stream)
    if at_end:
        found.append(_UP_TO_DATE)
        if is_closed(log):
            found.append(CLOSED_TRUE)
    if body is None:
        return HttpAnswer(204, b"", "", tuple(found))
    if not body and content_types.is_json(content_type):
        body = b"[]"
    return HttpAnswer(200, body, content_type, tuple(found))


def _takes_gzip(request: HttpRequest) -> bool:
    for one in request.headers.get("accept-encoding", "").lower().split(","):
        coding, _, weight = one.replace(" ", "").partition(";")
        if coding == "gzip":
            return _WEIGHT_ZERO.fullmatch(weight) is None
    return False


async def _compressed(body: bytes) -> bytes:
    """*body*, compressed in pieces, between which other tasks run."""
    compressor, pieces = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS), []
    for at in range(0, len(body), 64 * KIB):
        pieces.append(compressor.compress(body[at : at + 64 * KIB]))
        await trio.lowlevel.checkpoint()
    return b"".join([*pieces, compressor.flush()])
