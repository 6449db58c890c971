"""Consumers read a topic that gets other partitions, while leaders are killed.

Each of them gets each message once, and the messages of a key in the order in which they were
produced.  The producers here follow the rules by themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from zlib import crc32

import pytest
import trio

from octopi.clients.client import Client
from octopi.coordination.generations import in_force
from octopi.environment import Environment
from octopi.errors import ConnectionLostError, RefusedError, Status, UnreachableError
from octopi.identifiers import PartitionId, ProducerEpoch, ProducerId, Sequence
from octopi.model import TopicRecord
from octopi.record import BatchBuilder, Message
from octopi.roles.register.generations import Generations
from octopi.roles.register.node import RegisterNode
from octopi.testing import Cluster, simulated
from octopi.transport.handshake import open_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT

PRODUCERS = 6
MESSAGES = 24
"""Of each producer, which has a key of its own."""
COUNT = PRODUCERS * MESSAGES

Got = list[tuple[bytes, int]]
"""Keys and numbers of messages, as they were handed out."""
Reader = Callable[["Topic", Client, Got], Awaitable[None]]


class Topic:
    """Topic "orders" of a cluster, its producers, and what its consumers got."""

    def __init__(self, cluster: Cluster, register: list[RegisterNode], tasks: trio.Nursery) -> None:
        self.cluster, self.tasks = cluster, tasks
        self.registers = register
        self.receipts = 0
        self.token = ""
        """The position of a consumer before the first message."""

    @property
    def record(self) -> TopicRecord:
        topic = self.registers[-1].controller.state.topic("orders")
        assert topic is not None
        return topic

    def leader(self, partition: PartitionId) -> str:
        return f"broker-{self.registers[-1].controller.state.partitions[partition].leader}"

    async def write(self, environment: Environment, number: int) -> None:
        """Send messages with one key, one after the other, by the rules for producers."""
        key, producer = f"key-{number}".encode(), ProducerId(bytes([number + 1]) * 16)
        following: dict[PartitionId, int] = {}
        for message in range(MESSAGES):
            builder = BatchBuilder()
            builder.add(b"%d" % message, key)
            while True:
                newest = in_force(self.record)
                partition = newest.partitions[crc32(key) % len(newest.partitions)]
                first = following.get(partition, 0)
                records = builder.encode(producer, ProducerEpoch(0), Sequence(first))
                if await self._is_stored(environment, partition, newest.number, records):
                    following[partition] = first + 1
                    break
                await self.cluster.sleep(0.02)  # certainly not stored
            self.receipts += 1
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

    async def order(self, count: int | None) -> None:
        """Have the topic grow to *count* partitions, or move (None)."""
        number = in_force(self.record).number
        while in_force(self.record).number == number:
            try:
                if count is None:
                    await self.registers[-1].generations.move("orders", PartitionId(7))
                else:
                    await self.registers[-1].generations.grow("orders", count)
            except RefusedError as error:
                if not error.retryable:
                    raise
                await self.cluster.sleep(0.2)

    async def change(self, counts: list[int | None]) -> None:
        """Make each of the changes when a part of the messages is stored."""
        for index, count in enumerate(counts):
            while self.receipts < COUNT * (index + 1) / (len(counts) + 2):
                await self.cluster.sleep(0.05)
            await self.order(count)


def take(got: Got, message: Message) -> None:
    got.append((message.key or b"", int(message.value)))


async def read_live(topic: Topic, client: Client, got: Got) -> None:
    async with client.consumer("orders", start="earliest") as consumer:
        while len(got) < COUNT:
            take(got, await anext(consumer))


async def read_slowly(topic: Topic, client: Client, got: Got) -> None:
    """Behind all changes of the topic."""
    async with client.consumer("orders", start="earliest", window_bytes=64) as consumer:
        while len(got) < COUNT:
            take(got, await anext(consumer))
            await topic.cluster.sleep(0.1)
        assert consumer.lag_bytes == 0


async def read_in_batches_of_a_pattern(topic: Topic, client: Client, got: Got) -> None:
    async with client.consumer(["ord*"], start="earliest") as consumer:
        while len(got) < COUNT:
            batch = await consumer.next_batch()
            assert batch is not None
            for message in batch:
                take(got, message)


async def read_by_tokens(topic: Topic, client: Client, got: Got) -> None:
    """A new consumer after a few messages, each time where the one before ended."""
    start = "earliest"
    while len(got) < COUNT:
        async with client.consumer("orders", start=start) as consumer:
            for _ in range(min(topic.cluster.random.randint(1, 12), COUNT - len(got))):
                take(got, await anext(consumer))
            start = str(consumer.position)


async def read_from_an_early_token(topic: Topic, client: Client, got: Got) -> None:
    """The token names only the first partitions."""
    while topic.receipts < COUNT:
        await topic.cluster.sleep(0.5)
    async with client.consumer("orders", start=topic.token, stop_at_end=True) as consumer:
        async for message in consumer:
            take(got, message)


async def read_as_a_group(topic: Topic, client: Client, got: Got) -> None:
    """Two members of a durable subscription; the second one comes later."""

    async def member(wait_s: float) -> None:
        await topic.cluster.sleep(wait_s)
        async with client.subscription("orders", "billing", mode="failover") as orders:
            async for message in orders:
                take(got, message)
                if len(set(got)) == COUNT:
                    await orders.commit()
                    members.cancel_scope.cancel()

    async with trio.open_nursery() as members:
        for wait_s in (0.0, 0.8):
            members.start_soon(member, wait_s)


async def read_exclusively(topic: Topic, client: Client, got: Got) -> None:
    """A member that comes again and again."""
    while len(set(got)) < COUNT:
        async with client.subscription("orders", "audit", mode="exclusive") as orders:
            for _ in range(min(20, COUNT - len(set(got)))):
                take(got, await anext(orders))


AT_LEAST_ONCE: list[Reader] = [read_as_a_group, read_exclusively]
"""They may be handed out messages again where a leader was killed."""

READERS: list[Reader] = [
    read_live,
    read_slowly,
    read_in_batches_of_a_pattern,
    read_by_tokens,
    read_from_an_early_token,
    *AT_LEAST_ONCE,
]

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
def killing_leaders(topic: Topic, step: str | None, skip: int) -> Iterator[None]:
    """Kill the leader of the topic's first partition at a *step* of each change."""
    if step is None:
        yield
        return
    original = getattr(Generations, step)
    counts: dict[int, int] = {}

    async def hooked(*arguments: object) -> object:
        generation = topic.record.generations[-1].number
        counts[generation] = counts.get(generation, -1) + 1
        if counts[generation] == skip:
            topic.cluster.kill(topic.leader(topic.record.partitions[0]), restart_s=1.0)
        return await original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Generations, step, hooked)
        yield


async def read_while_it_changes(
    cluster: Cluster, partitions: list[int], counts: list[int | None], step: str | None, skip: int
) -> None:
    """Have all `READERS` read the topic while it becomes one of *counts* partitions in turn."""
    async with cluster.client() as client, trio.open_nursery() as tasks:
        await client.create_topic("orders", partition_ids=partitions)
        topic = Topic(cluster, _registers, tasks)
        async with client.consumer("orders", start="latest") as consumer:
            topic.token = str(consumer.position)
        read: dict[str, Got] = {one.__name__: [] for one in READERS}
        with killing_leaders(topic, step, skip):
            async with trio.open_nursery() as programs:
                for reader in READERS:
                    programs.start_soon(reader, topic, client, read[reader.__name__])
                for number in range(PRODUCERS):
                    environment = await cluster.environment(f"producer-{number}")
                    programs.start_soon(topic.write, environment, number)
                programs.start_soon(topic.change, counts)
        read["from the start"] = []
        async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
            async for message in consumer:
                take(read["from the start"], message)
        assert len(topic.record.generations) >= 1 + len(counts)
        tasks.cancel_scope.cancel()
    for name, got in read.items():
        for number in range(PRODUCERS):
            numbers = [one for key, one in got if key == f"key-{number}".encode()]
            if name in {one.__name__ for one in AT_LEAST_ONCE}:
                numbers = list(dict.fromkeys(numbers))
            assert numbers == list(range(MESSAGES)), f"{name}: key {number} as {numbers}"


@simulated(seeds=2, partitions=8, brokers=3, replicas=3)
async def test_consumers_follow_a_topic_that_grows_twice(cluster: Cluster) -> None:
    await read_while_it_changes(cluster, [0, 1], [4, 8], None, 0)


@simulated(seeds=2, partitions=8, brokers=3, replicas=3)
async def test_consumers_follow_a_topic_that_moves_and_grows(cluster: Cluster) -> None:
    await read_while_it_changes(cluster, [0], [None, 3], None, 0)


@simulated(seeds=2, partitions=8, brokers=3, replicas=3)
async def test_consumers_lose_no_order_when_a_leader_dies_while_logs_are_made(
    cluster: Cluster,
) -> None:
    await read_while_it_changes(cluster, [0, 1], [4, 8], "_make_logs", 0)


@simulated(seeds=2, partitions=8, brokers=3, replicas=3)
async def test_consumers_lose_no_order_when_a_leader_dies_while_it_seals(cluster: Cluster) -> None:
    await read_while_it_changes(cluster, [0, 1], [4, 8], "_seal", 0)


@simulated(seeds=2, partitions=8, brokers=3, replicas=3)
async def test_consumers_lose_no_order_when_a_leader_dies_before_the_last_seal(
    cluster: Cluster,
) -> None:
    await read_while_it_changes(cluster, [0, 1], [4, 8], "_seal", 1)


@simulated(seeds=2, partitions=8, brokers=3, replicas=3)
async def test_consumers_lose_no_order_when_a_leader_dies_as_the_generation_is_in_force(
    cluster: Cluster,
) -> None:
    await read_while_it_changes(cluster, [0, 1], [4, 8], "_advanced", 1)
