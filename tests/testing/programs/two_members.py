"""Two members count orders for each log: the wrong ones forget what the former member of a log has
counted."""

from __future__ import annotations

from octopi import Client
from octopi.testing import Cluster, Host
from tests.testing.programs.planted import Planted, values


async def count(host: Host, *, is_right: bool) -> None:
    counts: dict[int, int] = {}
    done: dict[int, int] = {}
    async with (
        host.connect() as client,
        client.producer() as producer,
        client.subscription("orders", "count", mode="failover", member=host.name) as orders,
    ):
        async for order in orders:
            log = order.partition
            if is_right:
                counts, done = await counted(client)
            if order.offset <= done.get(log, -1):
                continue
            counts[log] = counts.get(log, 0) + 1
            done[log] = order.offset
            await producer.send("counts", b"%d %d %d" % (log, counts[log], order.offset))


async def counted(client: Client) -> tuple[dict[int, int], dict[int, int]]:
    """The count of each log, and the last offset in it."""
    counts: dict[int, int] = {}
    done: dict[int, int] = {}
    for value in await values(client, "counts"):
        log, number, offset = map(int, value.split())
        counts[log], done[log] = number, offset
    return counts, done


async def scene(cluster: Cluster, is_right: bool) -> None:
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 2)
        await client.create_topic("counts", 1)
        await client.admin.create_subscription("orders", "count", mode="failover")
        for name in ("ann", "bob"):
            cluster.program(name, lambda host: count(host, is_right=is_right))
        await cluster.sleep(1)
        with cluster.random_faults(["kill"], hosts=["ann", "bob"], every_s=2.0):
            for number in range(8):
                await producer.send("orders", b"order", key=b"%d" % number)
                await cluster.sleep(0.5)
        await cluster.sleep(30)
        counts, _ = await counted(client)
        assert sum(counts.values()) == 8


BUG = Planted("two members", scene, ("ann",), seed=3)
