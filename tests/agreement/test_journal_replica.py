"""What one register of a group does in moments that decide."""

from __future__ import annotations

from random import Random

import pytest

from octopi.agreement.journal.replica import JournalReplica, RegisterRole
from octopi.errors import ProtocolError
from octopi.limits import REGISTER_QUORUM_S, REGISTER_SILENCE_S, REPLICATED_PAGE_BYTES
from octopi.wire.registers import EntriesSent, JournalEntry, SnapshotSent
from tests.agreement.registers import Registers


@pytest.fixture
def world() -> Registers:
    """Three registers, of which one is active."""
    world = Registers(3, Random(1))
    world.settle(steps=40)
    assert len(world.deciding) == 1
    return world


def active(world: Registers) -> str:
    """The address of the register that decides."""
    (one,) = world.deciding
    return one.identity.address


def standbys(world: Registers) -> list[str]:
    """The addresses of the others."""
    return [one for one in world.addresses if one != active(world)]


def settle_time(world: Registers, *cut_off: str) -> float:
    """How long it takes until a register decides that is not cut off (s)."""
    since = world.now
    while not any(one.identity.address not in cut_off for one in world.deciding):
        world.settle(*cut_off, steps=1)
        assert world.now - since < 10
    return world.now - since


def test_a_journal_begins_only_when_all_registers_are_there() -> None:
    world = Registers(3, Random(2))
    world.settle("r3", steps=200)
    assert not world.active
    world.settle(steps=100)
    assert len(world.deciding) == 1


def test_registers_with_other_lists_begin_nothing_together() -> None:
    world = Registers(3, Random(3))
    other = world["r3"]
    world.registers["r3"].replica = JournalReplica(
        other.identity, ["r2", "r3"], other.state, world.random.random, world.now
    )
    world.settle(steps=200)
    assert not world.active


def test_what_is_proposed_is_committed_by_two_of_three(world: Registers) -> None:
    [content] = world.propose(active(world))
    world.settle(standbys(world)[0], steps=5)
    assert world.decided == [content]


def test_an_active_register_alone_commits_nothing_and_gives_up(world: Registers) -> None:
    before = active(world)
    world.propose(before)
    world.settle(before, steps=2)
    assert world[before].is_active
    world.settle(before, steps=round(REGISTER_QUORUM_S / 0.02) + 6)
    assert not world[before].is_active
    assert world.decided == []


def test_another_register_decides_within_two_seconds_of_a_cut(world: Registers) -> None:
    before = active(world)
    world.propose(before)
    assert settle_time(world, before) < 2.0
    # The former active one is back: what it appended alone is replaced.
    world.settle(steps=30)
    ends = {one.replica.history.end for one in world.registers.values()}
    assert len(ends) == 1
    assert world.decided == []


def test_another_register_decides_soon_if_the_connections_of_the_active_one_break(
    world: Registers,
) -> None:
    before = active(world)
    for other in standbys(world):
        world.lost(other, before)
    assert settle_time(world, before) < 0.5


def test_a_broken_connection_alone_deposes_nobody(world: Registers) -> None:
    before, term = active(world), max(world.active)
    world.lost(standbys(world)[0], before)
    world.settle(steps=50)
    assert max(world.active) == term


def test_a_register_that_stops_lets_another_one_decide_soon(world: Registers) -> None:
    before = active(world)
    register = world.registers[before]
    world._perform(register, register.replica.step_down(world.now))
    assert world[before].role is RegisterRole.STANDBY
    world.settle(steps=10)
    assert active(world) != before


def test_a_register_that_was_cut_off_deposes_nobody_when_it_is_back(world: Registers) -> None:
    term = max(world.active)
    world.settle(standbys(world)[0], steps=200)
    world.settle(steps=50)
    assert max(world.active) == term


def test_a_register_without_its_disk_is_replaced_as_a_voter_and_then_counts(
    world: Registers,
) -> None:
    lost, other = standbys(world)
    contents = world.propose(active(world), 3)
    world.settle(steps=5)
    world.replace_disk(lost)
    world.settle(steps=100)
    assert world.is_whole
    assert list(world[lost].history.contents()) == contents
    [more] = world.propose(active(world))
    world.settle(other, steps=10)
    assert world.decided == [*contents, more]


def test_a_register_without_its_disk_votes_for_nobody_before_it_has_everything(
    world: Registers,
) -> None:
    lost, other = standbys(world)
    gone = active(world)
    world.propose(gone, 3)
    world.settle(other, steps=5)  # decided by the active one and by the one that is lost
    world.replace_disk(lost)
    world.settle(gone, steps=200)
    assert world.deciding == []
    world.settle(steps=150)
    assert len(world.decided) == 3
    assert world.is_whole


def test_a_register_that_was_away_for_long_is_sent_a_snapshot(world: Registers) -> None:
    away, gone = standbys(world)[0], active(world)
    contents = world.propose(gone, 5)
    world.settle(away, steps=10)
    world.shorten(gone)
    more = world.propose(gone)
    world.settle(steps=30)
    assert world[away].history.snapshot.end == world[gone].history.snapshot.end
    assert list(world[away].history.contents()) == contents + more


def test_a_long_snapshot_is_sent_in_pages_of_which_some_are_lost(world: Registers) -> None:
    away, gone = standbys(world)[0], active(world)
    long = [b"%d" % one + bytes(REPLICATED_PAGE_BYTES // 2) for one in range(7)]
    register = world.registers[gone]
    world._perform(register, register.replica.propose(long, world.now))
    world.settle(away, steps=10)
    world.shorten(gone)
    for step in range(60):
        world.settle(*([away] if step % 3 == 0 else []), steps=1)
    assert list(world[away].history.contents()) == long


def test_an_entry_of_a_former_term_is_not_committed_by_being_on_a_majority(
    world: Registers,
) -> None:
    """Fig. 8 of the paper: another register could be elected without it."""
    first = active(world)
    second, third = standbys(world)
    world.propose(first)
    world.messages.clear()  # nobody else has it
    world.sync(first)
    assert settle_time(world, first) < 2.0
    leader = next(one for one in world.deciding if one.identity.address != first)
    world.restart(first)
    replica = world[first]
    replica.role, replica.term = RegisterRole.ACTIVE, leader.term + 1
    replica.vote = replica.identity
    replica._begin(world.now)
    begins = replica._begins
    for one in (second, third):
        progress = replica.progress[one]
        progress.identity, progress._stored = world[one].identity, begins
    replica.progress[first].identity = replica.identity
    replica.progress[first]._stored = begins
    replica._commit()
    assert replica.committed < begins
    for one in (first, second):
        replica.progress[one]._stored = begins + 1
    replica._commit()
    assert replica.committed == begins + 1


def test_a_register_drifts_into_no_later_terms_while_it_hears_nobody(world: Registers) -> None:
    alone = standbys(world)[0]
    term = world[alone].term
    world.settle(alone, steps=round(20 * REGISTER_SILENCE_S / 0.02))
    assert world[alone].term == term


def test_one_register_alone_is_a_group() -> None:
    world = Registers(1, Random(1))
    world.settle(steps=20)
    [content] = world.propose("r1")
    world.settle(steps=2)
    assert world.decided == [content]
    world.restart("r1")
    world.settle(steps=100)
    assert world["r1"].may_decide


def test_entries_that_would_replace_committed_ones_are_refused_and_nothing_changes(
    world: Registers,
) -> None:
    replica = world[standbys(world)[0]]
    assert replica.committed > 0
    sender, before = world[active(world)].identity, replica.state
    term, kept = replica.term + 1, replica.history.entries.copy()
    other = JournalEntry(term, b"another")
    sent = EntriesSent(sender, term, 0, 0, (other,), committed=0, sent_ms=0)
    with pytest.raises(ProtocolError, match="replaces entry 0 of the journal, which is committed"):
        replica.receive(sent, world.now)
    assert (replica.state, replica.history.entries) == (before, kept)


def test_a_second_active_register_in_one_term_is_refused(world: Registers) -> None:
    replica = world[active(world)]
    other, term = world[standbys(world)[0]].identity, replica.term
    for sent in (
        EntriesSent(other, term, 0, 0, (), committed=0, sent_ms=0),
        SnapshotSent(other, term, 1, term, (), 0, 1, (b"",), 0),
    ):
        with pytest.raises(ProtocolError, match=f"are both active in term {term}: one of the"):
            replica.receive(sent, world.now)
    assert replica.may_decide
