"""Trio on virtual time, by both ways of running it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import attrs
import pytest
import trio
import trio.testing
from trio._core import _run

from octopi.simulation.kernel import driver
from octopi.simulation.kernel.driver import (
    DeadlockError,
    How,
    NoPausesError,
    SpinningError,
    private_problem,
)
from octopi.simulation.kernel.owners import OWNER
from octopi.simulation.kernel.schedule import Fifo
from octopi.simulation.kernel.trio_names import TRIO_VERSIONS_KNOWN
from octopi.simulation.kernel.world import World

T = TypeVar("T")


@attrs.define(eq=False)
class Owner:
    is_paused: bool = False

    def start(self, nursery: trio.Nursery, task: Callable[[], Awaitable[object]]) -> None:
        """Run *task* as one of this owner's."""

        async def owned() -> None:
            OWNER.set(self)
            await task()

        nursery.start_soon(owned)


@pytest.fixture(params=list(How), ids=lambda how: how.value)
def how(request: pytest.FixtureRequest) -> How:
    found: How = request.param
    return found


def run(
    main: Callable[[], Awaitable[T]], how: How = How.SCHEDULED, world: World | None = None
) -> T:
    return driver.run(world or World(1), main, Fifo(), how=how)


def test_the_private_names_of_trio_are_known_and_used() -> None:
    assert private_problem() is None
    assert trio.__version__ in TRIO_VERSIONS_KNOWN


@pytest.mark.parametrize(
    ("name", "stand_in", "problem"),
    [
        ("unrolled_run", lambda runner: None, "has other parameters"),
        ("_r", None, "has no _r"),
        ("Runner", object, "has no runq"),
    ],
)
def test_changed_private_names_of_trio_are_noticed(
    name: str, stand_in: object, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stand_in is None:
        monkeypatch.delattr(_run, name)
    else:
        monkeypatch.setattr(_run, name, stand_in)
    private_problem.cache_clear()
    try:
        assert problem in str(private_problem())
    finally:
        private_problem.cache_clear()


def test_without_the_private_names_the_public_interface_of_trio_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        with pytest.raises(NoPausesError):
            driver.pause(Owner())

    monkeypatch.setattr(driver, "private_problem", lambda: "another Trio")
    driver.run(World(1), main, Fifo())


def test_virtual_time_passes_only_when_all_tasks_wait(how: How) -> None:
    async def main() -> list[tuple[float, str]]:
        seen = []

        async def sleep(seconds: float, name: str) -> None:
            await trio.sleep(seconds)
            for _ in range(100):
                await trio.lowlevel.checkpoint()
            seen.append((trio.current_time(), name))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleep, 3600, "hour")
            nursery.start_soon(sleep, 0.25, "short")
            nursery.start_soon(sleep, 30 * 24 * 3600, "month")
        return seen

    assert run(main, how) == [(0.25, "short"), (3600, "hour"), (2592000, "month")]


def test_scheduled_events_happen_at_their_time_and_in_order(how: How) -> None:
    world = World(1)
    seen: list[tuple[float, str]] = []

    async def main() -> None:
        async def tick() -> None:
            for _ in range(4):
                await trio.sleep(0.1)
                seen.append((round(trio.current_time(), 6), "task"))

        world.at(0.15, lambda: seen.append((world.now, "first")))
        world.at(0.15, lambda: seen.append((world.now, "second")))
        world.after(0.35, woken.set)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            await woken.wait()
            seen.append((world.now, "woken"))

    woken = trio.Event()
    run(main, how, world)
    assert seen == [
        (0.1, "task"),
        (0.15, "first"),
        (0.15, "second"),
        (0.2, "task"),
        (0.3, "task"),
        (0.35, "woken"),
        (0.4, "task"),
    ]


def test_a_test_can_wait_until_all_tasks_are_blocked(how: How) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 10)
            await trio.testing.wait_all_tasks_blocked()
            assert trio.current_time() == 0
            nursery.cancel_scope.cancel()

    run(main, how)


def test_a_deadlock_is_noticed(how: How) -> None:
    with pytest.raises(DeadlockError):
        run(trio.sleep_forever, how)


def test_a_deadlock_in_a_shielded_task_is_noticed() -> None:
    ended = []

    async def wait() -> None:
        try:
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()
        finally:
            ended.append(True)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)

    with pytest.raises(DeadlockError):
        run(main)
    assert ended == [True, True]


def test_spinning_without_passing_time_is_noticed(
    how: How, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "TICKS_WITHOUT_TIME_MAX", 1000)

    async def main() -> None:
        await trio.sleep(1)
        while True:
            await trio.lowlevel.checkpoint()

    with pytest.raises(SpinningError, match=r"time stands still at 1\.0"):
        run(main, how)


def test_much_work_in_little_time_is_not_taken_for_spinning(
    how: How, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "TICKS_WITHOUT_TIME_MAX", 1000)

    async def main() -> None:
        for _ in range(100):
            await trio.sleep(1e-6)
            for _ in range(100):
                await trio.lowlevel.checkpoint()

    run(main, how)


def test_an_error_of_the_main_task_ends_the_run(how: How) -> None:
    async def main() -> None:
        await trio.sleep(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(main, how)


def test_recurring_events_do_not_keep_a_run_from_ending() -> None:
    world = World(1)

    def again() -> None:
        assert world.now < 1000.0, "the run is over"
        world.after(0.1, again)

    async def main() -> float:
        again()
        await trio.sleep(1.0)
        return trio.current_time()

    run(main, world=world)
    assert world.now < 2.0


def test_the_reason_for_giving_up_is_the_verdict(how: How) -> None:
    world = World(1)

    async def main() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ZeroDivisionError("while ending")

    world.after(1, lambda: world.fail(KeyError("the reason")))
    with pytest.raises(KeyError, match="the reason"):
        run(main, how, world)


def test_an_error_in_a_scheduled_event_is_the_verdict(how: How) -> None:
    world = World(1)

    def fail() -> None:
        raise ZeroDivisionError

    world.after(1, fail)
    with pytest.raises(ZeroDivisionError):
        run(trio.sleep_forever, how, world)


def test_a_run_leaves_no_state_behind(how: How) -> None:
    for _ in range(3):
        test_virtual_time_passes_only_when_all_tasks_wait(how)
        test_a_deadlock_is_noticed(how)
    trio.run(trio.sleep, 0)


# --- pauses ---------------------------------------------------------------------------


def test_a_paused_host_does_nothing_and_makes_up_for_due_work_when_resumed() -> None:
    async def main() -> list[float]:
        owner, seen = Owner(), []

        async def tick() -> None:
            for tenth in range(1, 11):
                await trio.sleep_until(tenth / 10)
                seen.append(round(trio.current_time(), 6))

        async with trio.open_nursery() as nursery:
            owner.start(nursery, tick)
            await trio.sleep(0.35)
            driver.pause(owner)
            await trio.sleep(0.5)
            driver.resume(owner)
        return seen

    assert run(main) == [0.1, 0.2, 0.3, *[0.85] * 5, 0.9, 1.0]


def test_a_pause_takes_effect_at_once() -> None:
    """Else what could run already would run on, and might send."""

    async def main() -> None:
        owner = Owner()
        ran: list[str] = []

        async def pause() -> None:
            await go.wait()
            driver.pause(owner)

        async def act() -> None:
            await go.wait()
            ran.append("act")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pause)  # started first, so it runs first
            owner.start(nursery, act)
            await trio.sleep(1)
            go.set()
            await trio.sleep(1)
            assert ran == []
            driver.resume(owner)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            assert ran == ["act"]

    go = trio.Event()
    run(main)


def test_hosts_are_paused_independently() -> None:
    async def main() -> None:
        owners = [Owner(), Owner()]
        counts = [0, 0]

        async def count(index: int) -> None:
            while True:
                await trio.sleep(1)
                counts[index] += 1

        async with trio.open_nursery() as nursery:
            for index, owner in enumerate(owners):
                owner.start(nursery, lambda index=index: count(index))  # type: ignore[misc]
            await trio.sleep(0.5)
            driver.pause(owners[0])
            await trio.sleep(2)
            driver.pause(owners[1])
            await trio.sleep(2)
            assert counts == [0, 2]
            driver.resume(owners[0])
            await trio.sleep(2)
            assert counts == [2, 2]
            driver.resume(owners[1])
            await trio.sleep(1)
            assert counts == [3, 3]
            nursery.cancel_scope.cancel()

    run(main)


def test_a_paused_task_ends_with_the_run_and_the_deadlock_is_reported() -> None:
    async def main() -> None:
        owner = Owner()
        async with trio.open_nursery() as nursery:
            owner.start(nursery, partial(trio.sleep, 1))
            await trio.lowlevel.checkpoint()
            driver.pause(owner)

    with pytest.raises(DeadlockError, match="1 tasks of paused owners could run"):
        run(main)
