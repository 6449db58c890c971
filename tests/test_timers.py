"""Many logs have something to do in a moment: one task wakes them all, each in time."""

from __future__ import annotations

import trio
import trio.testing

from octopi.operating_system import SystemClock
from octopi.timers import TimerQueue


async def test_timers_ring_in_order_however_they_were_set(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    begin, rang = trio.current_time(), list[tuple[str, float]]()
    timers = TimerQueue(SystemClock(), nursery)

    def ringing(name: str, after_s: float) -> None:
        def ring(at: float) -> None:
            assert at == begin + after_s
            rang.append((name, round(trio.current_time() - begin, 2)))

        timers.set(begin + after_s, ring)

    ringing("second", 2)
    await trio.testing.wait_all_tasks_blocked()
    ringing("third", 3)
    ringing("first", 1)
    await trio.sleep(10)
    ringing("late", 20)
    ringing("past", 5)
    await trio.sleep(20)
    assert rang == [("first", 1), ("second", 2), ("third", 3), ("past", 10), ("late", 20)]


async def test_who_is_never_done_does_not_keep_the_others_from_their_turn(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    timers = TimerQueue(SystemClock(), nursery)
    rings = 0

    def again(at: float) -> None:
        nonlocal rings
        rings += 1
        timers.set(at, again)

    timers.set(trio.current_time(), again)
    await trio.sleep(0.1)
    assert 2 < rings < 1000
