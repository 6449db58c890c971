"""One register becomes three, and three become one, while a producer goes on and registers die."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import trio

from octopi.clients.client import Client
from octopi.simulation.cluster import DATA_DIRECTORY, ClusterOptions, SimulatedCluster
from octopi.simulation.disk.group_bytes import RegisterBytes
from octopi.simulation.kernel import driver
from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.kernel.schedule import Random
from octopi.simulation.kernel.world import World
from octopi.simulation.network.message_links import FrameNet
from octopi.simulation.network.network import Network
from octopi.simulation.run import running_cluster
from tests.simulation.clusters import ENOUGH_S, until
from tests.simulation.test_registers import ask, begin, creating

FIRST, SECOND, THIRD = "register", "register-2", "register-3"
OPTIONS = ClusterOptions(registers=3, brokers=3, partitions=1, gather_s=0.05)
RECORDS = 120


def play(
    scenario: Callable[[SimulatedCluster], Awaitable[None]],
    peers: dict[str, tuple[str, ...]],
    seed: int,
) -> None:
    """Play *scenario* in a cluster whose registers begin with these lists, while a producer sends
    `RECORDS` records; all of them have to be there in the end."""
    world = World(seed, events_kept=None)
    network = Network(world, FrameNet)

    def prepare(cluster: SimulatedCluster) -> AbstractContextManager[None]:
        cluster.peers.update(peers)
        return nullcontext()

    async def main() -> None:
        running = running_cluster(world, network, OPTIONS, around=prepare, boot_s=ENOUGH_S)
        async with running as cluster:
            assert all(node.url for node in cluster.servers)

            async def produce(client: Client) -> None:
                async with client.producer(create_topics=True) as producer:
                    for number in range(RECORDS):
                        await producer.send("orders", b"%d" % number)
                        await trio.sleep(0.05)

            program = begin(cluster, "producer", produce)
            await ask(cluster, "before", creating("payments"))
            await scenario(cluster)
            await ask(cluster, "after", creating("refunds"))
            with trio.fail_after(ENOUGH_S):
                await program.done.wait()
            assert program.error is None, program.error
            await ask(cluster, "reader", has_everything)

    driver.run(world, main, Random(world.random("schedule")))


async def has_everything(client: Client) -> None:
    async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
        values = [one.value async for one in consumer]
    assert values == [b"%d" % number for number in range(RECORDS)]
    found = await client.topics()
    assert [one.topic for one in found] == ["orders", "payments", "refunds"]


def voters(cluster: SimulatedCluster, name: str) -> list[str]:
    """The addresses of the voters, as a register has them on its device."""
    found = RegisterBytes(cluster.nodes[name].host.disk, DATA_DIRECTORY).durable()
    return [one.address for one in found.state.history.voters]


def dies_at(cluster: SimulatedCluster, name: str, number: int) -> None:
    """Have *name* be killed at an edge of one of its calls to the disk, and start again."""
    host, left = cluster.nodes[name].host, number

    def observe(life: ProcessLife, operation: str, edge: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0 and host.is_up:
            host.kill()
            cluster.boot_after(name, 0.1)

    host.effect_observers = [*host.effect_observers, observe]


async def restart(cluster: SimulatedCluster, name: str, peers: tuple[str, ...]) -> None:
    """Stop a register, and start it with another list."""
    node = cluster.nodes[name]
    cluster.peers[name] = peers
    if node.host.is_up and not node.stop.is_set():
        cluster.stop(name)
    await until(lambda: not node.host.is_up)
    cluster.boot(name)


@pytest.mark.parametrize("number", [1, 17, 45, 90, 150])
def test_a_register_that_was_alone_becomes_one_of_three_wherever_it_is_killed(number: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        three = tuple(cluster.addresses)
        dies_at(cluster, FIRST, number)
        dies_at(cluster, SECOND, number)
        await restart(cluster, FIRST, three)
        names = (FIRST, SECOND, THIRD)
        await until(lambda: all(voters(cluster, one) == sorted(three) for one in names))
        cluster.nodes[FIRST].host.kill()

    play(scenario, {FIRST: ()}, number)


@pytest.mark.parametrize("number", [1, 17, 45, 90, 150])
def test_three_registers_become_one_wherever_they_are_killed(number: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        first = (cluster.address_of(FIRST),)
        for name in (SECOND, THIRD, FIRST):
            dies_at(cluster, name, number)
            await restart(cluster, name, first)
            await until(lambda name=name: cluster.nodes[name].host.is_up)  # type: ignore[misc]
        await until(lambda: voters(cluster, FIRST) == [*first])
        for name in (SECOND, THIRD):
            cluster.stop(name)
        await restart(cluster, FIRST, ())

    play(scenario, {}, number)
