"""The device of a simulated machine: files, settings and armed faults.

`octopi.simulation.disk.disk` decides what happens to it, `octopi.simulation.disk.view` has the
calls of the processes that use it.
"""

from __future__ import annotations

import errno
from math import inf

from octopi.simulation.disk.faults import ArmedFaults
from octopi.simulation.disk.image import FileImage, Tree, os_error
from octopi.simulation.kernel.turn_meter import TurnMeter


class StorageDevice:
    """Files, the page cache over them, and how the next calls go.

    Paths count from ``/`` on, written or not.
    """

    def __init__(self) -> None:
        self.capacity_bytes: int | None = None
        """Bytes that all files together may have; None: no limit."""
        self.read_only = False
        """Whether every change is refused, as on a file system mounted so."""
        self.sync_s = 0.001
        """How long a sync takes (seconds)."""
        self.faults = ArmedFaults()
        """Calls that are going to fail."""
        self.tree = Tree()
        """What is there."""
        self.locks: dict[FileImage, DiskLock] = {}
        """By the file that is locked."""
        self.turns = TurnMeter()
        """How much is read in each turn of a task."""
        self.page_cache_count = 1
        """Page caches so far: a power failure begins a new one."""

    def page_cache_id(self) -> str:
        """See `octopi.environment.Disk.page_cache_id`."""
        return f"page cache {self.page_cache_count}"

    def cached(self, path: str, start_bytes: int = 0, end_bytes: int | None = None) -> bytes:
        """What processes see of a file, or a range of it.

        Raises:
          FileNotFoundError: if they see none.
        """
        return bytes(memoryview(self.image(path).cached)[start_bytes:end_bytes])

    def image(self, path: str, *, durable: bool = False) -> FileImage:
        """The file of that name, as processes see names, or as the device has them.

        Raises:
          FileNotFoundError, IsADirectoryError: if there is none.
        """
        found = self.tree.find(path, durable=durable)
        if not isinstance(found, FileImage):
            raise os_error(errno.ENOENT if found is None else errno.EISDIR, path)
        return found

    def free_bytes(self) -> float:
        """How many bytes may still be written."""
        if self.capacity_bytes is None:
            return inf
        return self.capacity_bytes - sum(len(image.cached) for _, image in self.tree.files())


class DiskLock:
    """`octopi.environment.DirectoryLock` of one process."""

    def __init__(self, device: StorageDevice, file: FileImage) -> None:
        self._device = device
        self._file = file

    def release(self) -> None:
        if self._device.locks.get(self._file) is self:
            del self._device.locks[self._file]
