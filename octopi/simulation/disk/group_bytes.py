"""The journals of several registers, read from their disks and not through their processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from octopi import record
from octopi.agreement.journal.stored import StoredState, decode_stored, replayed
from octopi.environment import Disk
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.log_bytes import SmallFiles
from octopi.storage.journal import journal_in_force


class GroupJournalBytes:
    """The journal on which the registers with these disks agree.  Its ends count entries."""

    def __init__(
        self,
        disks: Mapping[str, SimulatedDisk],
        data_directory: str,
        active: Callable[[], str],
    ) -> None:
        """*disks*: by host.  *active* gives the host of the active register."""
        self._disks = disks
        self._active = active
        self._path = f"{data_directory}/replica"

    @property
    def durable_end(self) -> int:
        """The index before which a majority has everything on its devices, and the same."""
        states = [self._state(disk, disk.durable) for disk in self._disks.values()]
        ends = sorted((one.history.end for one in states), reverse=True)
        end = ends[len(ends) // 2]
        have = [one.history for one in states if one.history.end >= end]
        terms = {one.term_before(end) for one in have if one.snapshot.end <= end}
        return end if len(terms) <= 1 else 0

    @property
    def is_durable(self) -> bool:
        """Whether a majority has everything on its devices that the active one has in its
        files."""
        disk = self._disks[self._active()]
        return self.durable_end >= self._state(disk, disk.cached).history.end

    def _state(self, disk: SimulatedDisk, read: Callable[[str], bytes]) -> StoredState:
        """What a register would find; nothing, if it has no journal yet."""
        files = cast(Disk, SmallFiles(read))
        current = journal_in_force(files, f"{self._path}/current")
        directory = f"{self._path}/{current.journal:06d}/"
        entries = []
        for path in sorted(one for one in disk.files(directory) if one.endswith(".log")):
            try:
                data = read(path)
            except FileNotFoundError:  # not even its name is durable
                continue
            whole = record.scan(data).valid_bytes
            messages = record.decode(data[:whole], Offset(0), TopicName("journal"), PartitionId(0))
            entries += [decode_stored(one.value) for one in messages]
        return replayed(entries)
