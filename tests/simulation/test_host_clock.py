"""A host's clock: fast, slow, set off, or standing still, but never going back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from octopi.simulation.kernel import driver
from octopi.simulation.kernel.host import EPOCH_MS, HostClock
from octopi.simulation.kernel.schedule import Fifo
from octopi.simulation.kernel.world import World


def run(scenario: Callable[[World, HostClock], Awaitable[None]]) -> None:
    world = World(1)

    async def main() -> None:
        await scenario(world, HostClock(world))

    driver.run(world, main, Fifo())


@pytest.mark.parametrize("rate", [0.95, 1.0, 1.05])
def test_all_clocks_of_a_host_run_at_its_rate(rate: float) -> None:
    async def scenario(world: World, clock: HostClock) -> None:
        clock.set_rate(rate)
        await clock.sleep_until(clock.now() + 10)
        assert world.now == pytest.approx(10 / rate)
        assert clock.wall_ms() - EPOCH_MS in (9_999, 10_000, 10_001)
        with clock.timeout(5) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught
        assert world.now == pytest.approx(15 / rate)

    run(scenario)


def test_a_clock_whose_rate_changes_never_goes_back() -> None:
    async def scenario(world: World, clock: HostClock) -> None:
        randomness, last = world.random("rates"), clock.now()
        for _ in range(1000):
            await trio.sleep(randomness.random())
            assert clock.now() >= last
            last = clock.now()
            clock.set_rate(0.95 + 0.1 * randomness.random())
            assert clock.now() == last

    run(scenario)


def test_a_sleeper_never_wakes_too_early_however_the_rate_changes() -> None:
    async def scenario(world: World, clock: HostClock) -> None:
        randomness = world.random("rates")
        for _ in range(200):
            deadline = clock.now() + randomness.random()
            world.after(
                randomness.random() / 2, lambda: clock.set_rate(0.95 + 0.1 * randomness.random())
            )
            await clock.sleep_until(deadline)
            assert clock.now() >= deadline

    run(scenario)


def test_a_jumping_or_frozen_wall_clock_delays_no_sleeper() -> None:
    async def scenario(world: World, clock: HostClock) -> None:
        await clock.sleep_until(1)
        clock.wall_jump_ms -= 3_600_000
        assert clock.wall_ms() == EPOCH_MS - 3_599_000
        clock.freeze_wall()
        await clock.sleep_until(5)
        assert world.now == 5
        assert clock.wall_ms() == EPOCH_MS - 3_599_000
        clock.thaw_wall()
        assert clock.wall_ms() == EPOCH_MS - 3_595_000

    run(scenario)
