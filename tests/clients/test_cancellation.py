"""Cancelled at every point where that is possible, a message is stored once or not at all,
and what the caller was told about it is true."""

from __future__ import annotations

import trio
from trio.testing import MockClock

import octopi
from tests.kit.world import running_world, values


async def cancel_after(steps: int, scope: trio.CancelScope) -> None:
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    scope.cancel()


STEPS = range(40)
"""More than a send takes when everybody answers at once."""


async def test_a_cancelled_send_is_stored_at_most_once_and_a_finished_one_exactly_once(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        finished: list[bytes] = []
        async with client.producer(linger_s=0) as producer:
            for steps in STEPS:
                value = b"%d" % steps
                async with trio.open_nursery() as nursery:
                    with trio.CancelScope() as scope:
                        nursery.start_soon(cancel_after, steps, scope)
                        await producer.send("orders", value)
                        finished.append(value)
        stored = await values(client, "orders")
        assert len(set(stored)) == len(stored)
        assert set(finished) <= set(stored)
        assert stored == sorted(stored, key=int)
        assert 0 < len(finished) < len(STEPS)


async def test_a_cancelled_submit_took_nothing_and_a_finished_one_is_delivered(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        taken: list[bytes] = []
        async with client.producer(batch_bytes=1, buffer_bytes=200) as producer:
            for steps in STEPS:
                async with trio.open_nursery() as nursery:
                    with trio.CancelScope() as scope:
                        nursery.start_soon(cancel_after, steps, scope)
                        for number in range(10):
                            value = b"%d" % (10 * steps + number)
                            await producer.submit("orders", value)
                            taken.append(value)
        assert await values(client, "orders") == taken
        assert len(taken) > 10


async def test_a_cancelled_flush_can_be_repeated(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer(linger_s=100) as producer:
            for steps in STEPS:
                pending = await producer.submit("orders", b"%d" % steps)
                async with trio.open_nursery() as nursery:
                    with trio.CancelScope() as scope:
                        nursery.start_soon(cancel_after, steps, scope)
                        await producer.flush()
                await producer.flush()
                assert pending.is_settled
        assert await values(client, "orders") == [b"%d" % steps for steps in STEPS]


async def test_a_cancelled_producer_block_reports_what_was_stored(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        for steps in range(60):
            pending: octopi.PendingReceipt | None = None
            value = b"%d" % steps
            async with trio.open_nursery() as nursery:
                with trio.CancelScope() as scope:
                    nursery.start_soon(cancel_after, steps, scope)
                    async with client.producer() as producer:
                        pending = await producer.submit("orders", value)
            stored = (await values(client, "orders")).count(value)
            if pending is None:
                assert stored == 0
                continue
            assert pending.is_settled
            try:
                await pending
            except octopi.NotDeliveredError:
                assert stored == 0
            except octopi.OutcomeUnknownError:
                assert stored in {0, 1}
            else:
                assert stored == 1


async def test_a_cancelled_consumer_block_leaves_the_client_as_it_was(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer() as producer:
            await producer.send("orders", b"value")
        for steps in STEPS:
            async with trio.open_nursery() as nursery:
                with trio.CancelScope() as scope:
                    nursery.start_soon(cancel_after, steps, scope)
                    async with client.consumer("orders", start="earliest") as consumer:
                        await anext(consumer)
        assert await values(client, "orders") == [b"value"]
