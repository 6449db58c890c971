"""One seed, one run: in this process, in any other, on either tier."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from octopi.simulation.kernel.driver import How
from octopi.simulation.kernel.schedule import Fifo, Pct, Schedule
from octopi.simulation.kernel.world import World
from octopi.simulation.run import TIERS
from sim.generate.swarm import draw
from sim.run.simulation import simulate
from tests.record.comparing import compiled_kernels, using
from tests.simulation.small_cluster import MESSAGES, run_cluster


def events(world: World) -> list[str]:
    return [str(event) for event in world.events]


@pytest.mark.parametrize("tier", TIERS)
def test_the_same_seed_gives_the_same_run(tier: str) -> None:
    (one, received), (other, _) = (run_cluster(5, TIERS[tier]) for _ in range(2))
    assert sorted(set(received)) == sorted(MESSAGES)
    assert events(one) == events(other)
    assert one.digest == other.digest
    assert one.now == other.now


@pytest.mark.parametrize("tier", TIERS)
def test_another_seed_gives_another_run(tier: str) -> None:
    assert run_cluster(5, TIERS[tier])[0].digest != run_cluster(6, TIERS[tier])[0].digest


@pytest.mark.slow
def test_other_processes_with_other_hash_seeds_run_the_same() -> None:
    expected = [run_cluster(seed, tier)[0].digest for seed in (1, 2) for tier in TIERS.values()]
    for hash_seed in ("0", "4242"):
        answer = subprocess.run(
            [sys.executable, "-m", "tests.simulation.small_cluster", "1", "2"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        )
        assert answer.stdout.split() == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_plan_runs_the_same_with_compiled_kernels_and_without(seed: int) -> None:
    plan = draw(seed)
    digests = set()
    for kernels in (compiled_kernels(), None):
        with using(kernels):
            digests.add(simulate(plan).digest)
    assert len(digests) == 1


@pytest.mark.parametrize("tier", TIERS)
def test_every_schedule_gives_a_run_of_its_own_with_the_same_verdict(tier: str) -> None:
    def digest(schedule: Schedule) -> str:
        world, received = run_cluster(1, TIERS[tier], schedule=schedule)
        assert sorted(set(received)) == sorted(MESSAGES)
        return world.digest

    def schedules() -> list[Schedule]:
        return [Fifo(), *(Pct(depth, World(depth).random("schedule")) for depth in (1, 2, 3))]

    digests = [digest(schedule) for schedule in schedules()]
    assert digests == [digest(schedule) for schedule in schedules()]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("tier", TIERS)
def test_trios_public_interface_gives_the_same_verdict(tier: str) -> None:
    _, received = run_cluster(1, TIERS[tier], how=How.PUBLIC)
    assert sorted(set(received)) == sorted(MESSAGES)
