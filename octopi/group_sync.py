"""Many files of one file system made durable by one call.

A few syncs at a time are of their own file each.  Where more are wanted, those beyond wait for one
sync of the whole file system, which costs about as much as one of them.  It covers what was written
before it began, so a file whose sync is wanted later waits for the next one.

If the sync of a file system fails, it isn't known whose data was lost, so it fails for all that
waited for it.  Its error is reported only once, also about files that nobody had synced then.
Therefore no other sync of the whole file system is made by this process: each file has an error of
its own, which its own sync reports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

import trio

from octopi.limits import SYNCS_ALONE_MAX, SYNCS_TOGETHER_MIN

F = TypeVar("F")

SyncAll = Callable[[Sequence[F]], Awaitable[None]]
"""Syncs the whole file system, on behalf of the files in the list; raises `OSError` if that
failed."""


class GroupSync(Generic[F]):
    """Syncs files of one file system, by themselves or together."""

    def __init__(
        self,
        sync_all: SyncAll[F] | None,
        *,
        alone_max: int = SYNCS_ALONE_MAX,
        together_min: int = SYNCS_TOGETHER_MIN,
    ) -> None:
        """*sync_all*: None where the system has no such call, or it reports no errors; then each
        file is synced by itself."""
        self._sync_all = sync_all
        self._alone_max = alone_max
        self._together_min = together_min
        self._alone = 0
        """How many syncs of single files are in progress."""
        self._forming: _Group[F] | None = None
        """The group that waits for its turn; files may still join."""
        self._turn = trio.Lock()
        """Held while a group is synced, because an error is reported to one sync only."""

    async def sync(self, file: F, alone: Callable[[], Awaitable[None]]) -> None:
        """Wait until all that *file* has now is on the device; *alone* syncs only this file.

        Raises:
          OSError: if that failed.
        """
        if self._sync_all is None or self._alone < self._alone_max:
            self._alone += 1
            try:
                await alone()
            finally:
                self._alone -= 1
            return
        group = self._forming
        if group is None:
            group = self._forming = _Group(file)
            await self._lead(group)
        else:
            group.files.append(file)
            await group.ended.wait()
        if group.error is not None:
            raise OSError(*group.error.args) from group.error
        if not group.is_synced:
            await alone()

    async def _lead(self, group: _Group[F]) -> None:
        """Sync *group* when it is its turn; the first of its files does that for all."""
        try:
            async with self._turn:
                self._forming = None
                if self._sync_all is None or len(group.files) < self._together_min:
                    return
                try:
                    await self._sync_all(group.files)
                    group.is_synced = True
                except OSError as error:
                    self._sync_all = None
                    group.error = error
        finally:
            if self._forming is group:
                self._forming = None
            group.ended.set()


class _Group(Generic[F]):
    """Files that are synced together."""

    def __init__(self, first: F) -> None:
        self.files: Final = [first]
        self.ended: Final = trio.Event()
        self.is_synced = False
        """Whether all is on the device; else, without an error, each file is synced by itself."""
        self.error: OSError | None = None
