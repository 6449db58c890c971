"""Makes directories durably, and locks them.

A new directory, like a new file, is lost in a power failure until the directory that contains it
was synced.
"""

from __future__ import annotations

from collections.abc import Sequence

from octopi.environment import DirectoryLock, Disk
from octopi.errors import StorageError
from octopi.storage.full_disk import FULL, disk_full


async def make_durable_directory(disk: Disk, path: str, lasting: set[str] | None = None) -> None:
    """Make the directory *path* and its missing parents, durably.

    *lasting*: see `make_durable_directories`.  None: existing directories count as durable.

    Raises:
      DiskFullError: if there is no space.
      StorageError: if the disk fails otherwise.
    """
    if lasting is not None:
        for failure in (await make_durable_directories(disk, [path], lasting)).values():
            raise failure
        return
    naming = _missing_names(disk, path)
    try:
        disk.make_directory(path)
        for parent in reversed(naming):
            await disk.sync_directory(parent)
    except OSError as error:
        raise _not_made(path, error) from error


async def make_durable_directories(
    disk: Disk, paths: Sequence[str], lasting: set[str]
) -> dict[str, StorageError]:
    """Make the directories *paths* and their missing parents, durably; a parent of several is
    synced once.  Return why some of *paths* were not made: `DiskFullError` if there is no space.

    *lasting*: the directories whose names are known to be durable; this call adds the parents of
    *paths*.  The parents up to the first one of them are synced even if nothing new is in them,
    because an earlier attempt, or an earlier process, may have made a directory there and failed
    before the sync.
    """
    failed: dict[str, StorageError] = {}
    naming: dict[str, list[str]] = {}
    """The paths that a sync of each parent is for."""
    for path in paths:
        try:
            disk.make_directory(path)
        except OSError as error:
            failed[path] = _not_made(path, error)
        else:
            for parent in _doubtful_names(path, lasting):
                naming.setdefault(parent, []).append(path)
    for parent in sorted(naming, key=len):  # the outermost first
        try:
            await disk.sync_directory(parent)
        except OSError as error:
            failed.update({path: _not_made(path, error) for path in naming[parent]})
    lasting.update(one for one, made in naming.items() if not failed.keys() & set(made))
    return failed


def _not_made(path: str, error: OSError) -> StorageError:
    if error.errno in FULL:
        return disk_full(f"{path} was not made", error)
    return StorageError(f"{path} can't be made or written: {error.strerror}")


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
