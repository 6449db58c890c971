"""What lies in a data directory, for looking at it while no node has it open.

Recognises a broker's, a register's, and the folder of a single log.  Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from octopi.cli.failures import CommandError, ExitCode
from octopi.environment import Disk
from octopi.errors import DirectoryInUseError
from octopi.identifiers import Offset
from octopi.roles.broker.retired_folders import DIRECTORY
from octopi.storage import checkpoint
from octopi.storage.checkpoint import DamagedCheckpointError
from octopi.storage.ends_file import ENDS_SUFFIX, NotedLog, load_ends
from octopi.storage.file_names import DAMAGED_SUFFIX, segment_bases

_LOCK: Final = "lock"
_DEPTH: Final = 3
"""A broker's log lies so deep below what is locked: ``logs/PARTITION/TOPIC``."""


@attrs.frozen
class StoredLog:
    """The folder of one log."""

    directory: str
    recovery_point: Offset | None
    """What is behind it may be torn; None: only an unfinished record at the end may be.  What a
    broker noted counts as well as what the checkpoint says."""
    start: Offset
    """Nothing from there on was removed by retention."""
    segment_bytes: int
    """Of all its segments."""


@attrs.frozen
class DataDirectory:
    """What there is to check."""

    logs: list[StoredLog]
    damaged_files: list[tuple[str, str]]
    """Small files that can't be read, and logs that are gone: path, and what is wrong."""
    kept: list[str]
    """Files and folders of bytes that were taken out of logs."""


def look_into(disk: Disk, directory: str) -> DataDirectory:
    """Find what lies in *directory*.

    Raises:
      CommandError: if it is nothing of ours.
      StorageError: if it can't be read.
    """
    names = set(disk.list_directory(directory))
    small_files: list[str] = []
    log_directories: list[str] = []
    kept: list[str] = []
    partitions: list[str] = []
    data_directory = directory
    if segment_bases(names):
        log_directories.append(directory)
        resolved = Path(directory).resolve()
        data_directory = str(resolved.parents[min(2, len(resolved.parents) - 1)])
        partitions.append(resolved.parent.name)
    elif "journal" in names:
        journal = f"{directory}/journal"
        small_files.append(f"{journal}/current")
        log_directories += [
            f"{journal}/{name}" for name in disk.list_directory(journal) if name.isdecimal()
        ]
    elif names & {"identity", "logs"}:
        small_files += [f"{directory}/identity", f"{directory}/partitions"]
        replicas = disk.list_directory(f"{directory}/replicas")
        small_files += [f"{directory}/replicas/{name}" for name in replicas if name.isdecimal()]
        partitions += [
            name.removesuffix(ENDS_SUFFIX) for name in replicas if name.endswith(ENDS_SUFFIX)
        ]
        for partition in disk.list_directory(f"{directory}/logs"):
            folder = f"{directory}/logs/{partition}"
            kept += [
                f"{folder}/{name}"
                for name in disk.list_directory(folder)
                if name.endswith(DAMAGED_SUFFIX)
            ]
            # A topic that was deleted may leave a folder behind; no topic's name has a "!".
            log_directories += [
                f"{folder}/{name}" for name in disk.list_directory(folder) if "!" not in name
            ]
    else:
        raise CommandError(
            f"{directory} is no data directory: give a broker's or a register's --data-dir, "
            "or the folder of one log",
            ExitCode.USAGE,
        )
    damaged: list[tuple[str, str]] = []
    for path in small_files:
        try:
            checkpoint.load(disk, path)
        except DamagedCheckpointError as error:
            damaged.append((path, str(error)))
    # By partition and topic id, as a topic has a log on each of its partitions.
    noted: dict[tuple[str, str], NotedLog] = {}
    for partition in partitions:
        path = f"{data_directory}/replicas/{partition}{ENDS_SUFFIX}"
        ends = load_ends(disk, path)
        if ends is None:
            continue
        if ends.damage:
            damaged.append((path, ends.damage))
        for topic_id, log in ends.logs.items():
            noted[partition, topic_id] = log
            folder = f"{data_directory}/logs/{partition}/{log.topic.get('topic')}"
            if log.topic and directory == data_directory and folder not in log_directories:
                what = f"the log is gone, and had been durable up to offset {log.recovery_point}"
                damaged.append((folder, what))
    logs: list[StoredLog] = []
    for folder in log_directories:
        recovery_point, start = None, Offset(0)
        try:
            stored = checkpoint.load(disk, f"{folder}/checkpoint")
        except DamagedCheckpointError as error:
            damaged.append((f"{folder}/checkpoint", str(error)))
        else:
            recovery_point = Offset(stored["recovery_point"]) if stored else None
            topic = (stored or {}).get("topic", {"topic_id": ""})  # a journal has none
            log_noted = noted.get((Path(folder).resolve().parent.name, topic["topic_id"]))
            if log_noted is not None:
                recovery_point = max(recovery_point or Offset(0), log_noted.recovery_point)
                start = log_noted.start
                newest = log_noted.checkpoint.number if log_noted.checkpoint is not None else 0
                if stored is not None and stored.get("number", 0) < newest:
                    what = f"it is an older copy: number {stored.get('number', 0)} of {newest}"
                    damaged.append((f"{folder}/checkpoint", what))
        segment_bytes = sum(path.stat().st_size for path in Path(folder).glob("*.log"))
        logs.append(StoredLog(folder, recovery_point, start, segment_bytes))
        kept += [str(path) for path in sorted(Path(folder).glob("*.cut"))]
        bases = segment_bases(disk.list_directory(folder))
        if noted and bases and start < bases[0]:
            what = f"what the log held from offset {start} to {bases[0]} is gone"
            damaged.append((folder, what))
    return DataDirectory(logs, damaged, kept)


@contextmanager
def held(disk: Disk, directory: str) -> Iterator[None]:
    """Hold the data directory that *directory* is, or belongs to, so that no node writes; what
    belongs to a retired replica nobody writes to.

    Raises:
      CommandError: if a node has it.
    """
    resolved = Path(directory).resolve()
    for candidate in (resolved, *resolved.parents[:_DEPTH]):
        if candidate.name == DIRECTORY and resolved != candidate:
            break  # a retired replica, to which nobody writes
        if _LOCK not in disk.list_directory(str(candidate)):
            continue
        try:
            lock = disk.lock_directory(str(candidate))
        except DirectoryInUseError as error:
            raise CommandError(
                f"a node is using {candidate}: stop it first, or check a copy of the directory"
            ) from error
        except OSError:
            break  # nobody can write there, neither we nor a node
        try:
            yield
        finally:
            lock.release()
        return
    yield
