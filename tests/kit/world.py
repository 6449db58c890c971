"""A cluster on virtual time: real register and brokers, a network and disks in memory.

Nothing waits for the wall clock (use it with the fixture ``autojump_clock``), and nothing
is left to chance but what the seed says.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio
from trio.testing import MockClock

import octopi
from octopi.clients.background import background_tasks
from octopi.environment import Environment
from octopi.limits import REQUEST_TIMEOUT_S
from octopi.roles.broker.node import BrokerOptions, run_broker
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.running import run_register
from octopi.security.authenticator import Authenticator
from octopi.transport.connection import Connection
from octopi.transport.handshake import open_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT
from tests.kit.disk import MemoryDisk
from tests.kit.join_secrets import SECRETS
from tests.kit.links import MemoryNet

REGISTER = "ws://register:7000"
BROKER = "ws://broker-1:7100"

WALL_MS_AT_ZERO = 1_700_000_000_000


class VirtualClock:
    """`octopi.environment.Clock` on Trio's clock, which tests replace."""

    def now(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return WALL_MS_AT_ZERO + round(trio.current_time() * 1000)

    async def sleep_until(self, deadline: float) -> None:
        await trio.sleep_until(deadline)

    def timeout(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(seconds)


class SeededChance:
    """`octopi.environment.Randomness`, the same every time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random(self) -> float:
        return self._random.random()

    def token_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


@attrs.define
class Node:
    """A node that runs, or ran."""

    url: str
    disk: MemoryDisk
    stop: trio.Event
    scope: trio.CancelScope
    ended: trio.Event


@attrs.define
class World:
    """A register, brokers, and the network between everybody."""

    nursery: trio.Nursery
    net: MemoryNet
    clock: VirtualClock = attrs.field(factory=VirtualClock)
    nodes: dict[str, Node] = attrs.field(factory=dict)
    broker_options: dict[str, Any] = attrs.field(factory=dict)
    """Options of brokers that differ from their defaults."""
    _seed: int = 0

    def __attrs_post_init__(self) -> None:
        # A fixture of a fixture of the test doesn't give the test its clock.
        is_virtual = isinstance(trio.lowlevel.current_clock(), MockClock)
        assert is_virtual, "the test itself needs the parameter `autojump_clock`"

    def environment(self, disk: MemoryDisk | None = None, url: str = "") -> Environment:
        """The environment of the node at *url*, or of a client."""
        self._seed += 1
        return Environment(
            self.clock, self.net.of(url), disk or MemoryDisk(), SeededChance(self._seed)
        )

    @asynccontextmanager
    async def client(
        self,
        servers: str | Sequence[str] = REGISTER,
        *,
        name: str = "",
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> AsyncIterator[octopi.Client]:
        """A client of its own."""
        async with octopi.connect(
            servers,
            name=name,
            request_timeout_s=request_timeout_s,
            environment=self.environment(),
        ) as client:
            yield client

    async def start_register(self) -> None:
        """Start it, or start it again with the disk that it had."""
        disk = self.nodes[REGISTER].disk if REGISTER in self.nodes else MemoryDisk()
        options = RegisterOptions("register:7000", "data", gather_s=0.05, secrets=SECRETS)
        run = partial(run_register, self.environment(disk, REGISTER), options)
        await self._start(REGISTER, disk, run)

    async def start_broker(
        self, url: str = BROKER, *, authenticator: Authenticator | None = None
    ) -> None:
        """Start it, or start it again with the disk that it had."""
        disk = self.nodes[url].disk if url in self.nodes else MemoryDisk()
        listen, more = url.removeprefix("ws://"), {"authenticator": authenticator}
        options = BrokerOptions(listen, "data", [REGISTER], SECRETS, **(more | self.broker_options))
        await self._start(url, disk, partial(run_broker, self.environment(disk, url), options))

    async def _start(self, url: str, disk: MemoryDisk, run: Callable[..., Awaitable[None]]) -> None:
        node = Node(url, disk, trio.Event(), trio.CancelScope(), trio.Event())

        async def live(*, task_status: trio.TaskStatus[str]) -> None:
            try:
                with node.scope:
                    await run(stop=node.stop, task_status=task_status)
            finally:
                node.ended.set()

        await self.nursery.start(live)
        self.nodes[url] = node

    async def stop(self, url: str = BROKER) -> None:
        """End a node gracefully."""
        self.nodes[url].stop.set()
        with trio.fail_after(20):
            await self.nodes[url].ended.wait()

    async def kill(self, url: str = BROKER) -> None:
        """End a node at once; its disk stays."""
        node = self.nodes[url]
        self.net.kill(url)
        node.scope.cancel()
        await node.ended.wait()
        node.disk.crash(keep_page_cache=True)

    async def restart(self, url: str = BROKER) -> None:
        """`kill` and start again."""
        await self.kill(url)
        await (self.start_register() if url == REGISTER else self.start_broker(url))


@asynccontextmanager
async def running_world(**broker_options: Any) -> AsyncIterator[World]:  # noqa: ANN401
    """A register and one broker, ended with the block."""
    async with background_tasks() as nursery:
        world = World(nursery, MemoryNet(capacity=8), broker_options=broker_options)
        await world.start_register()
        await world.start_broker()
        yield world


@asynccontextmanager
async def connection(
    world: World, url: str, *, token: str | None = None
) -> AsyncIterator[Connection]:
    """A connection that speaks message by message."""
    opened = await open_connection(world.environment(), url, CLIENT, "test", token=token)
    async with background_tasks() as nursery:
        await nursery.start(opened.run, lambda message: None)
        yield opened


async def describe(world: World, topic: str) -> m.TopicInfo:
    async with connection(world, REGISTER) as register:
        question = m.DescribeTopic(register.next_request(), topic, True)
        return (await register.request(question, m.TopicDescription, 5)).topic


async def read_all(client: octopi.Client, topic: str) -> list[octopi.Message]:
    """The messages that the topic holds now."""
    async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
        return [message async for message in consumer]


async def values(client: octopi.Client, topic: str) -> list[bytes]:
    """The values of what the topic holds now."""
    return [message.value for message in await read_all(client, topic)]
