"""What a message costs stays what it is, or gets less: in instructions, which are the same on
every machine and in every run, however busy it is.
"""

from collections.abc import Mapping

import pytest

from benchmarks.instructions import WAYS, Cost, cost, scale
from tests.record.comparing import compiled_kernels, using

INSTRUCTIONS_MAX = {
    "produced in a batch": 236,
    "produced in a batch, 3 replicas": 483,
    "submitted by itself": 546,
    "acknowledged by itself": 13_300,
    "acknowledged by itself, 3 replicas": 44_200,
    "acknowledged by itself, 3 replicas of 100 topics": 48_600,
    "consumed": 147,
    "delivered to one more consumer": 4_800,
}
"""At most a tenth above what was measured, with Python 3.11 and the Trio of the lock files, where
Python handles records."""

WITH_KERNELS_MAX = {
    "produced in a batch": 51,
    "produced in a batch, 3 replicas": 73,
    "submitted by itself": 360,
    "consumed": 18.3,
}
"""Likewise with compiled kernels, for the ways whose messages share a batch; those of C don't
count."""


@pytest.fixture(autouse=True)
def _as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are those of one seed, and of frames of our own."""
    for name in ("OCTOPI_TEST_SEED", "OCTOPI_PLAIN_WEBSOCKET"):
        monkeypatch.delenv(name, raising=False)


def test_each_measured_way_of_a_message_has_a_bound() -> None:
    assert INSTRUCTIONS_MAX.keys() == WAYS.keys()


@pytest.mark.parametrize("way", WAYS)
def test_a_message_costs_no_more_instructions_than_its_bound(way: str) -> None:
    with using(None):
        found = cost(way)
    assert found.instructions <= INSTRUCTIONS_MAX[way] * scale(), explanation(
        way, found, INSTRUCTIONS_MAX
    )


@pytest.mark.parametrize("way", WITH_KERNELS_MAX)
def test_with_compiled_kernels_it_costs_no_more_than_a_lower_bound(way: str) -> None:
    with using(compiled_kernels()):
        found = cost(way)
    assert found.instructions <= WITH_KERNELS_MAX[way] * scale(), explanation(
        way, found, WITH_KERNELS_MAX
    )


def explanation(way: str, found: Cost, bounds: Mapping[str, float]) -> str:
    places = "\n".join(
        f"  {instructions / found.places.total():6.1%}  {name}"
        for name, instructions in found.places.most_common(8)
    )
    return (
        f"a message {way} costs {found.instructions:,.0f} instructions now, and may cost "
        f"{bounds[way] * scale():,.0f}:\n{places}\n"
        "Compare with `python -m benchmarks.instructions` before the change.  If it is worth "
        "them, measure the rate, too, and raise the bound with the reason."
    )
