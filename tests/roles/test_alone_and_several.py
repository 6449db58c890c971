"""A register that was alone becomes one of several, and the other way round, whenever it dies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

import attrs
import pytest
import trio

from octopi.agreement.journal.history import JournalHistory, JournalSnapshot
from octopi.agreement.journal.stored import StoredAppend, StoredState
from octopi.coordination.journal_entries import BrokerRegistered, ClusterFormed, Entry
from octopi.environment import Environment
from octopi.errors import InvalidOptionError, StorageError
from octopi.identifiers import BrokerId, DirectoryId, Incarnation
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.roles.register.group.alone import take_over_journal, take_over_replica
from octopi.roles.register.group.running import folding, run_register_of_several
from octopi.roles.register.group.stored_journal import StoredJournal
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.register_journal import decode, encode, open_register_journal
from octopi.storage.directories import make_durable_directory
from octopi.wire.registers import JournalEntry, RegisterId
from tests.kit.disk import MemoryDisk
from tests.kit.join_secrets import SECRETS
from tests.kit.links import MemoryNet

A, B = "ws://a:7000", "ws://b:7000"
ENTRIES: list[Entry] = [
    ClusterFormed("one", 3),
    BrokerRegistered(BrokerId(1), Incarnation(1), "nonce", "ws://broker-1:7000", replaced=False),
]


class Dead(Exception):
    """The process has ended."""


class DyingDisk(MemoryDisk):
    """Ends the process that uses it at one of its calls."""

    def __init__(self) -> None:
        self.calls_left = -1
        """How many edges of calls the process lives on; negative: for ever."""
        super().__init__()

    def _note(self, operation: str, edge: str, path: str) -> None:
        if self.calls_left == 0:
            raise Dead
        self.calls_left -= 1
        super()._note(operation, edge, path)

    def restart(self, *, keep_page_cache: bool) -> None:
        """End the process, if it hasn't, and let the next one live on."""
        self.calls_left = -1
        self.crash(keep_page_cache=keep_page_cache, names_kept=True)


def environment(disk: MemoryDisk) -> Environment:
    return Environment(SystemClock(), MemoryNet(), disk, SystemRandomness())


async def journal_of_one(disk: MemoryDisk, entries: list[Entry]) -> None:
    await make_durable_directory(disk, "data/journal")
    journal, _ = await open_register_journal(environment(disk), "data/journal")
    journal.append(entries)
    await journal.close()
    disk.settle()


async def become_several(disk: MemoryDisk) -> StoredState:
    """Start as one of several; return what it has."""
    await make_durable_directory(disk, "data/replica")
    stored, state = await StoredJournal.open(environment(disk), "data/replica", snapshot_entries=9)
    try:
        state = await take_over_journal(environment(disk), "data", stored, state, A, folding)
    finally:
        await stored.close()
    assert all(one.directory == stored.directory for one in state.history.voters)
    return state


async def become_alone(disk: MemoryDisk) -> list[Entry]:
    """Start alone; return what it has."""
    await take_over_replica(environment(disk), "data", folding, snapshot_entries=9)
    await make_durable_directory(disk, "data/journal")
    journal, entries = await open_register_journal(environment(disk), "data/journal")
    await journal.close()
    return entries


async def dies(
    number: int, disk: DyingDisk, work: Callable[[MemoryDisk], Awaitable[object]]
) -> bool:
    """Do *work* until the process dies at edge *number* of its calls; return whether it did."""
    disk.calls_left = number
    try:
        await work(disk)
    except (Dead, StorageError):
        return True
    return False


def entries_of(state: StoredState) -> list[Entry]:
    return [decode(one) for one in state.history.contents()]


@pytest.mark.parametrize("keep_page_cache", [True, False])
async def test_a_register_that_was_alone_takes_its_journal_over_wherever_it_dies(
    keep_page_cache: bool,
) -> None:
    for number in count():
        disk = DyingDisk()
        await journal_of_one(disk, ENTRIES)
        has_died = await dies(number, disk, become_several)
        disk.restart(keep_page_cache=keep_page_cache)
        state = await become_several(disk)
        assert entries_of(state) == ENTRIES
        assert [one.address for one in state.history.voters] == [A]
        assert (state.term, state.history.end, state.history.end_term) == (1, 1, 1)
        assert entries_of(await become_several(disk)) == ENTRIES
        assert "journal.former-1" in disk.list_directory("data")
        if not has_died:
            break
    assert number > 20


@pytest.mark.parametrize("keep_page_cache", [True, False])
async def test_the_last_register_of_several_takes_its_journal_over_wherever_it_dies(
    keep_page_cache: bool,
) -> None:
    for number in count():
        disk = DyingDisk()
        await journal_of_one(disk, ENTRIES)
        await become_several(disk)
        disk.settle()
        has_died = await dies(number, disk, become_alone)
        disk.restart(keep_page_cache=keep_page_cache)
        assert await become_alone(disk) == ENTRIES
        assert await become_alone(disk) == ENTRIES
        assert set(disk.list_directory("data")) == {
            *("journal", "journal.former-1", "replica.former-2"),
        }
        if not has_died:
            break
    assert number > 20


async def test_a_register_that_dies_before_it_took_its_journal_over_may_go_on_alone() -> None:
    for number in count():
        disk = DyingDisk()
        await journal_of_one(disk, ENTRIES)
        has_died = await dies(number, disk, become_several)
        disk.restart(keep_page_cache=True)
        assert await become_alone(disk) == ENTRIES
        if not has_died:
            break


async def test_a_register_that_has_begun_nothing_takes_nothing_over() -> None:
    disk = MemoryDisk()
    await journal_of_one(disk, [])
    state = await become_several(disk)
    assert (state.term, state.history.end, state.history.voters) == (0, 0, ())


async def test_a_register_is_not_started_alone_while_others_vote() -> None:
    """It would decide what the others don't know."""
    disk = MemoryDisk()
    for voters in (), (RegisterId(A, DirectoryId("another")),):
        await make_durable_directory(disk, "data/replica")
        stored, _ = await StoredJournal.open(environment(disk), "data/replica", snapshot_entries=9)
        me = RegisterId(B, stored.directory)
        stored.append([StoredAppend(0, JournalEntry(1, voters=tuple(sorted([*voters, me]))))])
        if not voters:
            stored.append([StoredAppend(0, JournalEntry(1, encode(ENTRIES[0])))])
        await stored.close()
        with pytest.raises(InvalidOptionError, match="is one of several"):
            await take_over_replica(environment(disk), "data", folding, snapshot_entries=9)
        assert disk.list_directory("data") == ["replica"]


async def test_a_directory_that_cannot_be_renamed_is_reported() -> None:
    disk = MemoryDisk()
    await journal_of_one(disk, ENTRIES)
    disk.fail(5, "rename", path_end="data/journal")
    with pytest.raises(StorageError, match="can't be renamed"):
        await become_several(disk)
    assert entries_of(await become_several(disk)) == ENTRIES


async def test_a_voter_may_have_a_list_without_itself_and_no_other_register() -> None:
    """The voter leaves the others."""
    disk = MemoryDisk()
    options = RegisterOptions(
        listen="a:7000", data_directory="data", peers=(B,), advertise=A, secrets=SECRETS
    )
    with pytest.raises(InvalidOptionError, match="don't include this one"):
        await run_register_of_several(environment(disk), options, stop=trio.Event())
    stored, state = await StoredJournal.open(environment(disk), "data/replica", snapshot_entries=9)
    voters = (RegisterId(A, stored.directory), RegisterId(B, DirectoryId("b")))
    history = JournalHistory(JournalSnapshot(1, 1, voters, (encode(ENTRIES[0]),)))
    await stored.replace(attrs.evolve(state, term=1, history=history))
    await stored.close()
    stop = trio.Event()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            outside = attrs.evolve(environment(disk), net=MemoryNet())
            await nursery.start(run_several, outside, options, stop)
            stop.set()


async def run_several(
    outside: Environment,
    options: RegisterOptions,
    stop: trio.Event,
    task_status: trio.TaskStatus[str],
) -> None:
    await run_register_of_several(outside, options, stop=stop, task_status=task_status)
