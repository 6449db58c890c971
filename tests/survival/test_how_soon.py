"""How long producers wait when a broker dies: in virtual time, which no busy machine stretches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import trio

import octopi
from octopi.testing import Cluster, simulated

PARTITIONS = 6
UNDISTURBED_S = 0.1
PROCESS = (0.3, UNDISTURBED_S)
"""The longest wait where a process led that was killed, and where it followed."""
STOPPED = (0.2, UNDISTURBED_S)
"""The same for a process that was asked to stop."""
MACHINE = (2.0, 1.2)
"""The same for a machine that says nothing any more: README promises two seconds and one, and
the answer has its way to go."""


class Latencies:
    """How long each message of one client took, by partition."""

    def __init__(self, cluster: Cluster) -> None:
        self.longest: defaultdict[int, float] = defaultdict(float)
        self._cluster = cluster

    async def produce(self, client: octopi.Client, partition: int) -> None:
        """Send one message after the other, until cancelled."""
        async with client.producer(linger_s=0) as producer:
            while True:
                before = self._cluster.now
                await producer.send("orders", b"message", partition=partition)
                taken = self._cluster.now - before
                self.longest[partition] = max(self.longest[partition], taken)
                await trio.sleep(0.05)


async def longest_waits(cluster: Cluster, end: Callable[[str], bool]) -> list[float]:
    """The longest wait for a receipt where the broker led that *end* ended, where it followed,
    and where it held no replica."""
    async with cluster.client() as client:
        info = await client.create_topic("orders", PARTITIONS)
        latencies = Latencies(cluster)
        async with trio.open_nursery() as nursery:
            for place in info.partitions:
                nursery.start_soon(latencies.produce, client, place.partition)
            await cluster.sleep(2)
            places = (await client.describe_topic("orders")).partitions
            assert max(latencies.longest.values()) < UNDISTURBED_S
            dead = places[0].leader
            end(cluster.leader("orders", places[0].partition))
            await cluster.sleep(5)
            nursery.cancel_scope.cancel()
    waits = [0.0, 0.0, 0.0]
    counts = [0, 0, 0]
    for place in places:
        kind = 0 if place.leader == dead else 1 if dead in place.replicas else 2
        waits[kind] = max(waits[kind], latencies.longest[place.partition])
        counts[kind] += 1
    assert all(counts), "the seed gives each kind of partition"
    return waits


@simulated(brokers=5)
async def test_a_killed_process_is_replaced_in_moments(cluster: Cluster) -> None:
    led, followed, elsewhere = await longest_waits(cluster, cluster.kill)
    assert led < PROCESS[0]
    assert followed < PROCESS[1]
    assert elsewhere < UNDISTURBED_S


@simulated(brokers=5)
async def test_a_process_that_stops_in_good_order_is_replaced_before_it_is_gone(
    cluster: Cluster,
) -> None:
    led, followed, elsewhere = await longest_waits(cluster, cluster.stop)
    assert led < STOPPED[0]
    assert followed < STOPPED[1]
    assert elsewhere < UNDISTURBED_S


@simulated(brokers=5)
async def test_a_machine_that_is_gone_is_replaced_within_two_seconds(cluster: Cluster) -> None:
    led, followed, elsewhere = await longest_waits(cluster, cluster.isolate)
    assert led < MACHINE[0]
    assert followed < MACHINE[1]
    assert elsewhere < UNDISTURBED_S
