"""The bucket: steady rates hold, bursts pass, debts are waited for."""

import pytest
from hypothesis import given, strategies as st

from octopi.security.token_bucket import TokenBucket


def test_the_rate_of_one_second_passes_at_once_and_more_has_to_wait() -> None:
    bucket = TokenBucket(100.0, 0.0)
    bucket.spend(100, 0.0)
    assert bucket.wait_s(0.0) == 0
    bucket.spend(50, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(0.5)
    assert bucket.wait_s(0.25) == pytest.approx(0.25)
    assert bucket.wait_s(0.5) == pytest.approx(0.0)


@given(st.lists(st.integers(1, 1000), min_size=1))
def test_a_subject_that_waits_as_required_gets_at_most_its_rate(sizes: list[int]) -> None:
    bucket, now = TokenBucket(100.0, 0.0), 0.0
    for size_bytes in sizes:
        now += bucket.wait_s(now)
        bucket.spend(size_bytes, now)
    assert sum(sizes[:-1]) <= 100.0 * (now + 1) + 1e-6


def test_a_clock_that_stands_still_gives_nothing() -> None:
    bucket = TokenBucket(100.0, 5.0)
    bucket.spend(200, 5.0)
    assert bucket.wait_s(4.0) == pytest.approx(1.0)
