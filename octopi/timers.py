"""A queue of timers that one task serves.

A producer may have thousands of logs, each with something to do in a few milliseconds.  A task for
each of them would cost more than the work that it wakes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

import trio

from octopi.environment import Clock

_TICK_S: Final = 0.0005
"""The shortest wait.  A shorter one could round to zero on the clock and repeat for ever."""


class TimerQueue:
    """Calls functions at given times of one clock."""

    def __init__(self, clock: Clock, nursery: trio.Nursery) -> None:
        """*nursery* owns the task, which starts with the first timer."""
        self._clock = clock
        self._nursery = nursery
        self._queue: list[tuple[float, int, Callable[[float], None]]] = []
        """A heap; the number keeps the order of timers for the same time."""
        self._numbers = count()
        self._is_running = False
        self._sooner = trio.Event()

    def set(self, at: float, ring: Callable[[float], None]) -> None:
        """Call ``ring(at)`` at time *at* or soon after.  A timer can't be cancelled: a caller that
        no longer needs it ignores the call."""
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
