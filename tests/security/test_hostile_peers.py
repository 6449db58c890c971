"""Peers that have the join secret and lie: no message is lost, and no process ends."""

from __future__ import annotations

import contextlib

import attrs
import pytest
import trio

import octopi
import octopi.testing
from octopi.errors import ConnectionLostError, RefusedError, Status
from octopi.wire import messages as m
from octopi.wire.endpoints import FOLLOW
from tests.security.peers import joined, look, peer

COUNT = 20


async def acknowledged(cluster: octopi.testing.Cluster) -> None:
    """Have some messages acknowledged by three replicas."""
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        for number in range(COUNT):
            await producer.send("orders", b"%d" % number)


async def read(cluster: octopi.testing.Cluster) -> list[bytes]:
    async with (
        cluster.client() as client,
        client.consumer("orders", start="earliest", stop_at_end=True) as messages,
    ):
        return [message.value async for message in messages]


async def check(cluster: octopi.testing.Cluster, seconds: float = 3.0) -> None:
    """See that nothing is lost, now and after some time, and that more is taken."""
    expected = [b"%d" % number for number in range(COUNT)]
    assert await read(cluster) == expected
    await cluster.sleep(seconds)
    assert await read(cluster) == expected
    async with cluster.client() as client, client.producer() as producer:
        await producer.send("orders", b"more")
    assert await read(cluster) == [*expected, b"more"]
    for host in ("register", "broker-1", "broker-2", "broker-3"):
        assert cluster.is_up(host), f"{host} has ended"


@octopi.testing.simulated(brokers=3, partitions=1)
async def test_a_made_up_leader_of_a_later_epoch_costs_no_acknowledged_message(
    cluster: octopi.testing.Cluster,
) -> None:
    await acknowledged(cluster)
    environment = await cluster.environment("peer")
    known = await look(environment, cluster.address)
    lie = m.PartitionRecord(0, (1 << 40) - 1, 0, 7, 1, [7], [7])
    for epoch in (1 << 20, 1 << 38, (1 << 40) - 1):
        for broker in (None, 7, 8):
            async with peer(environment, cluster.address, cluster._simulated.secrets) as connection:
                join = m.Join(1, known.cluster, broker, 1, "n", [], None, "ws://nowhere:1")
                told = m.Inventory([attrs.evolve(lie, epoch=epoch)], [])
                with contextlib.suppress(RefusedError, ConnectionLostError):
                    await joined(connection, join, told)
                await cluster.sleep(1.0)
    await check(cluster)


@octopi.testing.simulated(brokers=3, partitions=1)
async def test_a_register_that_a_peer_calls_superseded_goes_on(
    cluster: octopi.testing.Cluster,
) -> None:
    await acknowledged(cluster)
    environment = await cluster.environment("peer")
    known = await look(environment, cluster.address)
    for generation in (1, 2, 9, 1 << 39):
        async with peer(environment, cluster.address, cluster._simulated.secrets) as connection:
            life = m.RegisterGeneration(generation, "made-up")
            join = m.Join(1, known.cluster, 9, 1, "n", [], life, "ws://nowhere:1")
            with pytest.raises(RefusedError) as caught:
                await joined(connection, join)
            assert caught.value.status == Status.REGISTER_SUPERSEDED
    await check(cluster)
    cluster.kill("register", restart_s=0.1)
    await check_again(cluster)


async def check_again(cluster: octopi.testing.Cluster) -> None:
    await cluster.sleep(5.0)
    assert len(await read(cluster)) == COUNT + 1
    assert cluster.is_up("register")


@octopi.testing.simulated(brokers=3, partitions=1)
async def test_a_peer_can_not_take_the_id_of_a_broker_that_restarts(
    cluster: octopi.testing.Cluster,
) -> None:
    await acknowledged(cluster)
    environment = await cluster.environment("peer")
    known = await look(environment, cluster.address)
    for broker in (1, 2, 3):
        cluster.kill(f"broker-{broker}")
        await cluster.sleep(2.0)
        for incarnation in (1, 2, 3, 1 << 39):
            for clustered in ("", known.cluster):
                async with peer(
                    environment, cluster.address, cluster._simulated.secrets
                ) as connection:
                    join = m.Join(
                        1, clustered, broker, incarnation, "n", ["1"], None, "ws://nowhere:1"
                    )
                    with pytest.raises(RefusedError) as caught:
                        await joined(connection, join)
                    assert caught.value.status == Status.BROKER_FENCED
        cluster.restart(f"broker-{broker}")
        await cluster.settle()
    await check(cluster)


@octopi.testing.simulated(brokers=3, partitions=1)
async def test_a_broker_can_not_accept_resign_or_alter_in_the_name_of_another(
    cluster: octopi.testing.Cluster,
) -> None:
    await acknowledged(cluster)
    environment = await cluster.environment("peer")
    (before,) = (await look(environment, cluster.address)).partitions
    assert before.leader is not None
    follower = next(one for one in before.in_sync if one != before.leader)
    leader, epoch = before.leader, before.epoch
    lies = [
        m.AlterInSync(0, epoch, leader, 1, 0, [leader], None),
        m.AlterInSync(0, epoch, leader, 1, 0, [leader, follower], None),
        m.Resign(0, epoch, leader, 1, "no reason"),
        m.AcceptEpoch(0, epoch + 1, follower, 1, epoch, epoch, []),
        m.Stopping(5),
        m.BrokerStatus("full", 0, 0, []),
    ]
    for lie in lies:
        for joins in (False, True):
            if joins and isinstance(lie, m.Stopping | m.BrokerStatus):
                continue  # that is its own affair then
            async with peer(environment, cluster.address, cluster._simulated.secrets) as connection:
                if joins:
                    join = m.Join(1, "", None, 1, "n", [], None, "ws://nowhere:1")
                    await joined(connection, join)
                connection.post(lie)
                with trio.move_on_after(3):
                    while connection.end_reason is None:
                        await cluster.sleep(0.01)
                assert connection.end_reason is not None
            await cluster.sleep(1.0)
    (after,) = (await look(environment, cluster.address)).partitions
    assert (after.epoch, sorted(after.in_sync)) == (epoch, [1, 2, 3])
    await check(cluster)


@octopi.testing.simulated(brokers=3, partitions=1)
async def test_a_peer_can_not_acknowledge_in_the_name_of_a_follower(
    cluster: octopi.testing.Cluster,
) -> None:
    await acknowledged(cluster)
    environment = await cluster.environment("peer")
    (place,) = (await look(environment, cluster.address)).partitions
    assert place.leader is not None
    follower = next(one for one in place.in_sync if one != place.leader)
    async with cluster.client() as client:
        topic = await client.describe_topic("orders")
    for incarnation in (1, 2, 1 << 39):
        secrets = cluster._simulated.secrets
        async with peer(environment, place.leader_address, secrets, FOLLOW) as stream:
            session = (0, place.epoch, follower, incarnation, 1 << 39)
            stream.post(m.Follow(*session, topic.topic_id, [], 0))
            await cluster.sleep(0.1)
            with contextlib.suppress(ConnectionLostError):
                stream.post(m.Acknowledge(*session, topic.topic_id, 1))
            await cluster.sleep(0.1)
            assert stream.end_reason is not None
            assert "did not prove that it is broker 2" in stream.end_reason
    await cluster.sleep(5.0)
    (after,) = (await look(environment, cluster.address)).partitions
    assert (after.epoch, sorted(after.in_sync)) == (place.epoch, [1, 2, 3])
    await check(cluster)
