"""The device of a simulated machine: files, settings and armed faults.

`octopi.simulation.disk.disk` changes the device from outside, and `octopi.simulation.disk.view` has
the calls of the processes that use it.
"""

from __future__ import annotations

import errno
from math import inf
from typing import Final

import trio

from octopi.simulation.disk.faults import ArmedFaults
from octopi.simulation.disk.image import FileImage, Tree, os_error
from octopi.simulation.kernel.turn_meter import TurnMeter

SYNCS_ALONE: Final = (0, 1, 8)
"""Values of `StorageDevice.syncs_alone_max`: small clusters sync few files at a time.  With 0 each
sync is one of the whole disk."""


class StorageDevice:
    """Files, the page cache over them, and the faults of the next calls.

    Paths begin at ``/``, whether it is written or not.
    """

    def __init__(self) -> None:
        self.capacity_bytes: int | None = None
        """The bytes that all files together may have; None: no limit."""
        self.read_only = False
        """Whether every change is refused, as on a read-only file system."""
        self.syncs_alone_max = SYNCS_ALONE[-1]
        """How many files a process syncs by themselves at a time; further ones together."""
        self.sync_s = 0.001
        """How long a sync takes (s)."""
        self.faults = ArmedFaults()
        """The faults that may still strike."""
        self.tree = Tree()
        """The files and directories."""
        self.locks: dict[FileImage, DiskLock] = {}
        """The locks, by the file that is locked."""
        self.turns = TurnMeter()
        """Measures how much is read in each turn of a task."""
        self.page_cache_count = 1
        """The number of page caches so far: a power failure begins a new one."""

    def page_cache_id(self) -> str:
        """See `octopi.environment.Disk.page_cache_id`."""
        return f"page cache {self.page_cache_count}"

    def cached(self, path: str, start_bytes: int = 0, end_bytes: int | None = None) -> bytes:
        """The content of a file, or of a range of it, as processes see it.

        Raises:
          FileNotFoundError: if processes see no such file.
        """
        return bytes(memoryview(self.image(path).cached)[start_bytes:end_bytes])

    def image(self, path: str, *, durable: bool = False) -> FileImage:
        """The file with that name, as processes see names, or (*durable*) as the device has them.

        Raises:
          FileNotFoundError, IsADirectoryError: if there is none.
        """
        found = self.tree.find(path, durable=durable)
        if not isinstance(found, FileImage):
            raise os_error(errno.ENOENT if found is None else errno.EISDIR, path)
        return found

    def free_bytes(self) -> float:
        """The number of bytes that may still be written."""
        if self.capacity_bytes is None:
            return inf
        return self.capacity_bytes - sum(len(image.cached) for _, image in self.tree.files())


class DiskLock:
    """The `octopi.environment.DirectoryLock` of one process."""

    def __init__(self, device: StorageDevice, file: FileImage) -> None:
        self._device = device
        self._file = file

    def release(self) -> None:
        if self._device.locks.get(self._file) is self:
            del self._device.locks[self._file]


class DeviceWait:
    """A task that waits for the device, as in a shielded cancel scope, but much cheaper."""

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = trio.lowlevel.current_task()

    def end(self) -> None:
        """Let the task go on, if it still waits."""
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)
