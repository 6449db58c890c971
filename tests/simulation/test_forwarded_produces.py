"""Clusters without a register pass produces on, too, and faults cost nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from octopi.clients.client import connect
from octopi.environment import Environment
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.simulation.kernel.world import Event
from octopi.tracing import steps
from tests.simulation.clusters import ask, creating, play, until, when

COUNT = 40
VALUES = [b"%d" % number for number in range(COUNT)]
RING = ClusterOptions(brokers=3, founders=3, registers=0, partitions=1, replicas=3)
REGISTER = ClusterOptions(brokers=3, partitions=1, gather_s=0.05)

Fault = Callable[[SimulatedCluster, str], None]


def kill(cluster: SimulatedCluster, leader: str) -> None:
    cluster.nodes[leader].host.kill()


def pause(cluster: SimulatedCluster, leader: str) -> None:
    cluster.nodes[leader].host.pause()


def stop(cluster: SimulatedCluster, leader: str) -> None:
    cluster.nodes[leader].stop.set()


def isolate(cluster: SimulatedCluster, leader: str) -> None:
    cluster.network.isolate(leader, receives=False)


@pytest.mark.parametrize("options", [REGISTER, RING], ids=["register", "ring"])
@pytest.mark.parametrize("fault", [kill, pause, stop, isolate])
def test_messages_that_are_passed_on_are_stored_once_in_order_when_their_leader_fails(
    options: ClusterOptions, fault: Fault
) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, creating("orders"))
        leader = cluster.leader(0)
        entrance = next(one for one in cluster.brokers if one.name != leader)
        done = trio.Event()
        stored: list[bytes] = []
        acknowledged = 0

        async def produce(environment: Environment) -> None:
            async with (
                connect(entrance.url, on_wrong_node="forward", environment=environment) as client,
                client.producer(linger_s=0) as producer,
            ):
                for value in VALUES:
                    await producer.submit("orders", value)
                    await environment.clock.sleep_until(environment.clock.now() + 0.001)
                await producer.flush()
                async with client.consumer(
                    "orders", start="earliest", stop_at_end=True
                ) as consumer:
                    stored.extend([one.value async for one in consumer])
            done.set()

        def half_done(event: Event) -> bool:
            nonlocal acknowledged
            acknowledged += event.what == steps.P7Acknowledged.text
            return acknowledged == COUNT // 4

        when(cluster, half_done, lambda: fault(cluster, leader))
        cluster.add_client("producer", produce)
        cluster.boot("producer")
        await until(done.is_set)
        assert stored == VALUES

    play(scenario, options)
