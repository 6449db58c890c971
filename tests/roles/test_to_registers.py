"""Brokers of a ring hand their cluster over to a register, whatever is killed meanwhile: nothing is
lost, and at no moment two decide about one partition."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from octopi.clients.client import Client, connect
from octopi.clients.ring import hand_over_to_registers
from octopi.errors import OctopiError
from octopi.ring.ending import EndingStage
from octopi.testing import Cluster, simulated
from tests.kit.ending import EndingCluster, OneDeciderSince
from tests.kit.ring import address
from tests.roles.test_ring_fail_over import Load, stored

THREE = ("a", "b", "c")


@attrs.define
class Ended:
    """What a test looks at while a cluster is handed over."""

    cluster: Cluster
    ending: EndingCluster
    client: Client
    load: Load
    tasks: trio.Nursery

    async def order(self) -> None:
        """Order it again and again, until it is over."""
        while True:
            try:
                progress = await hand_over_to_registers(self.client, self.ending.register_addresses)
            except OctopiError:
                pass
            else:
                if progress.stage == "ended":
                    return
            await self.cluster.sleep(0.1)

    async def is_whole(self) -> None:
        """Check that all brokers go on with the register, and nothing was lost or doubled."""
        ending, load = self.ending, self.load
        await ending.joined()
        count = len(load.acknowledged)
        await self.cluster.eventually(
            lambda: load.has(count + 50), "messages are acknowledged again", within_s=60.0
        )
        load.stops = True
        await self.cluster.eventually(
            lambda: len(load.acknowledged) == load.sent_count, "all is acknowledged", within_s=60.0
        )
        found = await stored(self.client, "orders")
        assert found == [b"%d" % number for number in range(load.sent_count)]
        assert not any(ending.errors.values()), ending.errors


@asynccontextmanager
async def founded(
    cluster: Cluster, *, registers: tuple[str, ...] = ("r",), brokers: tuple[str, ...] = THREE
) -> AsyncIterator[Ended]:
    """A ring with a producer, all of whose decisions are compared."""
    ending = EndingCluster(cluster, brokers, registers=registers)
    await ending.in_ring()
    environment = await cluster.environment("client")
    async with (
        connect([*map(address, brokers)], environment=environment) as client,
        trio.open_nursery() as nursery,
    ):
        await client.create_topic("orders")
        nursery.start_soon(OneDeciderSince(ending).run)
        load = Load()
        nursery.start_soon(load.run, client, "orders")
        await cluster.eventually(lambda: load.has(20), "messages are acknowledged")
        yield Ended(cluster, ending, client, load, nursery)
        nursery.cancel_scope.cancel()


@simulated(brokers=1, oracle=False)
async def test_topics_and_subscriptions_go_over_and_producers_wait_for_a_moment(
    cluster: Cluster,
) -> None:
    async with founded(cluster) as one:
        client = one.client
        await client.create_topic("wide", 5, min_insync=2)
        await client.create_topic("gone")
        await client.delete_topic("gone")
        await client.alter_topic("wide", retention=datetime.timedelta(hours=1))
        before = [await client.describe_topic(name) for name in ("orders", "wide")]
        async with client.producer() as producer:
            for number in range(20):
                await producer.send("wide", b"%d" % number, key=b"%d" % number)
        async with client.subscription("orders", "workers", mark="auto") as member:
            for number in range(5):
                assert (await anext(aiter(member))).value == b"%d" % number
        one.load.longest_pause_s = 0.0
        await one.order()
        await one.is_whole()
        assert one.load.longest_pause_s < 5.0, one.load.longest_pause_s
        after = [await client.describe_topic(name) for name in ("orders", "wide")]
        for known, found in zip(before, after, strict=True):
            assert (known.topic_id, known.options) == (found.topic_id, found.options)
            assert [p.partition for p in known.partitions] == [
                p.partition for p in found.partitions
            ]
        assert [info.topic for info in await client.topics()] == ["orders", "wide"]
        values = await stored(client, "wide")
        assert sorted(values) == sorted(b"%d" % number for number in range(20))
        async with client.subscription("orders", "workers", create="attach") as member:
            assert (await anext(aiter(member))).value == b"5"
        await client.alter_topic("wide", retention=datetime.timedelta(hours=2))
        await client.create_topic("new")
        await client.delete_topic("wide")
        assert [info.topic for info in await client.topics()] == ["new", "orders"]
        # All of that is in the register's journal, and on the brokers' disks.
        for name in ("r", *THREE):
            cluster.kill(name)
            cluster.restart(name)
        await cluster.sleep(0.5)
        await one.ending.joined()
        assert [info.topic for info in await client.topics()] == ["new", "orders"]
        assert len(await stored(client, "orders")) == one.load.sent_count


@attrs.define
class Churn:
    """Creates and deletes topics, and knows which ones there have to be."""

    client: Client
    there: set[str] = attrs.field(factory=set)
    in_doubt: set[str] = attrs.field(factory=set)
    count: int = 0

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            name = f"topic-{self.count}"
            self.count += 1
            await self._do(name, self.client.create_topic(name, 1 + self.count % 4))
            if name in self.there and self.count % 2:
                await self._do(name, self.client.delete_topic(name))

    async def _do(self, name: str, work: Awaitable[object]) -> None:
        was_there = name in self.there
        self.there.discard(name)
        self.in_doubt.add(name)
        try:
            await work
        except OctopiError:
            return
        self.in_doubt.discard(name)
        if not was_there:
            self.there.add(name)


async def topics_change_meanwhile(cluster: Cluster) -> None:
    """Topics are created and deleted while the cluster is handed over."""
    async with founded(cluster) as one:
        churn = Churn(one.client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(churn.run)
            await cluster.sleep(1.0 + cluster.random.random())
            await one.order()
            await one.ending.joined()
            count = churn.count
            await cluster.eventually(
                lambda: churn.count > count + 3, "topics are created again", within_s=60.0
            )
            nursery.cancel_scope.cancel()
        await one.is_whole()
        found = {info.topic for info in await one.client.topics()} - {"orders"}
        assert churn.there <= found <= churn.there | churn.in_doubt
        assert not one.ending.register.controller.unserved.found()
        for name in churn.there:
            assert await stored(one.client, name) == []


@simulated(seeds=2, brokers=1, oracle=False)
async def test_topics_are_created_and_deleted_meanwhile(cluster: Cluster) -> None:
    await topics_change_meanwhile(cluster)


@pytest.mark.parametrize("victim", ["r", *THREE])
@pytest.mark.parametrize("stage", list(EndingStage)[:3])
def test_a_process_is_killed_in_each_stage(stage: EndingStage, victim: str) -> None:
    @simulated(brokers=1, oracle=False)
    async def scenario(cluster: Cluster) -> None:
        async with founded(cluster) as one:
            strike = cluster.random.choice([cluster.kill, cluster.lose_power])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.order)
                while not any(known.stage is stage for known in one.ending.endings):
                    await cluster.sleep(0.001)
                strike(victim, restart_s=1.0)
            await one.is_whole()

    scenario()


@simulated(seeds=4, brokers=1, oracle=False)
async def test_processes_are_killed_at_random_moments_of_an_order(cluster: Cluster) -> None:
    async with founded(cluster) as one:
        random = cluster.random
        victims = random.sample(["r", *THREE], random.randint(1, 3))

        async def strike(victim: str) -> None:
            await cluster.sleep(random.choice([0.05, 0.5, 2.0]) * random.random())
            kill = random.choice([cluster.kill, cluster.lose_power])
            kill(victim, restart_s=0.2 + 3 * random.random())

        async with trio.open_nursery() as nursery:
            with trio.move_on_after(0.5 * random.random()):  # the command is killed, too
                nursery.start_soon(one.order)
                for victim in victims:
                    nursery.start_soon(strike, victim)
                await trio.sleep_forever()
        await one.order()
        await one.is_whole()
