"""A consumer of a topic that does not exist may wait for it, or create it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.limits import TOPIC_WAIT_INTERVAL_S
from tests.kit.world import REGISTER, running_world


async def send(client: octopi.Client, topic: str, *values: bytes) -> None:
    async with client.producer() as producer:
        for value in values:
            await producer.send(topic, value)


async def take(consumer: octopi.Consumer | octopi.MultiTopicConsumer, count: int) -> list[bytes]:
    return [(await anext(consumer)).value for _ in range(count)]


@pytest.mark.parametrize("start", ["latest", "earliest", octopi.last(1)])
async def test_what_was_produced_before_the_waiting_consumer_found_the_topic_is_read(
    start: octopi.Start, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client, trio.open_nursery() as nursery:

        async def produce_later() -> None:
            await trio.sleep(20)
            await send(client, "orders", b"first", b"second")

        nursery.start_soon(produce_later)
        async with client.consumer("orders", start=start, wait_for_topic=30) as consumer:
            assert 20 < trio.current_time() < 20 + 3 * TOPIC_WAIT_INTERVAL_S
            assert await take(consumer, 2) == [b"first", b"second"]


async def test_latest_of_a_topic_that_exists_is_its_end_however_long_one_would_wait(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await send(client, "orders", b"old")
        async with client.consumer("orders", wait_for_topic=30, create=True) as consumer:
            await send(client, "orders", b"new")
            assert await take(consumer, 1) == [b"new"]


async def test_a_topic_that_does_not_come_is_an_error_that_says_how_long_was_waited(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        with pytest.raises(octopi.UnknownTopicError, match=r"'orders'; waited 30 s for it \["):
            async with client.consumer("orders", wait_for_topic=30):
                pass
        assert trio.current_time() == pytest.approx(30, abs=1)


async def test_waiting_asks_the_register_about_twice_a_second(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world() as world, world.client() as client:
        asked = 0
        ask = client._router.describe_once

        async def counted(name: str, create: bool) -> octopi.TopicInfo:
            nonlocal asked
            asked += 1
            return await ask(name, create)

        monkeypatch.setattr(client._router, "describe_once", counted)
        with pytest.raises(octopi.UnknownTopicError):
            async with client.consumer("orders", wait_for_topic=60):
                pass
        assert 60 <= asked <= 240


async def test_a_register_that_restarts_does_not_end_the_waiting(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client, trio.open_nursery() as nursery:

        async def restart_and_produce() -> None:
            await trio.sleep(5)
            await world.kill(REGISTER)
            await trio.sleep(40)
            await world.start_register()
            await trio.sleep(5)
            await send(client, "orders", b"first")

        nursery.start_soon(restart_and_produce)
        async with client.consumer("orders", wait_for_topic=120) as consumer:
            assert await take(consumer, 1) == [b"first"]


async def test_a_register_that_is_away_at_the_end_is_named_in_the_error(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client, trio.open_nursery() as nursery:

        async def kill_register() -> None:
            await trio.sleep(5)
            await world.kill(REGISTER)

        nursery.start_soon(kill_register)
        with pytest.raises(octopi.UnknownTopicError, match="waited 30 s for it; the register"):
            async with client.consumer("orders", wait_for_topic=30):
                pass
        assert trio.current_time() == pytest.approx(30, abs=1)


async def test_a_wait_that_is_cancelled_ends_at_once(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        with trio.move_on_after(3) as scope:
            async with client.consumer("orders", wait_for_topic=3600):
                raise AssertionError("there is no topic")
        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(3, abs=0.1)
        await send(client, "orders", b"the client is usable")


async def test_a_consumer_may_create_the_topic(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        async with client.consumer("orders", create=True) as consumer:
            await send(client, "orders", b"first")
            assert await take(consumer, 1) == [b"first"]
        assert [one.topic for one in await client.topics()] == ["orders"]


async def test_several_named_topics_are_waited_for_together(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client, trio.open_nursery() as nursery:

        async def produce_later() -> None:
            await trio.sleep(10)
            await send(client, "orders", b"order")
            await trio.sleep(10)
            await send(client, "payments", b"payment")

        nursery.start_soon(produce_later)
        async with client.consumer(["orders", "payments"], wait_for_topic=30) as consumer:
            assert trio.current_time() < 23
            assert sorted(await take(consumer, 2)) == [b"order", b"payment"]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
async def test_a_time_to_wait_that_makes_no_sense_is_refused(
    seconds: float, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        with pytest.raises(octopi.InvalidOptionError, match="wait_for_topic"):
            async with client.consumer("orders", wait_for_topic=seconds):
                pass
