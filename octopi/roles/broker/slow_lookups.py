"""Look-ups that take a while: so many at a time that they can't starve what else a broker does.

Each is done in slices, between which all other tasks have their turn.  Many at a time would still
take most of the turns, so a broker does few, and of one connection one after the other: who asks
much waits for itself first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from octopi.limits import WALKS_PER_NODE_MAX
from octopi.storage.brief_lock import BriefLock


class SlowLookups:
    """The look-ups of one broker."""

    def __init__(self) -> None:
        self._permits = trio.Semaphore(WALKS_PER_NODE_MAX)

    @asynccontextmanager
    async def turn(self, connection: BriefLock) -> AsyncIterator[None]:
        """Within the block one look-up may be done; *connection* is that of who asks."""
        async with connection, self._permits:
            yield
