"""A lock that takes almost no memory while it is not held.

There may be one for each of many thousands of logs, and a `trio.Lock` takes 330 bytes.
"""

from __future__ import annotations

from types import TracebackType

import trio


class BriefLock:
    """``async with lock:``, one at a time, in the order in which they came.

    Invariant: while somebody holds or awaits it, all share one `trio.Lock`.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock: trio.Lock | None = None

    async def __aenter__(self) -> None:
        if self._lock is None:
            self._lock = trio.Lock()
        await self._lock.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        lock = self._lock
        assert lock is not None
        lock.release()
        if not lock.locked():  # else it went straight to the next one
            self._lock = None
