"""Orders of operators in a cluster without a register, through whatever broker."""

from __future__ import annotations

import pytest

from octopi.errors import RefusedError, Status
from octopi.testing import Cluster, simulated
from tests.kit.ring import RingOfHosts
from tests.kit.ring_clients import client_of
from tests.roles.test_ring_fail_over import stored
from tests.roles.test_ring_partitions import FIVE, all_led, founded, led

FOUNDERS = ("a", "b", "c")


def leaders(ring: RingOfHosts) -> set[int]:
    """The brokers that lead something, as the members know."""
    return {
        machine.agreed.record.leader
        for member in ring.members().values()
        if member.partitions is not None
        for machine in member.partitions
    }


def keep_replicas(ring: RingOfHosts) -> set[int]:
    """The brokers that have a part in some partition, likewise."""
    return {
        broker
        for member in ring.members().values()
        if member.partitions is not None
        for machine in member.partitions
        for broker in machine.brokers
    }


@simulated(seeds=2, brokers=1, oracle=False)
async def test_a_drained_broker_leads_nothing_until_it_is_started_again(cluster: Cluster) -> None:
    ring = founded(cluster, FOUNDERS)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FOUNDERS)
    async with client_of(ring, ["c"]) as client:
        await client.create_topic("orders")
        async with client.producer() as producer:
            await producer.send("orders", b"before")
            await client.admin.drain_broker(1)
            await producer.send("orders", b"after")
        assert 1 not in leaders(ring)
        brokers = (await client.admin.describe_cluster()).brokers
        assert [one.broker for one in brokers if one.drained] == [1]
        assert await stored(client, "orders") == [b"before", b"after"]
        await client.admin.drain_broker(1)  # it is so already
        # Elections pass it over, too: where it is the only other one, it may lead.
        cluster.kill("b", restart_s=3.0)
        await cluster.sleep(2.0)
        await all_led(ring, in_sync=3)
        assert 1 not in leaders(ring)
        await cluster.sleep(60.0)
        assert 1 in keep_replicas(ring), "with three brokers nobody else can have its replicas"
        cluster.kill("a", restart_s=1.0)
        await cluster.sleep(2.0)
        await cluster.eventually(
            lambda: len(ring.members()) == 3 and not ring.record("b").drained, "it is not drained"
        )


@simulated(brokers=1, oracle=False)
async def test_groups_leave_a_broker_out_that_stays_drained_while_there_are_enough_others(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    for name in ("f", "g"):
        ring.start(name, FIVE)
    await ring.ideal(*FIVE, "f", "g")
    async with client_of(ring, FIVE) as client:
        await client.admin.drain_broker(2)
    await cluster.sleep(20.0)
    assert 2 in keep_replicas(ring), "it may be started again soon"
    await cluster.eventually(
        lambda: 2 not in keep_replicas(ring), "groups leave it out", within_s=240.0
    )
    assert "b" in ring.members()
    await all_led(ring, in_sync=3)


@simulated(brokers=1, oracle=False)
async def test_a_broker_is_not_drained_where_nobody_else_can_lead(cluster: Cluster) -> None:
    ring = founded(cluster, ["a"])
    await all_led(ring, in_sync=1)
    async with client_of(ring, ["a"]) as client:
        with pytest.raises(RefusedError, match="no other live replica") as refused:
            await client.admin.drain_broker(1)
        assert refused.value.status is Status.NOT_READY
        with pytest.raises(RefusedError, match="no broker 7"):
            await client.admin.drain_broker(7)
    assert set(led(ring, in_sync=1)) == set(range(8))


@simulated(brokers=1, oracle=False)
async def test_orders_that_are_not_carried_out_say_what_to_do(cluster: Cluster) -> None:
    ring = founded(cluster, FOUNDERS)
    await all_led(ring, in_sync=3)
    async with client_of(ring, ["a"]) as client:
        with pytest.raises(RefusedError, match="replicas lie where the ring says"):
            await client.admin.move_replica(0, 1, 2)
