"""After a split, whatever it has made of each relay: they find together."""

from __future__ import annotations

import pytest

from tests.relay.healed import heal_any


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_relays_find_together_from_any_states(first: int) -> None:
    for seed in range(first, first + 10):
        heal_any(seed)


@pytest.mark.parametrize("seed", range(10))
def test_five_relays_find_together_from_any_states(seed: int) -> None:
    heal_any(seed, 5)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_relays_find_together_from_many_more_states(first: int) -> None:
    for seed in range(first, first + 100):
        heal_any(seed, 3 if seed % 4 else 5)
