"""The simulator's disk for tests without a simulation, as seen by the process that uses it now.

`octopi.simulation.disk` says what is on such a disk, what a loss of power leaves, and what a failed
call does.  Added is only what one test does to one disk: end the process that uses it and begin the
next one, let calls fail that are named by their errno, hold syncs, and look at all files at once.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

import attrs

from octopi.environment import DirectoryLock, Disk, DiskSpace, File
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.faults import ArmedFaults, DiskFault, Fail, How
from octopi.simulation.disk.image import Directory, Fate, FileImage, os_error
from octopi.simulation.disk.view import after_by_trio

_REPLACEMENT = ".new"
"""Ends the name under which `replace_file` writes."""


class _FaultsOfCalls(ArmedFaults):
    """Faults that strike what a program calls, not what `replace_file` is made of."""

    def strike(self, operation: str, path: str) -> list[How]:
        if operation == "sync_directory" or path.endswith(_REPLACEMENT):
            return []
        return super().strike(operation, path)

    def strike_sync_directory(self, path: str) -> Fail | None:
        """Count a program's sync of a directory; say how it fails."""
        met = super().strike("sync_directory", path)
        return next((how for how in met if isinstance(how, Fail)), None)


class MemoryDisk:
    """`octopi.environment.Disk` of whichever process uses the simulated disk now.

    Operations are named like the methods of `Disk` and `octopi.environment.File`.
    """

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.simulated = SimulatedDisk()
        """The disk itself."""
        self.simulated.sync_s = 0.0
        self.simulated.capacity_bytes = capacity_bytes
        self.faults = self.simulated.faults = _FaultsOfCalls()
        """Calls that are going to fail."""
        self.calls: list[str] = []
        """The operation of every call so far."""
        self._held: list[Callable[[], object]] | None = None
        self._attach()

    def _attach(self) -> None:
        self._view = self.simulated.attach(self._note, self._after)

    def _note(self, operation: str, edge: str, path: str) -> None:
        if edge == "before" and operation != "sync_directory" and not path.endswith(_REPLACEMENT):
            self.calls.append(operation)

    def _after(self, seconds: float, action: Callable[[], object]) -> None:
        if self._held is None:
            after_by_trio(seconds, action)
        else:
            self._held.append(action)

    # --- what tests do to it -------------------------------------------------------------

    @property
    def capacity_bytes(self) -> int | None:
        """Bytes that all files together may have; None: no limit."""
        return self.simulated.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, capacity_bytes: int | None) -> None:
        self.simulated.capacity_bytes = capacity_bytes

    @property
    def read_only(self) -> bool:
        """Whether every change is refused, as on a file system mounted so."""
        return self.simulated.read_only

    @read_only.setter
    def read_only(self, read_only: bool) -> None:
        self.simulated.read_only = read_only

    def fail(
        self,
        error_number: int,
        operation: str = "",
        *,
        path_end: str = "",
        calls_before: int = 0,
        times: int = 1,
        written: float = 0.0,
        done: bool = False,
    ) -> None:
        """Have calls fail: of *operation* (empty: any) on a path that ends in *path_end*,
        *times* in a row after *calls_before* such calls.

        An append writes the part *written* of its data first.  If *done*, the call takes full
        effect and fails all the same.  A sync of a file that fails is not made good by the next
        one; a sync of a directory that fails has not begun, as without a file descriptor.
        """
        how = Fail(error_number, written, done)
        self.faults.add(DiskFault(operation, how, path_end, calls_before, times))

    def heal(self) -> None:
        """Have no call fail any more."""
        self.faults.clear()

    def leave_names_unsynced(self, path: str) -> None:
        """Have the names in the directory *path* not be made durable until the process ends: a
        `replace_file` there renames the new file, and fails."""
        sync_directory = self._view.sync_directory

        async def fail_there(synced: str) -> None:
            if synced == path:
                raise os_error(errno.EIO, path)
            await sync_directory(synced)

        self._view.sync_directory = fail_there  # type: ignore[method-assign, assignment]

    @contextmanager
    def syncs_held(self) -> Iterator[None]:
        """Within this, a sync that has begun doesn't end."""
        held = self._held = []
        try:
            yield
        finally:
            self._held = None
            for end in held:
                end()

    def crash(
        self, *, keep_page_cache: bool, names_kept: bool = False, unsynced_bytes_kept: int = 0
    ) -> None:
        """End the process that uses it.  Without the page cache the machine goes down, too: what
        was not synced is lost, but for the first *unsynced_bytes_kept* bytes of each file, and, if
        *names_kept*, the names."""
        if keep_page_cache:
            self.simulated.end_life()
        else:
            tree = self.simulated.tree
            for _, image in tree.files() if unsynced_bytes_kept else ():
                flush = image.begin_flush()
                image.settle(attrs.evolve(flush, data=flush.data[:unsynced_bytes_kept]))
            if names_kept:
                tree.settle_names()
            self.simulated.lose_power(Random(0), (Fate.LOST,))
        self.heal()
        self._attach()

    def settle(self) -> None:
        """Have all on the device as processes see it, without any call."""
        self.simulated.settle()

    def plant(self, path: str, data: bytes) -> None:
        """Have *data* in a file, durably, without any call; its directory must be there."""
        head, _, name = path.rpartition("/")
        directory = self.simulated.tree.find(head)
        assert isinstance(directory, Directory)
        image = directory.cached.get(name) or FileImage()
        assert isinstance(image, FileImage)
        image.cached[:] = data
        image.settle_all()
        directory.cached[name] = directory.durable[name] = image

    def flip(self, path: str, bit: int) -> None:
        """Turn one bit of a file over, on the device too."""
        self.simulated.flip(path, bit)

    # --- what tests ask ------------------------------------------------------------------

    @property
    def open_files(self) -> list[str]:
        """Paths of the files that the process has open."""
        return self._view.open_files

    def content(self, path: str) -> bytes:
        """The content of a file, read without a disk call."""
        return self.simulated.cached(path)

    def files(self, under: str = "") -> dict[str, bytes]:
        """Every file below *under* with its content, without any call; paths begin with ``/``
        if *under* does."""
        root = "/" if under.startswith("/") else ""
        paths = self.simulated.files(under)
        return {root + path.removeprefix("/"): self.content(path) for path in paths}

    # --- Disk ------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        return self._view.open(path, create=create)

    def read_file(self, path: str) -> bytes:
        return self._view.read_file(path)

    async def replace_file(self, path: str, data: bytes) -> None:
        await self._view.replace_file(path, data)

    def make_directory(self, path: str) -> None:
        self._view.make_directory(path)

    def list_directory(self, path: str) -> list[str]:
        return self._view.list_directory(path)

    def is_link(self, path: str) -> bool:
        return self._view.is_link(path)

    def remove(self, path: str) -> None:
        self._view.remove(path)

    def remove_directory(self, path: str) -> None:
        self._view.remove_directory(path)

    def rename(self, old: str, new: str) -> None:
        self._view.rename(old, new)

    async def sync_directory(self, path: str) -> None:
        self.calls.append("sync_directory")
        failure = self.faults.strike_sync_directory(path)
        if failure is None or failure.done:
            await self._view.sync_directory(path)
        if failure is not None:
            raise os_error(failure.error_number, path)

    def room(self, path: str) -> DiskSpace | None:
        return self._view.room(path)

    def page_cache_id(self) -> str:
        return self._view.page_cache_id()

    def lock_directory(self, path: str) -> DirectoryLock:
        return self._view.lock_directory(path)


if TYPE_CHECKING:
    _disk: Disk = MemoryDisk()
