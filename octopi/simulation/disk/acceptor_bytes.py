"""What an acceptor has on its device, read from its disk and not through its process."""

from __future__ import annotations

from typing import cast

from octopi import record
from octopi.agreement.acceptor import AcceptorState
from octopi.agreement.entries import DirectoryEntry, decode_entry
from octopi.environment import Disk
from octopi.identifiers import InstanceId, Offset, PartitionId, TopicName
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.log_bytes import SmallFiles
from octopi.storage.journal import journal_in_force


class AcceptorBytes:
    """The journal of the acceptor on one *disk*, below *data_directory*."""

    def __init__(self, disk: SimulatedDisk, data_directory: str) -> None:
        self._disk = disk
        self._path = f"{data_directory}/acceptor"
        self._read: dict[str, tuple[bytes, dict[InstanceId, AcceptorState]]] = {}
        """The valid bytes of each file when it was read last, and what they lead to: a file grows,
        and what was decoded before is not decoded again."""

    def forget(self) -> None:
        """The disk is another one."""
        self._read.clear()

    def state(self, instance: InstanceId) -> AcceptorState:
        """What would survive a loss of power, of one value."""
        current = journal_in_force(
            cast(Disk, SmallFiles(self._disk.durable)), f"{self._path}/current"
        )
        directory = f"{self._path}/{current.journal:06d}/"
        state = AcceptorState()
        for path in sorted(one for one in self._disk.files(directory) if one.endswith(".log")):
            try:
                found = self._states(path, self._disk.durable(path))
            except FileNotFoundError:  # not even its name is durable
                continue
            state = found.get(instance, state)
        return state

    def _states(self, path: str, data: bytes) -> dict[InstanceId, AcceptorState]:
        """What the entries in *data*, the content of the file at *path*, lead to."""
        before, states = self._read.get(path, (b"", {}))
        if not data.startswith(before):
            before, states = b"", {}
        rest = data[len(before) :]
        if not rest:
            return states
        valid = rest[: record.scan(rest).valid_bytes]
        for one in record.decode(valid, Offset(0), TopicName("acceptor"), PartitionId(0)):
            entry = decode_entry(one.value)
            if not isinstance(entry, DirectoryEntry):
                known = states.get(entry.instance, AcceptorState())
                states[entry.instance] = known.after(entry)
        self._read[path] = before + valid, states
        return states
