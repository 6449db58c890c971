"""A cluster that is used for a moment: enough for two runs to differ somewhere.

As a program, ``python -m tests.simulation.small_cluster SEED...`` prints the digests of both
tiers, so that other processes can be asked.
"""

from __future__ import annotations

import sys

import trio

from octopi.clients.client import connect
from octopi.environment import Environment
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.simulation.kernel import driver
from octopi.simulation.kernel.driver import How
from octopi.simulation.kernel.schedule import Schedule
from octopi.simulation.kernel.world import World
from octopi.simulation.network.network import Network, Tier
from octopi.simulation.run import TIERS, running_cluster

MESSAGES = [b"message %d" % number for number in range(20)]


def run_cluster(
    seed: int, tier: Tier, *, schedule: Schedule | None = None, how: How | None = None
) -> tuple[World, list[bytes]]:
    """Send `MESSAGES`, kill the leader in the middle, and read what is there."""
    world = World(seed)
    network = Network(world, tier)
    received: list[bytes] = []
    halfway, done = trio.Event(), trio.Event()

    async def client(environment: Environment) -> None:
        async with connect(cluster.address, environment=environment) as connected:
            async with connected.producer(create_topics=True) as producer:
                for number, message in enumerate(MESSAGES):
                    await producer.send("topic", message)
                    if number == len(MESSAGES) // 2:
                        halfway.set()
            async with connected.consumer("topic", start="earliest") as consumer:
                async for record in consumer:
                    received.append(record.value)
                    if len(received) == len(MESSAGES):
                        break
        done.set()

    cluster: SimulatedCluster

    async def main() -> None:
        nonlocal cluster
        options = ClusterOptions(partitions=1, gather_s=0.05)
        async with running_cluster(world, network, options) as cluster:
            cluster.add_client("client", client)
            cluster.boot("client")
            with trio.fail_after(120):
                await halfway.wait()
                cluster.nodes[cluster.leader(0)].host.kill()
                await done.wait()

    driver.run(world, main, schedule or world.random("schedule"), how=how)
    return world, received


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:]):
        for tier in TIERS.values():
            sys.stdout.write(f"{run_cluster(seed, tier)[0].digest}\n")
