"""A simulated disk as one process sees it, and the edges of its calls.

This module handles what a call does, reports and raises.  `octopi.simulation.disk.disk` lists the
guarantees; this module keeps them for one process.  It knows no power failure: a view only stops
working when its process ends.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from octopi.environment import Disk, DiskSpace
from octopi.errors import DirectoryInUseError
from octopi.group_sync import GroupSync
from octopi.simulation.disk.device import DeviceWait, DiskLock, StorageDevice
from octopi.simulation.disk.faults import Delay, Fail, first_failure
from octopi.simulation.disk.file_system_sync import sync_file_system
from octopi.simulation.disk.image import Directory, FileImage, Node, names_in_path, os_error
from octopi.simulation.disk.open_file import SimulatedFile

_REPLACEMENT_SUFFIX: Final = ".new"
_LOCK_NAME: Final = "lock"

Effect = Callable[[str, str, str], None]
"""Called as ``effect(operation, edge, path)``.  It never waits, and may raise."""

After = Callable[[float, Callable[[], object]], object]
"""Called as ``after(seconds, action)``: calls *action* when that time has passed."""


def after_by_trio(seconds: float, action: Callable[[], object]) -> None:
    """An `After` by Trio's clock, for disks outside of a simulated world."""

    async def wait() -> None:
        await trio.sleep(seconds)
        action()

    trio.lowlevel.spawn_system_task(wait)


class DiskView:
    """The `octopi.environment.Disk` of one process."""

    def __init__(self, disk: StorageDevice, effect: Effect, after: After) -> None:
        self.disk = disk
        self.effect = effect
        self._after = after
        self._ended = False
        self._waits: dict[Callable[[], None], None] = {}
        """A function for each wait for the device, which ends that wait."""
        self._files: dict[SimulatedFile, None] = {}
        self._syncing: dict[FileImage, trio.Lock] = {}
        self.group_sync: Final = GroupSync[SimulatedFile](
            partial(sync_file_system, self), alone_max=disk.syncs_alone_max, together_min=1
        )
        self.sync_alone_or_together: Final = self.group_sync.sync

    @property
    def open_files(self) -> list[str]:
        """The paths of the files that the process has open, in the order of opening."""
        return [file.path for file in self._files]

    def end(self) -> None:
        """Note that the process has ended.  The disk releases its locks."""
        self._ended = True
        for file in self._files:
            file.is_usable = False
        self._files.clear()
        for end_wait in self._waits:
            end_wait()

    # --- Disk: reading -------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        failure = self._enter("open", path)
        if create:
            self._check_changeable(path)
        found = self.disk.tree.find(path)
        if found is None:
            if not create:
                raise os_error(errno.ENOENT, path)
            found = FileImage()
            self.disk.tree.change((*self._place(path), found))
            self._leave("open", path, failure)
        elif failure is not None:
            raise os_error(failure.error_number, path)
        if isinstance(found, Directory):
            raise os_error(errno.EISDIR, path)
        file = SimulatedFile(self, path, found)
        self._files[file] = None
        return file

    def read_file(self, path: str) -> bytes:
        self._look("read_file", path)
        content = self.disk.cached(path)
        self.disk.turns.note(len(content))
        return content

    def list_directory(self, path: str) -> list[str]:
        self._look("list_directory", path)
        found = self.disk.tree.find(path)
        if isinstance(found, FileImage):
            raise os_error(errno.ENOTDIR, path)
        return sorted(found.cached) if found is not None else []

    def is_link(self, path: str) -> bool:
        return False  # a simulated disk has no links

    def room(self, path: str) -> DiskSpace | None:
        free_bytes, total_bytes = self.disk.free_bytes(), self.disk.capacity_bytes
        return None if total_bytes is None else DiskSpace(max(0, int(free_bytes)), total_bytes)

    def page_cache_id(self) -> str:
        return self.disk.page_cache_id()

    # --- Disk: changing ------------------------------------------------------------------

    async def replace_file(self, path: str, data: bytes) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        failure = self._enter("replace_file", path)
        beside = path + _REPLACEMENT_SUFFIX
        with trio.CancelScope(shield=True):
            file = self.open(beside, create=True)
            try:
                if file.size_bytes:
                    file.truncate(0)  # what an earlier failure left
                file.append(data)
                await file.sync()
            finally:
                file.close()
            self.rename(beside, path)
            await self.sync_directory(path.rpartition("/")[0])
        self._leave("replace_file", path, failure)

    def make_directory(self, path: str) -> None:
        failure = self._enter("make_directory", path)
        names = names_in_path(path)
        directory, changed = self.disk.tree.root, failure is not None
        for number, name in enumerate(names, 1):
            node = directory.cached.get(name)
            if node is None:
                self._check_changeable(path)
                node, changed = Directory(), True
                self.disk.tree.change((directory, name, node))
            elif isinstance(node, FileImage):
                raise os_error(errno.EEXIST if number == len(names) else errno.ENOTDIR, path)
            directory = node
        if changed:
            self._leave("make_directory", path, failure)

    def remove(self, path: str) -> None:
        failure = self._enter("remove", path)
        self._check_changeable(path)
        if isinstance(self._existing(path), Directory):
            raise os_error(errno.EISDIR, path)
        self.disk.tree.change((*self._place(path), None))
        self._leave("remove", path, failure)

    def remove_directory(self, path: str) -> None:
        failure = self._enter("remove_directory", path)
        self._check_changeable(path)
        if self._existing_directory(path).cached:
            raise os_error(errno.ENOTEMPTY, path)
        self.disk.tree.change((*self._place(path), None))
        self._leave("remove_directory", path, failure)

    def rename(self, old: str, new: str) -> None:
        failure = self._enter("rename", old)
        self._check_changeable(old)
        found = self._existing(old)
        source, source_name = self._place(old)
        target, target_name = self._place(new)
        replaced = target.cached.get(target_name)
        if replaced is not found:
            if names_in_path(new)[: len(names_in_path(old))] == names_in_path(old):
                raise os_error(errno.EINVAL, new)  # a directory can't be moved below itself
            if isinstance(replaced, Directory):
                if isinstance(found, FileImage):
                    raise os_error(errno.EISDIR, new)
                if replaced.cached:
                    raise os_error(errno.ENOTEMPTY, new)
            elif isinstance(replaced, FileImage) and isinstance(found, Directory):
                raise os_error(errno.ENOTDIR, new)
            self.disk.tree.change((source, source_name, None), (target, target_name, found))
        self._leave("rename", old, failure)

    async def sync_directory(self, path: str) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check_alive("sync_directory", path)
        directory = self._existing_directory(path)
        covered = self.disk.tree.begin_sync(directory)

        def settle() -> None:
            self.disk.tree.settle(covered)

        def forget() -> None:
            for operation in covered:
                operation.forgotten = True

        await self.write_back("sync_directory", path, settle, forget)

    def lock_directory(self, path: str) -> DiskLock:
        failure = self._enter("lock_directory", path)
        self._check_changeable(path)
        directory = self._existing_directory(path)
        file = directory.cached.get(_LOCK_NAME)
        if file is None:
            file = FileImage()
            self.disk.tree.change((directory, _LOCK_NAME, file))
        if isinstance(file, Directory):
            raise os_error(errno.EISDIR, path)
        if file in self.disk.locks:
            raise DirectoryInUseError(f"{path} is in use by another process")
        lock = self.disk.locks[file] = DiskLock(self.disk, file)
        self._leave("lock_directory", path, failure)
        return lock

    # --- internal ------------------------------------------------------------------------

    def check_alive(self, operation: str, path: str) -> None:
        """Raise if the process has ended: what its *effect* raises, or else `OSError`."""
        if self._ended:
            self.effect(operation, "before", path)
            raise os_error(errno.EBADF, path)

    def _look(self, operation: str, path: str) -> None:
        """Report the only edge of a call that changes nothing."""
        failure = self._enter(operation, path)
        if failure is not None:
            raise os_error(failure.error_number, path)

    def _enter(self, operation: str, path: str) -> Fail | None:
        """Report the first edge of a call; return the failure that it ends with although it is
        done, or None."""
        self.effect(operation, "before", path)
        self.check_alive(operation, path)
        failure = first_failure(self.disk.faults.strike(operation, path))
        if failure is not None and not failure.done:
            raise os_error(failure.error_number, path)
        return failure

    def _leave(self, operation: str, path: str, failure: Fail | None) -> None:
        """Report the last edge of a call that has changed something."""
        self.effect(operation, "after", path)
        if failure is not None:
            raise os_error(failure.error_number, path)

    async def write_back(
        self,
        operation: str,
        path: str,
        settle: Callable[[], None],
        forget: Callable[[], None],
    ) -> None:
        """Sync something: call *settle* when it is on the device, or *forget* if the sync fails.

        Cancellation doesn't interrupt this; the end of the process does.
        """
        try:
            failure = await self._wait_for_device(operation, path)
        except OSError:
            if not self._ended:
                forget()
            raise
        settle()
        self._leave(operation, path, failure)

    async def _wait_for_device(self, operation: str, path: str) -> Fail | None:
        self.effect(operation, "before", path)
        self.check_alive(operation, path)
        met = self.disk.faults.strike(operation, path)
        self.effect(operation, "during", path)
        self.check_alive(operation, path)
        await self.wait(
            self.disk.sync_s + sum(how.seconds for how in met if isinstance(how, Delay))
        )
        self.check_alive(operation, path)
        failure = first_failure(met)
        if failure is not None and not failure.done:
            raise os_error(failure.error_number, path)
        return failure

    async def wait(self, seconds: float) -> None:
        """Wait for the device.  Cancellation doesn't end this; the end of the process does."""
        if seconds == inf:
            with trio.CancelScope(shield=True) as scope:  # a run that is given up can lift it
                self._waits[scope.cancel] = None
                try:
                    await trio.sleep_forever()
                finally:
                    del self._waits[scope.cancel]
        else:
            wait = DeviceWait()
            self._waits[wait.end] = None
            self._after(seconds, wait.end)
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
            del self._waits[wait.end]

    def syncing(self, image: FileImage) -> trio.Lock:
        """The lock that lets syncs of one file happen one after another, as the system does."""
        return self._syncing.setdefault(image, trio.Lock())

    def closed(self, file: SimulatedFile) -> None:
        """Note that *file* is closed."""
        self._files.pop(file, None)

    def _check_changeable(self, path: str) -> None:
        if self.disk.read_only:
            raise os_error(errno.EROFS, path)

    def _existing(self, path: str) -> Node:
        found = self.disk.tree.find(path)
        if found is None:
            raise os_error(errno.ENOENT, path)
        return found

    def _existing_directory(self, path: str) -> Directory:
        found = self._existing(path)
        if isinstance(found, FileImage):
            raise os_error(errno.ENOTDIR, path)
        return found

    def _place(self, path: str) -> tuple[Directory, str]:
        """The directory of *path*, and the name in that directory."""
        head, _, name = path.rstrip("/").rpartition("/")
        return self._existing_directory(head), name


if TYPE_CHECKING:

    def _is_disk(view: DiskView) -> Disk:
        return view
