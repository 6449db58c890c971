"""The voters become those in the lists of the registers, one at a time."""

from __future__ import annotations

from random import Random

import pytest

from octopi.agreement.journal.history import JournalHistory, JournalSnapshot
from octopi.agreement.journal.stored import StoredState, shortest
from octopi.agreement.journal.voter_changes import unlike
from octopi.errors import ProtocolError
from octopi.wire.registers import EntriesSent
from tests.agreement.registers import Registers


def world_of(count: int, seed: int = 1) -> Registers:
    """Registers that have decided something."""
    world = Registers(count, Random(seed))
    world.settle(steps=200)
    world.propose(world.deciding[0].identity.address)
    world.settle(steps=20)
    return world


def decide(world: Registers) -> None:
    """Have one more entry decided."""
    count = len(world.decided)
    world.propose(world.deciding[0].identity.address)
    world.settle(steps=20)
    assert len(world.decided) == count + 1


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_register_that_was_alone_is_joined_by_others_when_all_of_them_are_there(
    seed: int,
) -> None:
    world = world_of(1, seed)
    world.give_list(1, 2, 3)
    world.settle("r3", steps=200)
    assert not world.deciding
    world.settle(steps=200)
    assert world.voters() == [1, 2, 3]
    decide(world)
    world.settle("r1", steps=200)
    assert len({one.history.end for one in map(world.__getitem__, ("r2", "r3"))}) == 1
    assert any(one.identity.address != "r1" for one in world.deciding)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_group_becomes_one_register_when_all_have_the_same_list(seed: int) -> None:
    world = world_of(3, seed)
    world.give_list(1)
    world.settle(steps=800)
    assert world.voters() == [1]
    assert [one.identity.address for one in world.deciding] == ["r1"]
    world.stop("r2")
    world.stop("r3")
    decide(world)
    world.restart("r1")
    world.settle(steps=200)
    decide(world)


def test_a_register_is_replaced_by_one_at_another_address() -> None:
    world = world_of(3)
    world.stop("r3")
    world.give_list(1, 2, 4)
    world.settle(steps=400)
    assert world.voters() == [1, 2, 4]
    decide(world)
    world.settle("r1", steps=300)
    assert world["r2"].history.end == world["r4"].history.end


def test_all_registers_may_be_replaced_by_others() -> None:
    world = world_of(3)
    world.give_list(4, 5, 6, 1)
    world.settle(steps=800)
    assert world.voters() == [1, 4, 5, 6]
    world.give_list(4, 5, 6)
    world.settle(steps=800)
    assert world.voters() == [4, 5, 6]
    for address in ("r1", "r2", "r3"):
        world.stop(address)
    world.settle(steps=200)
    decide(world)


@pytest.mark.parametrize("numbers", [(1,), (1, 2), (2, 3), (1, 4)])
def test_one_register_with_another_list_takes_nobody_out(numbers: tuple[int, ...]) -> None:
    world = world_of(3)
    world.give_list(*numbers, to="r1")
    for _ in range(6):
        world.settle(steps=150)
        assert {1, 2, 3} <= set(world.voters())
        (active,) = world.deciding
        if active.identity.address == "r1":
            assert unlike(active, world.now) == ["r2", "r3"]
        world.restart(active.identity.address)


def test_no_more_registers_vote_than_there_may_be() -> None:
    world = world_of(5)
    world.give_list(1, 2, 3, 4, 5, 6, 7, 8, 9)
    world.settle(steps=400)
    world.give_list(2, 3, 4, 5, 6, 7, 8, 9, 10)
    world.settle(steps=800)
    assert world.voters() == [10, 2, 3, 4, 5, 6, 7, 8, 9]


def test_two_registers_with_copies_of_a_journal_decide_nothing() -> None:
    """Each was the only one: what one of them decided the other one doesn't know."""
    world = world_of(1)
    world.give_list(1, 2, 3)
    copy, history = world.registers["r2"], world["r1"].history
    snapshot = JournalSnapshot(
        history.end, history.end_term, (copy.replica.identity,), tuple(history.contents())
    )
    state = StoredState(history.end_term, None, JournalHistory(snapshot))
    copy.disk = shortest(copy.replica.identity.directory, state)
    world.restart("r2")
    world.settle(steps=300)
    assert not world.deciding
    assert all(world[one].is_alone for one in ("r1", "r2"))
    world.replace_disk("r2")
    world.settle(steps=300)
    assert world.voters() == [1, 2, 3]


def test_a_register_that_is_alone_takes_no_entries() -> None:
    world = world_of(1)
    replica, other = world["r1"], world_of(1)["r1"]
    sent = EntriesSent(other.identity, replica.term + 1, 0, 0, (), 0, 0)
    with pytest.raises(ProtocolError, match="each a journal of their own"):
        replica.receive(sent, world.now)


def test_a_register_that_is_in_no_list_begins_no_journal() -> None:
    world = Registers(1, Random(1))
    world.give_list(2, 3)
    world.settle("r2", "r3", steps=200)
    assert not world["r1"].is_founded


@pytest.mark.parametrize("seed", range(40))
def test_lists_that_change_at_any_time_leave_one_history(seed: int) -> None:
    random = Random(seed)
    world = world_of(random.choice((1, 3)), seed)
    for _ in range(6):
        numbers = sorted({1, *random.sample(range(2, 6), random.randrange(4))})
        if random.random() < 0.7:
            world.give_list(*numbers)
        else:
            world.give_list(*numbers, to=random.choice(world.addresses))
        for _ in range(120):
            kind = random.random()
            if world.messages and kind < 0.7:
                index = random.randrange(len(world.messages))
                world.deliver(index, keep=random.random() < 0.05)
            elif kind < 0.85:
                world.sync(random.choice(world.addresses))
            elif kind < 0.88 and world.deciding:
                world.propose(random.choice(world.deciding).identity.address)
            elif kind < 0.98:
                late = random.sample(world.addresses, random.choice([0, 0, 1]))
                world.pass_time(random.choice([0.02, 0.1, 0.8]), *late)
            else:
                world.restart(random.choice(world.addresses))
    numbers = sorted(int(one[1:]) for one in world.addresses)
    world.give_list(*numbers)
    world.settle(steps=600)
    assert world.voters() == numbers
    decide(world)
