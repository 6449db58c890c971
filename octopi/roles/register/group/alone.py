"""From one register to several, and back: the one that has the journal takes it over.

A register alone keeps `journal/` in its data directory, one of several `replica/`.  Whoever starts
the other way takes over what is there, as the first thing: it writes all of it into the other
journal, which takes effect as a whole, and then renames the directory where it was.  If the process
dies in between, both have the same, and the next start only renames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from octopi.agreement.journal.history import JournalHistory, JournalSnapshot
from octopi.agreement.journal.stored import StoredState
from octopi.environment import Disk, Environment
from octopi.errors import InvalidOptionError, StorageError
from octopi.logger import get_logger
from octopi.roles.register.group.stored_journal import StoredJournal
from octopi.roles.register.register_journal import decode, encode, open_register_journal
from octopi.storage.directories import make_durable_directory, sync_names
from octopi.storage.time_slices import Slices, in_turns
from octopi.wire.registers import RegisterId

_log = get_logger(__name__)

REPLICA: Final = "replica"
"""The directory below the data directory with the journal that several registers keep."""

JOURNAL: Final = "journal"
"""The directory with the journal of a register that is alone."""

_FORMER: Final = "former"
"""How the name of a directory ends whose content was taken over; a number follows."""

Fold = Callable[[Sequence[bytes]], Slices[list[bytes]]]


def has_entries(disk: Disk, path: str) -> bool:
    """Whether there is a directory with anything in it."""
    try:
        return bool(disk.list_directory(path))
    except OSError:
        return False


async def take_over_journal(
    environment: Environment,
    data_directory: str,
    stored: StoredJournal,
    state: StoredState,
    address: str,
    fold: Fold,
) -> StoredState:
    """Have a register of several go on with the journal of the register that was alone in
    *data_directory*, if there is one; return what it has then.

    It is the only voter at first.  *state*: what *stored* has.  *address*: of this register.

    Raises:
      StorageError: if the disk fails.
      CorruptLogError: if that journal is damaged.
    """
    path = f"{data_directory}/{JOURNAL}"
    if not has_entries(environment.disk, path):
        return state
    if not state.history.end:
        journal, entries = await open_register_journal(environment, path)
        await journal.close()
        if entries:
            contents = await in_turns(fold([encode(one) for one in entries]))
            voters = (RegisterId(address, stored.directory),)
            history = JournalHistory(JournalSnapshot(1, 1, voters, tuple(contents)))
            state = attrs.evolve(state, term=max(1, state.term), history=history)
            await stored.replace(state)
            _log.info("the journal of a register that was alone is taken over", path=path)
    await _set_aside(environment.disk, data_directory, JOURNAL)
    return state


async def take_over_replica(
    environment: Environment, data_directory: str, fold: Fold, *, snapshot_entries: int
) -> None:
    """Have a register that is alone go on with the journal of the register of several in
    *data_directory*, if there is one, and no other register votes any more.

    Raises:
      InvalidOptionError: if others vote.
      StorageError: if the disk fails.
      CorruptLogError: if that journal is damaged.
    """
    disk, path = environment.disk, f"{data_directory}/{REPLICA}"
    if not has_entries(disk, path):
        return
    stored, state = await StoredJournal.open(environment, path, snapshot_entries=snapshot_entries)
    await stored.close()
    voters = state.history.voters
    has_begun = state.history.end > 0 or not has_entries(disk, f"{data_directory}/{JOURNAL}")
    if has_begun and [one.directory for one in voters] != [stored.directory]:
        raise InvalidOptionError(
            f"the register in {data_directory} is one of several, and alone it could decide what "
            "the others don't know; start it with the same --peers as them; to have only this one, "
            "start all of them with only its address in --peers first"
        )
    await make_durable_directory(disk, f"{data_directory}/{JOURNAL}")
    journal, entries = await open_register_journal(environment, f"{data_directory}/{JOURNAL}")
    try:
        if not entries:
            contents = await in_turns(fold(list(state.history.contents())))
            await journal.replace([decode(one) for one in contents])
            _log.info("the journal of a register of several is taken over", path=path)
    finally:
        await journal.close()
    await _set_aside(disk, data_directory, REPLICA)


async def _set_aside(disk: Disk, data_directory: str, name: str) -> None:
    """Rename a directory whose content is elsewhere now."""
    try:
        names = disk.list_directory(data_directory)
        numbers = [int(one.rpartition("-")[2]) for one in names if _is_former(one)]
        former = f"{name}.{_FORMER}-{max(numbers, default=0) + 1}"
        disk.rename(f"{data_directory}/{name}", f"{data_directory}/{former}")
    except OSError as error:
        raise StorageError(f"{data_directory}/{name} can't be renamed: {error.strerror}") from error
    await sync_names(disk, data_directory)


def _is_former(name: str) -> bool:
    head, _, number = name.rpartition("-")
    return head.endswith(f".{_FORMER}") and number.isdecimal()
