"""Queues, end to end: brokers, a network and programs on virtual time."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.wire import messages as m
from tests.clients.test_subscriptions import BROKERS, member_client, send
from tests.kit.world import read_all, running_world

Mode = Literal["shared", "key_shared"]
MODES: list[Mode] = ["shared", "key_shared"]
DEAD = "orders.billing.dead"


async def take(queue: octopi.QueueSubscription, count: int) -> list[int]:
    """Work off *count* messages."""
    values = []
    for _ in range(count):
        async with await anext(queue) as message:
            values.append(int(message.value))
    return values


@pytest.mark.parametrize("mode", MODES)
async def test_an_acknowledged_message_does_not_come_again(
    mode: Mode, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 10)
        async with client.subscription("orders", "billing", mode=mode) as queue:
            assert await take(queue, 4) == [0, 1, 2, 3]
        async with client.subscription("orders", "billing", mode=mode) as queue:
            assert sorted(await take(queue, 6)) == [4, 5, 6, 7, 8, 9]
            assert await queue.commit() == 0
            with trio.move_on_after(120):
                await anext(queue)
                raise AssertionError("it came again")


async def test_each_message_goes_to_one_of_several_members_and_tasks(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client, world.client() as second:
        await client.create_topic("orders", 2)
        seen: Counter[int] = Counter()
        workers: Counter[str] = Counter()

        async def work(name: str, queue: octopi.QueueSubscription) -> None:
            async for order in queue:
                async with order:
                    await trio.sleep(0.01)
                    seen[int(order.value)] += 1
                    workers[name] += 1

        async with (
            client.subscription("orders", "billing", mode="shared", prefetch=5) as one,
            second.subscription("orders", "billing", mode="shared", prefetch=5) as two,
            trio.open_nursery() as nursery,
        ):
            for name, queue in (("a", one), ("b", one), ("c", two), ("d", two)):
                nursery.start_soon(work, name, queue)
            await send(client, "orders", 0, 200)
            with trio.fail_after(60):
                while len(seen) < 200:  # noqa: ASYNC110  # other tasks count
                    await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        assert set(seen) == set(range(200))
        assert set(seen.values()) == {1}
        assert min(workers[name] for name in "abcd") > 10


async def test_a_released_message_comes_again_with_its_next_attempt(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 1)
        async with client.subscription("orders", "billing", mode="shared") as queue:
            order = await anext(queue)
            assert (order.attempt, order.value) == (1, b"0")
            order.release()
            order = await anext(queue)
            assert order.attempt == 2
            began_at = trio.current_time()
            order.release(delay_s=20)
            order = await anext(queue)
            assert order.attempt == 3
            assert 20 <= trio.current_time() - began_at < 22
            order.acknowledge()
            assert await queue.commit() == 0


async def test_a_block_that_fails_gives_its_message_back(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 1)
        async with client.subscription("orders", "billing", mode="shared") as queue:
            with pytest.raises(ZeroDivisionError):
                async with await anext(queue):
                    raise ZeroDivisionError
            order = await anext(queue)
            assert order.attempt == 2
            with trio.move_on_after(1):
                async with order:
                    await trio.sleep_forever()
            order = await anext(queue)
            assert order.attempt == 3
            async with order:
                pass


async def test_a_message_that_is_not_answered_in_time_comes_again_and_the_late_answer_is_counted(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 1)
        async with client.subscription(
            "orders", "billing", mode="shared", ack_timeout_s=5
        ) as queue:
            slow = await anext(queue)
            assert 4 < slow.deadline - trio.current_time() <= 5
            again = await anext(queue)
            assert again.attempt == 2
            slow.acknowledge()
            again.acknowledge()
            assert await queue.commit() == 1
            assert queue.stale_count == 1


async def test_an_extension_gives_more_time(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 1)
        async with client.subscription(
            "orders", "billing", mode="shared", ack_timeout_s=5
        ) as queue:
            order = await anext(queue)
            for _ in range(5):
                await trio.sleep(3)
                order.extend()
            order.acknowledge()
            assert await queue.commit() == 0


async def test_messages_that_wait_at_the_client_of_a_slow_program_cost_no_attempt(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 20)
        async with client.subscription(
            "orders", "billing", mode="shared", ack_timeout_s=5
        ) as queue:
            for _ in range(20):
                async with await anext(queue) as order:
                    await trio.sleep(3)
                    assert order.attempt == 1
            assert await queue.commit() == 0


async def test_batches_are_answered_together(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 50)
        seen: list[int] = []
        async with client.subscription("orders", "billing", mode="shared") as queue:
            async for batch in queue.batches():
                async with batch:
                    seen += [int(one.value) for one in batch]
                if len(seen) == 50:
                    break
            assert await queue.commit() == 0
        assert seen == list(range(50))


@pytest.mark.parametrize("mode", MODES)
async def test_a_message_that_always_fails_becomes_one_dead_letter_as_it_was(
    mode: Mode, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        async with client.producer() as producer:
            await producer.send("orders", b"poison", key=b"k", headers={"colour": b"red"})
            await producer.send("orders", b"good", key=b"k")
        async with client.subscription("orders", "billing", mode=mode, attempts=3) as queue:
            attempts: list[int] = []
            async for order in queue:
                if order.value == b"good":
                    order.acknowledge()
                    if len(attempts) == 3:
                        break
                else:
                    attempts.append(order.attempt)
                    order.release()
                    if len(attempts) == 3 and mode == "shared":
                        break
            await queue.commit()
        assert attempts == [1, 2, 3]
        await trio.sleep(5)
        (letter,) = await read_all(client, DEAD)
        assert (letter.value, letter.key, letter.headers["colour"]) == (b"poison", b"k", b"red")
        assert letter.headers["octopi-attempts"] == b"3"
        origin = octopi.Position.parse(letter.headers["octopi-origin"].decode())
        async with client.consumer("orders", start=origin) as consumer:
            assert (await anext(consumer)).value == b"poison"
        status = await client.admin.describe_subscription("orders", "billing")
        assert [one.dead_count for one in status.logs] == [1]
        assert status.dead_letters == DEAD


async def test_a_rejected_message_is_a_dead_letter_at_once_with_the_reason(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders", 2)
        await send(client, "orders", 0, 4)
        async with client.subscription("orders", "billing", mode="shared") as queue:
            for _ in range(4):
                order = await anext(queue)
                order.reject(f"no customer {int(order.value)}")
                with pytest.raises(octopi.InvalidOptionError):
                    order.reject("x" * 1_001)
            await queue.commit()
        await trio.sleep(5)
        letters = await read_all(client, DEAD)
        reasons = sorted(one.headers["octopi-reason"] for one in letters)
        assert reasons == [b"no customer %d" % number for number in range(4)]
        assert {one.headers["octopi-attempts"] for one in letters} == {b"1"}


async def test_messages_of_a_key_are_processed_in_order_by_several_members(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client, world.client() as second:
        await client.create_topic("orders")
        async with client.producer() as producer:
            for number in range(120):
                await producer.submit("orders", b"%d" % number, key=b"%d" % (number % 4))
        done: dict[int, list[int]] = {key: [] for key in range(4)}

        async def work(one: octopi.Client, delay_s: float) -> None:
            async with one.subscription(
                "orders", "billing", mode="key_shared", prefetch=10
            ) as queue:
                async for order in queue:
                    async with order:
                        await trio.sleep(delay_s)
                        done[int(order.value) % 4].append(int(order.value))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, client, 0.01)
            nursery.start_soon(work, second, 0.05)
            with trio.fail_after(120):
                while sum(map(len, done.values())) < 120:  # noqa: ASYNC110  # others work
                    await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        for key, values in done.items():
            assert values == [number for number in range(120) if number % 4 == key]


@pytest.mark.parametrize("mode", MODES)
async def test_messages_that_members_took_ahead_and_no_program_saw_become_no_dead_letters(
    mode: Mode, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 5)
        for _ in range(5):
            async with client.subscription("orders", "billing", mode=mode, attempts=1) as queue:
                await take(queue, 0)
                await trio.sleep(1)  # until all of them wait here
        async with client.subscription("orders", "billing", mode=mode, attempts=1) as queue:
            assert (await anext(queue)).attempt == 1
            await trio.sleep(1)
        async with client.subscription("orders", "billing", mode=mode, attempts=1) as queue:
            assert sorted(await take(queue, 4)) == [1, 2, 3, 4]
            await queue.commit()
        async with client.consumer(DEAD, start="earliest") as letters:
            assert (await anext(letters)).value == b"0"
        described = await client.admin.describe_subscription("orders", "billing")
        assert [one.dead_count for one in described.logs] == [1]


async def test_a_member_that_dies_gives_its_messages_to_the_others(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 30)
        async with trio.open_nursery() as nursery:

            async def die() -> None:
                async with (
                    member_client(world, "ws://first") as first,
                    first.subscription("orders", "billing", mode="shared") as queue,
                ):
                    assert await take(queue, 10) == list(range(10))
                    await queue.commit()
                    await trio.sleep_forever()

            nursery.start_soon(die)
            await trio.sleep(2)
            world.net.unreachable.add("ws://first")
            with world.net.hang("ws://first"):
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    async with client.subscription("orders", "billing", mode="shared") as queue:
                        with trio.fail_after(120):
                            assert sorted(await take(queue, 20)) == list(range(10, 30))


async def test_confirmed_acknowledgements_survive_a_leader_and_no_message_is_passed_over(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        await client.create_topic("orders")
        await send(client, "orders", 0, 100)
        seen: Counter[int] = Counter()
        async with client.subscription("orders", "billing", mode="shared") as queue:
            seen.update(await take(queue, 40))
            assert await queue.commit() == 0
            (place,) = (await client.describe_topic("orders")).partitions
            await world.kill(place.leader_address)
            with trio.fail_after(120):
                while len(seen) < 100:
                    seen.update(await take(queue, 1))
            await queue.commit()
        assert all(seen[number] == 1 for number in range(40)), "a confirmed one came again"
        assert set(seen) == set(range(100))


async def test_a_commit_says_how_much_a_change_of_the_leader_left_unknown(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        await client.create_topic("orders")
        await send(client, "orders", 0, 10)
        async with client.subscription("orders", "billing", mode="shared") as queue:
            (place,) = (await client.describe_topic("orders")).partitions
            held = [await anext(queue) for _ in range(3)]
            await world.kill(place.leader_address)
            for one in held:
                one.acknowledge()
            assert await queue.commit() == 3
            with trio.fail_after(120):
                assert sorted(await take(queue, 10)) == list(range(10))
            assert await queue.commit() == 0


async def test_a_reset_deals_the_messages_again(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await send(client, "orders", 0, 5)
        async with client.subscription("orders", "billing", mode="shared") as queue:
            await take(queue, 5)
            await queue.commit()
            with pytest.raises(octopi.SubscriptionBusyError):
                await client.admin.reset_subscription("orders", "billing", "earliest")
            await client.admin.reset_subscription("orders", "billing", "earliest", force=True)
            with trio.fail_after(60):
                assert sorted(await take(queue, 5)) == [0, 1, 2, 3, 4]


async def test_a_queue_is_described_and_its_dead_letters_outlive_it(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders", 2, min_insync=1, flush_before_ack=True)
        await send(client, "orders", 0, 10)
        await client.admin.create_subscription("orders", "billing", mode="shared", attempts=None)
        letters = await client.describe_topic(DEAD)
        topic = await client.describe_topic("orders")
        assert [one.partition for one in letters.partitions] == [
            one.partition for one in topic.partitions
        ]
        assert letters.options.flush_before_ack
        async with client.subscription(
            "orders", "billing", mode="shared", attempts=None, member="w1"
        ) as queue:
            order = await anext(queue)
            await trio.sleep(1)
            status = await client.admin.describe_subscription("orders", "billing")
            assert [one.member for one in status.members] == ["w1"]
            assert sum(one.open_count for one in status.logs) == 10
            order.release(delay_s=60)
            await trio.sleep(1)
            status = await client.admin.describe_subscription("orders", "billing")
            assert sum(one.waiting_count for one in status.logs) == 1
        await client.admin.delete_subscription("orders", "billing")
        assert (await client.describe_topic(DEAD)).topic_id == letters.topic_id


async def test_a_commit_whose_confirmation_a_deletion_overtakes_is_told(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client, world.client() as other:
        await client.create_topic("orders")
        await send(client, "orders", 0, 1)
        async with trio.open_nursery() as nursery:
            committing = trio.Event()

            async def work() -> None:
                async with client.subscription("orders", "billing", mode="shared") as queue:
                    await take(queue, 1)
                    world.net.fault(m.QueueSettled, "lose")
                    committing.set()
                    await queue.commit()

            async def delete() -> None:
                await committing.wait()
                await trio.sleep(1)
                await other.admin.delete_subscription("orders", "billing")

            nursery.start_soon(delete)
            with pytest.raises(octopi.UnknownSubscriptionError), trio.fail_after(60):
                await work()


async def test_a_member_of_a_deleted_queue_is_told(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        async with client.subscription("orders", "billing", mode="shared") as queue:
            await client.admin.delete_subscription("orders", "billing")
            with pytest.raises(octopi.UnknownSubscriptionError):
                await anext(queue)


async def test_names_that_are_too_long_for_a_dead_letter_topic_are_refused(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("t" * 150)
        with pytest.raises(octopi.InvalidOptionError, match="dead letters"):
            async with client.subscription("t" * 150, "n" * 60, mode="shared"):
                pass


async def test_a_topic_for_dead_letters_on_other_partitions_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders", 2)
        await client.create_topic(DEAD, 1)
        with pytest.raises(octopi.InvalidOptionError, match="other partitions"):
            async with client.subscription("orders", "billing", mode="shared"):
                pass
