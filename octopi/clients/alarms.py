"""One task that keeps the time for all logs of a producer.

Thousands of logs may each have something to do in a few milliseconds; a task for each would
cost more than what it wakes.  Knows nothing of what is to be done.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

import trio

from octopi.environment import Clock

_TICK_S: Final = 0.0005
"""The shortest wait: a shorter one could vanish in the clock's rounding and repeat for ever."""


class Alarms:
    """Calls back at times of one clock."""

    def __init__(self, clock: Clock, nursery: trio.Nursery) -> None:
        """*nursery* owns the task, which begins with the first alarm."""
        self._clock = clock
        self._nursery = nursery
        self._queue: list[tuple[float, int, Callable[[float], None]]] = []
        """A heap; the number keeps the order of alarms for the same time."""
        self._numbers = count()
        self._is_running = False
        self._sooner = trio.Event()

    def set(self, at: float, ring: Callable[[float], None]) -> None:
        """Have *ring* called with *at* at that time or soon after.  It can't be taken back: who
        has changed its mind ignores it."""
        heapq.heappush(self._queue, (at, next(self._numbers), ring))
        if not self._is_running:
            self._is_running = True
            self._nursery.start_soon(self._run)
        elif self._queue[0][2] is ring:
            self._sooner.set()

    async def _run(self) -> None:
        while True:
            self._sooner = trio.Event()
            if self._queue:
                wait_s = max(_TICK_S, self._queue[0][0] - self._clock.now())
                with self._clock.timeout(wait_s):
                    await self._sooner.wait()
            else:
                await self._sooner.wait()
            now = self._clock.now()
            due: list[tuple[float, int, Callable[[float], None]]] = []
            while self._queue and self._queue[0][0] <= now:
                due.append(heapq.heappop(self._queue))
            for at, _, ring in due:
                ring(at)
