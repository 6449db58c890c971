"""Faults that the simulator found, each as the scenario that it shrank to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from octopi.simulation import driver
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.simulation.disk_faults import DiskFault
from octopi.simulation.frames import FrameNet
from octopi.simulation.network import Network
from octopi.simulation.world import World


def play(scene: Callable[[SimulatedCluster], Awaitable[None]]) -> None:
    """Run *scene* with a cluster of three brokers that nobody has started yet."""
    world = World(seed=1)
    network = Network(world, FrameNet)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(
                world, network, nursery, ClusterOptions(partitions=1, gather_s=0.05)
            )
            with trio.fail_after(30):
                await scene(cluster)
            assert await cluster.end() == []
            nursery.cancel_scope.cancel()

    driver.run(world, main, world.random("schedule"))


def test_brokers_outlive_a_register_whose_disk_fails() -> None:
    async def break_and_mend_the_disk(cluster: SimulatedCluster) -> None:
        register = cluster.register.host
        register.disk.inject(DiskFault("append", path_end=".log", times=1000))
        cluster.start()
        await trio.sleep(2)
        assert not register.is_up  # it says that it can't go on, instead of refusing everybody
        assert all(broker.host.is_up for broker in cluster.brokers)
        register.disk.heal()
        cluster.boot("register")
        await cluster.wait_serving()

    play(break_and_mend_the_disk)
