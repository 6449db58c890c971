"""A node's memory of what it decided: what was durable is never silently forgotten."""

import errno

import attrs
import pytest
import trio
import trio.testing

from octopi.environment import Environment
from octopi.errors import (
    CorruptLogError,
    DiskFullError,
    LogReadOnlyError,
    NotReadyError,
    StorageError,
)
from octopi.identifiers import Offset
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.storage import checkpoint
from octopi.storage.checkpoint import DamagedCheckpointError
from octopi.storage.journal import InForce, Journal, JournalFormat
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet

FORMED = "a cluster was formed, with an id and a number of partitions"
ENTRIES = JournalFormat(
    str.encode, bytes.decode, entry_bytes_max=4096, owner="the node", if_unknown="put it back"
)


def joined(number: int) -> str:
    return f"broker {number} joined, with an incarnation, a nonce and an address"


def environment(disk: MemoryDisk) -> Environment:
    return Environment(SystemClock(), MemoryNet(), disk, SystemRandomness())


async def begin(disk: MemoryDisk) -> Journal[str]:
    disk.make_directory("journal")
    journal, entries = await Journal.open(environment(disk), "journal", ENTRIES)
    assert entries == []
    return journal


async def reopened(disk: MemoryDisk) -> list[str]:
    journal, entries = await Journal.open(environment(disk), "journal", ENTRIES)
    await journal.close()
    return entries


class Noted:
    """Notes in order what a journal tells its observer."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def appending(self, entries: list[str]) -> None:
        self.told.append(("appending", entries))

    def appended(self, entries: list[str]) -> None:
        self.told.append(("appended", entries))

    def flushing(self, end: Offset) -> None:
        self.told.append("flushing")

    def flushed(self, end: Offset) -> None:
        self.told.append("flushed")

    def replacing(self, entries: list[str]) -> None:
        self.told.append(("replacing", entries))

    def switched(self) -> None:
        self.told.append("switched")

    def replaced(self) -> None:
        self.told.append("replaced")


async def test_flushed_journal_entries_survive_a_power_failure() -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED, joined(1)])
    await journal.flush()
    assert journal.is_flushed
    journal.append([joined(2)])
    assert not journal.is_flushed
    disk.crash(keep_page_cache=False, names_kept=True)
    assert await reopened(disk) == [FORMED, joined(1)]


async def test_a_torn_tail_of_the_journal_is_cut() -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED])
    await journal.flush()
    journal.append([joined(1)])
    disk.crash(keep_page_cache=True)
    (path,) = (path for path in disk.files() if path.endswith(".log"))
    disk.plant(path, disk.content(path)[:-1])
    assert await reopened(disk) == [FORMED]


async def test_a_changed_unflushed_entry_stops_the_node_unless_the_power_failed() -> None:
    """Of what it decided since its last start it had told brokers."""
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED])
    await journal.flush()
    journal.append([joined(1)])
    await journal.flush()
    disk.crash(keep_page_cache=True)
    (path,) = (path for path in disk.files() if path.endswith(".log"))
    disk.flip(path, 8 * 60)
    with pytest.raises(CorruptLogError, match="checksum"):
        await Journal.open(environment(disk), "journal", ENTRIES)
    disk.crash(keep_page_cache=False, names_kept=True)
    assert await reopened(disk) == []


@pytest.mark.parametrize("harm", ["flip", "cut"])
async def test_damage_to_durable_journal_entries_stops_the_node(harm: str) -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED, joined(1)])
    await journal.close()
    (path,) = (path for path in disk.files() if path.endswith(".log"))
    if harm == "flip":
        disk.flip(path, 8 * len(disk.content(path)) - 5)
    else:
        disk.plant(path, disk.content(path)[:-1])
    with pytest.raises(CorruptLogError):
        await reopened(disk)


async def test_a_replaced_journal_holds_the_snapshot_and_later_entries() -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED, *(joined(1) for _ in range(50))])
    await journal.replace([FORMED, joined(1)])
    journal.append([joined(2)])
    await journal.close()
    assert await reopened(disk) == [FORMED, joined(1), joined(2)]
    assert sorted(disk.list_directory("journal")) == ["000001", "current"]


async def test_without_the_file_that_names_it_a_journal_is_kept_and_nothing_starts() -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED, joined(1)])
    await journal.replace([FORMED, joined(2)])
    await journal.close()
    disk.remove("journal/current")
    before = disk.files("journal")
    with pytest.raises(StorageError, match=r"current is gone.*: put it back"):
        await reopened(disk)
    assert disk.files("journal") == before


async def test_nothing_is_appended_while_the_journal_is_replaced() -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    state: list[str] = [FORMED]
    journal.append(state)
    async with trio.open_nursery() as nursery:
        with disk.syncs_held():
            nursery.start_soon(journal.replace, state)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(NotReadyError):
                journal.append([joined(1)])
    journal.append([joined(1)])
    await journal.close()
    assert await reopened(disk) == [FORMED, joined(1)]


async def test_a_failed_replacement_leaves_the_old_journal_in_force() -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED])
    for operation in ("append", "sync", "replace_file"):
        disk.fail(errno.ENOSPC, operation)
        with pytest.raises(StorageError):
            await journal.replace([FORMED])
        disk.heal()
    journal.append([joined(1)])
    await journal.replace([FORMED, joined(1)])
    await journal.close()
    assert await reopened(disk) == [FORMED, joined(1)]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_a_journal_switch_that_happened_in_spite_of_an_error_is_undone(number: int) -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED])
    disk.fail(number, "replace_file", done=True)
    with pytest.raises(StorageError) as failure:
        await journal.replace([FORMED])
    assert not isinstance(failure.value, LogReadOnlyError)
    journal.append([joined(1)])
    await journal.flush()
    disk.crash(keep_page_cache=False, names_kept=True)
    assert await reopened(disk) == [FORMED, joined(1)]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_both_journals_are_kept_if_it_is_unknown_which_is_in_force(number: int) -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED])
    disk.fail(number, "replace_file", done=True)
    disk.fail(number, "replace_file", calls_before=1)
    with pytest.raises(LogReadOnlyError):
        await journal.replace([FORMED])
    disk.crash(keep_page_cache=False, names_kept=True)
    disk.heal()
    assert await reopened(disk) == [FORMED]


async def test_a_journal_switch_that_was_not_undone_before_the_end_keeps_both_journals() -> None:
    scope = trio.CancelScope()

    class EndingDisk(MemoryDisk):
        async def replace_file(self, path: str, data: bytes) -> None:
            try:
                await super().replace_file(path, data)
            except OSError:
                scope.cancel()
                raise

    disk = EndingDisk()
    journal = await begin(disk)
    journal.append([FORMED])
    disk.fail(errno.EIO, "replace_file", done=True)
    with scope:
        await journal.replace([FORMED])
    assert scope.cancelled_caught
    assert await reopened(disk) == [FORMED]


async def test_a_disk_that_stays_full_before_the_switch_leaves_the_old_journal_in_force() -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED])
    disk.fail(errno.ENOSPC, "replace_file", times=2)
    with pytest.raises(DiskFullError):
        await journal.replace([FORMED])
    journal.append([joined(1)])
    await journal.flush()
    disk.crash(keep_page_cache=False, names_kept=True)
    disk.heal()
    assert await reopened(disk) == [FORMED, joined(1)]


@pytest.mark.parametrize("operation", ["list_directory", "remove", "remove_directory"])
async def test_remains_of_an_old_journal_do_not_begin_a_new_one(operation: str) -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED])
    disk.fail(errno.EIO, "sync", path_end=".log", calls_before=1)  # the second journal's
    disk.fail(errno.EIO, operation, calls_before=int(operation == "list_directory"))
    with pytest.raises(StorageError):
        await journal.replace([FORMED])
    disk.heal()
    journal.append([joined(1)])
    await journal.replace([FORMED, joined(1)])
    await journal.close()
    assert await reopened(disk) == [FORMED, joined(1)]


async def test_a_journal_that_is_opened_after_a_failed_sync_is_on_the_device() -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED])
    disk.fail(errno.EIO, "sync", path_end=".log")
    with pytest.raises(LogReadOnlyError):
        await journal.flush()
    await journal.close()
    disk.crash(keep_page_cache=True)
    journal, entries = await Journal.open(environment(disk), "journal", ENTRIES)
    assert entries == [FORMED]
    disk.crash(keep_page_cache=False, names_kept=True)
    assert await reopened(disk) == [FORMED]


async def test_a_journal_opens_at_once_after_the_sync_of_a_whole_disk_failed() -> None:
    """The first sync of each file tells that failure once more."""
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED])
    await journal.flush()
    journal.append([joined(1)])
    disk.crash(keep_page_cache=True)
    for _, image in disk.simulated.tree.files():
        flush = image.begin_flush()
        image.forget(flush)
        image.has_error = True
    assert await reopened(disk) == [FORMED, joined(1)]
    disk.crash(keep_page_cache=False, names_kept=True)
    assert await reopened(disk) == [FORMED, joined(1)]


async def test_replacing_the_journal_does_not_delay_tasks_that_wait_for_a_flush() -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    state: list[str] = [FORMED, joined(1)]
    journal.append([*state, *state])  # longer than what comes
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            with disk.syncs_held():
                nursery.start_soon(journal.flush)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(journal.replace, state)
                await trio.testing.wait_all_tasks_blocked()
    assert await reopened(disk) == state


async def test_an_observer_hears_what_a_journal_does_in_order() -> None:
    disk, noted = MemoryDisk(), Noted()
    disk.make_directory("journal")
    journal, _ = await Journal.open(environment(disk), "journal", ENTRIES, observer=noted)
    journal.append([FORMED])
    journal.append([])  # nothing, so nothing is told
    await journal.flush()
    await journal.flush()  # everything is durable
    await journal.replace([FORMED])
    assert noted.told == [
        *(("appending", [FORMED]), ("appended", [FORMED]), "flushing", "flushed"),
        *(("replacing", [FORMED]), "switched", "replaced"),
    ]


async def test_a_journal_wants_a_snapshot_when_many_entries_were_appended_since_the_last() -> None:
    disk = MemoryDisk()
    disk.make_directory("journal")
    journal, _ = await Journal.open(environment(disk), "journal", ENTRIES, snapshot_entries=2)
    journal.append([joined(1), joined(2)])
    assert not journal.wants_snapshot
    journal.append([joined(3)])
    assert journal.wants_snapshot
    size_bytes = journal.size_bytes
    await journal.replace([FORMED])
    assert not journal.wants_snapshot
    assert 0 < journal.size_bytes < size_bytes


async def test_a_directory_that_cannot_be_read_begins_no_journal() -> None:
    disk = MemoryDisk()
    disk.make_directory("journal")
    disk.fail(errno.EIO, "list_directory")
    with pytest.raises(StorageError, match="can't be read"):
        await Journal.open(environment(disk), "journal", ENTRIES)


async def test_a_journal_whose_directory_cannot_be_read_is_not_replaced() -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED])
    disk.fail(errno.EIO, "list_directory")
    with pytest.raises(StorageError, match="can't be read"):
        await journal.replace([joined(1)])
    disk.heal()
    await journal.close()
    assert await reopened(disk) == [FORMED]


async def test_a_journal_that_cannot_be_closed_in_order_says_so_and_keeps_what_was_flushed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    journal = await begin(disk)
    journal.append([FORMED])
    await journal.flush()
    journal.append([joined(1)])
    disk.fail(errno.EIO, "sync")
    await journal.close()
    assert "the journal could not be closed in order" in caplog.text
    disk.crash(keep_page_cache=False, names_kept=True)
    disk.heal()
    assert await reopened(disk) == [FORMED]


async def test_an_entry_that_this_version_cannot_read_is_damage() -> None:
    disk = MemoryDisk()
    other = attrs.evolve(ENTRIES, encode=lambda text: text.encode("utf-16"))
    disk.make_directory("journal")
    journal, _ = await Journal.open(environment(disk), "journal", other)
    journal.append([FORMED])
    await journal.close()
    with pytest.raises(CorruptLogError, match="an entry that this version can't read"):
        await reopened(disk)


async def test_a_file_that_names_a_journal_with_a_negative_number_is_damage() -> None:
    disk = MemoryDisk()
    disk.make_directory("journal")
    await checkpoint.store(disk, "journal/current", attrs.asdict(InForce(-1, 0, "here")))
    with pytest.raises(DamagedCheckpointError, match="what no node wrote"):
        await reopened(disk)
