"""Clients of a cluster without a register go on when brokers die or are cut off: nothing that was
acknowledged is lost or stored twice, and a leader without a quorum refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio

import octopi
from octopi.clients.client import Client
from octopi.errors import RefusedError, Status
from octopi.testing import Cluster, simulated
from octopi.transport.connection import Connection
from octopi.transport.handshake import open_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT
from tests.kit.probes import batch, fetch, produce
from tests.kit.ring import RingOfHosts, address
from tests.kit.ring_clients import client_of
from tests.roles.test_ring_partitions import FIVE, all_led, founded


@attrs.define
class Load:
    """A producer that sends message after message."""

    sent_count: int = 0
    acknowledged: list[bytes] = attrs.field(factory=list)
    stops: bool = False
    longest_pause_s: float = 0.0
    """The longest time without an acknowledged message."""
    _last_at: float = 0.0

    def has(self, count: int) -> bool:
        """Whether so many are acknowledged."""
        return len(self.acknowledged) >= count

    async def run(self, client: Client, topic: str) -> None:
        async with client.producer() as producer, trio.open_nursery() as nursery:
            while not self.stops:
                value = b"%d" % self.sent_count
                self.sent_count += 1
                receipt = await producer.submit(topic, value)
                nursery.start_soon(self._await, receipt, value)
                await trio.sleep(0.01)

    async def _await(self, receipt: octopi.PendingReceipt, value: bytes) -> None:
        await receipt
        now = trio.current_time()
        if self.acknowledged:
            self.longest_pause_s = max(self.longest_pause_s, now - self._last_at)
        self._last_at = now
        self.acknowledged.append(value)


async def stored(client: Client, topic: str) -> list[bytes]:
    async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
        return [message.value async for message in consumer]


async def leader_of(ring: RingOfHosts, client: Client, topic: str) -> str:
    """The host that leads the first partition of *topic*."""
    while True:
        place = (await client.describe_topic(topic)).partitions[0]
        for name in FIVE:
            if place.leader_address == address(name):
                return name
        await ring.cluster.sleep(0.1)


@simulated(seeds=2, brokers=1, oracle=False)
async def test_leaders_are_killed_under_load_and_nothing_acknowledged_is_lost_or_doubled(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    async with client_of(ring, FIVE) as client, trio.open_nursery() as nursery:
        await client.create_topic("orders")
        load = Load()
        nursery.start_soon(load.run, client, "orders")
        for _ in range(3):
            await cluster.sleep(1.0 + cluster.random.random())
            before = len(load.acknowledged)
            cluster.kill(await leader_of(ring, client, "orders"), restart_s=2.0)
            await cluster.eventually(
                partial(load.has, before + 150), "messages are acknowledged again", within_s=8.0
            )
        load.stops = True
        await cluster.eventually(
            lambda: len(load.acknowledged) == load.sent_count, "all is acknowledged"
        )
        found = await stored(client, "orders")
    assert found == [b"%d" % number for number in range(load.sent_count)]


@simulated(brokers=1, oracle=False)
async def test_a_consumer_goes_on_when_the_broker_that_it_reads_from_dies(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    async with client_of(ring, FIVE) as client, trio.open_nursery() as nursery:
        await client.create_topic("orders")
        load = Load()
        nursery.start_soon(load.run, client, "orders")
        found: list[bytes] = []
        async with client.consumer("orders", start="earliest") as consumer:
            async for message in consumer:
                found.append(message.value)
                if len(found) == 100:
                    cluster.kill(await leader_of(ring, client, "orders"), restart_s=2.0)
                if len(found) == 400:
                    break
        load.stops = True
    assert found == [b"%d" % number for number in range(400)]


@asynccontextmanager
async def connected(cluster: Cluster, host: str, broker: str) -> AsyncIterator[Connection]:
    """A connection from a new host to a broker, without the client library."""
    environment = await cluster.environment(host)
    connection = await open_connection(environment, address(broker), CLIENT, "test")
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run, lambda message: None)
        yield connection
        await connection.close(1000, "")
        nursery.cancel_scope.cancel()


@simulated(brokers=1, oracle=False)
async def test_a_leader_on_the_smaller_side_of_a_split_refuses_and_clients_go_on_on_the_other(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    async with client_of(ring, FIVE, "far") as far:
        await far.create_topic("orders")
        info = await far.describe_topic("orders")
        cut_off = await leader_of(ring, far, "orders")
        async with connected(cluster, "near", cut_off) as near:
            await produce(near, info, batch(0, b"before"))
            ended: list[m.Failure] = []
            subscribed = trio.Event()

            def take(message: object) -> None:
                if isinstance(message, m.Failure):
                    ended.append(message)
                subscribed.set()

            partition = info.partitions[0].partition
            request = near.next_request()
            near.ask(m.Subscribe(request, "orders", partition, 0, 1_000_000), take)
            await subscribed.wait()
            others = [name for name in FIVE if name != cut_off]
            cluster.split([cut_off, "near"], [*others, "far"])
            began = cluster.now
            async with far.producer() as producer:
                await producer.send("orders", b"other side")
            assert cluster.now - began < 3.0
            assert [one.status for one in ended] == [Status.NO_QUORUM]
            for call in (produce(near, info, batch(1, b"lost?")), fetch(near, info, 0)):
                with pytest.raises(RefusedError) as refused:
                    await call
                assert refused.value.status is Status.NO_QUORUM
            cluster.heal()
            await all_led(ring, in_sync=3, within_s=60.0)
        assert await stored(far, "orders") == [b"before", b"other side"]
