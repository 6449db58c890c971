"""Scenarios in a simulated cluster that has nothing but what the scenario does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from octopi.clients.client import Client, connect
from octopi.environment import Environment
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.simulation.kernel import driver
from octopi.simulation.kernel.schedule import Random
from octopi.simulation.kernel.world import Event, World
from octopi.simulation.network.message_links import FrameNet
from octopi.simulation.network.network import Network
from octopi.simulation.run import running_cluster
from sim.run.log_errors import listening

Scenario = Callable[[SimulatedCluster], Awaitable[None]]

ENOUGH_S = 30.0
"""Of virtual time, for anything that has to come about."""


def play(scenario: Scenario, options: ClusterOptions | None = None, seed: int = 1) -> World:
    """Play *scenario* in a cluster that serves; return the world, with all that happened.
    No node may log an exception."""
    world = World(seed, events_kept=None)
    network = Network(world, FrameNet)

    async def main() -> None:
        async with running_cluster(world, network, options or small(), boot_s=ENOUGH_S) as cluster:
            assert all(node.url for node in cluster.servers)
            await scenario(cluster)

    exceptions: list[str] = []
    with listening(is_excused=lambda *_: True, complain=exceptions.append):
        driver.run(world, main, Random(world.random("schedule")))
    assert not exceptions, exceptions[0]
    return world


def small() -> ClusterOptions:
    """Three brokers, one partition on all of them, and a register that decides at once."""
    return ClusterOptions(brokers=3, partitions=1, gather_s=0.05)


async def ask(
    cluster: SimulatedCluster,
    question: Callable[[Client], Awaitable[None]],
    name: str = "client",
    *,
    enough_s: float = ENOUGH_S,
) -> None:
    """Ask *question* from a host of its own, and wait until that is done."""

    async def program(environment: Environment) -> None:
        async with connect(cluster.address, environment=environment) as client:
            await question(client)

    cluster.add_client(name, program)
    cluster.boot(name)
    life = cluster.nodes[name].life
    assert life is not None
    with trio.fail_after(enough_s):
        await life.ended.wait()
    assert life.error is None, life.error


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


def reading(topic: str, values: list[bytes]) -> Callable[[Client], Awaitable[None]]:
    """Read all of *topic* into *values*."""

    async def read(client: Client) -> None:
        async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
            values.extend([one.value async for one in consumer])

    return read


def expecting(topic: str, values: list[bytes]) -> Callable[[Client], Awaitable[None]]:
    """Read all of *topic*, which has *values*."""

    async def read(client: Client) -> None:
        async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
            assert [one.value async for one in consumer] == values

    return read


def when(
    cluster: SimulatedCluster, holds: Callable[[Event], bool], act: Callable[[], None]
) -> None:
    """Do *act* at the first event for which *holds* does."""
    waiting = [act]

    def observe(event: Event) -> None:
        if waiting and holds(event):
            waiting.pop()()

    cluster.world.observers.append(observe)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until *holds* does, looking now and then."""
    with trio.fail_after(ENOUGH_S):
        while not holds():  # noqa: ASYNC110
            await trio.sleep(0.01)
