"""Thousands of messages of real nodes, changed on their way: no process ends, no message is lost.

Only what fences a broker ends it: it names another cluster, or another broker, than it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import attrs
import pytest
import trio

import octopi
import octopi.testing
from octopi.environment import Environment
from octopi.errors import RefusedError, Status
from octopi.simulation.cluster import Node
from octopi.wire import messages as m
from octopi.wire.endpoints import FOLLOW, MEMBERSHIP, Endpoint
from tests.security.meddling import Meddler
from tests.security.test_forged_messages import SERVERS, complaints

__all__ = ["complaints"]

CHANGED = 500
RESET_S = 0.3
PAUSE_S = 0.25
FENCED = {Status.BROKER_FENCED, Status.WRONG_CLUSTER}
SAID = {
    MEMBERSHIP: {m.Hello, m.Proof, m.Inventory, m.Join, m.OrderCarriedOut},
    FOLLOW: {m.Hello, m.Proof, m.Follow, m.Acknowledge},
}
HEARD = {
    MEMBERSHIP: {m.Challenge, m.Welcome, m.Joined, m.InstallPartitions, m.InstallTopics},
    FOLLOW: {m.Challenge, m.Welcome, m.Followed, m.Replicate},
}


class Scene:
    """A cluster in which somebody stands beside one follower, the victim."""

    def __init__(self, cluster: octopi.testing.Cluster, meddler: Meddler) -> None:
        self.cluster = cluster
        self.meddler = meddler
        self.nodes = cluster._simulated.nodes
        self.produced: list[bytes] = []
        self.endings: list[Exception] = []
        """The errors with which processes of the victim ended by themselves."""
        self.leader = self.victim = self.third = ""

    async def begin(self) -> None:
        # A leadership that changed hands would be given by what the victim says that it holds.
        simulated = self.cluster._simulated
        simulated.options = attrs.evolve(simulated.options, rebalance_interval_s=1e9)
        await self.restart("register")
        async with self.cluster.client() as client:
            await client.create_topic("orders", 1)
            await client.create_topic("others", self.cluster._simulated.options.partitions)
            async with client.producer() as producer:
                for _ in range(20):
                    await self.produce(producer)
        self.leader = self.cluster.leader("orders")
        self.victim, self.third = self.cluster.followers("orders")
        node = self.nodes[self.victim]
        run = node._run

        async def beside(node: Node, environment: Environment) -> None:
            try:
                await run(node, self.meddler.beside(environment))
            except Exception as error:
                self.endings.append(error)
                raise

        node._run = beside
        await self.restart(self.victim)

    async def produce(self, producer: octopi.Producer) -> None:
        data = b"%d" % len(self.produced)
        self.produced.append(data)
        await producer.send("orders", data)

    async def restart(self, name: str) -> None:
        self.cluster.kill(name, restart_s=0.1)
        await self.cluster.sleep(3.0)

    def lives(self, *names: str) -> list[int]:
        return [self.nodes[name].host.life_count for name in names]

    async def meddle(self) -> None:
        """Have messages changed, while others are produced and connections end."""
        before = self.lives("register", self.leader, self.third)
        self.meddler.is_active = True
        async with trio.open_nursery() as nursery, self.cluster.client() as client:
            nursery.start_soon(self._end_connections)
            async with client.producer() as producer:
                while self.meddler.count < CHANGED:
                    await self.produce(producer)
                    await self.cluster.sleep(PAUSE_S)
            nursery.cancel_scope.cancel()
        self.meddler.is_active = False
        assert self.lives("register", self.leader, self.third) == before, "a process has ended"

    async def _end_connections(self) -> None:
        """A node says most of what it has to say on a new connection."""
        network = self.cluster._simulated.network
        path = self.meddler.path
        peer = "register" if path == MEMBERSHIP.path else self.leader
        while True:
            await self.cluster.sleep(RESET_S)
            for link in network.links(self.victim, peer, path):
                network.reset_link(link)

    async def check(self, *names: str) -> None:
        """See that all is there and more is taken, now and after each node of *names* was started
        again, and that no other process has ended meanwhile."""
        await self.produce_and_read()
        for name in names:
            before = self.lives(*SERVERS)
            await self.restart(name)
            await self.produce_and_read()
            before[SERVERS.index(name)] += 1
            assert self.lives(*SERVERS) == before, "a process has ended"

    async def produce_and_read(self) -> None:
        async with self.cluster.client() as client:
            async with client.producer() as producer:
                await self.produce(producer)
            async with client.consumer("orders", start="earliest", stop_at_end=True) as messages:
                read = [message.value async for message in messages]
        assert read == self.produced


def refusals_of(error: BaseException) -> list[RefusedError]:
    if isinstance(error, BaseExceptionGroup):
        return [one for part in error.exceptions for one in refusals_of(part)]
    assert isinstance(error, RefusedError), repr(error)
    return [error]


RUNS = [(MEMBERSHIP, 0), *((FOLLOW, seed) for seed in range(3))]


@pytest.mark.parametrize(("endpoint", "seed"), RUNS, ids=lambda one: str(getattr(one, "path", one)))
def test_nodes_survive_changed_messages_of_a_follower(
    endpoint: Endpoint, seed: int, complaints: Callable[[], list[str]]
) -> None:
    meddler = Meddler(Random(seed), "out", endpoint.path)

    async def scene(cluster: octopi.testing.Cluster) -> None:
        here = Scene(cluster, meddler)
        await here.begin()
        await here.meddle()
        # After that its next incarnations may be refused at their first message.
        assert {one.status for end in here.endings[:1] for one in refusals_of(end)} <= FENCED
        await here.restart(here.victim)
        await here.check(*SERVERS)

    octopi.testing.run(scene, brokers=3, partitions=3, oracle=False, timeout_s=3_000)
    assert meddler.count >= CHANGED
    assert set(meddler.fields) >= SAID[endpoint]
    assert complaints() == []


@pytest.mark.parametrize("endpoint", [MEMBERSHIP, FOLLOW], ids=lambda one: one.path)
def test_nodes_survive_changed_messages_to_a_follower(
    endpoint: Endpoint, complaints: Callable[[], list[str]]
) -> None:
    # A broker can't check the register's generation, nor the credential that it gets.
    meddler = Meddler(Random(1), "in", endpoint.path, frozenset({"register", "credential"}))

    async def scene(cluster: octopi.testing.Cluster) -> None:
        here = Scene(cluster, meddler)
        await here.begin()
        before = here.lives(here.victim)
        await here.meddle()
        assert here.lives(here.victim) == before, "the process has ended"
        await here.restart(here.victim)
        # A broker does what its register decides, so the victim may have given up what it held.
        await here.check("register", here.victim)

    octopi.testing.run(scene, brokers=3, partitions=3, oracle=False, timeout_s=3_000)
    assert meddler.count >= CHANGED
    assert set(meddler.fields) >= HEARD[endpoint]
    assert complaints() == []
