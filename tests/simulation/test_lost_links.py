"""A broker's link to the register breaks: the broker comes back, or it is gone."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from octopi.clients.client import Client
from octopi.limits import LINK_GRACE_S, MEMBERSHIP_HEARTBEAT_TIMEOUT_S
from octopi.simulation.cluster import REGISTER, ClusterOptions, SimulatedCluster
from octopi.simulation.disk.faults import DiskFault, Fail
from octopi.simulation.kernel.world import Event, World
from octopi.tracing import steps
from tests.simulation.clusters import ask, play, until, when

FOUR_PARTITIONS = ClusterOptions(brokers=3, partitions=4, gather_s=0.05)


async def create(client: Client) -> None:
    await client.create_topic("orders", 4)


async def produce(client: Client) -> None:
    async with client.producer() as producer:
        for number in range(20):
            await producer.send("orders", b"%d" % number)


def epochs(cluster: SimulatedCluster) -> dict[int, int]:
    """The epoch of each partition, as far as the register has it on its device."""
    partitions = cluster.decided.state.partitions
    return {number: record.epoch for number, record in sorted(partitions.items())}


def of(world: World, step: str) -> list[Event]:
    return [event for event in world.events if event.what == step]


def first_of(world: World, step: str) -> Event:
    return of(world, step)[0]


def test_five_resets_of_every_brokers_link_leave_all_leaders_where_they_are() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create)
        before = epochs(cluster)
        assert set(before.values()) == {1}
        for _ in range(5):
            for broker in cluster.brokers:
                cluster.network.reset(REGISTER, broker.name)
            await trio.sleep(0.1)
        await trio.sleep(2 * LINK_GRACE_S)
        await ask(cluster, produce, "producer")
        assert epochs(cluster) == before

    world = play(scenario, FOUR_PARTITIONS)
    assert len(of(world, steps.R7Broken.text)) == len(of(world, steps.R8Restored.text)) == 15
    assert not of(world, steps.R6Lost.text)


def test_a_link_that_breaks_again_while_it_is_made_is_made_again() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create)
        before = epochs(cluster)

        def again() -> None:
            cluster.network.reset(REGISTER, "broker-1")

        for step in (steps.J2Connected.text, steps.J4Joined.text, steps.R8Restored.text):
            when(cluster, lambda event, step=step: event.what == step, again)  # type: ignore[misc]
        cluster.network.reset(REGISTER, "broker-1")
        await trio.sleep(2 * LINK_GRACE_S)
        assert epochs(cluster) == before

    assert not of(play(scenario, FOUR_PARTITIONS), steps.R6Lost.text)


def test_a_killed_broker_is_gone_as_soon_as_its_address_refuses() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create)
        cluster.nodes["broker-1"].host.kill()
        await until(lambda: 1 not in leaders(cluster))

    world = play(scenario, FOUR_PARTITIONS)
    killed, lost = first_of(world, "kill"), first_of(world, steps.R6Lost.text)
    # The end of the connection has to arrive, and a question and its refusal.
    longest_way_s = 0.001
    assert lost.at - killed.at < 3 * longest_way_s + 0.001


def leaders(cluster: SimulatedCluster) -> set[int]:
    return {record.leader for record in cluster.decided.state.partitions.values()}


def test_a_broker_that_restarts_at_once_joins_at_once_in_place_of_its_old_incarnation() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create)
        before = epochs(cluster)
        cluster.nodes["broker-1"].host.kill()
        cluster.boot("broker-1")
        await cluster.wait_serving()
        await until(lambda: 1 not in leaders(cluster))
        await ask(cluster, produce, "producer")
        assert sum(epochs(cluster).values()) > sum(before.values())

    world = play(scenario, FOUR_PARTITIONS)
    killed = first_of(world, "kill")
    (joined,) = [one for one in of(world, steps.J5Admitted.text) if one.facts["incarnation"] == 2]
    assert joined.at - killed.at < LINK_GRACE_S


def test_a_broker_whose_link_stays_broken_is_gone_after_a_bounded_time() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create)
        cluster.network.isolate("broker-1", receives=True)
        cluster.network.reset(REGISTER, "broker-1")
        await until(lambda: 1 not in leaders(cluster))

    world = play(scenario, FOUR_PARTITIONS)
    (broken,) = [one for one in of(world, steps.R7Broken.text) if one.facts["broker"] == 1]
    (lost,) = [one for one in of(world, steps.R6Lost.text) if one.facts["broker"] == 1]
    assert lost.at - broken.at == pytest.approx(LINK_GRACE_S)


def test_a_silent_broker_is_removed_without_a_connection_attempt() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create)
        cluster.nodes["broker-1"].host.pause()
        await until(lambda: 1 not in leaders(cluster))
        cluster.nodes["broker-1"].host.resume()

    world = play(scenario, FOUR_PARTITIONS)
    assert not of(world, steps.R7Broken.text)
    paused, lost = first_of(world, "pause"), first_of(world, steps.R6Lost.text)
    assert lost.at - paused.at < MEMBERSHIP_HEARTBEAT_TIMEOUT_S + 0.01


def test_a_drained_broker_stays_drained_when_its_link_breaks() -> None:
    async def drain(client: Client, broker: int) -> None:
        await client.admin.drain_broker(broker)

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create)
        await ask(cluster, partial(drain, broker=1), "operator")
        cluster.network.reset(REGISTER, "broker-1")
        await trio.sleep(1.0)
        await ask(cluster, partial(drain, broker=2), "operator-2")
        assert leaders(cluster) == {3}

    play(scenario, FOUR_PARTITIONS)


def test_a_resignation_that_was_lost_with_the_link_is_repeated() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, create)
        cluster.nodes["broker-1"].host.disk.inject(DiskFault("append", Fail(), ".log", times=9))
        when(
            cluster,
            lambda event: event.what == steps.E19Resigned.text,
            lambda: cluster.network.reset(REGISTER, "broker-1"),
        )
        await ask(cluster, produce, "producer")
        assert len(of(cluster.world, steps.E19Resigned.text)) > 1

    play(scenario, FOUR_PARTITIONS)
