"""Random walks of relays with all faults: the rules hold, and all are alike in the end."""

from __future__ import annotations

import pytest

from octopi.relay.buffer import BufferBounds
from octopi.relay.effects import RelayEffect
from tests.relay.parts import WatchedMember
from tests.relay.walks import walk


@pytest.mark.parametrize("seed", range(6))
def test_walks_with_all_faults_keep_the_rules(seed: int) -> None:
    walk(seed)


@pytest.mark.parametrize("seed", range(2))
def test_walks_of_five_relays_keep_the_rules(seed: int) -> None:
    walk(seed, 5)


@pytest.mark.parametrize("seed", range(3))
def test_walks_with_small_buffers_keep_the_rules(seed: int) -> None:
    bounds = BufferBounds(size_bytes=1_500, count=8, age_s=2.0)
    walk(seed, bounds=bounds)


@pytest.mark.parametrize("seed", range(6))
def test_walks_in_which_members_are_added_and_removed_keep_the_rules(seed: int) -> None:
    assert walk(seed, moves=6).stats["moves"]


@pytest.mark.parametrize("seed", range(4))
def test_walks_in_which_another_sequencer_is_wished_every_second_keep_the_rules(seed: int) -> None:
    handed_over: list[float] = []

    class WishedElsewhere(WatchedMember):
        def tick(self, now: float) -> list[RelayEffect]:
            ranked = self.held_set.ranked
            self._wish_wait_s = 0.2
            self.wish(ranked[int(now) % len(ranked)])
            effects = super().tick(now)
            if self._wish_wait_s > 0.2:
                handed_over.append(now)
            return effects

    walk(seed, moves=4 if seed % 2 else 0, make=WishedElsewhere)
    assert len(handed_over) > 5


def test_two_walks_of_one_seed_are_alike() -> None:
    one, two = walk(4), walk(4)
    assert one.stats == two.stats
    assert one.now == two.now
    assert one.told == two.told


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(1_000, 1_040, 20))
def test_many_walks_keep_the_rules(first: int) -> None:
    for seed in range(first, first + 20):
        walk(seed, 3 if seed % 4 else 5)
        walk(seed, moves=6)
