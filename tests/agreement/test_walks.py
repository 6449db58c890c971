"""Brokers that agree, under faults of every kind, keep the rules; afterwards they go on."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.agreement.history import operations
from tests.agreement.world import INSTANCE, World, walk

NUMBERS = st.integers(1, 4)
GROUPS = st.sets(NUMBERS, min_size=1, max_size=3).map(sorted)


class AgreementMachine(RuleBasedStateMachine):
    """Four brokers, of which the first three are the first acceptors."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.world = World(4, 3, Random(seed))

    @rule(number=NUMBERS)
    def append(self, number: int) -> None:
        self.world.append(number)

    @rule(number=NUMBERS)
    def append_if_unchanged(self, number: int) -> None:
        self.world.append_if_unchanged(number)

    @rule(number=NUMBERS)
    def read(self, number: int) -> None:
        self.world.read(number)

    @rule(number=NUMBERS, group=GROUPS)
    def move(self, number: int, group: list[int]) -> None:
        self.world.move(number, group)

    @precondition(lambda self: self.world.messages)
    @rule(data=st.data(), count=st.integers(1, 8), keep=st.booleans())
    def deliver(self, data: st.DataObject, count: int, keep: bool) -> None:
        for _ in range(min(count, len(self.world.messages))):
            last = len(self.world.messages) - 1
            self.world.deliver(data.draw(st.integers(0, last)), keep=keep)

    @precondition(lambda self: self.world.messages)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.world.lose(data.draw(st.integers(0, len(self.world.messages) - 1)))

    @rule(numbers=st.sets(NUMBERS, min_size=1))
    def sync(self, numbers: set[int]) -> None:
        for number in sorted(numbers):
            self.world.sync(number)

    @rule(number=NUMBERS, written=st.integers(0, 3))
    def restart(self, number: int, written: int) -> None:
        self.world.restart(number, written)

    @rule(number=NUMBERS)
    def replace_disk(self, number: int) -> None:
        self.world.replace_disk(number)

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.6, 2.5]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @invariant()
    def journals_are_as_short_as_they_can_be(self) -> None:
        if not hasattr(self, "world"):
            return
        for broker in self.world.brokers.values():
            entries = list(broker.acceptor.state.entries(INSTANCE))
            again = self.world._acceptor(broker.identity)
            again.replay(entries)
            assert again.state == broker.acceptor.state


TestAgreement = AgreementMachine.TestCase
TestAgreement.settings = settings(max_examples=40, stateful_step_count=50)


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_random_walks_keep_the_rules(first: int) -> None:
    worlds = [walk(seed, 400) for seed in range(first, first + 100)]
    # They are worth something only if they reach something.
    assert sum(len(one.made) for one in worlds) > 150
    assert sum(len(one.refused) for one in worlds) > 150
    assert sum(len({value.acceptors for value in one.chosen.values()}) for one in worlds) > 150


@pytest.mark.parametrize("seed", range(40))
def test_when_the_faults_end_every_change_is_concluded_and_a_new_one_is_made(seed: int) -> None:
    world = walk(seed, 300, disks=False)
    world.settle()
    name = world.append(1)
    world.settle()
    assert name in world.made
    assert name in operations(world.newest)
    assert not world.newest.is_joint
