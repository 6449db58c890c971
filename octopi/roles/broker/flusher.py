"""Schedules the flushes of logs: after N messages, N bytes or some seconds, whichever comes first.

One task watches the clock for all logs.  A flush that is due runs as a task of the flusher's
nursery: at most one per log, and so many at a time that those due together can be made durable
together (`octopi.group_sync`).  Records that are appended during a flush wait
for the next one.  Thousands of logs may be due at once, and no step examines all of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Protocol

import trio

from octopi.environment import Clock
from octopi.errors import StorageError
from octopi.identifiers import Offset, TopicId
from octopi.limits import FLUSHES_AT_A_TIME

Flush = Callable[[], Awaitable[None]]


class FlushListener(Protocol):
    """Is told of a log's flushes."""

    @property
    def is_settled(self) -> bool:
        """Whether the files match the log's state: no decided change of the files is still to be
        done."""

    def flushed(self, topic_id: TopicId, durable_end: Callable[[], Offset]) -> None:
        """The log was flushed.  *durable_end* tells up to where it is durable, and is to be asked
        when that counts: until then the log may be cut and appended to."""

    def flush_failed(self, error: StorageError) -> None:
        """The disk failed in a flush."""


class Flusher:
    """Runs flushes.  A broker makes it, and runs `run` in its nursery.

    Invariant: each flush in `_due` that isn't running has an entry in `_queue` with that time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[Flush, float] = {}
        """Flush function -> the time when it is due."""
        self._queue: list[tuple[float, int, Flush]] = []
        """A heap of (time, number, flush function).  An entry that differs from `_due` is
        outdated.  The number keeps the order of flushes that are due at the same time."""
        self._numbers = count()
        self._running: set[Flush] = set()
        self._sooner = trio.Event()

    def want(self, flush: Flush, at: float) -> None:
        """Schedule *flush* to run at or soon after time *at*.  If it is already scheduled, the
        earlier time wins."""
        known = self._due.get(flush)
        if known is None or at < known:
            self._due[flush] = at
            if flush not in self._running:
                self._enqueue(flush, at)

    def _enqueue(self, flush: Flush, at: float) -> None:
        heapq.heappush(self._queue, (at, next(self._numbers), flush))
        if self._queue[0][2] is flush:
            self._sooner.set()

    async def run(self) -> None:
        """Run flushes as they become due, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._sooner = trio.Event()
                now = self._clock.now()
                while self._queue and len(self._running) < FLUSHES_AT_A_TIME:
                    at, _, flush = self._queue[0]
                    counts = self._due.get(flush) == at and flush not in self._running
                    if counts and at > now:
                        break
                    heapq.heappop(self._queue)
                    if counts:
                        del self._due[flush]
                        self._running.add(flush)
                        nursery.start_soon(self._run_one, flush)
                if self._queue and len(self._running) < FLUSHES_AT_A_TIME:
                    with self._clock.timeout(self._queue[0][0] - now):
                        await self._sooner.wait()
                else:
                    await self._sooner.wait()

    async def _run_one(self, flush: Flush) -> None:
        try:
            await flush()
        finally:
            self._running.discard(flush)
            if flush in self._due:
                self._enqueue(flush, self._due[flush])
            self._sooner.set()
