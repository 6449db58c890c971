"""Rings of which a broker a second comes, dies or leaves (T20, T21)."""

from __future__ import annotations

import pytest

from tests.ring.churn import run


@pytest.mark.slow
@pytest.mark.parametrize(("brokers", "book_count_max", "seconds"), [(200, 512, 6), (60, 4, 20)])
def test_keys_are_found_and_stay_while_brokers_come_and_go(
    brokers: int, book_count_max: int, seconds: float
) -> None:
    """During changes a look-up ends at a live broker or says no; afterwards it is as the sorted
    list says."""
    churn = run(
        brokers, seconds, per_minute=60, book_count_max=book_count_max, lookups_per_s=10, seed=3
    )
    assert churn.changes >= 5
    asked = sum(churn.lookups.values())
    assert churn.lookups["as the sorted list"] > 0.95 * asked
    assert churn.repaired_s <= 10
