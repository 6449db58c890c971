"""Acceptors on a disk answer for what is on the device, and without it they are others."""

from __future__ import annotations

import errno

import attrs
import pytest
import trio
import trio.testing

from octopi.agreement.entries import AcceptEntry, PromiseEntry, encode_entry
from octopi.agreement.values import first_value
from octopi.environment import Environment
from octopi.errors import CorruptLogError, LogReadOnlyError, NotReadyError, StorageError
from octopi.identifiers import BrokerId, DirectoryId, InstanceId
from octopi.limits import ACCEPTORS_MAX, AGREED_BYTES_MAX, BATCH_BYTES_MAX, BROKER_ID_MAX
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.roles.acceptor_journal import ACCEPTOR_ENTRIES, AcceptorJournal
from octopi.roles.register.register_journal import REGISTER_ENTRIES
from octopi.storage.journal import Journal
from octopi.wire.agreement import (
    AcceptorId,
    AgreedValue,
    BallotPromised,
    BallotRefused,
    ToProposer,
    ValueAccepted,
)
from tests.agreement.test_acceptor import FIRST, A, accept, ballot, prepare
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet


def environment(disk: MemoryDisk) -> Environment:
    return Environment(SystemClock(), MemoryNet(), disk, SystemRandomness())


async def opened(
    disk: MemoryDisk, first: AgreedValue = FIRST, snapshot_entries: int = 1000
) -> AcceptorJournal:
    disk.make_directory("acceptor")
    return await AcceptorJournal.open(
        environment(disk),
        "acceptor",
        BrokerId(1),
        {InstanceId(1): first}.get,
        snapshot_entries=snapshot_entries,
    )


def group(journal: AcceptorJournal, content: bytes = b"", change: int = 0) -> AgreedValue:
    """A value with this acceptor alone."""
    value = first_value([journal.identity], content)
    return AgreedValue(change, value.acceptors, value.previous, content)


async def promises(journal: AcceptorJournal, number: int) -> BallotPromised | BallotRefused:
    [answer] = await journal.receive(prepare(number))
    assert isinstance(answer, BallotPromised | BallotRefused)
    return answer


async def test_what_was_answered_survives_a_power_failure() -> None:
    disk = MemoryDisk()
    journal = await opened(disk)
    value = group(journal, b"decided", 1)
    await journal.receive(accept(1, value, successor=5))
    disk.crash(keep_page_cache=False, names_kept=True)
    again = await opened(disk)
    assert again.identity == journal.identity
    assert isinstance(await promises(again, 4), BallotRefused)
    promised = await promises(again, 6)
    assert isinstance(promised, BallotPromised)
    assert (promised.accepted, promised.value) == (ballot(1), value)
    await again.close()


async def test_no_answer_goes_out_before_the_device_has_what_it_says() -> None:
    disk = MemoryDisk()
    journal = await opened(disk)
    value = group(journal, b"decided", 1)
    answers: list[ToProposer] = []

    async def receive() -> None:
        answers.extend(await journal.receive(accept(1, value)))

    async with trio.open_nursery() as nursery:
        with disk.syncs_held():
            for _ in range(2):  # the second one has nothing to store, and waits as well
                nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            assert answers == []
    assert [type(one) for one in answers] == [ValueAccepted, ValueAccepted]
    await journal.close()


async def test_without_its_journal_a_broker_is_another_acceptor() -> None:
    first = await opened(MemoryDisk())
    second = await opened(MemoryDisk())
    assert first.identity.broker == second.identity.broker
    assert first.identity != second.identity
    value = group(first, b"decided", 1)
    assert await second.receive(accept(1, value)) == []
    assert not value.is_quorum([second.identity])


async def test_a_full_disk_promises_nothing_and_goes_on_when_it_has_space() -> None:
    disk = MemoryDisk()
    journal = await opened(disk)
    disk.fail(errno.ENOSPC, "append")
    with pytest.raises(StorageError):
        await promises(journal, 3)
    disk.heal()
    assert isinstance(await promises(journal, 2), BallotPromised)
    await journal.close()


async def test_a_disk_that_fails_ends_the_answers() -> None:
    disk = MemoryDisk()
    journal = await opened(disk)
    disk.fail(errno.EIO, "sync")
    for number in (1, 2):
        with pytest.raises(LogReadOnlyError):
            await journal.receive(prepare(number))


async def test_a_snapshot_keeps_promises_values_and_the_identity() -> None:
    disk = MemoryDisk()
    journal = await opened(disk, snapshot_entries=20)
    value = group(journal, bytes(AGREED_BYTES_MAX), 1)
    for number in range(1, 20):  # beside the entry that says whose journal it is
        await journal.receive(accept(number, value))
        await journal.shorten()
        assert "000001" not in disk.list_directory("acceptor")
    await journal.receive(accept(21, value, successor=30))
    await journal.shorten()
    assert "000001" in disk.list_directory("acceptor")
    await journal.close()
    again = await opened(disk)
    assert again.identity == journal.identity
    assert isinstance(await promises(again, 29), BallotRefused)
    promised = await promises(again, 31)
    assert isinstance(promised, BallotPromised)
    assert promised.value == value
    await again.close()


async def test_nothing_is_promised_while_a_snapshot_is_written() -> None:
    disk = MemoryDisk()
    journal = await opened(disk, snapshot_entries=0)
    await promises(journal, 1)
    async with trio.open_nursery() as nursery:
        with disk.syncs_held():
            nursery.start_soon(journal.shorten)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(NotReadyError):
                await promises(journal, 3)
    assert isinstance(await promises(journal, 2), BallotPromised)
    await journal.close()


async def test_a_damaged_journal_of_an_acceptor_stops_the_node() -> None:
    disk = MemoryDisk()
    journal = await opened(disk)
    await promises(journal, 1)
    await journal.close()
    (path,) = (path for path in disk.files() if path.endswith(".log"))
    disk.plant(path, disk.content(path)[:-1])
    with pytest.raises(CorruptLogError):
        await opened(disk)


async def test_a_journal_that_does_not_say_whose_it_is_stops_the_node() -> None:
    disk = MemoryDisk()
    disk.make_directory("acceptor")
    other, _ = await Journal.open(environment(disk), "acceptor", ACCEPTOR_ENTRIES)
    other.append([PromiseEntry(InstanceId(1), ballot(1))])
    await other.close()
    with pytest.raises(CorruptLogError, match="whose it is"):
        await opened(disk)


def test_the_largest_entry_fits() -> None:
    group = [AcceptorId(BrokerId(BROKER_ID_MAX - n), A.directory) for n in range(ACCEPTORS_MAX)]
    named = [attrs.evolve(one, directory=DirectoryId("f" * 32)) for one in group]
    value = first_value(named, bytes(AGREED_BYTES_MAX))
    entry = AcceptEntry(InstanceId(1), ballot(1), ballot(2), value)
    assert value.fault() == ""
    assert len(encode_entry(entry)) < ACCEPTOR_ENTRIES.entry_bytes_max <= BATCH_BYTES_MAX


def test_the_register_s_journal_is_written_a_thousand_entries_at_a_time() -> None:
    assert BATCH_BYTES_MAX // REGISTER_ENTRIES.entry_bytes_max == 1000
