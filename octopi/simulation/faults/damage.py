"""Chooses and damages files of a node that is down.

Only data that became durable some time ago is damaged: a node can't detect the loss of bytes that
it hadn't noted as durable.  The last flush of a log may have ended just before the node died, so
the flush before that one counts.  A power failure may destroy the newest notes; then the notes that
are left count.  Likewise, an older copy of a checkpoint is older than the last but one.  There is
one exception: a bit may flip in the value of the last record, which was not flushed yet, because
the operating system writes it to the device after the process has ended.

=============  =========================================================================
part           files, below the data directory
=============  =========================================================================
``log``        segments of a broker's logs
``tail``       what was flushed of such a segment behind the log's checkpoint: it is read again
               when the log is opened, so a flipped bit there is noticed
``unflushed``  the last bytes of such a segment, if they have not been flushed yet
``unheard``    the last bytes that were flushed, if the broker doesn't know that they are committed:
               these are read again, too
``index``      their indexes
``checkpoint`` the checkpoint of a log
``directory``  the directory of a log, with all that is in it
``ends``       what a replica knows as durable of its logs (``replicas/<partition>.ends``)
``replica``    what a replica promised (``replicas/<partition>``)
``table``      the broker's partition table
``identity``   who the broker is
``journal``    segments of the register's journal
=============  =========================================================================
"""

from __future__ import annotations

import re
from random import Random
from typing import Final, Literal, NamedTuple

import attrs

from octopi.environment import Disk
from octopi.identifiers import PartitionId
from octopi.roles.broker.log_files import log_directory
from octopi.roles.broker.replica_ends import ends_path
from octopi.simulation.disk.disk import DiskSnapshot, SimulatedDisk
from octopi.simulation.disk.image import FileImage
from octopi.simulation.kernel.host import LOSE_POWER
from octopi.simulation.kernel.world import Event
from octopi.storage import checkpoint
from octopi.storage.ends_file import NotedLog, load_ends
from octopi.tracing import steps
from octopi.tracing.common import LogStep

Part = Literal[
    "log",
    "index",
    "checkpoint",
    "directory",
    "ends",
    "replica",
    "table",
    "identity",
    "journal",
    "tail",
    "unflushed",
    "unheard",
]
"""The part that is damaged: see the table above."""

Harm = Literal["cut", "flip", "missing", "older"]
"""The kind of damage: the file's end is missing, a bit is flipped, the file is missing, or the file
is as it was earlier."""


@attrs.frozen
class Damage:
    """The process dies, and one of its files is damaged while it is down."""

    harm: Harm = "cut"
    part: Part = "log"
    restart_s: float | None = 0.5
    taken_s: float = 0.5
    """For ``older``: when the copy was made, in seconds since the run began."""

    @property
    def touches_records(self) -> bool:
        """Whether records, or what is known about them, are lost or changed.  An index can be
        rebuilt from its segment."""
        return self.part != "index"

    @property
    def is_noticed(self) -> bool:
        """Whether the node detects the damage by itself before it leads or follows, reports that
        its replica isn't intact, and gets what is missing from others.  Otherwise an operator has
        to give the host an empty disk."""
        if self.part in {"log", "tail", "unflushed", "unheard", "checkpoint", "ends", "directory"}:
            # A flipped bit within a segment is detected only when it is read, and an older file of
            # ends is valid.
            return (self.part, self.harm) not in {("log", "flip"), ("ends", "older")}
        return self.part == "index"

    @property
    def forgets_promises(self) -> bool:
        """Whether the promises of the replica may be lost."""
        return self.part in {"replica", "identity"}


_FORGETTING: Final = (steps.E13Truncated, steps.E14Restarted, steps.T7Removed)


class Flushed:
    """An observer: how far each host's logs, and the register's journal, are certainly durable."""

    kinds: Final = frozenset(
        {
            steps.D1Flushed.text,
            steps.D3Noting.text,
            steps.D3Noted.text,
            steps.D5Recovered.text,
            steps.E13Truncated.text,
            steps.E14Restarted.text,
            steps.T7Removed.text,
            steps.R3Flushed.text,
            LOSE_POWER,
        }
    )

    def __init__(self) -> None:
        self._ends: dict[tuple[str, str], tuple[int, int]] = {}
        """Host and directory -> the ends of the last two flushes."""
        self._checkpoints: dict[tuple[str, str], int] = {}
        """Host and directory -> the greatest recovery point that a checkpoint may have."""
        self._stored: dict[tuple[str, str], tuple[str, int, int]] = {}
        """Host and directory -> the id of the log's topic, and the numbers of the last two
        checkpoints."""
        self._dark: set[tuple[str, str]] = set()
        """Host and directory of the logs that were not opened since the host lost power."""

    def __call__(self, event: Event) -> None:
        """Note a flush."""
        step = event.about
        if event.what == LOSE_POWER:
            self._dark.update(key for key in self._ends if key[0] == event.host)
        elif isinstance(step, steps.R3Flushed):
            self._flushed((event.host, "journal"), step.log_end)
        elif isinstance(step, LogStep):
            directory = log_directory("data", PartitionId(step.partition), step.topic)
            self._note((event.host, directory), step)

    def _note(self, key: tuple[str, str], step: LogStep) -> None:
        match step:
            case steps.D3Noting():
                self._checkpoints[key] = max(self.checkpoint(*key), step.recovery_point)
            case steps.D3Noted():
                topic_id, _, before = self._stored.get(key, ("", 0, 0))
                if topic_id != step.topic_id or step.number <= before:
                    before = 0  # it is another log, or another disk
                self._stored[key] = step.topic_id, before, step.number
            case steps.D5Recovered():
                self._dark.discard(key)
                self._flushed(key, step.flushed_end)
            case steps.D1Flushed():
                self._flushed(key, step.flushed_end)
            case _ if isinstance(step, _FORGETTING):
                self._ends.pop(key, None)

    def _flushed(self, key: tuple[str, str], end: int) -> None:
        _, before = self._ends.get(key, (0, 0))
        self._ends[key] = before, end

    def end(self, host: str, directory: str, disk: SimulatedDisk | None = None) -> int:
        """The end up to which the log in *directory* of *disk* was certainly flushed."""
        end = min(self._ends.get((host, directory), (0, 0)))
        if disk is not None and (host, directory) in self._dark:
            end = min(end, _noted_end(disk, directory))
        return end

    def newest_end(self, host: str, directory: str) -> int:
        """The end up to which the log in *directory* was flushed last, as far as its node knows."""
        return max(self._ends.get((host, directory), (0, 0)))

    def is_dark(self, host: str, directory: str) -> bool:
        """Whether the log in *directory* was not opened since the host lost power."""
        return (host, directory) in self._dark

    def checkpoint(self, host: str, directory: str) -> int:
        """The offset before which the log in *directory* may not be read when it is opened."""
        return self._checkpoints.get((host, directory), 0)

    def number(self, host: str, directory: str, disk: SimulatedDisk) -> tuple[str, int]:
        """The topic id of the log in *directory* of *disk*, and the number of one of its
        checkpoints that is certainly noted as stored."""
        topic_id, number, _ = self._stored.get((host, directory), ("", 0, 0))
        if (host, directory) in self._dark:
            noted = [one.checkpoint for one in _noted(disk, directory)]
            numbers = [one.number if one is not None else 0 for one in noted]
            number = min([number, *numbers]) if numbers else 0
        return topic_id, number


def _view(tree_of: DiskSnapshot) -> Disk:
    """The content of the disk, readable without a process on it."""
    copy = SimulatedDisk()
    copy.restore(tree_of)
    return copy.attach(lambda *_: None)


def _noted(disk: SimulatedDisk, directory: str, *, cached: bool = False) -> list[NotedLog]:
    """The entries about the log in *directory* in the file of ends: at most one, except for a topic
    that is being deleted while another one of its name is made.  *cached*: as the page cache has
    the file, not the device."""
    _, partition, topic = directory.rsplit("/", 2)
    copy = disk.snapshot()
    if cached:
        copy = DiskSnapshot(disk.tree.copy(lambda _, image: bytes(image.cached)))
    stored = load_ends(_view(copy), ends_path(f"data/replicas/{partition}"))
    logs = stored.logs.values() if stored is not None else ()
    return [one for one in logs if one.topic.get("topic") == topic]


def _noted_end(disk: SimulatedDisk, directory: str) -> int:
    """The end up to which the log in *directory* is noted as flushed."""
    return max((one.recovery_point for one in _noted(disk, directory)), default=0)


class Target(NamedTuple):
    """A file or a directory that may be damaged."""

    path: str
    size_bytes: int
    """The number of leading bytes that may be damaged ..."""
    start_bytes: int = 0
    """... except this number of first bytes."""


_FILES: Final[dict[str, str]] = {
    "log": r"/data/logs/\d+/[^/]+/(\d{20})\.log",
    "index": r"/data/logs/\d+/[^/]+/\d{20}\.index",
    "checkpoint": r"/data/logs/\d+/[^/]+/checkpoint",
    "directory": r"/data/logs/\d+/[^/]+/(\d{20})\.log",
    "ends": r"/data/replicas/\d+\.ends",
    "replica": r"/data/replicas/\d+",
    "table": r"/data/partitions",
    "identity": r"/data/identity",
    "journal": r"/data/journal/\d+/(\d{20})\.log",
    "tail": r"/data/logs/\d+/[^/]+/(\d{20})\.log",
    "unflushed": r"/data/logs/\d+/[^/]+/(\d{20})\.log",
    "unheard": r"/data/logs/\d+/[^/]+/(\d{20})\.log",
}
_LAST_BYTES: Final = 4
"""Where a bit flips that was not flushed, or not heard of: in the value of the last record, or in
its checksum.  A flipped bit in a length would look like a record that was not written to its
end."""


def targets(
    disk: SimulatedDisk, host: str, action: Damage, flushed: Flushed, snapshot: DiskSnapshot | None
) -> list[Target]:
    """The files (or directories) of *host* that *action* may damage."""
    found: list[Target] = []
    if action.part in {"unflushed", "unheard"} and action.harm != "flip":
        return found
    pattern = re.compile(_FILES[action.part])
    for path in disk.files("data"):
        match = pattern.fullmatch(path)
        if match is None:
            continue
        if action.part == "unflushed":
            found += _unflushed(disk, host, path, int(match[1]), flushed)
            continue
        if disk.tree.find(path, durable=True) is None:
            continue
        size_bytes = len(disk.durable(path))
        directory = path.rpartition("/")[0][1:]
        start_bytes = 0
        if action.part in {"log", "tail", "directory"}:
            size_bytes = min(size_bytes, flushed.end(host, directory, disk) - int(match[1]))
        if action.part == "tail":
            start_bytes = max(0, flushed.checkpoint(host, directory) - int(match[1]))
        if action.part == "unheard":
            noted = _noted(disk, directory, cached=True)
            ends = [one.recovery_point for one in noted]
            size_bytes = min(size_bytes, max(ends, default=0) - int(match[1]))
            known = [max(one.highwater, one.cached_end) for one in noted]
            start_bytes = size_bytes - _LAST_BYTES
            if start_bytes < max(0, max(known, default=0) - int(match[1])):
                continue
        if action.part == "journal":
            size_bytes = min(size_bytes, flushed.end(host, "journal") - int(match[1]))
        elif action.part == "checkpoint" and not flushed.end(host, directory):
            continue
        if size_bytes <= start_bytes:
            continue
        if action.harm == "older" and not _is_older(disk, path, snapshot):
            continue
        if (action.part, action.harm) == ("checkpoint", "older"):
            assert snapshot is not None
            if not _is_known_older(path[1:], snapshot, flushed.number(host, directory, disk)):
                continue
        if action.part == "directory":
            path = path.rpartition("/")[0]
        found.append(Target(path, size_bytes, start_bytes))
    return found


def _unflushed(
    disk: SimulatedDisk, host: str, path: str, base: int, flushed: Flushed
) -> list[Target]:
    """The last bytes of a segment, if they have not been flushed."""
    directory, size_bytes = path.rpartition("/")[0][1:], len(disk.cached(path))
    start_bytes = size_bytes - _LAST_BYTES
    flushed_bytes = max(0, flushed.newest_end(host, directory) - base)
    if start_bytes < flushed_bytes or flushed.is_dark(host, directory):
        return []
    return [Target(path, size_bytes, start_bytes)]


def _is_older(disk: SimulatedDisk, path: str, snapshot: DiskSnapshot | None) -> bool:
    """Whether the copy has the file, with other content."""
    copy = snapshot.tree.find(path) if snapshot is not None else None
    if not isinstance(copy, FileImage):
        return False
    now = disk.cached(path)
    return len(copy.cached) < len(now) or bytes(copy.cached) != now


def _is_known_older(path: str, snapshot: DiskSnapshot, noted: tuple[str, int]) -> bool:
    """Whether the checkpoint at *path* in the copy is of the log in *noted*, and has a smaller
    number than the one there."""
    stored = checkpoint.load(_view(snapshot), path) or {}
    topic_id, number = noted
    is_same: bool = stored["topic"]["topic_id"] == topic_id
    return is_same and int(stored["number"]) < number


def harm(
    disk: SimulatedDisk,
    target: Target,
    action: Damage,
    randomness: Random,
    snapshot: DiskSnapshot | None,
) -> str:
    """Damage *target*; return a description of the damage."""
    path = target.path
    match action.harm:
        case "flip" if action.part != "directory":
            bit = randomness.randrange(8 * target.start_bytes, 8 * target.size_bytes)
            disk.flip(path, bit)
            return f"bit {bit} flipped"
        case "cut" if action.part != "directory":
            size_bytes = randomness.randrange(target.start_bytes, target.size_bytes)
            disk.put(path, disk.cached(path, 0, size_bytes))
            return f"cut to {size_bytes} bytes"
        case "older" if action.part != "directory":
            copy = snapshot.tree.find(path) if snapshot is not None else None
            assert isinstance(copy, FileImage)
            disk.put(path, bytes(copy.cached))
            return f"as it was at {action.taken_s:g} s"
    disk.put(path, None)
    return "removed"
