"""A shop with a cache of prices: the wrong one starts with the cache that it had, and reads only
prices that come from then on."""

from __future__ import annotations

import trio

from octopi import Client
from octopi.testing import Cluster, Host
from tests.testing.programs.planted import Planted


class Cache:
    """Outlives the program, as a file does."""

    def __init__(self) -> None:
        self.price = 0
        self.position = "earliest"


async def shop(host: Host, cache: Cache, bills: list[tuple[int, int]], *, is_right: bool) -> None:
    async with host.connect() as client, trio.open_nursery() as nursery:
        start = cache.position if is_right or host.life == 1 else "latest"
        nursery.start_soon(watch_prices, client, cache, start)
        async with client.subscription("orders", "shop", member="shop") as orders:
            async for order in orders:
                bill = int(order.value), cache.price
                bills.append(bill)


async def watch_prices(client: Client, cache: Cache, start: str) -> None:
    async with client.consumer("prices", start=start) as prices:
        async for price in prices:
            cache.price, cache.position = int(price.value), str(prices.position)


async def scene(cluster: Cluster, is_right: bool) -> None:
    cache, bills = Cache(), list[tuple[int, int]]()
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("prices", 1)
        await client.create_topic("orders", 1)
        cluster.program("shop", lambda host: shop(host, cache, bills, is_right=is_right))
        await cluster.sleep(1)
        with cluster.random_faults(["kill"], hosts=["shop"]):
            for number in range(1, 5):
                await producer.send("prices", b"%d" % number)
                await cluster.sleep(1.5)
                await producer.send("orders", b"%d" % number)
                await cluster.sleep(0.1)
        await cluster.sleep(5)
        assert [bill for bill in bills if bill[1] < bill[0]] == [], "billed with an old price"


BUG = Planted("stale cache", scene, ("shop",), seed=1)
