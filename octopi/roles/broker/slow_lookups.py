"""Long look-ups, bounded in number so that they can't starve the broker's other tasks.

Each look-up is done in slices, between which all other tasks run.  Many at a time would still take
most of the processor, so a broker does few at a time, and those of one connection one after
another: a client with many look-ups delays itself first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from octopi.limits import WALKS_PER_NODE_MAX
from octopi.storage.brief_lock import BriefLock


class SlowLookups:
    """Bounds the look-ups of one broker."""

    def __init__(self) -> None:
        self._permits = trio.Semaphore(WALKS_PER_NODE_MAX)

    @asynccontextmanager
    async def turn(self, connection: BriefLock) -> AsyncIterator[None]:
        """Wait for a turn; within the block one look-up may be done.  *connection*: the lock of the
        connection that asks."""
        async with connection, self._permits:
            yield
