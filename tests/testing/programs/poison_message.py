"""An importer: the wrong one takes every error for the fault of the message, and rejects it."""

from __future__ import annotations

import octopi
from octopi.testing import Cluster, Host
from tests.testing.programs.planted import Planted, values


async def wrong(host: Host) -> None:
    async with (
        host.connect() as client,
        client.producer(delivery_timeout_s=0.5) as producer,
        client.subscription("lines", "import", mode="shared") as lines,
    ):
        async for line in lines:
            try:
                await producer.send("numbers", b"%d" % int(line.value))
                line.acknowledge()
            except (ValueError, octopi.OctopiError):
                line.reject("it can't be imported")


async def right(host: Host) -> None:
    async with (
        host.connect() as client,
        client.producer(delivery_timeout_s=0.5) as producer,
        client.subscription("lines", "import", mode="shared") as lines,
    ):
        async for line in lines:
            try:
                await producer.send("numbers", b"%d" % int(line.value))
                line.acknowledge()
            except ValueError:
                line.reject("it is no number")
            except octopi.OctopiError:
                line.release(delay_s=1.0)


async def scene(cluster: Cluster, is_right: bool) -> None:
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("lines", 1)
        await client.create_topic("numbers", 1)
        cluster.program("importer", right if is_right else wrong)
        with cluster.random_faults(["isolate", "slow"], hosts=["importer"]):
            for line in (b"1", b"2", b"three", b"4", b"5"):
                await producer.send("lines", line)
                await cluster.sleep(0.5)
        await cluster.sleep(15)
        assert await values(client, "lines.import.dead") == [b"three"]


BUG = Planted("poison message", scene, ("importer",), seed=2, faults=("isolate",))
