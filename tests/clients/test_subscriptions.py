"""Durable subscriptions, end to end: brokers, a network and programs on virtual time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Literal

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.limits import RETENTION_CHECK_INTERVAL_S
from tests.kit.world import BROKER, REGISTER, World, running_world

BROKERS = [BROKER, "ws://broker-2:7100", "ws://broker-3:7100"]


@asynccontextmanager
async def member_client(world: World, url: str) -> AsyncIterator[octopi.Client]:
    """A client whose connections can be struck by the url."""
    environment = world.environment(url=url)
    async with octopi.connect(REGISTER, environment=environment) as client:
        yield client


async def send(client: octopi.Client, topic: str, first: int, count: int) -> None:
    async with client.producer() as producer:
        for number in range(first, first + count):
            await producer.submit(topic, b"%d" % number, key=b"%d" % number)


async def note(seen: list[int], subscription: AsyncIterable[octopi.Message]) -> None:
    async for message in subscription:
        seen.append(int(message.value))  # noqa: PERF401  # each as it comes


async def take(subscription: octopi.Subscription, count: int) -> list[int]:
    return [int((await anext(subscription)).value) for _ in range(count)]


# --- one member ------------------------------------------------------------------------


async def test_a_subscription_goes_on_behind_the_processed_messages(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 10)
        async with client.subscription("orders", "billing") as orders:
            assert await take(orders, 4) == [0, 1, 2, 3]
            assert orders.lag > 0
        async with client.subscription("orders", "billing") as orders:
            assert await take(orders, 6) == [4, 5, 6, 7, 8, 9]
            await orders.commit()
            assert orders.lag == 0


async def test_a_block_that_fails_does_not_mark_its_last_message(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 10)

        async def work() -> None:
            async with client.subscription("orders", "billing") as orders:
                async for order in orders:
                    if order.value == b"3":
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await work()
        async with client.subscription("orders", "billing") as orders:
            assert await take(orders, 1) == [3]


async def test_a_cancelled_block_does_not_mark_its_last_message(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 10)
        with trio.move_on_after(5):
            async with client.subscription("orders", "billing") as orders:
                async for order in orders:
                    if order.value == b"3":
                        await trio.sleep_forever()
        async with client.subscription("orders", "billing") as orders:
            assert await take(orders, 1) == [3]


async def test_a_wait_for_the_next_message_that_is_cancelled_takes_nothing_away(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        async with client.subscription("orders", "billing") as orders:
            with trio.move_on_after(30):
                await anext(orders)
            await send(client, "orders", 0, 2)
            assert await take(orders, 2) == [0, 1]


async def test_with_manual_marks_only_marked_messages_count(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 10)
        async with client.subscription("orders", "billing", mark="manual") as orders:
            messages = [await anext(orders) for _ in range(6)]
            orders.mark(messages[2])
            orders.mark(messages[1])
        async with client.subscription("orders", "billing", mark="manual") as orders:
            assert await take(orders, 1) == [3]


async def test_a_batch_is_marked_as_a_whole(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 10)
        async with client.subscription("orders", "billing") as orders:
            async for batch in orders.batches():
                seen = [int(one.value) for one in batch]
                break
        await send(client, "orders", 10, 1)
        async with client.subscription("orders", "billing") as orders:
            assert await take(orders, 1) == [seen[-1] + 1]


async def test_a_new_subscription_begins_at_the_given_start(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 3)
        async with client.subscription("orders", "late", start="latest"):
            pass
        await send(client, "orders", 3, 1)
        async with client.subscription("orders", "late", start="latest") as orders:
            assert await take(orders, 1) == [3]


async def test_the_create_option_decides_whether_a_subscription_is_created(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        with pytest.raises(octopi.UnknownSubscriptionError):
            async with client.subscription("orders", "billing", create="attach"):
                pass
        async with client.subscription("orders", "billing", create="create"):
            pass
        with pytest.raises(octopi.SubscriptionExistsError):
            async with client.subscription("orders", "billing", create="create"):
                pass
        with pytest.raises(octopi.SubscriptionExistsError, match="session_timeout"):
            async with client.subscription("orders", "billing", session_timeout_s=20):
                pass
        async with client.subscription("orders", "billing", create="attach"):
            pass


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "broadcast"},
        {"attempts": 3},
        {"ack_timeout_s": 3},
        {"prefetch": 3},
        {"window": 3},
        {"mode": "shared", "attempts": 0},
        {"mode": "shared", "attempts": 101},
        {"mode": "shared", "ack_timeout_s": 0.5},
        {"mode": "shared", "prefetch": 0},
        {"mode": "shared", "window": 10_001},
        {"mode": "shared", "mark": "manual"},
        {"mode": "shared", "on_gap": "skip"},
        {"mode": "key_shared", "take_over": True},
        {"mode": "shared", "create": "perhaps"},
        {"mode": "shared", "reconnect_timeout_s": -1},
        {"mark": "never"},
        {"on_gap": "raise"},
        {"create": "perhaps"},
        {"start": "middle"},
        {"member": "a/b"},
        {"session_timeout_s": 0.5},
        {"release_timeout_s": 301},
        {"expires": timedelta(seconds=1)},
    ],
)
async def test_an_invalid_option_is_refused(
    options: dict[str, object], autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        with pytest.raises(octopi.InvalidOptionError):
            async with client.subscription("orders", "billing", **options):  # type: ignore[call-overload]
                pass


async def test_records_that_retention_removed_are_reported_or_skipped_and_noted(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders", retention_bytes=20_000, segment_bytes=5_000)
        await client.admin.create_subscription("orders", "billing")
        async with client.producer() as producer:
            for number in range(100):
                await producer.send("orders", b"%d" % number + bytes(1_000))
        await trio.sleep(RETENTION_CHECK_INTERVAL_S * 2)
        async with client.subscription("orders", "billing") as orders:
            with pytest.raises(octopi.HistoryLostError) as lost:
                await anext(orders)
        async with client.subscription("orders", "billing", on_gap="skip") as orders:
            message = await anext(orders)
            assert message.offset == lost.value.available_from > lost.value.wanted == 0
            assert [one.available_from for one in orders.gaps] == [message.offset]
        async with client.subscription("orders", "billing") as orders:
            assert (await anext(orders)).offset == message.next_offset
        (log,) = (await client.admin.describe_subscription("orders", "billing")).logs
        assert log.skipped == [(0, message.offset)]


# --- exclusive -------------------------------------------------------------------------


async def test_a_second_member_of_an_exclusive_subscription_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        async with client.subscription("orders", "billing"), world.client() as second:
            with pytest.raises(octopi.SubscriptionBusyError):
                async with second.subscription("orders", "billing"):
                    pass


async def test_a_member_that_is_taken_over_is_told_and_marks_nothing_more(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client, world.client() as second:
        await client.create_topic("orders")
        await send(client, "orders", 0, 10)
        async with client.subscription("orders", "billing") as old:
            assert await take(old, 3) == [0, 1, 2]
            claim = old.claim
            await trio.sleep(1)
            async with second.subscription("orders", "billing", take_over=True) as new:
                assert await take(new, 1) == [2]
                assert new.claim > claim
                await trio.sleep(1)
                with pytest.raises(octopi.MemberFencedError):
                    await anext(old)
                with pytest.raises(octopi.MemberFencedError):
                    await old.commit()
        async with client.subscription("orders", "billing") as orders:
            assert await take(orders, 1) == [3]


async def test_a_member_that_died_is_followed_by_the_next_one(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 10)
        async with trio.open_nursery() as nursery:

            async def die() -> None:
                async with (
                    member_client(world, "ws://first") as first,
                    first.subscription("orders", "billing") as orders,
                ):
                    await take(orders, 3)
                    await trio.sleep_forever()

            nursery.start_soon(die)
            await trio.sleep(1)
            world.net.unreachable.add("ws://first")
            with world.net.hang("ws://first"):
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    began = trio.current_time()
                    async with client.subscription("orders", "billing") as orders:
                        assert await take(orders, 1) == [2]
                    assert trio.current_time() - began < 11


async def test_a_member_replaced_while_unreachable_hands_out_nothing_and_its_marks_are_refused(
    autojump_clock: MockClock,
) -> None:
    async with (
        running_world() as world,
        world.client() as client,
        member_client(world, "ws://zombie") as other,
    ):
        await client.create_topic("orders")
        await send(client, "orders", 0, 10)
        async with other.subscription("orders", "billing") as zombie:
            assert await take(zombie, 2) == [0, 1]
            await zombie.commit()
            assert await take(zombie, 1) == [2]
            with world.net.hang("ws://zombie"):
                async with client.subscription("orders", "billing") as orders:
                    with trio.move_on_after(0.01) as nothing:
                        await anext(zombie)
                    assert nothing.cancelled_caught
                    assert await take(orders, 3) == [2, 3, 4]
            await trio.sleep(2)
            with pytest.raises(octopi.MemberFencedError, match="come again"):
                await zombie.commit()
        async with client.subscription("orders", "billing") as orders:
            assert await take(orders, 1) == [5]


# --- failover --------------------------------------------------------------------------


async def test_members_share_the_logs_and_inherit_those_of_one_that_dies(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        info = await client.create_topic("orders", 8)
        members = ["a", "b", "c", "d", "e"]
        seen: dict[str, list[tuple[float, octopi.Message]]] = defaultdict(list)

        async def work(name: str, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
            with trio.CancelScope() as scope:
                async with (
                    member_client(world, f"ws://{name}") as own,
                    own.subscription("orders", "billing", mode="failover", member=name) as orders,
                ):
                    task_status.started(scope)
                    async for message in orders:
                        seen[name].append((trio.current_time(), message))

        async with trio.open_nursery() as nursery:
            scopes = {name: await nursery.start(work, name) for name in members}
            await trio.sleep(5)

            async def produce(seconds: float, first: int) -> int:
                until = trio.current_time() + seconds
                async with client.producer() as producer:
                    while trio.current_time() < until:
                        for place in info.partitions:
                            await producer.submit(
                                "orders", b"%d" % first, partition=place.partition
                            )
                            first += 1
                        await trio.sleep(0.5)
                return first

            count = await produce(5, 0)
            owners = {name: {one.partition for _, one in seen[name]} for name in members}
            assert sorted(len(owned) for owned in owners.values()) == [1, 1, 2, 2, 2]
            assert len(set().union(*owners.values())) == 8
            died_at = trio.current_time()
            world.net.unreachable.add("ws://c")
            with world.net.hang("ws://c"):
                scopes["c"].cancel()
                count = await produce(25, count)
            await trio.sleep(1)
            values = {int(one.value) for name in members for _, one in seen[name]}
            assert values == set(range(count))
            for name in set(members) - {"c"}:
                since = [one for at, one in seen[name] if at > died_at]
                assert {one.partition for one in since} >= owners[name]
                for partition in owners[name]:
                    times = [at for at, one in seen[name] if one.partition == partition]
                    pauses = [later - earlier for earlier, later in pairwise(times)]
                    assert max(pauses[2:]) < 1, "others were interrupted"
            inherited = [
                (at, one)
                for name in set(members) - {"c"}
                for at, one in seen[name]
                if one.partition in owners["c"]
            ]
            assert {one.partition for _, one in inherited} == owners["c"]
            assert min(at for at, _ in inherited) - died_at < 11.5
            nursery.cancel_scope.cancel()


async def test_a_log_moves_to_a_member_that_comes_and_back_without_a_repetition(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client, world.client() as second:
        await client.create_topic("orders", 2)
        await send(client, "orders", 0, 50)
        seen: list[int] = []

        async with trio.open_nursery() as nursery:

            async def work(one: octopi.Client) -> None:
                async with one.subscription("orders", "billing", mode="failover") as orders:
                    await note(seen, orders)

            async def guest() -> None:
                async with second.subscription("orders", "billing", mode="failover") as orders:
                    with trio.move_on_after(20):
                        await note(seen, orders)

            nursery.start_soon(work, client)
            await trio.sleep(2)
            nursery.start_soon(guest)
            await trio.sleep(2)
            await send(client, "orders", 50, 50)
            await trio.sleep(25)
            await send(client, "orders", 100, 50)
            await trio.sleep(2)
            nursery.cancel_scope.cancel()
        assert sorted(seen) == list(range(150))


async def test_each_log_has_a_block_that_ends_with_the_ownership(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client, world.client() as second:
        await client.create_topic("orders", 2)
        await send(client, "orders", 0, 50)
        seen: list[int] = []
        ended: list[str] = []

        async def work(name: str, log: octopi.SubscribedLog) -> None:
            async with log:
                await note(seen, log)
            ended.append(name)

        async def member(name: str, one: octopi.Client) -> None:
            async with (
                one.subscription("orders", "billing", mode="failover", member=name) as orders,
                trio.open_nursery() as nursery,
            ):
                async for log in orders.logs():
                    nursery.start_soon(work, name, log)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(member, "ann", client)
            await trio.sleep(2)
            assert ended == []
            nursery.start_soon(member, "bob", second)
            await trio.sleep(2)
            assert ended == ["ann"]
            await send(client, "orders", 50, 50)
            await trio.sleep(2)
            nursery.cancel_scope.cancel()
        assert sorted(seen) == list(range(100))


async def test_a_block_that_does_not_end_in_time_is_cancelled(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client, world.client() as second:
        await client.create_topic("orders", 2)
        async with client.producer() as producer:
            for place in (await client.describe_topic("orders")).partitions:
                await producer.send("orders", b"1", partition=place.partition)
        cancelled_at: list[float] = []

        async def work(log: octopi.SubscribedLog) -> None:
            async with log:
                async for _ in log:
                    try:
                        await trio.sleep_forever()
                    finally:
                        cancelled_at.append(trio.current_time())

        async with trio.open_nursery() as nursery:

            async def ann() -> None:
                async with (
                    client.subscription(
                        "orders", "billing", mode="failover", release_timeout_s=5
                    ) as orders,
                    trio.open_nursery() as tasks,
                ):
                    async for log in orders.logs():
                        tasks.start_soon(work, log)

            nursery.start_soon(ann)
            await trio.sleep(2)
            async with second.subscription(
                "orders", "billing", mode="failover", release_timeout_s=5
            ) as orders:
                joined_at = trio.current_time()
                await take(orders, 1)  # it was not marked
            assert 4.9 < cancelled_at[0] - joined_at < 5.5
            nursery.cancel_scope.cancel()


# --- brokers that fail -----------------------------------------------------------------


async def test_confirmed_marks_survive_a_leader_and_no_message_is_passed_over(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        await client.create_topic("orders")
        await send(client, "orders", 0, 100)
        async with client.subscription("orders", "billing") as orders:
            assert await take(orders, 40) == list(range(40))
            await orders.commit()
            (place,) = (await client.describe_topic("orders")).partitions
            await world.kill(place.leader_address)
            assert await take(orders, 30) == list(range(40, 70))
        async with client.subscription("orders", "billing") as orders:
            assert await take(orders, 30) == list(range(70, 100))


async def test_a_leader_that_dies_between_a_mark_and_its_commit_costs_only_repetitions(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        await client.create_topic("orders")
        await send(client, "orders", 0, 100)
        async with trio.open_nursery() as nursery:

            async def die() -> None:
                async with (
                    member_client(world, "ws://first") as first,
                    first.subscription("orders", "billing", member="w") as orders,
                ):
                    assert await take(orders, 40) == list(range(40))
                    await orders.commit()
                    await take(orders, 20)
                    await trio.sleep_forever()

            nursery.start_soon(die)
            await trio.sleep(1)
            (place,) = (await client.describe_topic("orders")).partitions
            world.net.unreachable.add("ws://first")
            with world.net.hang("ws://first"):
                await world.kill(place.leader_address)
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    async with client.subscription("orders", "billing", member="w") as orders:
                        first = await take(orders, 1)
                        assert 40 <= first[0] <= 60


async def test_a_coordinator_that_dies_interrupts_no_reading_and_keeps_its_members(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        info = await client.create_topic("orders", 8)
        seen: list[tuple[float, octopi.Message]] = []

        async def read() -> None:
            async with client.subscription("orders", "billing", member="w") as orders:
                async for message in orders:
                    seen.append((trio.current_time(), message))  # noqa: PERF401  # as it comes

        async def produce(seconds: float) -> None:
            async with client.producer() as producer:
                for number in range(round(seconds * 4)):
                    for place in info.partitions:
                        await producer.submit("orders", b"%d" % number, partition=place.partition)
                    await trio.sleep(0.25)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await produce(3)
            places = (await client.describe_topic("orders")).partitions
            coordinator = places[0].leader_address
            untouched = [one.partition for one in places if one.leader_address != coordinator]
            assert untouched
            await world.kill(coordinator)
            await produce(20)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
        for place in info.partitions:
            values = [int(one.value) for _, one in seen if one.partition == place.partition]
            assert sorted(set(values)) == list(range(80)), "messages were passed over"
        for partition in untouched:
            times = [at for at, one in seen if one.partition == partition]
            assert max(later - earlier for earlier, later in pairwise(times)) < 2
            values = [int(one.value) for _, one in seen if one.partition == partition]
            assert len(values) == 12 + 80, "a member that had its logs got them again"


# --- resetting, describing, deleting ---------------------------------------------------


async def test_marks_are_reset_by_place_and_time(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 5)
        await trio.sleep(60)
        async with client.consumer("orders", start="earliest") as consumer:
            offsets = [(await anext(consumer)).offset for _ in range(5)]
        await send(client, "orders", 5, 5)
        async with client.subscription("orders", "billing") as orders:
            await take(orders, 7)
        reset = partial(client.admin.reset_subscription, "orders", "billing")

        async def first() -> int:
            async with client.subscription("orders", "billing", mark="manual") as orders:
                return (await take(orders, 1))[0]

        (done,) = await reset("earliest")
        assert done.after == 0 < done.before
        assert await first() == 0
        await reset(offsets[3])
        assert await first() == 3
        (planned,) = await reset("earliest", dry_run=True)
        assert planned.after == 0
        assert await first() == 3
        async with client.consumer("orders", start=offsets[4]) as consumer:
            await anext(consumer)
            at = (await anext(consumer)).timestamp
        assert at is not None
        await reset(at)
        assert await first() == 5
        await reset("latest")
        await send(client, "orders", 10, 1)
        assert await first() == 10


@pytest.mark.parametrize("mode", ["exclusive", "failover"])
async def test_a_log_that_a_member_has_is_reset_by_force_only(
    mode: Literal["exclusive", "failover"], autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 5)
        async with client.subscription("orders", "billing", mode=mode) as orders:
            await take(orders, 5)
            await orders.commit()
            with pytest.raises(octopi.SubscriptionBusyError):
                await client.admin.reset_subscription("orders", "billing", "earliest")
            await client.admin.reset_subscription("orders", "billing", "earliest", force=True)
            assert await take(orders, 5) == [0, 1, 2, 3, 4]


async def test_a_subscription_is_described_listed_and_deleted(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders", 2)
        await send(client, "orders", 0, 10)
        await client.admin.create_subscription("orders", "audit", mode="failover")
        async with client.subscription("orders", "billing", member="w1") as orders:
            await take(orders, 10)
            await orders.commit()
            status = await client.admin.describe_subscription("orders", "billing")
            assert [one.member for one in status.members] == ["w1"]
            assert [one.member for one in status.logs] == ["w1", "w1"]
            assert [one.lag_bytes for one in status.logs] == [0, 0]
        names = [one.name for one in await client.admin.subscriptions("orders")]
        assert names == ["audit", "billing"]
        await client.admin.delete_subscription("orders", "audit")
        names = [one.name for one in await client.admin.subscriptions()]
        assert names == ["billing"]
        with pytest.raises(octopi.UnknownSubscriptionError):
            await client.admin.describe_subscription("orders", "audit")


async def test_a_member_of_a_deleted_subscription_is_told(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        async with client.subscription("orders", "billing") as orders:
            await client.admin.delete_subscription("orders", "billing")
            with pytest.raises(octopi.UnknownSubscriptionError):
                await anext(orders)
