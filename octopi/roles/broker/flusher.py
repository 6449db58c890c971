"""When logs are flushed: after N messages, N bytes or some seconds, whichever comes first.

One task watches the clock for all logs; a flush that is due runs as a task of the
flusher's nursery, at most one a log, a few at a time.  What is appended during a flush
is the next one's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from octopi.environment import Clock

_FLUSHES_AT_A_TIME: Final = 8


class Flusher:
    """Runs flushes; made by a broker, which runs `run` in its nursery."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[Callable[[], Awaitable[None]], float] = {}
        """Flush function -> when it is due."""
        self._running: set[Callable[[], Awaitable[None]]] = set()
        self._sooner = trio.Event()
        self._limit = trio.CapacityLimiter(_FLUSHES_AT_A_TIME)

    def want(self, flush: Callable[[], Awaitable[None]], at: float) -> None:
        """Have *flush* run at time *at* (of the clock) or soon after; an earlier wish counts."""
        known = self._due.get(flush)
        if known is None or at < known:
            self._due[flush] = at
            self._sooner.set()

    async def run(self) -> None:
        """Run flushes as they become due, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._sooner = trio.Event()
                now = self._clock.now()
                for flush in [one for one, at in self._due.items() if at <= now]:
                    if flush not in self._running:
                        del self._due[flush]
                        self._running.add(flush)
                        nursery.start_soon(self._run_one, flush)
                waiting = [at for one, at in self._due.items() if one not in self._running]
                if waiting:
                    with self._clock.timeout(max(0.0, min(waiting) - now)):
                        await self._sooner.wait()
                else:
                    await self._sooner.wait()

    async def _run_one(self, flush: Callable[[], Awaitable[None]]) -> None:
        try:
            async with self._limit:
                await flush()
        finally:
            self._running.discard(flush)
            self._sooner.set()
