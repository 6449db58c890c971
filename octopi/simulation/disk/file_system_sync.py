"""A sync of the whole simulated disk, as Linux does it by syncfs(2).

It writes what each file has, and all names.  A file that fails to be written makes it fail, and the
next sync of that file, too, since each file has an error of its own: Linux counts them apart
(Documentation/core-api/errseq).  What else was to be written may be on the device or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

import attrs
import trio

from octopi.simulation.disk.device import StorageDevice
from octopi.simulation.disk.faults import Delay, Fail, first_failure
from octopi.simulation.disk.image import FileImage, PendingSync, os_error


class SyncedFile(Protocol):
    """A file on whose behalf the disk is synced."""

    @property
    def path(self) -> str:
        """Where it is."""


class SyncingView(Protocol):
    """The disk as the process sees it that syncs; see `octopi.simulation.disk.view.DiskView`."""

    disk: StorageDevice
    effect: Callable[[str, str, str], None]

    def syncing(self, image: FileImage) -> trio.Lock:
        """The lock of syncs of one file."""

    async def wait(self, seconds: float) -> None:
        """Wait for the device."""

    def check_alive(self, operation: str, path: str) -> None:
        """Raise if the process has ended."""


@attrs.frozen
class _Written:
    """A file that is written."""

    path: str
    image: FileImage
    flush: PendingSync
    failure: Fail | None
    """How writing it fails."""


async def sync_file_system(view: SyncingView, files: Sequence[SyncedFile]) -> None:
    """Sync the disk on behalf of *files*, which report the edges of a sync.

    Raises:
      OSError: if any file could not be written.
    """
    _report(view, files, "before")
    async with AsyncExitStack() as locks:
        unsynced = [(path, one) for path, one in view.disk.tree.files() if not one.is_settled]
        for _, image in unsynced:
            await locks.enter_async_context(view.syncing(image))
        seconds, written = view.disk.sync_s, list[_Written]()
        for path, image in unsynced:
            met = view.disk.faults.strike("sync", path)
            seconds += sum(how.seconds for how in met if isinstance(how, Delay))
            failure = first_failure(met)
            written.append(_Written(path, image, image.begin_flush(), failure))
        names = view.disk.tree.begin_sync_of_all()
        _report(view, files, "during")
        await view.wait(seconds)
        view.check_alive("sync", files[0].path)
        failed = [one for one in written if one.failure is not None]
        for one in written:
            if one.failure is not None and not one.failure.done:
                one.image.forget(one.flush)
            elif not failed or one.failure is not None:
                one.image.settle(one.flush)
            one.image.has_error |= one.failure is not None
        if failed:
            assert failed[0].failure is not None
            raise os_error(failed[0].failure.error_number, failed[0].path)
        view.disk.tree.settle(names)
    _report(view, files, "after")


def _report(view: SyncingView, files: Sequence[SyncedFile], edge: str) -> None:
    for file in files:
        view.effect("sync", edge, file.path)
        view.check_alive("sync", file.path)
