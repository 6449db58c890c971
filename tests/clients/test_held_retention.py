"""Retention that waits for durable subscriptions, end to end, on virtual time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.limits import RETENTION_CHECK_INTERVAL_S
from tests.clients.test_subscriptions import BROKERS
from tests.kit.world import BROKER, read_all, running_world

LOOK_S = 0.5
"""How often brokers look at their logs here."""
SMALL: dict[str, Any] = {"segment_bytes": 5_000}
SHORT: dict[str, Any] = {**SMALL, "retention": timedelta(seconds=2)}


async def send(client: octopi.Client, first: int, count: int) -> None:
    """Five of these messages fill a segment."""
    async with client.producer() as producer:
        for number in range(first, first + count):
            await producer.send("orders", b"%d " % number + bytes(900))


async def removals() -> None:
    """Wait until retention has looked at all logs."""
    await trio.sleep(2 + 3 * LOOK_S)


async def kept(client: octopi.Client) -> list[int]:
    """The numbers of the messages that are there."""
    return [number(one) for one in await read_all(client, "orders")]


def number(message: octopi.Message) -> int:
    return int(message.value.split()[0])


async def processed(client: octopi.Client, count: int, **options: Any) -> list[int]:  # noqa: ANN401
    """Process the next messages of the subscription."""
    found = []
    async with client.subscription("orders", "billing", **options) as orders:
        async for message in orders:
            found.append(number(message))
            if len(found) == count:
                break
    return found


async def logs(client: octopi.Client) -> list[octopi.LogInfo]:
    return [one.log for one in await client.admin.describe_logs("orders")]


async def status(client: octopi.Client) -> Any:  # noqa: ANN401
    (log,) = (await client.admin.describe_subscription("orders", "billing")).logs
    return log


async def test_what_a_subscription_has_yet_to_process_stays_until_it_has(
    autojump_clock: MockClock,
) -> None:
    async with running_world(retention_check_interval_s=LOOK_S) as world, world.client() as client:
        await client.create_topic("orders", **SHORT, hold=timedelta(seconds=60))
        await client.admin.create_subscription("orders", "billing")
        await send(client, 0, 30)
        await removals()
        assert await kept(client) == list(range(30))
        assert await processed(client, 11) == list(range(11))
        await removals()
        assert await kept(client) == list(range(10, 30))
        assert await processed(client, 19) == list(range(11, 30))
        await removals()
        assert await kept(client) == list(range(25, 30)), "the newest segment stays"


async def test_the_slowest_subscription_counts(autojump_clock: MockClock) -> None:
    async with running_world(retention_check_interval_s=LOOK_S) as world, world.client() as client:
        await client.create_topic("orders", **SHORT, hold=timedelta(seconds=60))
        for name in ("archive", "billing"):
            await client.admin.create_subscription("orders", name)
        await send(client, 0, 30)
        await processed(client, 30)
        await removals()
        (log,) = await logs(client)
        assert (log.log_start, log.held_for) == (0, "archive")
        assert log.held_bytes == log.log_end // 6 * 5
        await client.admin.reset_subscription("orders", "archive", "latest")
        await removals()
        (log,) = await logs(client)
        assert (log.held_bytes, log.held_for) == (0, "")
        assert await kept(client) == list(range(25, 30))


async def test_without_a_bound_retention_does_not_wait(autojump_clock: MockClock) -> None:
    async with running_world(retention_check_interval_s=LOOK_S) as world, world.client() as client:
        await client.create_topic("orders", **SHORT)
        await client.admin.create_subscription("orders", "billing")
        await send(client, 0, 30)
        await removals()
        assert await kept(client) == list(range(25, 30))


async def test_what_goes_at_the_bound_of_bytes_is_told_with_its_range(
    autojump_clock: MockClock,
) -> None:
    async with running_world(retention_check_interval_s=LOOK_S) as world, world.client() as client:
        await client.create_topic("orders", **SMALL, retention_bytes=4_000, hold_bytes=10_000)
        await client.admin.create_subscription("orders", "billing")
        await send(client, 0, 20)
        await removals()
        log = await status(client)
        assert await kept(client) == list(range(20))
        assert (log.mark, log.lost) == (0, None)
        assert 10_000 < log.held_bytes < 20_000
        await send(client, 20, 30)
        await removals()
        # Five messages are kept anyway, and three segments more.
        assert await kept(client) == list(range(30, 50))
        log = await status(client)
        (here,) = await logs(client)
        assert log.lost == (0, here.log_start), "it is known before a member comes"
        assert log.held_bytes == here.held_bytes < 20_000
        async with client.subscription("orders", "billing") as orders:
            with pytest.raises(octopi.HistoryLostError) as lost:
                await anext(orders)
        assert (lost.value.wanted, lost.value.available_from) == log.lost
        assert await processed(client, 20, on_gap="skip") == list(range(30, 50))
        log = await status(client)
        assert log.lost is None
        assert log.skipped == [(0, here.log_start)]
        await removals()
        assert (await status(client)).held_bytes == 0
        assert await kept(client) == list(range(45, 50))


async def test_a_topic_that_keeps_everything_has_nothing_to_hold(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        for options in ({"hold": timedelta(hours=1)}, {"hold_bytes": 1}):
            with pytest.raises(octopi.RefusedError, match="are for topics with retention_ms"):
                await client.create_topic("orders", **options)
        with pytest.raises(octopi.RefusedError, match="hold_bytes must be at least 1"):
            await client.create_topic("orders", retention_bytes=1, hold_bytes=0)


async def test_messages_older_than_the_bound_go(autojump_clock: MockClock) -> None:
    async with running_world(retention_check_interval_s=LOOK_S) as world, world.client() as client:
        await client.create_topic("orders", **SHORT, hold=timedelta(seconds=60))
        await client.admin.create_subscription("orders", "billing")
        await send(client, 0, 10)
        await trio.sleep(31)
        await send(client, 10, 20)
        await removals()
        assert await kept(client) == list(range(30))
        await trio.sleep(31)
        assert await kept(client) == list(range(10, 30))
        await trio.sleep(31)
        assert await kept(client) == list(range(25, 30))


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
async def test_a_queue_holds_from_its_first_message_that_is_not_settled(
    mode: str, autojump_clock: MockClock
) -> None:
    async with running_world(retention_check_interval_s=LOOK_S) as world, world.client() as client:
        await client.create_topic("orders", **SHORT, hold=timedelta(seconds=60))
        options: Any = {"mode": mode}
        async with client.subscription("orders", "billing", **options) as orders:
            await send(client, 0, 30)
            messages = [await anext(orders) for _ in range(30)]
            for message in messages:
                if number(message) != 12:
                    message.acknowledge()
            await orders.commit()
            await removals()
            assert await kept(client) == list(range(10, 30))
            again = await anext(orders)
            assert number(again) == 12
            again.acknowledge()
            await orders.commit()
            await removals()
            assert await kept(client) == list(range(25, 30))


async def test_a_deleted_subscription_holds_nothing(autojump_clock: MockClock) -> None:
    async with running_world(retention_check_interval_s=LOOK_S) as world, world.client() as client:
        await client.create_topic("orders", **SHORT, hold=timedelta(seconds=60))
        await client.admin.create_subscription("orders", "billing")
        await send(client, 0, 30)
        await removals()
        assert await kept(client) == list(range(30))
        await client.admin.delete_subscription("orders", "billing")
        await removals()
        assert await kept(client) == list(range(25, 30))


async def test_an_expired_subscription_holds_nothing(autojump_clock: MockClock) -> None:
    async with running_world(retention_check_interval_s=LOOK_S) as world, world.client() as client:
        await client.create_topic("orders", **SHORT, hold=timedelta(seconds=600))
        await client.admin.create_subscription("orders", "billing", expires=timedelta(seconds=60))
        await send(client, 0, 30)
        await trio.sleep(56)
        assert await kept(client) == list(range(30))
        await trio.sleep(8)
        assert await kept(client) == list(range(25, 30))


async def test_a_subscription_with_a_member_holds_for_longer_than_it_lives_without(
    autojump_clock: MockClock,
) -> None:
    async with running_world(retention_check_interval_s=LOOK_S) as world, world.client() as client:
        await client.create_topic("orders", **SHORT, hold=timedelta(seconds=600))
        expires = timedelta(seconds=60)
        async with client.subscription("orders", "billing", expires=expires) as orders:
            await send(client, 0, 30)
            await anext(orders)
            await trio.sleep(150)
            assert await kept(client) == list(range(30))


async def leader(client: octopi.Client) -> str:
    return str((await client.describe_topic("orders")).partitions[0].leader_address)


async def test_each_replica_holds_what_a_subscription_has_yet_to_process(
    autojump_clock: MockClock,
) -> None:
    async with running_world(retention_check_interval_s=LOOK_S) as world, world.client() as client:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        await client.create_topic("orders", **SHORT, hold=timedelta(seconds=60))
        await client.admin.create_subscription("orders", "billing")
        await send(client, 0, 30)
        await processed(client, 11)
        await removals()
        starts = {one.log_start for one in await logs(client)}
        assert len(starts) == 1
        assert starts != {0}
        await world.kill(await leader(client))
        assert await processed(client, 19) == list(range(11, 30))


async def test_while_the_disk_is_full_no_subscription_holds_anything(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:  # brokers look once a minute
        await client.create_topic("orders", **SHORT, hold=timedelta(seconds=300))
        await client.admin.create_subscription("orders", "billing")
        await send(client, 0, 30)
        await trio.sleep(RETENTION_CHECK_INTERVAL_S + 3)
        assert await kept(client) == list(range(30))
        disk = world.nodes[BROKER].disk
        # No message fits any more, but the note does that goes before a removal.
        disk.capacity_bytes = sum(map(len, disk.files().values())) + 500
        with trio.fail_after(10):
            await send(client, 30, 5)
        assert await kept(client) == list(range(30, 35))
        assert (await status(client)).lost is not None
        disk.capacity_bytes = None
