"""Messages that are stored only where the log is said to end, on a cluster."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.wire import messages as m
from tests.kit.world import read_all, running_world, values


async def withdraw(client: octopi.Client, producer: octopi.Producer, amount: int) -> bool:
    """Take *amount* from the account, unless that overdraws it."""
    while True:
        movements = await read_all(client, "account")
        if sum(int(one.value) for one in movements) < amount:
            return False
        try:
            end = movements[-1].next_offset
            await producer.send("account", b"%d" % -amount, expected_end=end)
        except octopi.ConditionFailedError as error:
            if error.end is None or error.end <= end:
                raise
        else:
            return True


async def test_an_account_is_never_overdrawn_although_the_broker_dies_again_and_again(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        taken: list[bool] = []

        async def teller(name: str | None) -> None:
            async with client.producer(name=name) as producer:
                for _ in range(3):
                    taken.append(await withdraw(client, producer, 30))
                    await trio.sleep(0.3)

        async with client.producer() as producer:
            await producer.send("account", b"250", expected_end=0)
        async with trio.open_nursery() as nursery:
            for name in ["ann", "bob", None, None]:
                nursery.start_soon(teller, name)
            for _ in range(4):
                await trio.sleep(0.25)
                await world.restart()
        assert sorted(await values(client, "account")) == [b"-30"] * 8 + [b"250"]
        assert sum(taken) == 8


@pytest.mark.parametrize("action", ["break before", "break after", "lose"])
@pytest.mark.parametrize("message", [m.Produce, m.Produced, m.Failure])
async def test_one_of_two_is_stored_and_each_is_told_the_truth_whatever_gets_lost(
    action: str, message: type, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client, world.client() as other:
        async with client.producer() as first, other.producer() as second:
            start = (await first.send("orders", b"0")).next_offset
            await second.send("other", b"finds the leader")
            world.net.fault(message, action)  # type: ignore[arg-type]
            told: dict[bytes, octopi.Receipt | octopi.ConditionFailedError] = {}

            async def send(producer: octopi.Producer, value: bytes) -> None:
                try:
                    told[value] = await producer.send("orders", value, expected_end=start)
                except octopi.ConditionFailedError as error:
                    told[value] = error

            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, first, b"1")
                nursery.start_soon(send, second, b"2")
        [_, stored] = await read_all(client, "orders")
        receipt = told.pop(stored.value)
        assert isinstance(receipt, octopi.Receipt)
        assert receipt.offset == stored.offset == start
        [refused] = told.values()
        assert isinstance(refused, octopi.ConditionFailedError)
        assert (refused.end, refused.code) == (stored.next_offset, "condition_failed")


async def test_messages_before_and_behind_keep_their_order(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer() as producer:
            end = (await producer.send("orders", b"0")).next_offset
            pending = await producer.submit("orders", b"1", expected_end=end)
            await producer.submit("orders", b"2")
            refused = await producer.submit("orders", b"never", expected_end=end)
            await producer.submit("orders", b"3")
            with pytest.raises(octopi.ConditionFailedError):
                await refused
            assert (await pending).offset == end
        assert await values(client, "orders") == [b"0", b"1", b"2", b"3"]


async def test_a_failure_that_nobody_awaited_is_reported_by_flush(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client, client.producer() as producer:
        await producer.submit("orders", b"1", expected_end=500)
        with pytest.raises(octopi.ConditionFailedError, match="1 message was not acknowledged"):
            await producer.flush()


@pytest.mark.parametrize("expected_end", [-1, 2**63])
async def test_what_is_no_offset_is_refused(expected_end: int, autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client, client.producer() as producer:
        with pytest.raises(octopi.InvalidOptionError, match="expected_end"):
            await producer.send("orders", b"1", expected_end=expected_end)


async def test_it_has_to_be_clear_of_which_log_the_end_is(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client, client.producer() as producer:
        await client.create_topic("wide", partitions=2)
        with pytest.raises(octopi.InvalidOptionError, match="give the partition, or a key"):
            await producer.send("wide", b"1", expected_end=0)
        await producer.send("wide", b"1", expected_end=0, key=b"k")
