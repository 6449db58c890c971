"""The journals of several registers, read from their disks and not through their processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import cast

import attrs

from octopi import record
from octopi.agreement.entries import DirectoryEntry
from octopi.agreement.journal.stored import Stored, StoredState, decode_stored, replayed
from octopi.environment import Disk
from octopi.identifiers import DirectoryId, Offset, PartitionId, TopicName
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.log_bytes import SmallFiles
from octopi.storage.journal import journal_in_force


@attrs.frozen
class FoundJournal:
    """What a register would find on its disk."""

    directory: DirectoryId | None
    """The random number by which it is known; None: it has no journal yet."""
    state: StoredState


class RegisterBytes:
    """The replica of the journal on one register's *disk*, below *data_directory*."""

    def __init__(self, disk: SimulatedDisk, data_directory: str) -> None:
        self._disk = disk
        self._path = f"{data_directory}/replica"
        self._read: dict[str, tuple[bytes, list[Stored]]] = {}
        """The valid bytes of each file when it was read last, and its entries: a file grows, and
        what was decoded before is not decoded again."""

    def durable(self) -> FoundJournal:
        """What survives a loss of power."""
        return self._found(self._disk.durable)

    def cached(self) -> FoundJournal:
        """What processes see."""
        return self._found(self._disk.cached)

    def _found(self, read: Callable[[str], bytes]) -> FoundJournal:
        files = cast(Disk, SmallFiles(read))
        current = journal_in_force(files, f"{self._path}/current")
        directory = f"{self._path}/{current.journal:06d}/"
        entries: list[Stored] = []
        for path in sorted(one for one in self._disk.files(directory) if one.endswith(".log")):
            try:
                entries += self._entries(path, read(path))
            except FileNotFoundError:  # not even its name is durable
                continue
        opening = entries[0] if entries else None
        known = opening.directory if isinstance(opening, DirectoryEntry) else None
        return FoundJournal(known, replayed(entries))

    def _entries(self, path: str, data: bytes) -> list[Stored]:
        """The entries in *data*, the content of the file at *path*."""
        before, entries = self._read.get(path, (b"", []))
        if not data.startswith(before):
            before, entries = b"", []
        rest = data[len(before) :]
        valid = rest[: record.scan(rest).valid_bytes]
        messages = record.decode(valid, Offset(0), TopicName("journal"), PartitionId(0))
        entries = [*entries, *(decode_stored(one.value) for one in messages)]
        self._read[path] = before + valid, entries
        return entries


class GroupJournalBytes:
    """The journal on which the registers with these disks agree.  Its ends count entries."""

    def __init__(
        self,
        disks: Mapping[str, SimulatedDisk],
        data_directory: str,
        active: Callable[[], str],
    ) -> None:
        """*disks*: by host.  *active* gives the host of the active register."""
        self.registers = {one: RegisterBytes(disk, data_directory) for one, disk in disks.items()}
        """By host."""
        self.unsure: set[str] = set()
        """Hosts whose device may lack names of files, because a sync of a directory failed: of
        these counts what processes see."""
        self._active = active

    @property
    def durable_end(self) -> int:
        """The index before which a majority has everything on its devices, and the same."""
        found = [
            one.cached() if host in self.unsure else one.durable()
            for host, one in self.registers.items()
        ]
        histories = [one.state.history for one in found]
        end = max(one.end for one in histories)
        while end > 0:
            # What is folded is committed, so it is the same as at any other majority.
            folded_count = sum(one.snapshot.end > end for one in histories)
            terms = [
                one.term_before(end) for one in histories if one.snapshot.end <= end <= one.end
            ]
            same_count = max(Counter(terms).values(), default=0)
            if 2 * (folded_count + same_count) > len(histories):
                break
            end -= 1
        return end

    @property
    def is_durable(self) -> bool:
        """Whether a majority has everything on its devices that the active one has in its
        files."""
        active = self.registers[self._active()]
        return self.durable_end >= active.cached().state.history.end

    @property
    def is_whole(self) -> bool:
        """Whether each register has on its device that all of them are the voters, with the disks
        that they have now, or none has anything: then one of these disks may be lost."""
        found = [one.durable() for one in self.registers.values()]
        if all(one.state.history.end == 0 for one in found):
            return True
        there = {one.directory for one in found}
        return all(
            {voter.directory for voter in one.state.history.voters} == there for one in found
        )
