"""Reads the data directory of a stopped node: of a broker, of a register, or the folder of one log.

Changes nothing.
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
"""Levels between the locked directory of a broker and a log: ``logs/PARTITION/TOPIC``."""


@attrs.frozen
class StoredLog:
    """The folder of one log."""

    directory: str
    recovery_point: Offset | None
    """Bytes behind it may be torn; the larger of what the checkpoint and the broker's file of ends
    say.  None: unknown; only an unfinished record at the end may be torn."""
    start: Offset
    """Retention removed no records from this offset on."""
    segment_bytes: int
    """Size of all its segments."""


@attrs.frozen
class DataDirectory:
    """The contents of a data directory, as `look_into` finds them."""

    logs: list[StoredLog]
    damaged_files: list[tuple[str, str]]
    """Damaged small files and missing logs: (path, description of the damage)."""
    kept: list[str]
    """Paths of files and folders with salvaged bytes."""


def look_into(disk: Disk, directory: str) -> DataDirectory:
    """List the logs and the damaged files in *directory*.

    Raises:
      CommandError: if it is neither a data directory nor a log.
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
            f"{directory} is not a data directory: give a broker's or a register's --data-dir, "
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
                what = f"the log is missing; it was flushed up to offset {log.recovery_point}"
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
                    what = (
                        f"an older copy: number {stored.get('number', 0)}, the newest was {newest}"
                    )
                    damaged.append((f"{folder}/checkpoint", what))
        segment_bytes = sum(path.stat().st_size for path in Path(folder).glob("*.log"))
        logs.append(StoredLog(folder, recovery_point, start, segment_bytes))
        kept += [str(path) for path in sorted(Path(folder).glob("*.cut"))]
        bases = segment_bases(disk.list_directory(folder))
        if noted and bases and start < bases[0]:
            what = f"the records from offset {start} to {bases[0]} are missing"
            damaged.append((folder, what))
    return DataDirectory(logs, damaged, kept)


@contextmanager
def held(disk: Disk, directory: str) -> Iterator[None]:
    """Lock the data directory that contains *directory* for the block, so that no node writes to
    it.  A retired replica needs no lock, as nodes don't write to it.

    Raises:
      CommandError: if a node uses the data directory.
    """
    resolved = Path(directory).resolve()
    for candidate in (resolved, *resolved.parents[:_DEPTH]):
        if candidate.name == DIRECTORY and resolved != candidate:
            break  # a retired replica: nodes don't write to it
        if _LOCK not in disk.list_directory(str(candidate)):
            continue
        try:
            lock = disk.lock_directory(str(candidate))
        except DirectoryInUseError as error:
            raise CommandError(
                f"a node is using {candidate}: stop it first, or check a copy of the directory"
            ) from error
        except OSError:
            break  # a read-only directory: no node can write there
        try:
            yield
        finally:
            lock.release()
        return
    yield
