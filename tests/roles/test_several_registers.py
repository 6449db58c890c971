"""The shell of a register of several: its journal on the disk, its connections, its options."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
import trio

from octopi.agreement.journal.replica import JournalReplica
from octopi.agreement.journal.stored import StoredAppend, StoredVote
from octopi.clients.entrances import Entrances
from octopi.coordination.journal_entries import ClusterFormed
from octopi.environment import Environment
from octopi.errors import (
    CorruptLogError,
    InvalidOptionError,
    NotLeaderError,
    NotReadyError,
    ProtocolError,
    RefusedError,
    Status,
)
from octopi.identifiers import DirectoryId
from octopi.limits import REGISTER_GOODBYE_S
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.roles.broker.register_addresses import RegisterAddresses
from octopi.roles.register.group.group import RegisterGroup
from octopi.roles.register.group.links import RegisterPeer
from octopi.roles.register.group.running import folding, run_register_of_several
from octopi.roles.register.group.sessions import RegisterSession, StandbySession
from octopi.roles.register.group.stored_journal import STORED_ENTRIES, StoredJournal
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.register_journal import encode
from octopi.storage.journal import Journal
from octopi.storage.time_slices import GROUP_COUNT, at_once
from octopi.wire import messages as m
from octopi.wire.registers import ActiveGone, JournalEntry, RegisterId
from tests.kit.cluster import system_environment
from tests.kit.disk import MemoryDisk
from tests.kit.join_secrets import SECRETS
from tests.kit.links import MemoryNet

A, B, C = "ws://a:7000", "ws://b:7000", "ws://c:7000"


def environment(disk: MemoryDisk) -> Environment:
    return Environment(SystemClock(), MemoryNet(), disk, SystemRandomness())


open_journal = partial(StoredJournal.open, snapshot_entries=100)


# --- the journal on the disk ---------------------------------------------------------------


async def test_a_register_keeps_its_number_its_vote_and_its_entries() -> None:
    disk = MemoryDisk()
    disk.make_directory("replica")
    stored, state = await open_journal(environment(disk), "replica")
    assert (state.term, state.vote, state.history.end) == (0, None, 0)
    me = RegisterId(A, stored.directory)
    stored.append([StoredVote(3, me), StoredAppend(0, JournalEntry(3, b"one", (me,)))])
    await stored.flush()
    await stored.close()
    again, state = await open_journal(environment(disk), "replica")
    assert again.directory == stored.directory
    assert (state.term, state.vote) == (3, me)
    assert list(state.history.contents()) == [b"one"]
    await again.close()


async def test_a_register_with_another_disk_has_another_number() -> None:
    numbers = set()
    for _ in range(2):
        disk = MemoryDisk()
        disk.make_directory("replica")
        stored, _ = await open_journal(environment(disk), "replica")
        numbers.add(stored.directory)
        await stored.close()
    assert len(numbers) == 2


async def test_what_is_appended_while_the_journal_is_replaced_comes_behind_that() -> None:
    disk = MemoryDisk()
    disk.make_directory("replica")
    stored, state = await open_journal(environment(disk), "replica")
    stored.append([StoredAppend(0, JournalEntry(1, b"one"))])
    state.history.put(0, JournalEntry(1, b"one"))
    state.term = 1
    shorter = attrs.evolve(state, history=state.history.shortened(1, [b"folded"]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stored.replace, shorter)
        while not stored.is_replaced:
            await trio.lowlevel.checkpoint()
        stored.append([StoredAppend(1, JournalEntry(1, b"two"))])
    await stored.flush()
    await stored.close()
    again, state = await open_journal(environment(disk), "replica")
    assert list(state.history.contents()) == [b"folded", b"two"]
    await again.close()


async def test_a_journal_that_no_register_stored_is_refused() -> None:
    disk = MemoryDisk()
    disk.make_directory("replica")
    journal, _ = await Journal.open(environment(disk), "replica", STORED_ENTRIES)
    journal.append([StoredVote(1, None)])
    await journal.close()
    with pytest.raises(CorruptLogError, match="doesn't say whose it is"):
        await open_journal(environment(disk), "replica")


async def test_a_journal_that_contradicts_itself_is_refused() -> None:
    disk = MemoryDisk()
    disk.make_directory("replica")
    stored, _ = await open_journal(environment(disk), "replica")
    stored.append([StoredVote(2, None), StoredVote(1, None)])
    await stored.close()
    with pytest.raises(CorruptLogError, match="the term 1 comes after 2"):
        await open_journal(environment(disk), "replica")


# --- connections ---------------------------------------------------------------------------


def group(active: str) -> RegisterGroup:
    """A stand-in for the group at A."""
    heard: list[object] = []
    replica = SimpleNamespace(identity=RegisterId(A, DirectoryId("d")), others=[B, C])
    return cast(
        RegisterGroup,
        SimpleNamespace(
            replica=replica,
            active_address=active,
            heard=heard,
            receive=heard.append,
            lost=heard.append,
        ),
    )


@pytest.mark.parametrize(("active", "where"), [(B, B), ("", "")])
def test_a_standby_refuses_requests_and_names_the_active_register(active: str, where: str) -> None:
    session = StandbySession(group(active), lambda: None)
    with pytest.raises(NotLeaderError) as refused:
        session.handle(m.ListTopics(1, "", 10))
    assert refused.value.address == where


def test_a_register_that_is_about_to_be_active_is_not_ready() -> None:
    session = StandbySession(group(A), lambda: None)
    with pytest.raises(NotReadyError):
        session.handle(m.ListTopics(1, "", 10))


def test_a_connection_goes_on_when_the_register_becomes_active() -> None:
    handled: list[object] = []
    inner = SimpleNamespace(
        handle=handled.append,
        token_refreshed=lambda: handled.append("refreshed"),
        closed=lambda: handled.append("closed"),
    )
    found: list[Any] = []
    session = StandbySession(group(B), lambda: found[0] if found else None)
    session.token_refreshed()
    with pytest.raises(NotLeaderError):
        session.handle(m.ListTopics(1, "", 10))
    found.append(inner)
    session.handle(m.ListTopics(2, "", 10))
    session.token_refreshed()
    session.closed()
    assert handled == [m.ListTopics(2, "", 10), "refreshed", "closed"]


def test_a_broker_whose_inventory_a_standby_did_not_take_is_not_let_in_on_that_connection() -> None:
    """It would be let in as one that has nothing."""
    found: list[Any] = []
    session = StandbySession(group(B), lambda: found[0] if found else None)
    session.handle(m.Inventory([], [], []))
    found.append(SimpleNamespace(handle=lambda message: pytest.fail("it was let in")))
    with pytest.raises(NotLeaderError):
        session.handle(m.ListTopics(1, "", 10))
    session.closed()


def test_a_long_journal_is_folded_in_slices() -> None:
    contents = [encode(ClusterFormed("one", number + 1)) for number in range(10 * GROUP_COUNT)]
    work = folding(contents)
    assert sum(1 for _ in work) == 11
    assert at_once(folding(contents)) == [encode(ClusterFormed("one", 10 * GROUP_COUNT))]


async def test_a_register_that_stops_does_not_wait_long_until_the_others_are_told() -> None:
    disk = MemoryDisk()
    disk.make_directory("replica")
    stored, state = await open_journal(environment(disk), "replica")
    clock = SystemClock()
    me = RegisterId(A, stored.directory)
    replica = JournalReplica(me, (A, B), state, lambda: 0.5, clock.now())
    stuck = cast(RegisterPeer, SimpleNamespace(post=lambda message: None, drain=trio.sleep_forever))
    one = RegisterGroup(environment(disk), replica, stored, lambda _: stuck, folding, 100)
    with trio.fail_after(20 * REGISTER_GOODBYE_S):
        await one.step_down()
    await stored.close()


def test_only_the_registers_of_the_list_are_heard() -> None:
    one = group(B)
    session = RegisterSession(one)
    session.closed()
    for address in (A, "ws://elsewhere:7000"):
        with pytest.raises(ProtocolError, match="is in no list"):
            session.handle(ActiveGone(RegisterId(address, DirectoryId("x")), 1))
    gone = ActiveGone(RegisterId(B, DirectoryId("x")), 1)
    session.handle(gone)
    session.token_refreshed()
    session.closed()
    assert cast(Any, one).heard == [gone, B]


# --- options -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: attrs.evolve(one, peers=(B, C)), "don't include this one"),
        (lambda one: attrs.evolve(one, peers=(A, B, B)), "1 to 9 different addresses"),
        (lambda one: attrs.evolve(one, secrets=None), "one join secret"),
    ],
)
async def test_a_wrong_list_of_registers_is_refused(
    tmp_path: Path, change: Callable[[RegisterOptions], RegisterOptions], said: str
) -> None:
    options = RegisterOptions(
        listen="127.0.0.1:0",
        data_directory=str(tmp_path),
        peers=(A, B, C),
        advertise=A,
        secrets=SECRETS,
    )
    async with trio.open_nursery() as nursery:
        outside = system_environment(nursery)
        with pytest.raises(InvalidOptionError, match=said):
            await run_register_of_several(outside, change(options), stop=trio.Event())


# --- who asks them -------------------------------------------------------------------------


def test_a_broker_tries_the_register_that_was_active_last_first() -> None:
    addresses = RegisterAddresses([A, B, C])
    addresses.failed(A)
    assert list(addresses) == [B, C, A]
    addresses.prefer(C)
    assert addresses.first == C
    addresses.prefer("ws://elsewhere:7000")
    addresses.failed("ws://elsewhere:7000")
    assert list(addresses) == [C, B, A]


def test_a_broker_follows_a_standby_to_the_active_register() -> None:
    addresses = RegisterAddresses([A, B, C])
    assert addresses.redirected(NotLeaderError("", address=B))
    assert addresses.first == B
    assert not addresses.redirected(NotLeaderError(""))
    assert not addresses.redirected(NotLeaderError("", address="ws://elsewhere:7000"))
    assert not addresses.redirected(RefusedError("", Status.NO_BROKER, A))


def test_a_client_follows_a_standby_to_the_active_register() -> None:
    entrances = Entrances([A, B, C])
    entrances.redirected(A, C)
    assert entrances.current == C
    entrances.redirected(C, "")
    assert entrances.current != C
    alone = Entrances([A])
    alone.redirected(A, B)
    assert alone.current == B
