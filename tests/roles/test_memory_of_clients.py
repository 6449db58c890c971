"""The memory that a broker holds for clients that read nothing is bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import octopi
from octopi.environment import Link
from octopi.errors import Status
from octopi.limits import MEMORY_BUDGET_BYTES_MIN, MIB, WAITING_TASK_MEMORY_BYTES
from octopi.roles.broker.node import BrokerNode
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from tests.kit.cluster import Cluster, Node, eventually, running_cluster

RECORD_BYTES = 4 * MIB
"""More than a connection is usually sent at a time: a read gives one record at least."""

HELD_BYTES_MAX = 28 * MIB
"""Shares, loan and allowances of the smallest budget, and the record that exceeds a share."""


@attrs.define
class Bench:
    """A broker with a log of large records."""

    cluster: Cluster
    broker: Node
    node: BrokerNode
    client: octopi.Client
    partition: int

    async def stranger(self) -> Link:
        """A connection that reads nothing but its welcome."""
        link = await self.cluster.environment.net.connect(self.broker.url, "/v1/client")
        await link.send(encode(m.Hello(1, "stranger", None)))
        assert isinstance(decode(await link.receive(), frozenset({m.Welcome})), m.Welcome)
        return link

    @property
    def outbox_bytes(self) -> int:
        """Of all connections."""
        return sum(one.statistics().outbox_bytes for one in self.node.traffic.connections)

    async def settled(self) -> None:
        """Wait until nothing changes any more."""
        before = -1
        while before != self.outbox_bytes:
            before = self.outbox_bytes
            await trio.sleep(0.3)

    async def still_serves(self) -> None:
        """Fail if honest clients are not served."""
        with trio.fail_after(20):
            async with self.client.producer() as producer:
                receipt = await producer.send("small", b"value", partition=self.partition)
            async with self.client.consumer("small", start="earliest") as consumer:
                async for message in consumer:
                    assert message.value == b"value"
                    break
            assert receipt.partition == self.partition


@asynccontextmanager
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    nodes: list[BrokerNode] = []
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        octopi.connect(cluster.register.url) as client,
    ):
        broker = await cluster.start_broker(
            show=nodes.append, memory_budget_bytes=MEMORY_BUDGET_BYTES_MIN
        )
        partition = (await client.create_topic("large", 1)).partitions[0].partition
        await client.create_topic("small", partition_ids=[partition])
        async with client.producer() as producer:
            for _ in range(2):
                await producer.send("large", b"x" * (RECORD_BYTES - 1000))
        yield Bench(cluster, broker, nodes[0], client, partition)


async def test_many_readings_of_one_connection_hold_no_more_than_its_share(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as here:
        link = await here.stranger()
        for request in range(1, 31):
            await link.send(encode(m.Subscribe(request, "large", here.partition, 0, 1 << 40)))
        await here.settled()
        assert 0 < here.outbox_bytes <= 2 * RECORD_BYTES
        assert here.node.traffic.memory.messages.held_bytes <= 2 * RECORD_BYTES
        await here.still_serves()
        await link.aclose()


@pytest.mark.parametrize("connections", [1, 15])
async def test_many_fetches_hold_no_more_than_the_node_has_for_them(
    tmp_path: Path, connections: int
) -> None:
    async with bench(tmp_path) as here:
        links = [await here.stranger() for _ in range(connections)]
        for link in links:
            for request in range(1, 31):
                fetch = m.Fetch(request, "large", here.partition, 0, 16 * MIB, 30_000)
                await link.send(encode(fetch))
        await here.settled()
        assert 0 < here.outbox_bytes <= HELD_BYTES_MAX
        assert here.node.traffic.memory.messages.held_bytes <= HELD_BYTES_MAX
        await here.still_serves()
        for link in links:
            await link.aclose()


async def test_fetches_that_waited_for_records_hold_no_more_memory_than_others(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as here:
        links = [await here.stranger() for _ in range(15)]
        end = 2 * RECORD_BYTES
        async with here.client.producer() as producer:
            end = (await producer.send("large", b"last")).next_offset
        for link in links:
            for request in range(1, 6):
                fetch = m.Fetch(request, "large", here.partition, end, 16 * MIB, 30_000)
                await link.send(encode(fetch))
        tasks = here.node.traffic.memory.tasks
        await eventually(lambda: tasks.held_bytes == 75 * WAITING_TASK_MEMORY_BYTES)
        async with here.client.producer() as producer:
            await producer.send("large", b"x" * RECORD_BYTES)
        await here.settled()
        assert 0 < here.outbox_bytes <= HELD_BYTES_MAX
        await here.still_serves()
        for link in links:
            await link.aclose()


async def fetched(link: Link) -> None:
    """Read until an answer with a large record comes."""
    answer: Any = None
    while not isinstance(answer, m.Fetched):
        answer = decode(await link.receive(), frozenset({m.Fetched, m.Heartbeat}))
    assert len(answer.records) >= RECORD_BYTES - 1000


async def test_every_client_that_waits_for_memory_is_served_in_the_end(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        links = [await here.stranger() for _ in range(15)]
        for link in links:
            await link.send(encode(m.Fetch(1, "large", here.partition, 0, 16 * MIB, 30_000)))
        await here.settled()
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for link in links:
                    nursery.start_soon(fetched, link)
        await eventually(lambda: here.node.traffic.memory.messages.held_bytes == 0)
        for link in links:
            await link.aclose()


async def test_readings_cost_memory_and_give_it_back(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        tasks = here.node.traffic.memory.tasks
        link = await here.stranger()
        for request in range(1, 4):
            await link.send(encode(m.Subscribe(request, "small", here.partition, 0, 1 << 40)))
        await eventually(lambda: tasks.held_bytes == 3 * WAITING_TASK_MEMORY_BYTES)
        await link.send(encode(m.Unsubscribe(2)))
        await eventually(lambda: tasks.held_bytes == 2 * WAITING_TASK_MEMORY_BYTES)
        await link.aclose()
        await eventually(lambda: tasks.held_bytes == 0)


async def test_a_reading_beyond_the_memory_budget_is_refused(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        tasks = here.node.traffic.memory.tasks
        hoarder = here.node.traffic.memory.connection("hoarder", is_peer=False).tasks
        hoarder.charge("readings", tasks.total_bytes + WAITING_TASK_MEMORY_BYTES)
        link = await here.stranger()
        answers = []
        for request in (1, 2):
            await link.send(encode(m.Subscribe(request, "small", here.partition, 0, 1 << 40)))
            answers.append(decode(await link.receive(), frozenset({m.Subscribed, m.Failure})))
        assert isinstance(answers[0], m.Subscribed)  # the first one belongs to the connection
        assert isinstance(answers[1], m.Failure)
        assert answers[1].status == Status.TOO_MANY
        assert "no memory left for more readings" in answers[1].reason
        await link.aclose()
