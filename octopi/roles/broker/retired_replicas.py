"""Replicas that this broker gave up, kept for a while.

A replica is retired because the register placed its partition on other brokers.  If that was a
mistake or an attack, its records may be the last copy, so they are not deleted at once.
`octopi.roles.broker.retired_folders` defines the names and the layout of the folders.

**Moving is renaming**, and after a crash at any point the broker continues it.  First the folder is
made, durably, with the suffix ``.moving``; then the files are renamed into it; then the folder
loses the suffix.  While a partition has such a folder, the files in the places of its replica
belong in the folder, whatever the partition table says.

**Time is counted while the broker runs**, by the monotonic clock, and noted in the folder from time
to time.  So neither a jump of the wall clock nor a long stop of the broker deletes anything: a
replica may be kept longer than configured, but never shorter.

On a full disk the oldest retired replicas are deleted first, because replicas are often moved to
make room.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from octopi.environment import Environment
from octopi.errors import StorageError
from octopi.identifiers import Epoch, PartitionId
from octopi.limits import RETIRED_COUNT_INTERVAL_S, RETIRED_FILES_PER_TURN
from octopi.logger import get_logger
from octopi.roles.broker.deletion import names_in, remove_directory
from octopi.roles.broker.replica_ends import ends_path
from octopi.roles.broker.retired_folders import (
    COUNT_FILE,
    DIRECTORY,
    MOVING_SUFFIX,
    REMOVED_SUFFIX,
    SECONDS,
    RetiredFolder,
    name_for,
    parse,
    stored_seconds,
)
from octopi.storage import checkpoint
from octopi.storage.directories import make_durable_directory
from octopi.storage.full_disk import FULL, disk_full

_log = get_logger(__name__)

_PARTS: Final = ("logs", "replicas")


class RetiredReplicas:
    """The folder ``retired`` of one data directory."""

    def __init__(self, environment: Environment, data_directory: str, keep_s: float) -> None:
        """*keep_s*: how long a retired replica is kept, in seconds; 0: not at all."""
        self.keep_s = keep_s
        self._environment = environment
        self._disk = environment.disk
        self._data_directory = data_directory
        self._root = f"{data_directory}/{DIRECTORY}"
        self._counted: dict[str, float] = {}
        """The seconds that each folder was kept, by name."""
        self._noted: dict[str, float] = {}
        """The stored part of these seconds."""
        self._sizes: dict[str, int] = {}
        """The sizes in bytes, by name."""
        self._looked_at = environment.clock.now()
        self._complained: set[str] = set()

    def found(self) -> list[RetiredFolder]:
        """All folders, sorted by their names.

        Raises:
          StorageError: if the folder can't be read.
        """
        parsed = map(parse, names_in(self._disk, self._root))
        return [one for one in parsed if one is not None]

    @property
    def count(self) -> int:
        """The number of whole retired replicas, as far as they were examined."""
        return len(self._sizes)

    @property
    def size_bytes(self) -> int:
        """The size of their files, as far as they were examined."""
        return sum(self._sizes.values())

    def begun(self) -> set[PartitionId]:
        """The partitions whose replicas are being moved, so some of their files may be in their old
        places.

        Raises:
          StorageError: if the folder can't be read.
        """
        moving = [one for one in self.found() if one.suffix == MOVING_SUFFIX]
        return {one.partition for one in moving if not self._is_empty(one.name)}

    def _is_empty(self, name: str) -> bool:
        folders = (f"{self._root}/{name}/{part}" for part in _PARTS)
        return not any(names_in(self._disk, folder) for folder in folders)

    # --- keeping one ---------------------------------------------------------------------

    async def keep(self, partition: PartitionId, epoch: Epoch) -> str:
        """Move the files of the replica of *partition* into a folder of its own, durably, or
        continue an interrupted move; return the folder.  The files must not be in use any more.
        *epoch*: that of the decision that placed the partition elsewhere.

        Raises:
          DiskFullError: if there is no space for the folder.
          StorageError: if the disk fails; some of the files may have been moved.
        """
        folder = self._folder_for(partition, epoch)
        for part in _PARTS:
            await make_durable_directory(
                self._disk, f"{folder}{MOVING_SUFFIX}/{part}", {self._data_directory}
            )
        try:
            await self._move(partition, f"{folder}{MOVING_SUFFIX}")
            self._disk.rename(f"{folder}{MOVING_SUFFIX}", folder)
            await self._disk.sync_directory(self._root)
        except OSError as error:
            if error.errno in FULL:
                raise disk_full(f"partition {partition} was not retired", error) from error
            why = f"the replica of partition {partition} can't be moved to {folder}: {error}"
            raise StorageError(why) from error
        # The next turn counts the time since the turn before, which is longer ago than this move.
        now = self._environment.clock.now()
        self._counted[folder.rpartition("/")[2]] = self._looked_at - now
        return folder

    def forget_begun(self, partition: PartitionId) -> None:
        """Remove the folder of a move that moved nothing.

        Raises:
          StorageError: if the folder can't be removed.
        """
        for one in self.found():
            if one.partition == partition and one.suffix == MOVING_SUFFIX:
                for part in (*(f"/{part}" for part in _PARTS), ""):
                    remove_directory(self._disk, f"{self._root}/{one.name}{part}")

    def _folder_for(self, partition: PartitionId, epoch: Epoch) -> str:
        """The folder of the replica, without the suffix."""
        found = self.found()
        for one in found:
            if one.partition == partition and one.suffix == MOVING_SUFFIX:
                return f"{self._root}/{one.name.removesuffix(MOVING_SUFFIX)}"
        taken = {one.name for one in found}
        return (
            f"{self._root}/{name_for(partition, epoch, self._environment.clock.wall_ms(), taken)}"
        )

    async def _move(self, partition: PartitionId, folder: str) -> None:
        disk, replica = self._disk, f"replicas/{partition}"
        for path in (f"logs/{partition}", ends_path(replica), replica):
            parent, _, name = f"{self._data_directory}/{path}".rpartition("/")
            if name in disk.list_directory(parent):
                disk.rename(f"{parent}/{name}", f"{folder}/{path}")
        # Make the new names durable first, so that no power failure leaves a file without a name.
        for root in (folder, self._data_directory):
            for part in _PARTS:
                if part in disk.list_directory(root):
                    await disk.sync_directory(f"{root}/{part}")

    # --- deleting ------------------------------------------------------------------------

    async def turn(self, *, is_full: bool) -> None:
        """Count the time that has passed, and delete files of the replicas that were kept long
        enough, or, if the disk *is_full* and none was, of the one that was kept longest.  A turn
        deletes at most `octopi.limits.RETIRED_FILES_PER_TURN` files.  The next turn tries a failed
        deletion again."""
        now = self._environment.clock.now()
        elapsed_s, self._looked_at = now - self._looked_at, now
        with suppress(StorageError):
            await self._turn(elapsed_s, is_full)

    async def _turn(self, elapsed_s: float, is_full: bool) -> None:
        found = self.found()
        whole = [one.name for one in found if one.is_whole]
        for known in (self._counted, self._noted, self._sizes):
            for name in known.keys() - set(whole):
                del known[name]
        for name in whole:
            await self._count(name, elapsed_s)
            if name not in self._sizes:
                self._sizes[name] = await self._measure(f"{self._root}/{name}/logs")
        over = [name for name in whole if self._counted[name] >= self.keep_s]
        doomed = [one.name for one in found if one.suffix == REMOVED_SUFFIX]
        if is_full and whole and not over and not doomed:
            over = [max(whole, key=lambda name: self._counted[name])]
            _log.warning("a retired replica is deleted to make room", folder=over[0])
        for name in over:
            removed = f"{name}{REMOVED_SUFFIX}"
            try:
                self._disk.rename(f"{self._root}/{name}", f"{self._root}/{removed}")
                await self._disk.sync_directory(self._root)
            except OSError as error:
                self._complain(name, error)
                continue
            doomed.append(removed)
            _log.info("retired replica deleted", folder=name, kept_s=int(self._counted[name]))
            del self._sizes[name]
        budget = RETIRED_FILES_PER_TURN
        for name in doomed:
            try:
                budget = await self._remove(f"{self._root}/{name}", budget)
            except OSError as error:
                self._complain(name, error)
            if not budget:
                break

    async def _count(self, name: str, elapsed_s: float) -> None:
        """Add *elapsed_s* to the time of a replica, if it was known when that time began."""
        path = f"{self._root}/{name}/{COUNT_FILE}"
        if name not in self._counted:
            self._counted[name] = self._noted[name] = stored_seconds(self._disk, path)
            return
        self._counted[name] += elapsed_s
        # This is often enough for the time to advance on a broker that restarts again and again.
        interval_s = min(RETIRED_COUNT_INTERVAL_S, self.keep_s / 10)
        is_due = self._counted[name] - self._noted.get(name, 0.0) >= interval_s
        if is_due and self._counted[name] < self.keep_s:
            with suppress(StorageError):  # if it fails, the replica is kept a little longer
                await checkpoint.store(self._disk, path, {SECONDS: int(self._counted[name])})
                self._noted[name] = self._counted[name]

    async def _measure(self, path: str) -> int:
        """The size of the files below *path*, as far as they can be read."""
        await trio.lowlevel.checkpoint()
        try:
            names = self._disk.list_directory(path)
        except NotADirectoryError:
            try:
                file = self._disk.open(path)
                file.close()
            except OSError:
                return 0
            return file.size_bytes
        except OSError:
            return 0
        total_bytes = 0
        for name in names:
            total_bytes += await self._measure(f"{path}/{name}")
        return total_bytes

    def _complain(self, name: str, error: OSError) -> None:
        """Log once that a retired replica can't be deleted."""
        if name not in self._complained:
            self._complained.add(name)
            _log.error("retired replica not deleted", folder=name, why=str(error))

    async def _remove(self, path: str, budget: int) -> int:
        """Remove *path* and all in it, at most *budget* files and directories, with a checkpoint
        after each; return what is left of the budget.  A symbolic link is removed, not followed.

        Raises:
          OSError: if something can't be removed.
        """
        await trio.lowlevel.checkpoint()
        try:
            self._disk.remove(path)
            return budget - 1
        except FileNotFoundError:
            return budget
        except IsADirectoryError:
            pass
        for name in self._disk.list_directory(path):
            if not budget:
                return 0
            budget = await self._remove(f"{path}/{name}", budget)
        if not budget:
            return 0
        with suppress(FileNotFoundError):  # an operator removed it at the same time
            self._disk.remove_directory(path)
        return budget - 1
