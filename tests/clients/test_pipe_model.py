"""Whatever comes between owners of a pipe and the log of its output, that is the input once.

Each rule of the machine is left out once, which the same walks have to find.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from octopi.clients.piping.input_place import Unit
from octopi.clients.piping.pipe_log import Found, PipeBatch, PipeLog
from octopi.errors import OctopiError
from tests.clients.pipe_world import ACTIONS, PipeWorld

WALKS = 100
STEPS = 120


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, ACTIONS - 1), max_size=80))
def test_the_output_is_the_input_once(actions: list[int]) -> None:
    world = PipeWorld()
    for action in actions:
        world.do(action)


def walk(seed: int, pipe_log: type[PipeLog], *, looks_at_committed: bool = True) -> None:
    world, randomness = PipeWorld(pipe_log), Random(seed)
    world.looks_at_committed = looks_at_committed
    for _ in range(STEPS):
        world.do(randomness.randrange(ACTIONS))


def test_random_walks_find_no_fault() -> None:
    for seed in range(WALKS):
        walk(seed, PipeLog)


class FirstNotConditional(PipeLog):
    """Its first append says nothing of what it comes after."""

    def next_batch(self) -> PipeBatch | None:
        self._after = None
        return super().next_batch()


class UnitsNotNumbered(PipeLog):
    """A unit that is stored in part is stored from its beginning."""

    def found(self, found: Found) -> None:
        if found.place is not None and not found.place.is_last:
            self.place = None
            super().found(Found(found.last, None))
        else:
            super().found(found)

    def _raise_forgotten(self, why: str) -> None:
        pass


class PositionElsewhere(PipeLog):
    """Goes on at the mark, which is stored behind the output."""

    def wants(self, unit: Unit) -> bool:
        super().wants(unit)
        return True

    def found(self, found: Found) -> None:
        place = self.place
        super().found(found)
        self.place = place


class SequenceBeginsAnew(PipeLog):
    """An owner that looks again counts from 0."""

    def found(self, found: Found) -> None:
        super().found(found)
        self._next_sequence = 0


def find(mutant: type[PipeLog], *, looks_at_committed: bool = True) -> None:
    for seed in range(40 * WALKS):
        walk(seed, mutant, looks_at_committed=looks_at_committed)


@pytest.mark.parametrize(
    "mutant", [FirstNotConditional, UnitsNotNumbered, PositionElsewhere, SequenceBeginsAnew]
)
def test_each_rule_is_needed(mutant: type[PipeLog]) -> None:
    with pytest.raises((AssertionError, OctopiError)):
        find(mutant)


def test_only_what_is_committed_may_be_looked_at() -> None:
    with pytest.raises((AssertionError, OctopiError)):
        find(PipeLog, looks_at_committed=False)
