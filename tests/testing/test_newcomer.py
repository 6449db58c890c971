"""Another lost update than that of the tutorial, found with nothing but what that teaches.

Two tills sell from one stock.  Each reads what is left, takes one away, and writes it down.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import octopi
import octopi.testing

STOCK = 20
Sell = Callable[[octopi.Client, octopi.Producer], Awaitable[object]]
Left = Callable[[octopi.Client], Awaitable[int]]


async def read(client: octopi.Client) -> list[int]:
    async with client.consumer("stock", start="earliest", stop_at_end=True) as messages:
        return [int(message.value) async for message in messages]


async def last_number(client: octopi.Client) -> int:
    return (await read(client))[-1]


async def sum_of_changes(client: octopi.Client) -> int:
    return sum(await read(client))


async def write_what_is_left(client: octopi.Client, producer: octopi.Producer) -> None:
    left = await last_number(client)
    await producer.send("stock", b"%d" % (left - 1))


async def write_what_changed(client: octopi.Client, producer: octopi.Producer) -> None:
    await producer.send("stock", b"-1")


def story(sell: Sell, left: Left) -> Callable[[], None]:
    @octopi.testing.simulated(seeds=10)
    async def test_every_sale_counts(cluster: octopi.testing.Cluster) -> None:
        async def till(host: octopi.testing.Host) -> None:
            async with host.connect() as client, client.producer() as producer:
                for _ in range(5):
                    await sell(client, producer)
                    await cluster.sleep(cluster.random.random())

        async with cluster.client() as client, client.producer() as producer:
            await client.create_topic("stock", 1)
            await producer.send("stock", b"%d" % STOCK)
            cluster.program("till-1", till)
            cluster.program("till-2", till)
            with cluster.random_faults(["cut", "slow"]):
                await cluster.sleep(10)
            await cluster.settle()
            await cluster.sleep(60)
            assert await left(client) == STOCK - 10

    return test_every_sale_counts


def test_tills_that_write_the_remaining_stock_lose_sales() -> None:
    with pytest.raises(AssertionError) as caught:
        story(write_what_is_left, last_number)()
    assert "again: OCTOPI_TEST_SEED=" in caught.value.__notes__[-1]


def test_tills_that_write_changes_lose_no_sale() -> None:
    story(write_what_changed, sum_of_changes)()
