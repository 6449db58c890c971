"""An open file of a simulated disk, and the edges of its calls.

`octopi.simulation.disk.view` has the other calls of a process.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from octopi.environment import File
from octopi.simulation.disk.device import StorageDevice
from octopi.simulation.disk.faults import Fail, MisdirectedRead, StaleRead, Tear, first_failure
from octopi.simulation.disk.image import FileImage, os_error


class FileView(Protocol):
    """The disk as the process sees it that has a file open; see
    `octopi.simulation.disk.view.DiskView`."""

    disk: StorageDevice
    effect: Callable[[str, str, str], None]

    def check_alive(self, operation: str, path: str) -> None:
        """Raise if the process has ended."""

    def syncing(self, image: FileImage) -> trio.Lock:
        """The lock of syncs of one file."""

    async def sync_alone_or_together(
        self, file: SimulatedFile, alone: Callable[[], Awaitable[None]]
    ) -> None:
        """Sync *file* by *alone*, or with others."""

    async def write_back(
        self,
        operation: str,
        path: str,
        settle: Callable[[], None],
        forget: Callable[[], None],
    ) -> None:
        """Sync something."""

    def closed(self, file: SimulatedFile) -> None:
        """Note that *file* is closed."""


class SimulatedFile:
    """The `octopi.environment.File` of one process."""

    __slots__ = (
        "_disk",
        "_effect",
        "_image",
        "_path",
        "_size_bytes",
        "_view",
        "_was_synced",
        "is_usable",
    )

    def __init__(self, view: FileView, path: str, image: FileImage) -> None:
        self._view = view
        self._disk = view.disk
        self._effect = view.effect
        self._path = path
        self._image = image
        self._size_bytes = len(image.cached)
        self._was_synced = False  # by itself, as `octopi.open_files.SystemFile` is at first
        self.is_usable = True
        """Whether the file is open and its process runs."""

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def append(self, data: bytes | memoryview) -> None:
        self._effect("append", "before", self._path)
        if not self.is_usable:
            raise os_error(errno.EBADF, self._path)
        disk, cached = self._disk, self._image.cached
        # A real file would overwrite bytes behind the end that it knows of.
        assert self._size_bytes == len(cached), f"{self._path} was changed by another open file"
        if disk.faults or disk.read_only or disk.capacity_bytes is not None:
            try:
                self._append_if_possible(memoryview(data))
            finally:
                self._size_bytes = len(cached)
        else:
            cached += data
            self._size_bytes += len(data)
        self._effect("append", "after", self._path)

    def _append_if_possible(self, data: memoryview) -> None:
        disk, image = self._disk, self._image
        if disk.read_only:
            raise os_error(errno.EROFS, self._path)
        met = disk.faults.strike("append", self._path)
        written = 0
        for how in met:
            if isinstance(how, Tear):
                torn_at = max(written, int(len(data) * how.written_fraction))
                image.cached += data[written:torn_at]
                written = torn_at
                self._effect("append", "during", self._path)
                if not self.is_usable:
                    raise os_error(errno.EBADF, self._path)
        failure = first_failure(met)
        end = len(data)
        if failure is not None and not failure.done:
            end = int(len(data) * failure.written_fraction)
        free_bytes = disk.free_bytes()
        if end - written > free_bytes:
            end, failure = written + int(free_bytes), Fail(errno.ENOSPC)
        image.cached += data[written:end]
        if failure is not None:
            raise os_error(failure.error_number, self._path)

    def pread(self, size_bytes: int, position_bytes: int) -> bytes:
        self._effect("pread", "before", self._path)
        if not self.is_usable:
            raise os_error(errno.EBADF, self._path)
        if position_bytes < 0 or size_bytes < 0:
            raise os_error(errno.EINVAL, self._path)
        if self._disk.faults:
            return self._pread_amiss(size_bytes, position_bytes)
        end_bytes = position_bytes + size_bytes
        self._disk.turns.note(max(0, min(end_bytes, len(self._image.cached)) - position_bytes))
        return bytes(memoryview(self._image.cached)[position_bytes:end_bytes])

    def _pread_amiss(self, size_bytes: int, position_bytes: int) -> bytes:
        image = self._image
        source, start = image.cached, position_bytes
        size_bytes = max(0, min(size_bytes, len(image.cached) - start))
        self._disk.turns.note(size_bytes)
        met = self._disk.faults.strike("pread", self._path)
        for how in met:
            if isinstance(how, MisdirectedRead):
                start += how.shift_bytes
            elif isinstance(how, StaleRead):
                source = image.durable
        failure = first_failure(met)
        if failure is not None:
            raise os_error(failure.error_number, self._path)
        before = min(size_bytes, max(0, -start))
        there = bytes(source[max(0, start) : max(0, start + size_bytes)])
        return (bytes(before) + there).ljust(size_bytes, b"\0")

    def rewrite(self, size_bytes: int, position_bytes: int) -> None:
        failure = self._begin_change("rewrite")
        if position_bytes < 0 or size_bytes < 0:
            raise os_error(errno.EINVAL, self._path)
        self._disk.turns.note(size_bytes)
        if failure is None or failure.done:
            self._image.rewrite(position_bytes)
        self._end_change("rewrite", failure)

    def truncate(self, size_bytes: int) -> None:
        failure = self._begin_change("truncate")
        if size_bytes < 0:
            raise os_error(errno.EINVAL, self._path)
        if failure is None or failure.done:
            self._image.truncate(size_bytes)
            self._size_bytes = size_bytes
        self._end_change("truncate", failure)

    def _begin_change(self, operation: str) -> Fail | None:
        """Report the first edge of a change; return how it fails."""
        self._effect(operation, "before", self._path)
        if not self.is_usable:
            raise os_error(errno.EBADF, self._path)
        if self._disk.read_only:
            raise os_error(errno.EROFS, self._path)
        return first_failure(self._disk.faults.strike(operation, self._path))

    def _end_change(self, operation: str, failure: Fail | None) -> None:
        """Report the last edge of a change that hasn't failed."""
        if failure is not None:
            raise os_error(failure.error_number, self._path)
        self._effect(operation, "after", self._path)

    async def sync(self) -> None:
        view = self._view
        if not self.is_usable:
            view.check_alive("sync", self._path)
            raise os_error(errno.EBADF, self._path)
        await trio.lowlevel.checkpoint_if_cancelled()
        alone = self._sync_alone
        await (view.sync_alone_or_together(self, alone) if self._was_synced else alone())
        self._was_synced = True

    async def _sync_alone(self) -> None:
        view, image = self._view, self._image
        lock = view.syncing(image)
        if lock.locked():
            await lock.acquire()
        else:
            lock.acquire_nowait()  # without a checkpoint: the sync waits anyway
        try:
            flush = image.begin_flush()
            if image.has_error:
                image.has_error = False
                raise os_error(errno.EIO, self._path)
            settle, forget = partial(image.settle, flush), partial(image.forget, flush)
            await view.write_back("sync", self._path, settle, forget)
        finally:
            lock.release()

    def close(self) -> None:
        self.is_usable = False
        self._view.closed(self)


if TYPE_CHECKING:

    def _is_file(file: SimulatedFile) -> File:
        return file
