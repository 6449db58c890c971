"""A journal says whose it is: by a random number that its first entry has."""

from __future__ import annotations

import pytest

from octopi.agreement.entries import DirectoryEntry
from octopi.environment import Environment
from octopi.errors import CorruptLogError
from octopi.identifiers import DirectoryId
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.storage.journal import Journal, JournalFormat
from octopi.storage.owned_journal import open_owned_journal
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet


def encode(entry: DirectoryEntry | str) -> bytes:
    return f"of {entry.directory}".encode() if isinstance(entry, DirectoryEntry) else entry.encode()


def decode(data: bytes) -> DirectoryEntry | str:
    text = data.decode()
    is_first = text.startswith("of ")
    return DirectoryEntry(DirectoryId(text.removeprefix("of "))) if is_first else text


ENTRIES: JournalFormat[DirectoryEntry | str] = JournalFormat(
    encode, decode, entry_bytes_max=4096, owner="the node", if_unknown="put it back"
)


def environment(disk: MemoryDisk) -> Environment:
    return Environment(SystemClock(), MemoryNet(), disk, SystemRandomness())


async def opened(disk: MemoryDisk, *more: str) -> tuple[str, list[DirectoryEntry | str]]:
    """The number and the entries of the journal on *disk*, to which *more* are appended."""
    disk.make_directory("journal")
    journal, number, entries = await open_owned_journal(
        environment(disk), "journal", ENTRIES, DirectoryEntry, snapshot_entries=100
    )
    journal.append([*more])
    await journal.close()
    return number, entries


async def test_a_journal_keeps_its_number_and_one_that_begins_has_another() -> None:
    disk = MemoryDisk()
    number, entries = await opened(disk, "one", "two")
    assert entries == []
    assert await opened(disk) == (number, ["one", "two"])
    other, _ = await opened(MemoryDisk())
    assert other != number


async def test_a_journal_without_its_number_is_refused() -> None:
    disk = MemoryDisk()
    disk.make_directory("journal")
    journal, _ = await Journal.open(environment(disk), "journal", ENTRIES)
    journal.append(["one"])
    await journal.close()
    with pytest.raises(CorruptLogError, match="doesn't say whose it is"):
        await opened(disk)
