"""Orders of operators in a cluster without a register, through whatever broker."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio

from octopi.clients.client import Client
from octopi.clients.ring import order_leave
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.testing import Cluster, simulated
from tests.kit.ring import RingOfHosts
from tests.kit.ring_clients import client_of
from tests.roles.test_ring_fail_over import Load, stored
from tests.roles.test_ring_partitions import FIVE, PARTITIONS, all_led, founded, led

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


@simulated(brokers=1, oracle=False)
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


@simulated(brokers=1, oracle=False)
async def test_partitions_are_added_and_topics_lie_on_them(cluster: Cluster) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FIVE)
    async with client_of(ring, ["b"]) as client:
        await client.create_topic("before")
        before = (await client.describe_topic("before")).partitions
        await client.admin.drain_broker(1)
        cluster.kill("e")
        await cluster.sleep(3.0)
        assert await client.admin.add_partitions(4) == PARTITIONS + 4
        assert {one.broker for one in ring.record("c").growths[1].members} == {2, 3, 4}
        cluster.restart("e")
        await cluster.eventually(
            lambda: len(led(ring, in_sync=3)) == PARTITIONS + 4,
            "the new partitions have leaders and replicas in sync",
            within_s=30.0,
        )
        await client.create_topic("orders", partition_ids=[8, 9, 10, 11])
        async with client.producer() as producer:
            for number in range(20):
                await producer.send("orders", b"%d" % number, key=b"%d" % number)
        found = await stored(client, "orders")
        assert sorted(found) == sorted(b"%d" % number for number in range(20))
        after = (await client.describe_topic("before")).partitions
        assert [one.partition for one in after] == [one.partition for one in before]
        with pytest.raises(RefusedError, match="at most"):
            await client.admin.add_partitions(1_000_000)


# --- leaving for good ----------------------------------------------------------------------


async def left(cluster: Cluster, client: Client, broker: int, within_s: float = 240.0) -> None:
    """Order *broker* to leave, again and again, until it is gone."""
    until = cluster.now + within_s
    while not (found := await order_leave(client, broker)).is_gone:
        assert cluster.now < until, found
        await cluster.sleep(0.5)


@simulated(brokers=1, oracle=False)
async def test_a_broker_leaves_for_good_under_load_and_its_process_ends(cluster: Cluster) -> None:
    names = ("a", "b", "c", "d")
    ring = founded(cluster, names)
    await all_led(ring, in_sync=3)
    await ring.ideal(*names)
    await cluster.sleep(30.0)  # before, no group moves
    async with client_of(ring, names) as client, trio.open_nursery() as nursery:
        await client.create_topic("orders")
        load = Load()
        nursery.start_soon(load.run, client, "orders")
        # An acceptor of the record of the cluster, and the one that changes it by itself.
        await left(cluster, client, 1)
        assert 1 not in keep_replicas(ring) | leaders(ring)
        await ring.ideal("b", "c", "d")
        assert ring.record("b").gone == (1,)
        chosen = ring.member("b").keeper.chosen
        assert chosen is not None
        assert [one.broker for one in chosen.value.acceptors] == [2, 3, 4]
        before = len(load.acknowledged)
        await cluster.eventually(lambda: load.has(before + 50), "messages are acknowledged")
        load.stops = True
        await cluster.eventually(
            lambda: len(load.acknowledged) == load.sent_count, "all is acknowledged"
        )
        found = await stored(client, "orders")
        assert found == [b"%d" % number for number in range(load.sent_count)]
        assert (await order_leave(client, 1)).is_gone
        await client.admin.remove_broker(1)
        brokers = (await client.admin.describe_cluster()).brokers
        assert [one.broker for one in brokers] == [2, 3, 4]
    assert not cluster.programs["a"].is_up
    assert "a" not in ring.errors
    cluster.restart("a")
    await cluster.eventually(lambda: "a" in ring.errors, "it is refused")
    assert "removed from the cluster" in str(ring.errors["a"][0])


@simulated(brokers=1, oracle=False)
async def test_a_broker_that_dies_while_it_leaves_is_removed_all_the_same(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FIVE)
    async with client_of(ring, FIVE) as client:
        await client.create_topic("orders")
        async with client.producer() as producer:
            for number in range(20):
                await producer.send("orders", b"%d" % number)
        await order_leave(client, 3)
        await cluster.sleep(cluster.random.random() * 5)
        cluster.kill("c")
        await left(cluster, client, 3, within_s=90.0)
        await all_led(ring, in_sync=3)
        assert 3 not in keep_replicas(ring)
        assert await stored(client, "orders") == [b"%d" % number for number in range(20)]


@simulated(brokers=1, oracle=False)
async def test_a_dead_broker_is_removed_at_once_and_one_that_runs_is_not(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FIVE)
    async with client_of(ring, ["a", "b"]) as client:
        with pytest.raises(RefusedError, match="ring leave 5") as refused:
            await client.admin.remove_broker(5)
        assert refused.value.status is Status.BROKER_IN_USE
        cluster.kill("e")
        await cluster.sleep(5.0)
        until = cluster.now + 60.0
        while 5 not in ring.record("a").gone:
            with suppress(NotReadyError):
                await client.admin.remove_broker(5)
            assert cluster.now < until
        await client.admin.remove_broker(5)
        with pytest.raises(RefusedError, match="no broker 9"):
            await client.admin.remove_broker(9)
        assert 5 not in keep_replicas(ring)


@simulated(brokers=1, oracle=False)
async def test_the_order_to_leave_is_taken_back_and_the_last_broker_stays(
    cluster: Cluster,
) -> None:
    ring = founded(cluster, FOUNDERS)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FOUNDERS)
    async with client_of(ring, ["a"]) as client:
        await left(cluster, client, 3)
        await client.create_topic("orders")
        await client.alter_topic("orders", min_insync=2)
        await cluster.sleep(2.0)
        found = await order_leave(client, 2)
        assert "start another one" in found.waits_for
        with pytest.raises(RefusedError, match="last one that stays"):
            await order_leave(client, 1)
        brokers = (await client.admin.describe_cluster()).brokers
        assert [one.leaving for one in brokers] == [False, True]
        assert not (await order_leave(client, 2, is_taken_back=True)).is_gone
        assert not ring.record("a").leaving
        with pytest.raises(RefusedError, match="no broker 7"):
            await order_leave(client, 7)
        await cluster.sleep(60.0)
        await all_led(ring, in_sync=2)


# --- recovering ----------------------------------------------------------------------------


@simulated(brokers=1, oracle=False)
async def test_a_partition_whose_last_replica_in_sync_is_lost_goes_on_by_order(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FIVE)
    async with client_of(ring, FIVE) as client:
        await client.create_topic("orders")
        async with client.producer() as producer:
            await producer.send("orders", b"kept")
            [place] = (await client.describe_topic("orders")).partitions
            partition, leader = place.partition, FIVE[(place.leader or 0) - 1]
            followers = [FIVE[one - 1] for one in place.replicas if FIVE[one - 1] != leader]
            with pytest.raises(RefusedError, match="nothing has to be given up"):
                await client.admin.recover_partition(partition)
            for one in followers:
                cluster.kill(one)
            await producer.send("orders", b"lost")  # the leader is alone in sync
        cluster.kill(leader)
        for one in followers:
            cluster.restart(one)
        await cluster.sleep(5.0)
        outside = next(name for name in FIVE if name not in {leader, *followers})
    async with client_of(ring, [outside], "another") as client:
        found = await client.admin.recover_partition(partition)
        assert found.leader is None
        assert found.waits_for == [place.leader]
        assert {one.broker for one in found.replicas if one.answered} == set(place.replicas) - {
            place.leader
        }
        recovered = await client.admin.recover_partition(partition, accept_loss=True)
        assert recovered.recovered
        events = (await client.admin.describe_events()).events
        [told] = [one for one in events if one.kind == "recovered"]
        assert (told.partition, told.broker) == (partition, recovered.leader)
        assert "by an operator's order" in told.text
        assert FIVE[(recovered.leader or 0) - 1] in followers
        with pytest.raises(RefusedError, match="begins again empty"):
            await client.admin.recover_partition(partition, empty_on=1)
        with pytest.raises(RefusedError, match="no partition 99"):
            await client.admin.recover_partition(99)
        async with client.producer() as producer:
            await producer.send("orders", b"after")
        assert await stored(client, "orders") == [b"kept", b"after"]
        cluster.restart(leader)
        await all_led(ring, in_sync=3, within_s=60.0)
        assert await stored(client, "orders") == [b"kept", b"after"]
