"""Durable subscriptions in a simulated cluster whose machines fail."""

from __future__ import annotations

import pytest

import octopi
import octopi.testing

COUNT = 30


async def book(client: octopi.Client, count: int) -> list[bytes]:
    """Process *count* messages as a member, and confirm."""
    booked = []
    async with client.subscription("orders", "billing", member="m1") as orders:
        async for order in orders:
            booked.append(order.value)
            if len(booked) == count:
                break
    return booked


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_confirmed_mark_survives_power_lost_everywhere_where_messages_are_flushed(
    brokers: int,
) -> None:
    values = [b"%d" % number for number in range(COUNT)]

    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client:
            await client.create_topic("orders", 1, flush_before_ack=True)
            async with client.producer() as producer:
                await producer.submit_many("orders", values)
            assert await book(client, COUNT // 2) == values[: COUNT // 2]
            for host in cluster.brokers:
                assert cluster.lose_power(host, restart_s=1.0)
            await cluster.sleep(5)
            assert await book(client, COUNT - COUNT // 2) == values[COUNT // 2 :]

    octopi.testing.run(scene, brokers=brokers, partitions=1)


def test_a_confirmed_mark_survives_all_replicas_but_one() -> None:
    values = [b"%d" % number for number in range(COUNT)]

    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client:
            await client.create_topic("orders", 1)
            async with client.producer() as producer:
                await producer.submit_many("orders", values)
            await cluster.settle()
            assert await book(client, COUNT // 2) == values[: COUNT // 2]
            for host in list(cluster.brokers)[:2]:
                cluster.kill(host)
                await cluster.sleep(5)
            assert await book(client, COUNT - COUNT // 2) == values[COUNT // 2 :]

    octopi.testing.run(scene, brokers=3, partitions=1)


def test_a_member_that_was_replaced_while_it_worked_can_not_leave_as_if_all_were_marked() -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client, cluster.client() as other:
            await client.create_topic("orders", 1)
            async with client.producer() as producer:
                await producer.send("orders", b"1")

            async def work() -> None:
                async with client.subscription("orders", "billing") as orders:
                    await anext(orders)
                    async with other.subscription("orders", "billing", take_over=True):
                        await cluster.sleep(1)

            with pytest.raises(octopi.MemberFencedError, match="took over"):
                await work()

    octopi.testing.run(scene, brokers=1, partitions=1)


def test_a_member_that_was_told_that_it_was_replaced_leaves_without_being_told_again() -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client, cluster.client() as other:
            await client.create_topic("orders", 1)
            async with client.producer() as producer:
                await producer.send("orders", b"1")
            async with client.subscription("orders", "billing") as orders:
                await anext(orders)
                async with other.subscription("orders", "billing", take_over=True):
                    await cluster.sleep(1)
                with pytest.raises(octopi.MemberFencedError, match="took over"):
                    await orders.commit()

    octopi.testing.run(scene, brokers=1, partitions=1)
