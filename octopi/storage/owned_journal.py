"""A journal that says whose it is: its first entry is a random number, drawn when it begins.

A node that comes back without the journal draws another number, so nobody takes it for the node
that promised what was in there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from octopi.agreement.entries import DirectoryEntry
from octopi.environment import Environment
from octopi.errors import CorruptLogError
from octopi.identifiers import DirectoryId
from octopi.storage.journal import Journal, JournalFormat

_NUMBER_BYTES: Final = 16

EntryT = TypeVar("EntryT")


async def open_owned_journal(
    environment: Environment,
    directory: str,
    entry_format: JournalFormat[EntryT],
    first: Callable[[DirectoryId], EntryT],
    *,
    snapshot_entries: int,
) -> tuple[Journal[EntryT], DirectoryId, list[EntryT]]:
    """Open or begin the journal in *directory*, which exists; return it, its number, and the
    entries behind that.

    *first* makes the first entry, a `DirectoryEntry`.  *snapshot_entries*: see
    `Journal.wants_snapshot`.

    Raises:
      StorageError: if the disk fails.
      CorruptLogError: if anything that was durable is missing, damaged or can't be read, or the
          first entry is another one.
    """
    journal, entries = await Journal.open(
        environment, directory, entry_format, snapshot_entries=snapshot_entries
    )
    try:
        if not entries:
            drawn = environment.randomness.token_bytes(_NUMBER_BYTES).hex()
            entries = [first(DirectoryId(drawn))]
            journal.append(entries)
            await journal.flush()
        opening, *others = entries
        if not isinstance(opening, DirectoryEntry):
            raise CorruptLogError(directory, 0, 0, "its first entry doesn't say whose it is")
    except BaseException:
        await journal.close()
        raise
    return journal, opening.directory, others
