"""Retired replicas: replicas that a broker no longer has, but keeps for a while.  Lists and removes
them.

The files of a retired replica don't change, so this works while the broker runs.  A removal begins
with the same renaming as the broker's own removals, so the broker recognises it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import trio

from octopi.cli.failures import CommandError, ExitCode
from octopi.environment import Disk
from octopi.roles.broker.retired_folders import (
    COUNT_FILE,
    DIRECTORY,
    MOVING_SUFFIX,
    REMOVED_SUFFIX,
    RetiredFolder,
    parse,
    stored_seconds,
)


@attrs.frozen
class RetiredReplica:
    """One retired replica, as listed."""

    name: str
    path: str
    partition: int
    epoch: int
    """Of the decision that placed the partition elsewhere."""
    retired_at: str
    """ISO 8601, UTC."""
    kept_s: int
    """Seconds of the broker's running time for which it has been kept, as the broker noted last."""
    logs: int
    size_bytes: int
    state: str
    """``kept``; ``moving``: not all of its files may be there yet; ``deleted``: some are gone."""


def is_retired(directory: str) -> bool:
    """Whether *directory* is the folder of a retired replica."""
    resolved = Path(directory).resolve()
    return resolved.parent.name == DIRECTORY and parse(resolved.name) is not None


def find_retired(disk: Disk, directory: str) -> list[RetiredReplica]:
    """The retired replicas in a broker's data *directory*, sorted by partition and time.

    Raises:
      OSError: if that can't be read.
    """
    parsed = map(parse, disk.list_directory(f"{directory}/{DIRECTORY}"))
    found = sorted(
        (one for one in parsed if one is not None),
        key=lambda one: (one.partition, one.retired_at, one.name),
    )
    return [_look(disk, directory, one) for one in found]


def _look(disk: Disk, directory: str, one: RetiredFolder) -> RetiredReplica:
    path = Path(directory) / DIRECTORY / one.name
    # If the broker deletes it meanwhile, the files that are left are counted.
    logs = [folder for folder in path.glob("logs/*/*") if "!" not in folder.name]
    return RetiredReplica(
        one.name,
        str(path),
        one.partition,
        one.epoch,
        one.retired_at.isoformat(),
        int(stored_seconds(disk, f"{path}/{COUNT_FILE}")),
        len(logs),
        sum(_size(file) for file in path.glob("logs/*/*/*")),
        {MOVING_SUFFIX: "moving", REMOVED_SUFFIX: "deleted"}.get(one.suffix, "kept"),
    )


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def remove(disk: Disk, directory: str, name: str) -> None:
    """Remove the retired replica *name* of a broker's data *directory*, for good.

    Raises:
      CommandError: if there is none, or its files are still being moved.
      OSError: if that can't be done.
    """
    parsed, root = parse(name), f"{directory}/{DIRECTORY}"
    if parsed is None or name not in disk.list_directory(root):
        raise CommandError(
            f"there is no retired replica {name}; `octopi-node retired list {directory}` prints "
            "the names",
            ExitCode.USAGE,
        )
    if parsed.suffix == MOVING_SUFFIX:
        raise CommandError(
            f"{name}: the broker has not moved all its files yet; start the broker, which finishes "
            "the move, then run this again"
        )
    doomed = name
    if parsed.is_whole:
        doomed = f"{name}{REMOVED_SUFFIX}"
        disk.rename(f"{root}/{name}", f"{root}/{doomed}")
        trio.run(disk.sync_directory, root)
    shutil.rmtree(f"{root}/{doomed}", onerror=_unless_gone)


def _unless_gone(
    function: object, path: str, failure: tuple[object, BaseException, object]
) -> None:
    """Ignore missing files: the broker removes such folders, too."""
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]
