"""A leader and its followers, on virtual time, without links between them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from itertools import pairwise
from typing import cast

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import ConnectionLostError
from octopi.limits import MIB
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.roles.broker.follower_connection import FollowerConnection
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.transport.connection import Connection
from octopi.transport.services import ServiceSession
from octopi.wire import messages as m
from octopi.wire.codec import decode
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet
from tests.kit.probes import batch
from tests.roles.replica_managers import started_manager

PARTITION = 0
TOPIC = m.TopicRecord("orders", "0" * 16, [PARTITION], m.TopicOptions())


@attrs.define(eq=False)
class Follower:
    """A follower, and the connection to it as the leader sees that: it acknowledges what it
    gets after a while."""

    broker: int
    tasks: trio.Nursery
    stream: FollowerConnection = attrs.field(init=False)
    session: ServiceSession = attrs.field(init=False)
    end_reason: str | None = None
    is_prompt: bool = True
    messages: list[tuple[float, m.Followed | m.Replicate]] = attrs.field(factory=list)
    """When each message came."""
    peer: str = "a follower"
    latency_s: float = 0.01
    hangs: bool = False
    turn: trio.Lock = attrs.field(factory=trio.Lock)
    takes_turns: bool = False
    """Whether it takes one message after the other, however small, each for its latency."""
    received: list[tuple[float, int]] = attrs.field(factory=list)
    """When, and how many bytes of records."""
    end: int = 0
    acknowledged: int = 0

    def post(self, message: m.Followed | m.Replicate) -> None:
        if self.end_reason is not None:
            raise ConnectionLostError(self.end_reason)
        self.messages.append((trio.current_time(), message))
        if isinstance(message, m.Replicate) and message.records:
            assert message.offset == self.end
            self.received.append((trio.current_time(), len(message.records)))
            self.end += len(message.records)
            if not self.hangs:
                self.tasks.start_soon(self._acknowledge, self.end)

    def post_parts(self, parts: list[bytes]) -> None:
        message = decode(b"".join(parts), frozenset({m.Replicate}))
        assert isinstance(message, m.Replicate)
        self.post(message)

    async def _acknowledge(self, end: int) -> None:
        async with self.turn if self.takes_turns else nullcontext():
            await trio.sleep(self.latency_s)
        self.acknowledge(end)

    def acknowledge(self, end: int) -> None:
        self.acknowledged = end
        self.session.handle(m.Acknowledge(PARTITION, 1, self.broker, 1, 1, TOPIC.topic_id, end))

    async def close(self, code: int, reason: str) -> None:
        self.lose(f"{code} {reason}")

    async def drained(self) -> None:
        await trio.lowlevel.checkpoint()

    @property
    def marks_alone(self) -> list[tuple[float, int]]:
        """When it was told a highwater mark without records, and which."""
        return [
            (at, one.highwater)
            for at, one in self.messages
            if isinstance(one, m.Replicate) and not one.records
        ]

    def follow(self) -> None:
        self.session.handle(m.Follow(PARTITION, 1, self.broker, 1, 1, TOPIC.topic_id, [], 0))

    def pauses_since(self, began: float) -> list[float]:
        """How long it waited for each message (s)."""
        at = [began, *(one for one, _ in self.received)]
        return [later - earlier for earlier, later in pairwise(at)]

    def lose(self, reason: str = "it broke") -> None:
        """The connection ends."""
        self.end_reason = reason
        self.session.closed()


@attrs.define
class Leader:
    """A broker that leads a partition; broker 2 is in sync with it, broker 3 is not."""

    environment: Environment
    logs: ReplicaManager
    log: LocalLog
    tasks: trio.Nursery
    answers: list[CommitReceipt | Refusal] = attrs.field(factory=list)
    count: int = 0

    async def follower(self, broker: int) -> Follower:
        follower = Follower(broker, await self.tasks.start(_own_nursery))
        follower.stream = FollowerConnection(
            self.environment, self.logs, cast(Connection, follower), follower.tasks
        )
        follower.session = ServiceSession("leader", [follower.stream])
        return follower

    async def produce(self, count: int, size_bytes: int = MIB) -> None:
        """Append so many records with values of that size."""
        replica = self.logs.replica(PARTITION)
        assert replica is not None
        for _ in range(count):
            replica.produce(self.log, batch(self.count, b"x" * size_bytes), self.answers.append)
            self.count += 1
        await replica.settled()


async def _own_nursery(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    async with trio.open_nursery() as nursery:
        task_status.started(nursery)
        await trio.sleep_forever()


@asynccontextmanager
async def leader(options: m.TopicOptions | None = None) -> AsyncIterator[Leader]:
    environment = Environment(SystemClock(), MemoryNet(), MemoryDisk(), SystemRandomness())
    async with trio.open_nursery() as tasks:
        logs = await started_manager(environment, tasks)
        record = m.PartitionRecord(PARTITION, 1, 0, 1, 1, [1, 2, 3], [1, 2])
        await logs.install_partitions([record], [])
        await logs.install_topics([attrs.evolve(TOPIC, options=options or TOPIC.options)])
        yield Leader(environment, logs, logs.store.find("orders", PARTITION), tasks)
        tasks.cancel_scope.cancel()
