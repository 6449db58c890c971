"""Topics in memory in a cluster with a register, beside log topics, on the same brokers."""

from __future__ import annotations

from octopi import Client
from octopi.testing import Cluster, simulated

TOPIC = "prices"


def values(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


async def read(client: Client, count: int, topic: str = TOPIC) -> list[bytes]:
    async with client.consumer(topic, start="earliest") as consumer:
        return [(await consumer.__anext__()).value for _ in range(count)]


async def produce(client: Client, some: list[bytes], topic: str = TOPIC) -> None:
    async with client.producer() as producer:
        for one in some:
            await producer.send(topic, one)


@simulated(brokers=3, oracle=False)
async def test_a_relay_topic_and_a_log_topic_are_in_one_cluster(cluster: Cluster) -> None:
    async with cluster.client() as client:
        made = await client.create_topic(TOPIC, kind="relay")
        assert made.kind == "relay"
        await client.create_topic("orders", 2)
        async with client.producer() as producer:
            receipts = [await producer.send(TOPIC, one) for one in values(10)]
            for one in values(5):
                await producer.send("orders", one)
        assert len({one.id for one in receipts}) == 10
        assert all(one.digest for one in receipts)
        assert await read(client, 10) == values(10)
        assert sorted(await read(client, 5, "orders")) == values(5)
        found = {one.topic: one.kind for one in await client.topics()}
        assert found == {TOPIC: "relay", "orders": "log"}
