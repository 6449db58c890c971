"""Systems take turns so that drift hits all alike, and are compared within a round."""

from __future__ import annotations

from itertools import permutations

import pytest

from benchmarks.pairing import Quartiles, paired_ratios, quartiles, turns

SYSTEMS = ("octopi", "redis", "nats", "kafka")


def test_each_second_round_has_the_reverse_order_of_the_one_before() -> None:
    for number in range(0, 10, 2):
        forwards = turns(SYSTEMS, "produce", number, seed=3)
        assert turns(SYSTEMS, "produce", number + 1, seed=3) == forwards[::-1]
        assert sorted(forwards) == sorted(SYSTEMS)


def test_a_steady_drift_cancels_out_in_two_rounds() -> None:
    for first, second in permutations(SYSTEMS, 2):
        distance = sum(
            order.index(first) - order.index(second)
            for order in (turns(SYSTEMS, "produce", number, seed=5) for number in range(2))
        )
        assert distance == 0


def test_each_system_has_each_place_equally_often() -> None:
    orders = [turns(SYSTEMS, "produce", number, seed=1) for number in range(2 * len(SYSTEMS))]
    for place in range(len(SYSTEMS)):
        assert sorted(order[place] for order in orders) == sorted(SYSTEMS * 2)


def test_a_seed_decides_the_order() -> None:
    drawn = {tuple(turns(SYSTEMS, "produce", 0, seed)) for seed in range(20)}
    assert len(drawn) > 5
    assert turns(SYSTEMS, "produce", 0, 7) == turns(SYSTEMS, "produce", 0, 7)
    assert turns([], "produce", 3, 7) == []


def test_quartiles_are_interpolated() -> None:
    assert quartiles([4, 1, 2, 3, 5]) == Quartiles(2, 3, 4, 5)
    assert quartiles([1, 2, 3, 4]) == Quartiles(1.75, 2.5, 3.25, 4)
    assert quartiles([7.0]) == Quartiles(7, 7, 7, 1)
    with pytest.raises(ValueError, match="no figures"):
        quartiles([])


def test_figures_of_different_rounds_are_not_compared() -> None:
    assert paired_ratios({0: 10.0, 1: 30.0, 3: 5.0}, {0: 5.0, 1: 10.0, 2: 1.0}) == {0: 2, 1: 3}
    assert paired_ratios({0: 1.0}, {0: 0.0}) == {}
