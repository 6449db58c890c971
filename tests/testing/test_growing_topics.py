"""Topics get other partitions while ten programs write to them and leaders are killed.

The producers and the consumer here follow the rules by themselves, so that each message is sent by
one request; register, brokers and network are those of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

import pytest
import trio

from octopi.coordination.generations import in_force
from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    RefusedError,
    Status,
    UnreachableError,
)
from octopi.identifiers import (
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TopicName,
)
from octopi.limits import GENERATIONS_MAX
from octopi.model import TopicRecord
from octopi.record import BatchBuilder, decode
from octopi.roles.register.generations import Generations
from octopi.roles.register.node import RegisterNode
from octopi.testing import Cluster, simulated
from octopi.transport.handshake import open_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT

Logs = dict[PartitionId, list[tuple[int, bytes, int]]]
"""By partition: offset, key and number of each message."""
PRODUCERS = 10
MESSAGES = 25
"""Of each producer."""


class Growing:
    """Topic "orders", the register that decides about it, and what was written."""

    def __init__(
        self, cluster: Cluster, registers: list[RegisterNode], tasks: trio.Nursery
    ) -> None:
        self.cluster = cluster
        self.tasks = tasks
        self.registers = registers
        self.receipts = 0

    @property
    def topic(self) -> TopicRecord:
        topic = self.registers[-1].controller.state.topic("orders")
        assert topic is not None
        return topic

    def leader(self, partition: PartitionId) -> str:
        record = self.registers[-1].controller.state.partitions[partition]
        return f"broker-{record.leader}"

    async def write(self, environment: Environment, number: int) -> None:
        """Send messages with one key, one after the other, by the rules for producers."""
        key, producer = f"key-{number}".encode(), ProducerId(bytes([number + 1]) * 16)
        newest = in_force(self.topic)
        following: dict[PartitionId, int] = {}
        for message in range(MESSAGES):
            while True:
                partition = newest.partitions[crc32(key) % len(newest.partitions)]
                builder = BatchBuilder()
                builder.add(b"%d" % message, key)
                first = Sequence(following.get(partition, 0))
                records = builder.encode(producer, ProducerEpoch(0), first)
                if await self._is_stored(environment, partition, newest.number, records):
                    break
                # Certainly not stored: the next generation may be chosen.
                while (later := in_force(self.topic)).number == newest.number:
                    await self.cluster.sleep(0.02)
                    if self.topic.generations[-1].state == "cancelled":
                        break
                newest = later
            following[partition] = first + 1
            self.receipts += 1
            if self.cluster.random.random() < 0.2:
                newest = in_force(self.topic)  # it hears of that, with nothing on its way
            await self.cluster.sleep(self.cluster.random.random() * 0.1)

    async def _is_stored(
        self, environment: Environment, partition: PartitionId, generation: int, records: bytes
    ) -> bool:
        """Send the same records until it is known whether they are stored."""
        while True:
            url = self.cluster._simulated.address_of(self.leader(partition))
            try:
                connection = await open_connection(environment, url, CLIENT, "test")
                await self.tasks.start(connection.run, lambda message: None)
                try:
                    request = connection.next_request()
                    produce = m.Produce(
                        request, "orders", partition, records, generation=generation
                    )
                    await connection.request(produce, m.Produced, 5)
                    return True
                finally:
                    with trio.CancelScope(shield=True):
                        await connection.close()
            except RefusedError as error:
                if error.status is Status.STALE_ROUTE:
                    return False
                if not error.retryable:
                    raise
            except (ConnectionLostError, UnreachableError):
                pass
            await self.cluster.sleep(0.05)

    async def grow(self, count: int) -> None:
        """Have the topic grow to *count* partitions, when a part of the messages is stored."""
        while self.receipts < PRODUCERS * MESSAGES * count / 16:
            await self.cluster.sleep(0.05)
        while len(self.topic.partitions) < count:
            try:
                await self.registers[-1].generations.grow("orders", count)
            except RefusedError as error:
                if not error.retryable:
                    raise
                await self.cluster.sleep(0.2)

    async def logs(self, environment: Environment) -> Logs:
        """All that is stored."""
        logs: Logs = {}
        for partition in self.topic.log_partitions:
            log, at = logs.setdefault(partition, []), Offset(0)
            while True:
                found = await self._fetched(environment, partition, at)
                if found is None:
                    await self.cluster.sleep(0.05)
                    continue
                for one in decode(found.records, at, TopicName("orders"), partition):
                    log.append((one.offset, one.key or b"", int(one.value)))
                    at = one.next_offset
                if at >= found.highwater:
                    break
        return logs

    async def _fetched(
        self, environment: Environment, partition: PartitionId, offset: Offset
    ) -> m.Fetched | None:
        """What the leader of a log answers; None: it can't now."""
        url = self.cluster._simulated.address_of(self.leader(partition))
        try:
            connection = await open_connection(environment, url, CLIENT, "test")
            await self.tasks.start(connection.run, lambda message: None)
            try:
                question = m.Fetch(
                    connection.next_request(),
                    "orders",
                    partition,
                    offset,
                    10**6,
                    0,
                    generation=GENERATIONS_MAX,
                )
                return await connection.request(question, m.Fetched, 5)
            finally:
                with trio.CancelScope(shield=True):
                    await connection.close()
        except RefusedError as error:
            if not error.retryable:
                raise
        except (ConnectionLostError, UnreachableError):
            pass
        return None

    def as_read(self, logs: Logs) -> list[tuple[bytes, int]]:
        """The keys and numbers of the messages in *logs*, as a consumer hands them out that reads
        the logs of one generation to their sealed ends before the next."""
        read: list[tuple[bytes, int]] = []
        position: dict[PartitionId, int] = {}
        known = [one for one in self.topic.generations if one.state == "in_force"]
        for one in known:
            ends = one.sealed or [2**62] * len(one.partitions)
            # New logs first: an old one may be read later than they are, if that is allowed.
            for partition, end in reversed([*zip(one.partitions, ends, strict=True)]):
                log = logs.get(partition, [])
                begin = position.get(partition, 0)
                read += [(key, number) for at, key, number in log if begin <= at < end]
                position[partition] = end
        return read


_registers: list[RegisterNode] = []
"""All that were started, the newest last."""


@pytest.fixture(autouse=True)
def _registers_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    original = RegisterNode.__init__
    _registers.clear()

    def noted(self: RegisterNode, *arguments: object, **named: object) -> None:
        _registers.append(self)
        original(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(RegisterNode, "__init__", noted)


@contextmanager
def killing_leaders(growing: Growing, step: str, skip: int) -> Iterator[None]:
    """Kill the leader of the topic's first partition at a *step* of each growth."""
    original = getattr(Generations, step)
    counts: dict[int, int] = {}

    async def hooked(*arguments: object) -> object:
        generation = growing.topic.generations[-1].number
        counts[generation] = counts.get(generation, -1) + 1
        if counts[generation] == skip:
            growing.cluster.kill(growing.leader(growing.topic.partitions[0]), restart_s=1.0)
        return await original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Generations, step, hooked)
        yield


async def grow_twice(cluster: Cluster, step: str, skip: int) -> None:
    """Let the topic grow from 2 to 4 to 8 partitions, with ten producers."""
    async with cluster.client() as client, trio.open_nursery() as tasks:
        await client.create_topic("orders", partition_ids=[0, 1])
        growing = Growing(cluster, _registers, tasks)
        with killing_leaders(growing, step, skip):
            async with trio.open_nursery() as producers:
                for number in range(PRODUCERS):
                    environment = await cluster.environment(f"producer-{number}")
                    producers.start_soon(growing.write, environment, number)
                for count in (4, 8):
                    await growing.grow(count)
        logs = await growing.logs(await cluster.environment("reader"))
        tasks.cancel_scope.cancel()
    read = growing.as_read(logs)
    for number in range(PRODUCERS):
        got = [one for key, one in read if key == f"key-{number}".encode()]
        assert got == list(range(MESSAGES))
    assert len(growing.topic.partitions) == 8
    assert sum(map(len, logs.values())) == PRODUCERS * MESSAGES


@simulated(seeds=2, partitions=8, brokers=3, replicas=3)
async def test_a_leader_killed_while_logs_are_made_costs_no_message_and_no_order(
    cluster: Cluster,
) -> None:
    await grow_twice(cluster, "_make_logs", 0)


@simulated(seeds=2, partitions=8, brokers=3, replicas=3)
async def test_a_leader_killed_while_it_seals_costs_no_message_and_no_order(
    cluster: Cluster,
) -> None:
    await grow_twice(cluster, "_seal", 0)


@simulated(seeds=2, partitions=8, brokers=3, replicas=3)
async def test_a_leader_killed_before_the_last_log_is_sealed_costs_no_message_and_no_order(
    cluster: Cluster,
) -> None:
    await grow_twice(cluster, "_seal", 1)


@simulated(seeds=2, partitions=8, brokers=3, replicas=3)
async def test_a_leader_killed_when_the_generation_is_in_force_costs_no_message_and_no_order(
    cluster: Cluster,
) -> None:
    await grow_twice(cluster, "_advanced", 1)
