"""Rings come right again, whatever happens to them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.ring.scenarios import SCENARIOS
from tests.ring.world import walk


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_the_ring_comes_right(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.parametrize("seed", [*range(11), 215])
def test_a_ring_comes_right_after_deaths_splits_and_returns_in_any_order(seed: int) -> None:
    walk(seed)
