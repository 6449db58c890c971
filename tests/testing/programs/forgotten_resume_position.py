"""An archive: the wrong one goes on with what comes next when it is started again."""

from __future__ import annotations

import octopi
from octopi.testing import Cluster, Host
from tests.testing.programs.planted import Planted, values


async def wrong(host: Host) -> None:
    async with (
        host.connect() as client,
        client.producer() as producer,
        client.consumer("orders", start="earliest" if host.life == 1 else "latest") as orders,
    ):
        async for order in orders:
            await producer.send("archive", order.value)


async def right(host: Host) -> None:
    async with (
        host.connect() as client,
        client.producer(name="archive", topics=["archive"]) as producer,
    ):
        start = "earliest"
        async with client.consumer("archive", start=octopi.last(1), stop_at_end=True) as archived:
            async for message in archived:
                start = message.headers["position"].decode()
        async with client.consumer("orders", start=start) as orders:
            async for order in orders:
                position = str(orders.position).encode()
                await producer.send("archive", order.value, headers={"position": position})


async def scene(cluster: Cluster, is_right: bool) -> None:
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        await client.create_topic("archive", 1)
        cluster.program("archive", right if is_right else wrong)
        with cluster.random_faults(["kill"], hosts=["archive"]):
            for number in range(5):
                await producer.send("orders", b"order %d" % number)
                await cluster.sleep(0.5)
        await cluster.sleep(5)
        assert await values(client, "archive") == [b"order %d" % number for number in range(5)]


BUG = Planted("forgotten resume position", scene, ("archive",), seed=1)
