"""The records that a simulated host has in a log, read from its disk and not through its process.

This module only reads the files of `octopi.storage` (`octopi.storage.file_names`,
`octopi.storage.ends_file`), and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from octopi.environment import Disk
from octopi.errors import StorageError
from octopi.identifiers import PartitionId
from octopi.roles.broker.log_checkpoint import checkpoint_path
from octopi.roles.broker.log_files import log_directory
from octopi.roles.broker.replica_ends import ends_path
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.image import Directory, FileImage
from octopi.storage.checkpoint import load as load_checkpoint
from octopi.storage.ends_file import load_ends
from octopi.storage.file_names import segment_bases, segment_path


class LogBytes:
    """The log in one directory of one disk."""

    def __init__(self, disk: SimulatedDisk, directory: str) -> None:
        self._disk = disk
        self._path = directory
        self._names: dict[str, object] = {}
        self._segments: list[tuple[int, FileImage]] = []

    def segments(self) -> list[tuple[int, FileImage]]:
        """The base offset and the content of each segment, in order; empty if there is no log."""
        directory = self._disk.tree.find(self._path)
        if not isinstance(directory, Directory):
            return []
        if directory.cached != self._names:
            self._names = dict(directory.cached)
            self._segments = [
                (base, image)
                for base in segment_bases(self._names)
                if isinstance(image := self._names[segment_path("", base)[1:]], FileImage)
            ]
        return self._segments

    def empty_at(self, *, durable: bool) -> int:
        """The offset at which a log without segments goes on; *durable*: after a power failure."""
        return 0

    @property
    def start(self) -> int:
        """The offset of the first record, or the offset at which a log without segments goes on."""
        segments = self.segments()
        return segments[0][0] if segments else self.empty_at(durable=False)

    @property
    def end(self) -> int:
        """The end of the records that processes see."""
        segments = self.segments()
        if not segments:
            return self.empty_at(durable=False)
        return segments[-1][0] + len(segments[-1][1].cached)

    @property
    def durable_end(self) -> int:
        """The end of the records that survive any power failure."""
        segments = self.segments()
        end = 0 if segments else self.empty_at(durable=True)
        for base, image in segments:
            end = base + image.kept_bytes
            if image.kept_bytes < len(image.cached):
                break
        return end

    def read(self, start: int, end: int) -> bytes:
        """The records from *start* to *end*, as far as the log has them."""
        parts = []
        for base, image in self.segments():
            if base < end and base + len(image.cached) > start:
                with memoryview(image.cached) as cached:
                    parts.append(bytes(cached[max(0, start - base) : end - base]))
        return b"".join(parts)


class SmallFiles:
    """The part of a disk that is needed to read a small file."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self.read_file = read


class ReplicaBytes(LogBytes):
    """One replica of a topic's log, below *data_directory*."""

    def __init__(
        self, disk: SimulatedDisk, data_directory: str, topic: str, partition: PartitionId
    ) -> None:
        super().__init__(disk, log_directory(data_directory, PartitionId(partition), topic))
        self._topic = topic
        self._ends_path = ends_path(f"{data_directory}/replicas/{partition}")

    def empty_at(self, *, durable: bool) -> int:
        """The offset that is noted beside the replica's state: retention may have removed all
        records before a segment that was damaged and set aside."""
        read = self._disk.durable if durable else self._disk.cached
        try:
            stored = load_ends(cast(Disk, SmallFiles(read)), self._ends_path)
        except StorageError:
            stored = None
        noted = stored.logs.values() if stored is not None else ()
        return max((one.start for one in noted if one.topic.get("topic") == self._topic), default=0)

    def checkpoint(self) -> dict[str, Any] | None:
        """The log's checkpoint, as processes see it; None if it has none that can be read."""
        content = cast(Disk, SmallFiles(self._disk.cached))
        try:
            return load_checkpoint(content, checkpoint_path(self._path))
        except StorageError:
            return None


class JournalBytes:
    """The register's journal, below *data_directory*: the current one, and perhaps earlier ones, or
    one that shall replace it."""

    def __init__(self, disk: SimulatedDisk, data_directory: str) -> None:
        self._disk = disk
        self._path = f"{data_directory}/journal"

    @property
    def durable_end(self) -> int:
        """The end of the longest one that survives any power failure."""
        directories = {path.rpartition("/")[0] for path in self._files()}
        return max((LogBytes(self._disk, one).durable_end for one in directories), default=0)

    @property
    def is_durable(self) -> bool:
        """Whether everything that processes see is on the device."""
        try:
            return all(self._disk.durable(one) == self._disk.cached(one) for one in self._files())
        except FileNotFoundError:  # not even the name of the file is durable
            return False

    def _files(self) -> list[str]:
        return [one for one in self._disk.files(self._path) if one.endswith(".log")]
