"""Faults that the simulator found, each as the scenario that it shrank to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from octopi.clients.client import connect
from octopi.environment import Environment
from octopi.errors import RefusedError
from octopi.limits import NEWEST_RECORDS_LOG_BYTES
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.simulation.disk.faults import DiskFault
from octopi.simulation.kernel import driver
from octopi.simulation.kernel.world import World
from octopi.simulation.network.message_links import FrameNet
from octopi.simulation.network.network import Network


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


def test_a_consumer_leaves_brokers_that_can_not_read_their_disks() -> None:
    async def read_where_it_can(cluster: SimulatedCluster) -> None:
        cluster.start()
        await cluster.wait_serving()
        # More than brokers keep in memory.
        values = [b"%d" % number * (NEWEST_RECORDS_LOG_BYTES // 5) for number in range(10)]
        read: list[bytes] = []
        done = trio.Event()

        async def program(environment: Environment) -> None:
            async with connect(cluster.address, environment=environment) as client:
                async with client.producer(create_topics=True) as producer:
                    for value in values:
                        await producer.send("topic", value)
                await trio.sleep(1)  # until all replicas know that it is committed
                for broken in cluster.brokers[1:]:
                    broken.host.disk.inject(DiskFault("pread", times=1000))
                async with client.consumer("topic", start="earliest", stop_at_end=True) as consumer:
                    read.extend([message.value async for message in consumer])
                cluster.brokers[0].host.disk.inject(DiskFault("pread", times=1000))
                with pytest.raises(RefusedError, match="Input/output error"):
                    async with client.consumer("topic", start=0, stop_at_end=True) as consumer:
                        await anext(consumer)
            done.set()

        cluster.add_client("client", program)
        cluster.boot("client")
        await done.wait()
        assert read == values

    play(read_where_it_can)
