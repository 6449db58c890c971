"""Thousands of flushes become due: each runs once, in time, at the same cost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio
import trio.testing

from octopi.limits import FLUSHES_AT_A_TIME
from octopi.operating_system import SystemClock
from octopi.roles.broker.flusher import Flusher


async def test_a_flush_runs_when_it_is_due_and_the_earlier_time_wins(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    flusher, ran = Flusher(SystemClock()), dict[str, float]()
    nursery.start_soon(flusher.run)

    async def flush(name: str) -> None:
        ran[name] = trio.current_time() - begin

    begin = trio.current_time()
    late, early = partial(flush, "late"), partial(flush, "early")
    flusher.want(late, begin + 5)
    flusher.want(early, begin + 3)
    flusher.want(late, begin + 4)
    flusher.want(early, begin + 9)
    await trio.sleep(20)
    assert list(ran) == ["early", "late"]
    assert [round(at, 6) for at in ran.values()] == [3, 4]


async def test_a_flush_scheduled_during_a_flush_runs_after_that_one(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    flusher, began = Flusher(SystemClock()), list[float]()
    nursery.start_soon(flusher.run)
    begin = trio.current_time()

    async def flush() -> None:
        began.append(round(trio.current_time() - begin, 6))
        if len(began) < 3:
            flusher.want(flush, trio.current_time() + 0.25)
            flusher.want(flush, trio.current_time())
        await trio.sleep(1)

    flusher.want(flush, begin)
    await trio.sleep(20)
    assert began == [0, 1, 2]


async def test_a_bounded_number_of_flushes_run_at_a_time_and_each_once(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    flusher, now_running, most, done = Flusher(SystemClock()), 0, 0, list[int]()
    nursery.start_soon(flusher.run)

    async def flush(number: int) -> None:
        nonlocal now_running, most
        now_running += 1
        most = max(most, now_running)
        await trio.sleep(0.01)
        now_running -= 1
        done.append(number)

    for number in range(3 * FLUSHES_AT_A_TIME):
        flusher.want(partial(flush, number), trio.current_time())
    await trio.sleep(10)
    assert sorted(done) == list(range(3 * FLUSHES_AT_A_TIME))
    assert 1 < most <= FLUSHES_AT_A_TIME


async def test_a_flush_costs_the_same_however_many_are_due(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    looks = 0

    class Time(float):
        """Counts how often it is looked at."""

        def __lt__(self, other: float) -> bool:
            nonlocal looks
            looks += 1
            return float(self) < other

        def __le__(self, other: float) -> bool:
            nonlocal looks
            looks += 1
            return float(self) <= other

        def __gt__(self, other: float) -> bool:
            nonlocal looks
            looks += 1
            return float(self) > other

    async def looks_for(count: int) -> float:
        nonlocal looks
        looks, left = 0, count
        flusher = Flusher(SystemClock())
        nursery.start_soon(flusher.run)
        done = trio.Event()

        async def flush() -> None:
            nonlocal left
            await trio.sleep(0.001)
            left -= 1
            if not left:
                done.set()

        wishes: list[Callable[[], Awaitable[None]]] = [partial(flush) for _ in range(count)]
        for goal in wishes:
            flusher.want(partial(goal), Time(trio.current_time() + 3600))
            flusher.want(goal, Time(trio.current_time()))
        await done.wait()
        return looks / count

    assert await looks_for(2_000) < 3 * await looks_for(100)
