"""Topics of real processes grow while programs write to them and leaders are killed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import NodeProcess, node_processes
from octopi.errors import ConnectionLostError, RefusedError, UnreachableError
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.record import decode
from octopi.transport.connection import Connection
from octopi.transport.handshake import open_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT
from tests.kit.cluster import eventually, system_environment

pytestmark = pytest.mark.process

PRODUCERS = 4
KEYS = 8
"""Of each producer."""


class Writing:
    """Programs that write until they are told to stop."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent: dict[bytes, int] = {}
        """By key, the number of messages with receipts."""
        self.is_over = False
        self.longest_s = 0.0
        """The longest time until a receipt."""

    async def write(self, producer_number: int) -> None:
        async with octopi.connect(self.url) as client, client.producer() as producer:

            async def one_key(key: bytes) -> None:
                number = 0
                while not self.is_over:
                    began_at = time.monotonic()
                    await producer.send("orders", b"%d" % number, key=key)
                    self.longest_s = max(self.longest_s, time.monotonic() - began_at)
                    self.sent[key] = number = number + 1
                    await trio.sleep(0.01)

            async with trio.open_nursery() as keys:
                for number in range(KEYS):
                    keys.start_soon(one_key, f"{producer_number}/{number}".encode())

    async def progress(self, count: int) -> None:
        """Wait until each key has so many more messages."""
        wanted = {key: number + count for key, number in self.sent.items()}
        await eventually(
            lambda: (
                len(self.sent) == PRODUCERS * KEYS
                and all(self.sent[key] >= number for key, number in wanted.items())
            ),
            60,
        )


async def stored(url: str) -> dict[bytes, list[int]]:
    """The numbers of the messages of each key, log by log, by one generation after the other."""
    found: dict[bytes, list[int]] = {}
    position: dict[int, Offset] = {}
    async with octopi.connect(url) as client:
        for generation in (await client.describe_topic("orders")).generations:
            ends = generation.sealed or [Offset(2**62)] * len(generation.partitions)
            for partition, end in zip(generation.partitions, ends, strict=True):
                at, highwater = position.get(partition, Offset(0)), 2**62
                while at < min(end, highwater):
                    answer = await fetched(client, partition, at)
                    highwater = answer.highwater
                    for one in decode(answer.records, at, TopicName("orders"), partition):
                        if one.offset < end:
                            found.setdefault(one.key or b"", []).append(int(one.value))
                            at = one.next_offset
                position[partition] = at
    return found


async def consumed(url: str) -> dict[bytes, list[int]]:
    """The numbers of the messages of each key, as a consumer hands them out."""
    found: dict[bytes, list[int]] = {}
    async with (
        octopi.connect(url) as client,
        client.consumer("orders", start="earliest", stop_at_end=True) as messages,
    ):
        async for one in messages:
            found.setdefault(one.key or b"", []).append(int(one.value))
    return found


async def fetched(client: octopi.Client, partition: PartitionId, at: Offset) -> m.Fetched:
    """What the leader of a log answers; leaderships may move."""
    for _ in range(100):
        info = await client.describe_topic("orders")
        places = [*info.partitions, *info.sealed_partitions]
        (place,) = [one for one in places if one.partition == partition]
        try:
            async with connection_to(place.leader_address) as leader:
                question = m.Fetch(
                    leader.next_request(),
                    "orders",
                    partition,
                    at,
                    10**6,
                    0,
                    generation=info.generations[-1].number,
                )
                return await leader.request(question, m.Fetched, 10)
        except (RefusedError, UnreachableError, ConnectionLostError):
            await trio.sleep(0.2)
    raise AssertionError(f"no broker leads partition {partition}")


@asynccontextmanager
async def connection_to(address: str) -> AsyncIterator[Connection]:
    async with trio.open_nursery() as tasks:
        opened = await open_connection(system_environment(tasks), address, CLIENT, "test")
        await tasks.start(opened.run, lambda message: None)
        try:
            yield opened
        finally:
            with trio.CancelScope(shield=True):
                await opened.close()
            tasks.cancel_scope.cancel()


async def leader_of(url: str, brokers: list[NodeProcess]) -> NodeProcess:
    """The broker that leads the first partition of the topic."""
    async with octopi.connect(url) as client:
        info = await client.describe_topic("orders")
    address = info.partitions[0].leader_address
    return next(one for one in brokers if one.url == address)


async def test_a_topic_grows_under_load_though_a_leader_is_killed_and_no_key_loses_its_order(
    tmp_path: Path,
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        brokers = [nodes.broker(register, f"broker-{number}") for number in (1, 2, 3)]
        writing = Writing(register.url)
        async with octopi.connect(register.url) as client:
            cluster = await client.admin.describe_cluster()
            if (missing := 16 - cluster.partition_count) > 0:
                await client.admin.add_partitions(missing)
            await client.create_topic("orders", partitions=8, min_insync=2)
        with trio.fail_after(200):
            async with trio.open_nursery() as programs:
                for number in range(PRODUCERS):
                    programs.start_soon(writing.write, number)
                await writing.progress(20)
                killed = await leader_of(register.url, brokers)
                async with trio.open_nursery() as growing:
                    growing.start_soon(partial(grow, register.url, 16))
                    await trio.to_thread.run_sync(killed.kill9)
                    await writing.progress(5)
                    await trio.to_thread.run_sync(killed.restart)
                await writing.progress(20)
                writing.is_over = True
            found = await stored(register.url)
            handed_out = await consumed(register.url)
        assert found.keys() == writing.sent.keys()
        for key, count in writing.sent.items():
            assert found[key] == handed_out[key] == list(range(count)), key


async def grow(url: str, count: int) -> None:
    """Have the topic grow, as often as a broker is away at that moment."""
    async with octopi.connect(url) as client:
        while True:
            try:
                info = await client.admin.grow_topic("orders", count)
            except (RefusedError, UnreachableError):
                await trio.sleep(0.5)
            else:
                assert len(info.partitions) == count
                return
