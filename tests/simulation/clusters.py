"""Scenarios in a simulated cluster that has nothing but what the scenario does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

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
    cluster: SimulatedCluster, question: Callable[[Client], Awaitable[None]], name: str = "client"
) -> None:
    """Ask *question* from a host of its own, and wait until that is done."""

    async def program(environment: Environment) -> None:
        async with connect(cluster.address, environment=environment) as client:
            await question(client)

    cluster.add_client(name, program)
    cluster.boot(name)
    life = cluster.nodes[name].life
    assert life is not None
    with trio.fail_after(ENOUGH_S):
        await life.ended.wait()
    assert life.error is None, life.error


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
