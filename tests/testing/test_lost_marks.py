"""Durable subscriptions whose mark in one log all replicas lose with their disks."""

from __future__ import annotations

from typing import Literal

import pytest

import octopi
import octopi.testing
from octopi.testing.setup import Options

COUNT = 10
# The loss is ordered here, and the oracle would not know.
SETUP: Options = {"brokers": 2, "replicas": 1, "partitions": 2, "oracle": False}


async def send(client: octopi.Client, name: str) -> None:
    """Send messages to both partitions."""
    async with client.producer() as producer:
        for number in range(COUNT):
            for partition in range(2):
                await producer.send("orders", f"{name} {number}".encode(), partition=partition)


async def lose_the_second_log(cluster: octopi.testing.Cluster, client: octopi.Client) -> int:
    """Wipe the disk of its only replica, and have it begin again, empty; return its partition.  The
    coordinator is with the first one."""
    topic = await client.describe_topic("orders")
    first, second = topic.partitions
    assert first.leader != second.leader
    host = f"broker-{second.leader}"
    cluster._process(host, "kill").host.kill()
    cluster._simulated.wipe(host)
    assert cluster.restart(host)
    await cluster.sleep(5)
    brokers = (await client.admin.describe_cluster()).brokers
    new = max(one.broker for one in brokers)
    assert new not in {first.leader, second.leader}
    await client.admin.recover_partition(second.partition, accept_loss=True, empty_on=new)
    return second.partition


@pytest.mark.parametrize("is_attached", [False, True])
@pytest.mark.parametrize("mode", ["exclusive", "failover"])
def test_a_log_that_lost_its_mark_with_its_messages_is_read_from_its_start(
    mode: Literal["exclusive", "failover"], is_attached: bool
) -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client:
            await client.create_topic("orders", 2)
            await send(client, "old")

            async def read(orders: octopi.Subscription, count: int) -> list[str]:
                return [(await anext(orders)).value.decode() for _ in range(count)]

            async with client.subscription("orders", "billing", mode=mode) as orders:
                await read(orders, 2 * COUNT)
                await orders.commit()
                if is_attached:
                    lost = await lose_the_second_log(cluster, client)
                    await send(client, "new")
                    found = await read(orders, 2 * COUNT)
                    forks = list(orders.forks)
                    await orders.commit()
            if not is_attached:
                lost = await lose_the_second_log(cluster, client)
                await send(client, "new")
                async with client.subscription("orders", "billing", mode=mode) as orders:
                    found = await read(orders, 2 * COUNT)
                    forks = list(orders.forks)
            assert sorted(found) == sorted(2 * [f"new {number}" for number in range(COUNT)])
            (fork,) = forks
            assert (fork.partition, fork.offset) == (lost, 0)

    octopi.testing.run(scene, **SETUP)


def test_a_queue_whose_log_lost_its_state_with_its_messages_goes_on() -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client:
            await client.create_topic("orders", 2)
            await send(client, "old")
            async with client.subscription("orders", "billing", mode="shared") as orders:
                for _ in range(2 * COUNT):
                    (await anext(orders)).acknowledge()
                await orders.commit()
                lost = await lose_the_second_log(cluster, client)
                await send(client, "new")
                found = []
                for _ in range(2 * COUNT):
                    order = await anext(orders)
                    found.append(order.value.decode())
                    order.acknowledge()
                assert sorted(found) == sorted(2 * [f"new {number}" for number in range(COUNT)])
                assert [one.partition for one in orders.forks] == [lost]

    octopi.testing.run(scene, **SETUP)


def test_a_subscription_that_was_deleted_is_not_restored() -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client, cluster.client() as operator:
            await client.create_topic("orders", 2)
            await send(client, "old")

            async def work() -> None:
                async with client.subscription("orders", "billing") as orders:
                    await anext(orders)
                    await operator.admin.delete_subscription("orders", "billing")
                    while True:
                        await anext(orders)

            with pytest.raises(octopi.UnknownSubscriptionError, match="deleted"):
                await work()
            assert await client.admin.subscriptions("orders") == []

    octopi.testing.run(scene, **SETUP)
