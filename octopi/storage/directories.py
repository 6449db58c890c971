"""Directories whose names last.

A new directory is as lost in a power failure as a new file, until the directory that
names it is synced.
"""

from __future__ import annotations

from octopi.environment import DirectoryLock, Disk
from octopi.errors import StorageError
from octopi.storage.full_disk import FULL, disk_full


async def make_durable_directory(disk: Disk, path: str, lasting: set[str] | None = None) -> None:
    """Make *path* and what is missing above it, durably.

    *lasting*: the directories above whose names are known to last, to which those are added that
    do now.  Others are synced though they are there: an earlier attempt, or an earlier process, may
    have made them and not come to that.  None: what is there lasts.

    Raises:
      DiskFullError: if there is no space.
      StorageError: if it can't be done.
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


def lock_directory(disk: Disk, path: str) -> DirectoryLock:
    """Hold *path* against other processes.

    Raises:
      DirectoryInUseError: if another process holds it.
      StorageError: if it can't be locked: no right to write there, say.
    """
    try:
        return disk.lock_directory(path)
    except OSError as error:
        raise StorageError(f"{path} can't be used: {error.strerror}") from error


def _doubtful_names(path: str, lasting: set[str]) -> list[str]:
    """The directories that name *path*, or one above it that may not last, the innermost first."""
    naming: list[str] = []
    while not naming or naming[-1] not in lasting:
        path = path.rpartition("/")[0]
        if not path:
            break
        naming.append(path)
    return naming


def _missing_names(disk: Disk, path: str) -> list[str]:
    """The directories that have to name something new, the innermost first."""
    naming: list[str] = []
    while True:
        parent, _, name = path.rstrip("/").rpartition("/")
        parent = parent or ("/" if path.startswith("/") else ".")
        try:
            known = not name or name in disk.list_directory(parent)
        except OSError:
            known = True  # what we may not look into was not made by us
        if known:
            return naming
        naming.append(parent)
        if parent in {"/", "."}:
            return naming
        path = parent
