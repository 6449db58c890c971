"""The order in which runnable tasks run."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise, permutations

import pytest
import trio

from octopi.simulation.kernel import driver
from octopi.simulation.kernel.schedule import Fifo, Pct, Random, Schedule
from octopi.simulation.kernel.world import World


def order(schedule: Schedule, *, tasks: int = 3, steps: int = 1) -> str:
    """Which tasks of *tasks* ran, one after the other, when each took *steps*."""
    ran = []

    async def main() -> None:
        async def act(name: str) -> None:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
                ran.append(name)

        async with trio.open_nursery() as nursery:
            for number in range(tasks):
                nursery.start_soon(act, "abcdefgh"[number])

    driver.run(World(1), main, schedule)
    return "".join(ran)


def test_fifo_runs_the_task_that_was_started_first() -> None:
    assert order(Fifo(), tasks=8) == "abcdefgh"
    assert order(Fifo(), steps=2) == "abcabc"


@pytest.mark.parametrize("make", [Random, lambda source: Pct(1, source)], ids=["random", "pct"])
def test_every_order_comes_up_sooner_or_later(make: Callable[[random.Random], Schedule]) -> None:
    orders = {order(make(random.Random(seed))) for seed in range(100)}
    assert orders == {"".join(names) for names in permutations("abc")}


def test_a_schedule_is_repeatable() -> None:
    for make in (Random, lambda source: Pct(3, source, steps=20)):
        one, other = (order(make(random.Random(9)), tasks=5, steps=5) for _ in range(2))
        assert one == other


def test_strict_priorities_starve_the_task_with_the_lowest() -> None:
    assert order(Pct(1, random.Random(3)), steps=4) in {
        "".join(name * 4 for name in names) for names in permutations("abc")
    }


def test_each_change_of_priorities_interrupts_once() -> None:
    def interruptions(ran: str) -> int:
        return sum(one != other for one, other in pairwise(ran)) - 2

    counts = [
        max(
            interruptions(order(Pct(depth, random.Random(seed), steps=25), steps=8))
            for seed in range(60)
        )
        for depth in (1, 2, 3)
    ]
    assert counts == [0, 1, 2]
