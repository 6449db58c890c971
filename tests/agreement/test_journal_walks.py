"""Registers under faults of every kind keep one journal; afterwards they go on."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octopi.agreement.journal.stored import replayed, shortest
from tests.agreement.registers import Registers, walk

ADDRESSES = st.sampled_from(["r1", "r2", "r3"])


class RegistersMachine(RuleBasedStateMachine):
    """Three registers."""

    @initialize(seed=st.integers(0, 2**32), is_founded=st.booleans())
    def begin(self, seed: int, is_founded: bool) -> None:
        self.world = Registers(3, Random(seed))
        if is_founded:
            self.world.settle(steps=20)

    @precondition(lambda self: self.world.deciding)
    @rule(data=st.data(), count=st.integers(1, 3))
    def propose(self, data: st.DataObject, count: int) -> None:
        addresses = [one.identity.address for one in self.world.deciding]
        self.world.propose(data.draw(st.sampled_from(addresses)), count)

    @precondition(lambda self: self.world.messages)
    @rule(data=st.data(), count=st.integers(1, 8), keep=st.booleans())
    def deliver(self, data: st.DataObject, count: int, keep: bool) -> None:
        for _ in range(min(count, len(self.world.messages))):
            last = len(self.world.messages) - 1
            self.world.deliver(data.draw(st.integers(0, last)), keep=keep)

    @precondition(lambda self: self.world.messages)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.world.messages.pop(data.draw(st.integers(0, len(self.world.messages) - 1)))

    @rule(addresses=st.sets(ADDRESSES, min_size=1))
    def sync(self, addresses: set[str]) -> None:
        for address in sorted(addresses):
            self.world.sync(address)

    @rule(address=ADDRESSES, written=st.integers(0, 3))
    def restart(self, address: str, written: int) -> None:
        self.world.restart(address, written)

    @rule(address=ADDRESSES)
    def shorten(self, address: str) -> None:
        self.world.shorten(address)

    @rule(address=ADDRESSES, other=ADDRESSES)
    def lost(self, address: str, other: str) -> None:
        self.world.lost(address, other)

    @precondition(lambda self: self.world.is_whole)
    @rule(address=ADDRESSES)
    def replace_disk(self, address: str) -> None:
        self.world.replace_disk(address)

    @rule(seconds=st.sampled_from([0.02, 0.2, 0.8, 1.3]), late=st.sets(ADDRESSES, max_size=2))
    def pass_time(self, seconds: float, late: set[str]) -> None:
        self.world.pass_time(seconds, *late)

    @invariant()
    def journals_are_as_short_as_they_can_be(self) -> None:
        if not hasattr(self, "world"):
            return
        for one in self.world.registers.values():
            state = one.replica.state
            again = replayed(shortest(one.replica.identity.directory, state))
            assert (again.term, again.vote) == (state.term, state.vote)
            assert again.history.snapshot == state.history.snapshot
            assert again.history.entries == state.history.entries
            assert again.history.voters == state.history.voters


TestRegisters = RegistersMachine.TestCase
TestRegisters.settings = settings(max_examples=30, stateful_step_count=50)


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_random_walks_keep_the_rules(first: int) -> None:
    worlds = [walk(seed, 400) for seed in range(first, first + 40)]
    # They are worth something only if they reach something.
    assert sum(len(one.decided) for one in worlds) > 100
    assert sum(len(one.active) for one in worlds) > 80
    assert sum(one.disk_count - 3 for one in worlds) > 10


def test_random_walks_of_five_registers_keep_the_rules() -> None:
    worlds = [walk(seed, 1_000, 5) for seed in range(1, 41, 2)]
    assert sum(len(one.decided) for one in worlds) > 10


@pytest.mark.parametrize("seed", range(10))
def test_when_the_faults_end_the_registers_decide_again(seed: int) -> None:
    world = walk(seed, 300)
    world.settle(steps=200)
    (active,) = world.deciding
    [content] = world.propose(active.identity.address)
    world.settle(steps=20)
    assert content in world.decided
    assert world.is_whole
