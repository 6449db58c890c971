"""A lock that is seldom contended, and costs no memory while nobody holds it."""

from __future__ import annotations

import gc

import pytest
import trio
import trio.testing

from octopi.storage.brief_lock import BriefLock


async def test_tasks_hold_a_lock_one_at_a_time_in_the_order_in_which_they_asked() -> None:
    lock = BriefLock()
    seen: list[str] = []

    async def hold(name: str) -> None:
        async with lock:
            seen.append(f"{name} begins")
            await trio.testing.wait_all_tasks_blocked()
            seen.append(f"{name} ends")

    async with trio.open_nursery() as nursery:
        for name in ("first", "second", "third"):
            nursery.start_soon(hold, name)
            await trio.testing.wait_all_tasks_blocked(0.001)
    await hold("last")
    order = [word.split()[0] for word in seen]
    assert order == [name for name in ("first", "second", "third", "last") for _ in range(2)]


async def test_a_task_that_stops_waiting_for_a_lock_does_not_block_others() -> None:
    lock = BriefLock()
    async with lock:
        with trio.move_on_after(0) as gave_up:
            async with lock:
                raise AssertionError("it is held")
        assert gave_up.cancelled_caught
    with trio.CancelScope() as scope:
        scope.cancel()
        async with lock:
            raise AssertionError("cancelled before it was taken")
    async with lock:
        pass


async def test_a_task_that_fails_releases_its_lock() -> None:
    lock = BriefLock()
    for _ in range(2):
        with pytest.raises(ValueError, match="of the block"):
            async with lock:
                raise ValueError("of the block")


async def test_a_lock_that_is_not_held_keeps_no_trio_lock() -> None:
    lock = BriefLock()
    assert lock.is_free
    async with lock:
        assert not lock.is_free
        assert any(isinstance(one, trio.Lock) for one in gc.get_referents(lock))
    assert not any(isinstance(one, trio.Lock) for one in gc.get_referents(lock))
