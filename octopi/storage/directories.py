"""Makes directories durably, and locks them.

A new directory, like a new file, is lost in a power failure until the directory that contains it
was synced.
"""

from __future__ import annotations

from octopi.environment import DirectoryLock, Disk
from octopi.errors import StorageError
from octopi.storage.full_disk import FULL, disk_full


async def make_durable_directory(disk: Disk, path: str, lasting: set[str] | None = None) -> None:
    """Make the directory *path* and its missing parents, durably.

    *lasting*: the directories whose names are known to be durable; this call adds the parents of
    *path*.  The parents up to the first one of them are synced even if nothing new is in them,
    because an earlier attempt, or an earlier process, may have made a directory there and failed
    before the sync.  None: existing directories count as durable.

    Raises:
      DiskFullError: if there is no space.
      StorageError: if the disk fails otherwise.
    """
    naming = _missing_names(disk, path) if lasting is None else _doubtful_names(path, lasting)
    try:
        disk.make_directory(path)
        for parent in reversed(naming):
            await disk.sync_directory(parent)
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(f"{path} was not made", error) from error
        raise StorageError(f"{path} can't be made or written: {error.strerror}") from error
    if lasting is not None:
        lasting.update(naming)


async def sync_names(disk: Disk, path: str) -> None:
    """Make the names of files in the directory *path* durable.

    Raises:
      StorageError: if the disk fails.
    """
    try:
        await disk.sync_directory(path)
    except OSError as error:
        raise StorageError(f"{path} can't be synced: {error.strerror}") from error


def lock_directory(disk: Disk, path: str) -> DirectoryLock:
    """Lock the directory *path*, so that no other process uses it.

    Raises:
      DirectoryInUseError: if another process has locked it.
      StorageError: if it can't be locked, such as for lack of the right to write there.
    """
    try:
        return disk.lock_directory(path)
    except OSError as error:
        raise StorageError(f"{path} can't be used: {error.strerror}") from error


def _doubtful_names(path: str, lasting: set[str]) -> list[str]:
    """The parents of *path* up to the first one that is in *lasting*, the innermost first."""
    naming: list[str] = []
    while not naming or naming[-1] not in lasting:
        path = path.rpartition("/")[0]
        if not path:
            break
        naming.append(path)
    return naming


def _missing_names(disk: Disk, path: str) -> list[str]:
    """The directories in which *path* or one of its parents has to be made, the innermost first."""
    naming: list[str] = []
    while True:
        parent, _, name = path.rstrip("/").rpartition("/")
        parent = parent or ("/" if path.startswith("/") else ".")
        try:
            known = not name or name in disk.list_directory(parent)
        except OSError:
            known = True  # this node can't read it, so it has not made anything there
        if known:
            return naming
        naming.append(parent)
        if parent in {"/", "."}:
            return naming
        path = parent
