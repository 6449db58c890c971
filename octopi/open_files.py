"""Files of this machine: a bounded number of open descriptors, and syncs that many files share."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

import trio

from octopi import platforms
from octopi.group_sync import GroupSync

FILE_MODE = 0o600
"""Only the node's own user may read what it stores, even if the process's umask allows more."""

_WRITE_BYTES = 64 * 1024
"""The greatest size of a write.  For a longer write Linux's page cache looks for an equally large
piece of memory: half a megabyte at once took seven times the processor time of the same in pieces
(6.18, ext4, a virtual machine)."""

_LOOKED_AT_COUNT = 8
"""How many files are considered for closing their descriptors when a file needs one."""


def open_descriptor(path: str, *, create: bool = False) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        return os.open(path, flags, FILE_MODE)
    except OSError as error:
        if create or error.errno not in {errno.EACCES, errno.EROFS, errno.EPERM}:
            raise
        # A read-only file can still be read; appending to it will raise an error.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


class SystemFile:
    """`octopi.environment.File` on a file descriptor, which may be closed while it isn't used."""

    # fmt: off
    __slots__ = (
        "_descriptor", "_group", "_is_closed", "_open_files", "_path", "_size_bytes", "changes",
        "device", "was_synced",
    )
    # fmt: on

    def __init__(self, path: str, descriptor: int, open_files: OpenFiles) -> None:
        self._path = path
        self._descriptor = descriptor
        self._open_files = open_files
        found = os.fstat(descriptor)
        self._size_bytes = found.st_size
        self.device = found.st_dev
        """The number of the file system."""
        self.changes = 0
        """The number of changes since the file was last synced."""
        self.was_synced = False
        """Whether it was synced by itself since it was opened.  Before, an earlier process may have
        changed it, and only that sync tells whether writing it failed."""
        self._group = open_files.group(self.device, path)
        self._is_closed = False
        open_files.used(self)

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def append(self, data: bytes | memoryview) -> None:
        descriptor = self._use()
        self.changes += 1
        rest = memoryview(data)
        while rest:
            written = os.pwrite(descriptor, rest[:_WRITE_BYTES], self._size_bytes)
            self._size_bytes += written
            rest = rest[written:]

    def pread(self, size_bytes: int, position_bytes: int) -> bytes:
        descriptor = self._use()
        data = os.pread(descriptor, size_bytes, position_bytes)
        while len(data) < size_bytes:  # a signal or a limit of the system may cut a read
            more = os.pread(descriptor, size_bytes - len(data), position_bytes + len(data))
            if not more:
                break
            data += more
        return data

    def rewrite(self, size_bytes: int, position_bytes: int) -> None:
        descriptor = self._use()
        self.changes += 1
        end_bytes = position_bytes + size_bytes
        while position_bytes < end_bytes:
            size_bytes = min(_WRITE_BYTES, end_bytes - position_bytes)
            data = os.pread(descriptor, size_bytes, position_bytes)
            if not data:
                break  # the file is shorter
            position_bytes += os.pwrite(descriptor, data, position_bytes)

    def truncate(self, size_bytes: int) -> None:
        descriptor = self._use()
        self.changes += 1
        os.ftruncate(descriptor, size_bytes)
        self._size_bytes = size_bytes

    async def sync(self) -> None:
        if self.was_synced and not self.changes:
            await trio.lowlevel.checkpoint()
        elif not self.was_synced:
            # Only its own sync reports that writing it failed before this process opened it.
            await self._sync_alone()
        else:
            await self._group.sync(self, self._sync_alone)

    async def _sync_alone(self) -> None:
        # Use a duplicate: if this one is closed meanwhile, its number may go to another file.
        descriptor = os.dup(self._use())
        changes = self.changes
        try:
            await trio.to_thread.run_sync(platforms.sync_data, descriptor)
            self.synced(changes)
        finally:
            os.close(descriptor)

    def synced(self, changes: int) -> None:
        """The first *changes* of its changes are on the device, and all before them."""
        self.was_synced = True
        self.changes = max(0, self.changes - changes)

    def close(self) -> None:
        self._is_closed = True
        self._open_files.closed(self)
        self.let_go()

    @property
    def is_synced(self) -> bool:
        """Whether the whole file is on the device."""
        return not self.changes

    def let_go(self) -> None:
        """Close the descriptor, until the file is used again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _use(self) -> int:
        if self._is_closed:
            raise OSError(errno.EBADF, "this file is closed", self._path)
        if self._descriptor < 0:
            self._descriptor = open_descriptor(self._path)
        self._open_files.used(self)
        return self._descriptor


class OpenFiles:
    """Bounds the number of open descriptors, so that there may be any number of logs.

    A file that isn't synced keeps its descriptor.  Linux reports a failed write-back to open
    descriptors of the file, and may forget the failure if there are none.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._files: dict[SystemFile, None] = {}
        """The files with a descriptor; the most recently used file is the last."""
        self._groups: dict[int, GroupSync[SystemFile]] = {}
        """By file system."""

    def group(self, device: int, path: str) -> GroupSync[SystemFile]:
        """What syncs the files of the file system *device* together; *path* is one of them."""
        found = self._groups.get(device)
        if found is None:
            # This comes before anything is written, because errors are told from here on.
            sync = platforms.file_system_sync(os.path.dirname(path) or ".")
            sync_all = None if sync is None else partial(self._sync_all, device, sync)
            found = self._groups[device] = GroupSync(sync_all)
        return found

    async def _sync_all(
        self, device: int, sync: Callable[[], None], files: Sequence[SystemFile]
    ) -> None:
        # All that were changed have a descriptor.  Others have to be synced by themselves first.
        covered = [
            (one, one.changes) for one in self._files if one.device == device and one.was_synced
        ]
        await trio.to_thread.run_sync(sync)
        for file, changes in covered:
            file.synced(changes)

    def used(self, file: SystemFile) -> None:
        """*file*, which has a descriptor, was just used."""
        self._files.pop(file, None)
        self._files[file] = None
        if len(self._files) > self._count_max:
            for oldest in list(islice(self._files, _LOOKED_AT_COUNT)):
                del self._files[oldest]
                if oldest.is_synced and oldest is not file:
                    oldest.let_go()
                else:
                    self._files[oldest] = None

    def closed(self, file: SystemFile) -> None:
        """*file* was closed."""
        self._files.pop(file, None)

    def close_all(self) -> None:
        """Close all files that have a descriptor, and what syncs them together."""
        for file in list(self._files):
            file.close()
        self._groups.clear()
