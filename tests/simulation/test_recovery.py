"""What is left after a register forgot, or all copies of a partition lost something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from octopi import steps
from octopi.clients.client import Client
from octopi.membership.leadership_change import LogLoss
from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.world import World
from tests.simulation.clusters import ask, play, small, until, when


def sending(topic: str, values: list[bytes]) -> Callable[[Client], Awaitable[None]]:
    """Send *values* to *topic*, one after the other."""

    async def send(client: Client) -> None:
        async with client.producer() as producer:
            for value in values:
                await producer.send(topic, value)

    return send


def creating(topic: str, **options: Any) -> Callable[[Client], Awaitable[None]]:  # noqa: ANN401
    """Make *topic*."""

    async def create(client: Client) -> None:
        await client.create_topic(topic, **options)

    return create


def expecting(topic: str, values: list[bytes]) -> Callable[[Client], Awaitable[None]]:
    """Read all of *topic*, which has *values*."""

    async def read(client: Client) -> None:
        async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
            assert [one.value async for one in consumer] == values

    return read


def kill(cluster: SimulatedCluster, *hosts: str) -> None:
    for host in hosts:
        cluster.nodes[host].host.kill()


def brokers(cluster: SimulatedCluster) -> set[int]:
    """Those that the register let in."""
    return set(cluster.register_view.state.brokers)


def in_sync(cluster: SimulatedCluster) -> list[int]:
    return cluster.register_view.state.partitions[0].in_sync


@pytest.mark.parametrize("full_from", [steps.R5_GATHERED, steps.R2_APPENDED])
def test_a_register_that_rebuilds_while_its_disk_is_full_believes_no_older_record(
    full_from: str,
) -> None:
    """The broker that has everything can't be let in, ends, and comes last."""
    values = [b"%d" % number for number in range(30)]

    async def scenario(cluster: SimulatedCluster) -> None:
        register = cluster.register.host
        await ask(cluster, sending("topic", values[:5]), "first")
        leader = cluster.leader(0)
        others = [node.name for node in cluster.brokers if node.name != leader]
        kill(cluster, *others)
        await until(lambda: len(in_sync(cluster)) == 1)
        await ask(cluster, sending("topic", values[5:]), "second")
        kill(cluster, leader, "register")
        cluster.wipe("register")

        def fill() -> None:
            register.disk.capacity_bytes = 0

        when(cluster, lambda event: event.what == full_from, fill)
        cluster.boot("register")
        cluster.boot(leader)
        await trio.sleep(6.0)
        assert brokers(cluster) == set()
        kill(cluster, leader)
        register.disk.capacity_bytes = None
        for other in others:
            cluster.boot(other)
        await trio.sleep(10.0)
        assert not cluster.register_view.state.partitions, "the newest record is not known yet"
        cluster.boot(leader)
        await ask(cluster, expecting("topic", values), "reader")

    play(scenario, attrs.evolve(small(), gather_s=0.05))


def test_a_register_that_could_not_take_over_its_cluster_founds_no_other_one() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        register = cluster.register.host
        await ask(cluster, sending("topic", [b"sent"]), "first")
        before = cluster.register_view.state.cluster
        kill(cluster, *(node.name for node in cluster.servers))
        cluster.wipe("register")
        for host in ("broker-2", "broker-3"):
            cluster.wipe(host)

        def fill() -> None:
            register.disk.capacity_bytes = 0

        when(cluster, lambda event: event.what == steps.R5_GATHERED, fill)
        cluster.boot("register")
        cluster.boot("broker-1")
        await trio.sleep(6.0)
        kill(cluster, "broker-1")
        register.disk.capacity_bytes = None
        cluster.boot("broker-2")
        await until(lambda: bool(brokers(cluster)))
        assert cluster.register_view.state.cluster == before

    play(scenario)


def test_a_register_that_learned_its_cluster_gives_leaders_time_to_come_back() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, sending("topic", [b"sent"]), "first")
        leader = cluster.leader(0)
        epoch = cluster.register_view.state.partitions[0].epoch
        kill(cluster, "register")
        cluster.wipe("register")
        cluster.boot("register")
        await until(lambda: bool(cluster.register_view.state.partitions))
        cluster.network.reset(leader, "register")
        await trio.sleep(5.0)
        assert cluster.register_view.state.partitions[0].epoch == epoch
        await ask(cluster, expecting("topic", [b"sent"]), "reader")

    play(scenario)


# --- all copies lost something ---------------------------------------------------------


def lose_power(cluster: SimulatedCluster, *hosts: str) -> None:
    for host in hosts:
        cluster.nodes[host].host.lose_power()


def everybody(cluster: SimulatedCluster) -> list[str]:
    return [node.name for node in cluster.servers]


def losses(world: World) -> list[LogLoss]:
    """What the register said to be lost, in the last such decision."""
    told = [one.facts["losses"] for one in world.events if one.what == steps.E8_DECIDED]
    return [loss for lost in told[-1] for loss in lost]


def recovered(world: World) -> int:
    """How many leaders were chosen though acknowledged messages may be lost."""
    return sum(bool(one.facts["losses"]) for one in world.events if one.what == steps.E8_DECIDED)


def test_after_all_machines_lost_power_what_was_flushed_is_there_and_goes_on() -> None:
    values = [b"%d" % number for number in range(20)]

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, creating("topic"), "maker")
        await ask(cluster, sending("topic", values), "first")
        await trio.sleep(3.0)
        lose_power(cluster, *everybody(cluster))
        cluster.start()
        await ask(cluster, expecting("topic", values), "reader")
        await ask(cluster, sending("topic", [b"more"]), "second")
        await ask(cluster, expecting("topic", [*values, b"more"]), "second reader")
        await until(lambda: in_sync(cluster) == [1, 2, 3])

    world = play(scenario)
    assert recovered(world) == 1
    assert losses(world) == []
