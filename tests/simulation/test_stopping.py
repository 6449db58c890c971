"""Nodes that are asked to stop hand their leaderships over first, and delay no other node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from octopi.clients.client import Client, connect
from octopi.environment import Environment
from octopi.limits import (
    ACCEPT_WAIT_S,
    FINISH_S,
    HAND_OVER_ALL_S,
    LINK_GRACE_S,
    RECONNECT_GRACE_S,
    REPLICA_LAG_S_MAX,
)
from octopi.simulation.cluster import REGISTER, ClusterOptions, SimulatedCluster
from octopi.simulation.kernel.world import Event, World
from octopi.tracing import steps
from octopi.wire.messages import PartitionRecord
from tests.simulation.clusters import ask, play, until, when

FOUR_PARTITIONS = ClusterOptions(brokers=3, partitions=4, gather_s=0.05)


def create(partitions: int, min_insync: int = 1) -> Callable[[Client], Awaitable[None]]:
    async def question(client: Client) -> None:
        await client.create_topic("orders", partitions, min_insync=min_insync)

    return question


async def produce(client: Client) -> None:
    async with client.producer() as producer:
        for number in range(20):
            await producer.send("orders", b"%d" % number)


def record(cluster: SimulatedCluster, partition: int = 0) -> PartitionRecord:
    """What is decided about a partition, on the register's device."""
    return cluster.decided.state.partitions[partition]


def records(cluster: SimulatedCluster) -> list[PartitionRecord]:
    return [one for _, one in sorted(cluster.decided.state.partitions.items())]


def of(world: World, step: str, host: str | None = None) -> list[Event]:
    return [one for one in world.events if one.what == step and host in {None, one.host}]


def announced(world: World, partition: int = 0) -> list[Event]:
    return [one for one in of(world, steps.E2Announced.text) if one.facts["partition"] == partition]


async def stopped(cluster: SimulatedCluster, name: str) -> float:
    """Ask a node to stop; wait until it has; return how long that took."""
    life = cluster.nodes[name].life
    assert life is not None
    began = cluster.world.now
    cluster.stop(name)
    await until(life.ended.is_set)
    assert life.error is None
    return cluster.world.now - began


def test_a_leader_that_stops_while_its_connections_linger_leaves_nobody_without_a_leader() -> None:
    async def idle(environment: Environment) -> None:
        async with (
            connect(f"ws://{REGISTER}:7000", environment=environment) as client,
            client.consumer("orders", start="earliest") as consumer,
        ):
            async for _ in consumer:
                pass

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(1))
        await ask(cluster, produce, "producer")
        leader = cluster.leader(0)
        cluster.add_client("idler", idle)
        cluster.boot("idler")
        await trio.sleep(0.5)
        # The closing handshake with a client takes as long as it may.
        cluster.network.hold("idler", leader)
        await stopped(cluster, leader)
        await trio.sleep(1.0)
        left = {1, 2, 3} - {cluster.broker_of(leader)}
        assert record(cluster).leader in left
        assert set(record(cluster).in_sync) == left
        assert record(cluster).epoch == 2
        await ask(cluster, produce, "another producer")

    play(scenario)


def test_a_stopping_broker_closes_nothing_before_others_lead_and_nobody_counts_on_it() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(4))
        before = {one.partition: one.leader for one in records(cluster)}
        assert set(before.values()) == {1, 2, 3}
        await stopped(cluster, "broker-1")
        for one in records(cluster):
            assert set(one.in_sync) == {2, 3}
            assert one.epoch == 1 + (before[one.partition] == 1), "one epoch for each hand-over"
        await ask(cluster, produce, "producer")

    world = play(scenario, FOUR_PARTITIONS)
    (told,) = of(world, steps.E21Told.text, "broker-1")
    (emptied,) = of(world, steps.E22Emptied.text)
    (left,) = of(world, steps.E24Left.text, "broker-1")
    (lost,) = of(world, steps.R6Lost.text)
    exited = next(one for one in of(world, "exit", "broker-1"))
    sets = [one.at for one in of(world, steps.E17Altered.text) if one.facts["accepted"]]
    assert told.at < max(sets) < emptied.at < left.at < lost.at < exited.at
    assert not of(world, steps.E16Proposed.text, "broker-1"), "who stops proposes nothing"
    assert not of(world, steps.R7Broken.text), "it said goodbye"


def test_a_hundred_partitions_are_handed_over_side_by_side() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(100))
        led = {one.partition for one in records(cluster) if one.leader == 1}
        assert len(led) > 30
        took_s = await stopped(cluster, "broker-1")
        assert took_s < 1.0  # of virtual time, where a turn of the network takes a millisecond
        assert {one.leader for one in records(cluster)} == {2, 3}
        assert all(one.epoch == 1 + (one.partition in led) for one in records(cluster))

    play(scenario, ClusterOptions(brokers=3, partitions=100, gather_s=0.05))


def test_a_message_does_not_wait_for_a_stopping_broker() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(1))
        leader = cluster.leader(0)
        follower = next(one.name for one in cluster.brokers if one.name != leader)
        gaps: list[float] = []
        done = trio.Event()

        async def steady(environment: Environment) -> None:
            async with (
                connect(cluster.address, environment=environment) as client,
                client.producer() as producer,
            ):
                last = cluster.world.now
                while not done.is_set():
                    await producer.send("orders", b"x")
                    gaps.append(cluster.world.now - last)
                    last = cluster.world.now

        cluster.add_client("steady", steady)
        cluster.boot("steady")
        await trio.sleep(0.5)
        gaps.clear()
        await stopped(cluster, follower)
        await stopped(cluster, leader)
        await trio.sleep(0.5)
        done.set()
        assert gaps
        # No silence is waited out: not of a follower, of the register, nor of a client.
        assert max(gaps) < min(REPLICA_LAG_S_MAX, ACCEPT_WAIT_S)
        assert record(cluster).epoch == 2

    play(scenario)


def test_a_follower_that_stops_stays_in_sync_until_another_one_can_take_its_place() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(1, min_insync=2))
        leader = cluster.leader(0)
        stopping, away = (one.name for one in cluster.brokers if one.name != leader)
        cluster.nodes[away].host.kill()
        await until(lambda: len(record(cluster).in_sync) == 2)
        cluster.boot(away)
        life = cluster.nodes[stopping].life
        assert life is not None
        when(
            cluster,
            lambda event: event.what == steps.J5Admitted.text,
            lambda: cluster.stop(stopping),
        )
        await until(life.ended.is_set)
        in_sync = {cluster.broker_of(leader), cluster.broker_of(away)}
        assert set(record(cluster).in_sync) == in_sync

    world = play(scenario)
    sizes = [
        len(one.facts["record"].in_sync)
        for one in of(world, steps.E17Altered.text)
        if one.facts["accepted"]
    ]
    assert min(sizes) == 2


def test_a_broker_that_no_other_can_replace_stops_without_waiting() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(1))
        assert await stopped(cluster, "broker-1") < LINK_GRACE_S
        before = record(cluster)
        cluster.boot("broker-1")
        await cluster.wait_serving()
        await ask(cluster, produce, "producer")
        assert record(cluster).epoch == before.epoch + 1

    play(scenario, ClusterOptions(brokers=1, partitions=1, gather_s=0.05))


def test_brokers_that_stop_at_the_same_time_wait_for_each_other_a_bounded_time() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(4))
        began = cluster.world.now
        lives = [one.life for one in cluster.brokers]
        for one in cluster.brokers:
            cluster.stop(one.name)
        await until(lambda: all(life is not None and life.ended.is_set() for life in lives))
        assert cluster.world.now - began < HAND_OVER_ALL_S
        for one in cluster.brokers:
            cluster.boot(one.name)
        await cluster.wait_serving()
        await ask(cluster, produce, "producer")

    play(scenario, FOUR_PARTITIONS)


def test_a_broker_that_stops_without_its_register_stops_soon() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(4))
        cluster.register.host.kill()
        assert await stopped(cluster, "broker-1") < 2 * LINK_GRACE_S
        cluster.boot(REGISTER)
        await ask(cluster, produce, "producer")
        assert {one.leader for one in records(cluster)} == {2, 3}

    play(scenario, FOUR_PARTITIONS)


def test_a_hand_over_outlives_a_reset_of_the_stopping_brokers_link() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(4))
        for step in (steps.E21Told.text, steps.E22Emptying.text, steps.E6Accepted.text):
            when(
                cluster,
                lambda event, step=step: event.what == step,  # type: ignore[misc]
                lambda: cluster.network.reset(REGISTER, "broker-1"),
            )
        await stopped(cluster, "broker-1")
        assert {one.leader for one in records(cluster)} == {2, 3}
        assert all(set(one.in_sync) == {2, 3} for one in records(cluster))

    assert len(of(play(scenario, FOUR_PARTITIONS), steps.R6Lost.text)) == 1


def test_a_broker_that_starts_again_gets_in_sync_and_may_lead() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(4))
        for name in ("broker-1", "broker-2", "broker-3"):
            await stopped(cluster, name)
            cluster.boot(name)
            await until(lambda: all(len(one.in_sync) == 3 for one in records(cluster)))
        await stopped(cluster, "broker-1")
        await stopped(cluster, "broker-2")
        assert {one.leader for one in records(cluster)} == {3}
        await ask(cluster, produce, "producer")

    play(scenario, FOUR_PARTITIONS)


def test_the_old_leader_leads_on_with_all_its_followers_when_nobody_takes_over_in_time() -> None:
    async def drain(client: Client) -> None:
        await client.admin.drain_broker(1)

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(1))
        leader = cluster.leader(0)
        others = [one.name for one in cluster.brokers if one.name != leader]
        holds = [cluster.network.hold(other, REGISTER) for other in others]
        cluster.world.after(2 * ACCEPT_WAIT_S, lambda: [free() for free in holds])
        cluster.stop(leader)
        await until(lambda: record(cluster).epoch == 2)
        assert record(cluster).leader == cluster.broker_of(leader)
        assert record(cluster).in_sync == [1, 2, 3]
        # ... and as soon as they answer, it is tried again.
        await until(lambda: not cluster.nodes[leader].host.is_up)
        assert record(cluster).leader != cluster.broker_of(leader)
        await ask(cluster, produce, "producer")

    play(scenario)


def test_a_register_that_stops_finishes_a_change_of_leaders_that_is_under_way() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(1))
        leader = cluster.leader(0)
        when(
            cluster,
            lambda event: event.what == steps.E3Told.text,
            lambda: cluster.stop(REGISTER),
        )
        cluster.stop(leader)
        await until(lambda: not cluster.register.host.is_up)
        assert record(cluster).epoch == 2
        assert cluster.leader(0) != leader
        leading = [one.host for one in of(cluster.world, steps.E11Leading.text)]
        assert leading[-1] == cluster.leader(0), "it was told, too"

    world = play(scenario)
    exited = of(world, "exit", REGISTER)[0]
    assert exited.at - of(world, "stop", REGISTER)[0].at < FINISH_S


def test_a_register_that_died_within_a_hand_over_ends_it_as_soon_as_the_old_leader_is_back() -> (
    None
):
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create(1))
        leader = cluster.leader(0)
        other = next(one.name for one in cluster.brokers if one.name != leader)
        when(
            cluster,
            lambda event: event.what == steps.E6Accepted.text,
            cluster.register.host.kill,
        )
        # Nobody waits for one of the others, which is gone for good.
        when(
            cluster,
            lambda event: event.what == steps.E6Accepted.text,
            cluster.nodes[other].host.kill,
        )

        async def drain(client: Client) -> None:
            broker = cluster.broker_of(leader)
            assert broker is not None
            await client.admin.drain_broker(broker)

        cluster.add_client("operator", _tolerant(cluster, drain))
        cluster.boot("operator")
        await until(lambda: not cluster.register.host.is_up)
        assert record(cluster).epoch == 1
        cluster.boot(REGISTER)
        began = cluster.world.now
        await until(lambda: record(cluster).epoch > 1)
        assert cluster.world.now - began < RECONNECT_GRACE_S / 2
        await ask(cluster, produce, "producer")

    play(scenario)


def _tolerant(
    cluster: SimulatedCluster, question: Callable[[Client], Awaitable[None]]
) -> Callable[[Environment], Awaitable[None]]:
    """A program that asks, whatever comes of it."""

    async def program(environment: Environment) -> None:
        async with connect(cluster.address, environment=environment) as client:
            with trio.move_on_after(1.0):
                await question(client)

    return program
