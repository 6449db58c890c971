"""The outbox of a connection is bounded, and tasks get room in it in the order of asking."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from octopi.errors import ConnectionLostError
from octopi.limits import GRANT_BYTES, KIB, MEMORY_ALLOWANCE_BYTES, OUTBOX_BYTES_MAX
from octopi.transport.memory_budget import OUTBOX
from octopi.transport.memory_pool import MemoryAccount, Pool
from octopi.transport.outbox import Outbox

TOTAL_BYTES = 900 * KIB
FULL_BYTES = TOTAL_BYTES + MEMORY_ALLOWANCE_BYTES


def shared_pool() -> Pool:
    return Pool(TOTAL_BYTES, allowance_bytes=MEMORY_ALLOWANCE_BYTES)


async def post(
    outbox: Outbox, name: str, posted: list[str], *, wanted: int = 100 * KIB, least: int = 10 * KIB
) -> None:
    async with outbox.room(wanted, least) as room_bytes:
        posted.append(name)
        outbox.put(bytes(room_bytes))


def send(outbox: Outbox, count: int = 1) -> None:
    for _ in range(count):
        outbox.sent(outbox.messages.popleft())


def test_small_messages_are_not_counted() -> None:
    shared = shared_pool()
    outbox = Outbox(MemoryAccount(shared, "a"))
    for _ in range(4):
        outbox.put(bytes(MEMORY_ALLOWANCE_BYTES // 4))
    assert (outbox.size_bytes, shared.held_bytes) == (MEMORY_ALLOWANCE_BYTES, 0)
    outbox.put(b"x")
    assert shared.held.get(OUTBOX) == MEMORY_ALLOWANCE_BYTES + 1
    send(outbox)
    assert shared.held_bytes == 0
    send(outbox, 4)
    assert outbox.size_bytes == 0


def test_an_outbox_is_full_when_it_holds_more_than_its_share() -> None:
    shared = shared_pool()
    outbox = Outbox(MemoryAccount(shared, "a"))
    outbox.put(bytes(200 * KIB))
    assert not outbox.is_full
    MemoryAccount(shared, "b").charge(OUTBOX, FULL_BYTES)
    assert outbox.is_full
    send(outbox)
    assert not outbox.is_full
    assert outbox.may_put(100)
    assert not outbox.may_put(KIB)
    unbounded = Outbox(None)
    unbounded.put(bytes(OUTBOX_BYTES_MAX))
    assert not unbounded.is_full
    assert unbounded.may_put(1 << 40)
    unbounded.put(b"x")
    assert unbounded.is_full
    assert not unbounded.may_put(1)


async def test_tasks_get_room_in_the_order_in_which_they_ask() -> None:
    outbox, posted = Outbox(MemoryAccount(shared_pool(), "a")), list[str]()
    async with trio.open_nursery() as nursery:
        for name in "abcdefgh":
            nursery.start_soon(post, outbox, name, posted)
            await wait_all_tasks_blocked()
        assert "".join(posted) == "abc"
        assert outbox.room_now(KIB, KIB) == 0  # others were first
        while outbox.messages:
            send(outbox)
            await wait_all_tasks_blocked()
        assert "".join(posted) == "abcdefgh"


async def test_a_task_gets_as_much_as_there_is_and_at_least_what_it_needs() -> None:
    shared = shared_pool()
    outbox = Outbox(MemoryAccount(shared, "a"))
    async with outbox.room(TOTAL_BYTES, KIB) as room_bytes:
        assert room_bytes == TOTAL_BYTES // 3 + MEMORY_ALLOWANCE_BYTES
    async with outbox.room(TOTAL_BYTES, 500 * KIB) as room_bytes:
        assert room_bytes == 500 * KIB
    assert shared.held_bytes == 0


async def test_room_that_was_waited_for_is_kept_until_it_is_used() -> None:
    shared = shared_pool()
    crowd, outbox = MemoryAccount(shared, "crowd"), Outbox(MemoryAccount(shared, "a"))
    crowd.charge(OUTBOX, FULL_BYTES)
    other = MemoryAccount(shared, "b")
    async with trio.open_nursery() as nursery:
        posted: list[str] = []
        nursery.start_soon(post, outbox, "a", posted)
        await wait_all_tasks_blocked()
        crowd.release(OUTBOX, 2 * GRANT_BYTES)
        assert shared.held[OUTBOX] == FULL_BYTES - GRANT_BYTES  # before its task had a turn
        assert other.room(TOTAL_BYTES) < GRANT_BYTES
        await wait_all_tasks_blocked()
        assert (posted, outbox.size_bytes) == (["a"], GRANT_BYTES)
        assert shared.held[OUTBOX] == FULL_BYTES - GRANT_BYTES
    send(outbox)
    crowd.close()
    assert shared.held_bytes == 0


async def test_room_that_is_not_used_is_given_back() -> None:
    shared = shared_pool()
    crowd, outbox = MemoryAccount(shared, "crowd"), Outbox(MemoryAccount(shared, "a"))
    crowd.charge(OUTBOX, FULL_BYTES)

    async def fail() -> None:
        with pytest.raises(ZeroDivisionError):
            async with outbox.room(100 * KIB, KIB):
                raise ZeroDivisionError

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)
        await wait_all_tasks_blocked()
        crowd.close()
    assert shared.held_bytes == 0
    assert outbox.room_now(KIB, KIB) == KIB


@pytest.mark.parametrize("turns", range(6))
async def test_a_task_cancelled_while_it_waits_for_room_does_not_block_others(turns: int) -> None:
    shared = shared_pool()
    crowd, outbox = MemoryAccount(shared, "crowd"), Outbox(MemoryAccount(shared, "a"))
    crowd.charge(OUTBOX, FULL_BYTES)
    posted: list[str] = []
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def wait() -> None:
            with scope:
                await post(outbox, "cancelled", posted)

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        nursery.start_soon(post, outbox, "next", posted)
        await wait_all_tasks_blocked()
        if turns % 2:
            scope.cancel()
        crowd.close()
        for _ in range(turns // 2):
            await trio.lowlevel.checkpoint()
        scope.cancel()
        await wait_all_tasks_blocked()
        assert "next" in posted
    send(outbox, len(posted))
    assert (shared.held_bytes, shared.waiting_count) == (0, 0)


async def test_a_task_that_waits_for_room_learns_of_the_end() -> None:
    shared = shared_pool()
    crowd, outbox = MemoryAccount(shared, "crowd"), Outbox(MemoryAccount(shared, "a"))
    crowd.charge(OUTBOX, FULL_BYTES)

    async def lose() -> None:
        with pytest.raises(ConnectionLostError, match="gone"):
            await post(outbox, "a", [])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lose)
        nursery.start_soon(lose)
        await wait_all_tasks_blocked()
        outbox.close("gone")
    crowd.close()
    assert shared.held_bytes == 0


async def test_a_task_that_waits_for_the_writer_learns_of_the_end() -> None:
    outbox = Outbox(None)
    outbox.put(bytes(OUTBOX_BYTES_MAX + 1))

    async def lose() -> None:
        with pytest.raises(ConnectionLostError, match="gone"):
            await post(outbox, "a", [])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lose)
        await wait_all_tasks_blocked()
        outbox.close("gone")


async def test_room_that_is_held_stays_charged_while_its_holder_waits() -> None:
    shared = shared_pool()
    outbox = Outbox(MemoryAccount(shared, "a"))
    async with outbox.room(100 * KIB, 100 * KIB, holds=True):
        await trio.lowlevel.checkpoint()
        assert shared.held_bytes == 100 * KIB
        assert outbox.room_now(KIB, KIB) == 0
        outbox.put(bytes(40 * KIB))
        assert shared.held_bytes == 40 * KIB
    assert shared.held_bytes == 40 * KIB
    async with outbox.room(100 * KIB, 100 * KIB, holds=True):
        assert shared.held_bytes == 140 * KIB
    assert shared.held_bytes == 40 * KIB
    send(outbox)
    assert shared.held_bytes == 0
