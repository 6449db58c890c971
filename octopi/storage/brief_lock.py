"""A lock that takes almost no memory while it is not held.

A node may have many thousands of logs with a lock each, and a `trio.Lock` takes 330 bytes.
"""

from __future__ import annotations

from types import TracebackType

import trio


class BriefLock:
    """A lock for ``async with``; tasks get it one at a time, in the order in which they asked.

    Invariant: while a task holds the lock or waits for it, `_lock` is the `trio.Lock` of all.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock: trio.Lock | None = None

    @property
    def is_free(self) -> bool:
        """Whether no task holds it, or waits for it."""
        return self._lock is None

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
        if not lock.locked():  # else the next task holds it already
            self._lock = None
