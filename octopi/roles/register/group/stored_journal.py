"""A register's replica of the journal, on its disk."""

from __future__ import annotations

from typing import Final

from octopi.agreement.entries import DirectoryEntry
from octopi.agreement.journal.stored import (
    Stored,
    StoredState,
    decode_stored,
    encode_stored,
    replayed,
    shortest,
)
from octopi.environment import Environment
from octopi.errors import CorruptLogError
from octopi.identifiers import DirectoryId
from octopi.limits import KIB, REPLICATED_ENTRY_BYTES_MAX
from octopi.storage.journal import Journal, JournalFormat
from octopi.storage.owned_journal import open_owned_journal

STORED_ENTRIES: Final[JournalFormat[Stored]] = JournalFormat(
    encode_stored,
    decode_stored,
    entry_bytes_max=REPLICATED_ENTRY_BYTES_MAX + 8 * KIB,  # voters, or the fields around a content
    owner="the register",
    if_unknown="put it back from a copy, or move that directory away, and the register is brought "
    "up to date by the others",
)


class StoredJournal:
    """The journal on the disk.  While it is replaced, what is appended is kept, and written
    afterwards."""

    def __init__(self, journal: Journal[Stored], directory: DirectoryId) -> None:
        self.directory: Final = directory
        """The random number by which the register is known."""
        self._journal = journal
        self._kept: list[Stored] | None = None
        """What was appended since the journal began to be replaced; None: it isn't."""

    @classmethod
    async def open(
        cls, environment: Environment, path: str, *, snapshot_entries: int
    ) -> tuple[StoredJournal, StoredState]:
        """Open or begin the journal in the directory *path*, which exists.

        Raises:
          StorageError: if the disk fails.
          CorruptLogError: if anything that was durable is missing, damaged or can't be read.
        """
        journal, directory, entries = await open_owned_journal(
            environment, path, STORED_ENTRIES, DirectoryEntry, snapshot_entries=snapshot_entries
        )
        try:
            state = replayed(entries)
        except ValueError as error:
            await journal.close()
            raise CorruptLogError(path, 0, 0, str(error)) from error
        return cls(journal, directory), state

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return self._journal.size_bytes

    def append(self, entries: list[Stored]) -> None:
        """Append *entries*.

        Raises:
          StorageError: if that fails.
        """
        if self._kept is not None:
            self._kept += entries
        else:
            self._journal.append(entries)

    async def flush(self) -> None:
        """Wait until everything appended so far is durable, but for what is kept.

        Raises:
          StorageError: if the disk failed.
        """
        await self._journal.flush()

    @property
    def is_replaced(self) -> bool:
        """Whether it is being replaced: then what is appended isn't durable before that ends."""
        return self._kept is not None

    async def replace(self, state: StoredState) -> None:
        """Replace the journal by the fewest entries that lead to *state*.

        Raises:
          StorageError: if that fails; then the journal is unchanged.
          LogReadOnlyError: if it is unknown what a restart would read.
        """
        stored = shortest(self.directory, state)
        self._kept = []
        try:
            await self._journal.replace(stored)
        finally:
            kept, self._kept = self._kept, None
            if kept:
                self._journal.append(kept)

    async def close(self) -> None:
        """Make everything durable and close the files."""
        await self._journal.close()
