"""How a process notices that a child hangs."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from octopi.cli.service_manager import ServiceManager
from octopi.cli.watchdog import watchdog

SILENCE_S = 30.0
PID = 4242


async def test_a_child_that_has_its_turns_is_never_silent(autojump_clock: MockClock) -> None:
    async with watchdog(SILENCE_S) as watched, trio.open_nursery() as nursery:
        child = ServiceManager.of(watched.variables, PID)
        nursery.start_soon(child.run, trio.Event())
        with trio.move_on_after(20 * SILENCE_S) as waited:
            await watched.wait_for_silence()
        assert waited.cancelled_caught
        nursery.cancel_scope.cancel()


async def test_a_child_that_hangs_is_silent_for_as_long_as_it_may(
    autojump_clock: MockClock,
) -> None:
    async with watchdog(SILENCE_S) as watched, trio.open_nursery() as nursery:
        child = ServiceManager.of(watched.variables, PID)
        with trio.move_on_after(2 * SILENCE_S):
            await child.run(trio.Event())
        last_s = trio.current_time()
        await watched.wait_for_silence()
        assert SILENCE_S <= trio.current_time() - last_s <= SILENCE_S * 1.5
        nursery.cancel_scope.cancel()


async def test_when_all_processes_were_stopped_the_child_may_speak_first(
    mock_clock: MockClock,
) -> None:
    async with watchdog(SILENCE_S) as watched, trio.open_nursery() as nursery:
        has_ended = trio.Event()

        async def watch() -> None:
            await watched.wait_for_silence()
            has_ended.set()

        nursery.start_soon(watch)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(100 * SILENCE_S)  # the machine slept
        await trio.testing.wait_all_tasks_blocked()
        assert not has_ended.is_set()
        mock_clock.jump(SILENCE_S)
        await has_ended.wait()


@pytest.mark.parametrize("silence_s", [0.5, 30.0])
async def test_the_child_is_told_how_often_it_has_to_speak(silence_s: float) -> None:
    async with watchdog(silence_s) as watched:
        assert watched.variables["WATCHDOG_USEC"] == str(int(silence_s * 1_000_000))
