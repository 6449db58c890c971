"""Rings come right again, whatever happens to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from octopi.limits import BOOK_COUNT
from tests.ring.scenarios import SCENARIOS
from tests.ring.world import RingWorld, walk


@pytest.mark.parametrize("book", [BOOK_COUNT, 4])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_the_ring_comes_right(scenario: Callable[[int], None], book: int) -> None:
    scenario(book)


@pytest.mark.parametrize(
    ("seed", "book"), [*((seed, BOOK_COUNT) for seed in (*range(8), 215)), (1, 4), (2, 4), (3, 4)]
)
def test_a_ring_comes_right_after_deaths_splits_and_returns_in_any_order(
    seed: int, book: int
) -> None:
    walk(seed, make=partial(RingWorld, book_count_max=book))
