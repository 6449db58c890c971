"""A real cluster in the test's own process: real sockets, real files, real clock.

Nodes are started and stopped one by one; `Cluster.kill` ends one without any grace, as far
as that can be done inside a process (its files are closed, nothing is flushed or said).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from octopi.cli.free_ports import free_port, free_ports
from octopi.environment import Disk, Environment, Trace
from octopi.errors import RefusedError
from octopi.limits import JOURNAL_SNAPSHOT_ENTRIES
from octopi.open_files import SystemFile
from octopi.operating_system import (
    SystemClock,
    SystemDisk,
    SystemRandomness,
    SystemStreams,
    wants_plain_websocket,
)
from octopi.roles.broker.node import BrokerNode, BrokerOptions, run_broker
from octopi.roles.broker.ring.node import run_ring_broker
from octopi.roles.broker.ring.options import RingOptions
from octopi.roles.register.node import RegisterNode
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.running import run_register
from octopi.security.authenticator import Authenticator
from octopi.security.join_secret import SecretSource
from octopi.security.tls import Tls
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials, open_connection, open_node_connection
from octopi.transport.websocket import WebSocketNet
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT, Endpoint
from tests.kit.disk import MemoryDisk
from tests.kit.join_secrets import SECRETS


def system_environment(nursery: trio.Nursery, tls: Tls | None = None) -> Environment:
    """The production environment; *nursery* owns its connections' tasks."""
    clock = SystemClock()
    net = WebSocketNet(SystemStreams(), clock, nursery, plain=wants_plain_websocket(), tls=tls)
    return Environment(clock, net, SystemDisk(), SystemRandomness())


class NodeDisk(SystemDisk):
    """The disk of one node.  What a killed node leaves open, the operating system would close."""

    def __init__(self) -> None:
        super().__init__()
        self._files: list[SystemFile] = []

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        file = super().open(path, create=create)
        self._files.append(file)
        return file

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            file.close()


class Died(BaseException):  # no error: nothing may handle it
    """Raised by an observer of steps to end the node at once."""


@attrs.define
class Node:
    """A running node."""

    url: str
    stop: trio.Event
    scope: trio.CancelScope
    ended: trio.Event


class Cluster:
    """Nodes in *nursery*, data under *directory*."""

    def __init__(self, nursery: trio.Nursery, directory: Path) -> None:
        self.environment = system_environment(nursery)
        self.directory = directory
        self._nursery = nursery
        self._nodes: list[Node] = []
        self.register = Node("", trio.Event(), trio.CancelScope(), trio.Event())
        self.addresses: list[str] = []
        """Those of several registers, or of the founders of a cluster without any; empty: there is
        one register."""
        self.registers: list[RegisterNode] = []
        """All that were started, the newest last."""

    async def start_register(
        self,
        *,
        gather_s: float = 0.05,
        listen: str | None = None,
        name: str = "register",
        rebalance_interval_s: float = 3600.0,
        snapshot_entries: int = JOURNAL_SNAPSHOT_ENTRIES,
        trace: Trace | None = None,
        authenticator: Authenticator | None = None,
        secrets: SecretSource = SECRETS,
        peers: Sequence[str] = (),
        show: Callable[[RegisterNode], None] | None = None,
    ) -> Node:
        """Start a register, which moves nothing by itself unless that is asked for."""
        environment = attrs.evolve(self.environment, trace=trace)
        options = RegisterOptions(
            listen=listen or f"127.0.0.1:{free_port()}",
            data_directory=str(self.directory / name),
            gather_s=gather_s,
            rebalance_interval_s=rebalance_interval_s,
            snapshot_entries=snapshot_entries,
            authenticator=authenticator,
            secrets=secrets,
            peers=tuple(peers),
        )
        show = show or self.registers.append
        self.register = await self._start(partial(run_register, environment, options, show=show))
        return self.register

    async def start_three_registers(self) -> None:
        """Start three registers that agree."""
        listens = [f"127.0.0.1:{port}" for port in free_ports(3)]
        self.addresses = [f"ws://{one}" for one in listens]
        async with trio.open_nursery() as nursery:
            for number, listen in enumerate(listens, 1):
                start = partial(
                    self.start_register,
                    listen=listen,
                    name=f"register-{number}",
                    peers=self.addresses,
                )
                nursery.start_soon(start)

    async def start_founder(
        self,
        name: str,
        *,
        listen: str,
        disk: Disk | None = None,
        trace: Trace | None = None,
    ) -> Node:
        """Start a broker of a cluster without a register, whose founders are at `addresses`."""
        own = NodeDisk()
        environment = attrs.evolve(self.environment, disk=disk or own, trace=trace)
        options = RingOptions(
            listen=listen,
            data_directory=str(self.directory / name),
            join=tuple(self.addresses),
            secrets=SECRETS,
        )
        return await self._start(partial(run_ring_broker, environment, options), own)

    async def start_broker(
        self,
        name: str = "broker-1",
        *,
        disk: Disk | None = None,
        trace: Trace | None = None,
        show: Callable[[BrokerNode], None] = lambda node: None,
        **options: object,
    ) -> Node:
        """Start a broker, on *disk* if that is given, its steps observed by *trace*."""
        own = NodeDisk()
        environment = attrs.evolve(self.environment, disk=disk or own, trace=trace)
        filled = BrokerOptions(
            listen=str(options.pop("listen", "") or f"127.0.0.1:{free_port()}"),
            data_directory=str(self.directory / name),
            registers=self.addresses or [self.register.url],
            secrets=options.pop("secrets", SECRETS),  # type: ignore[arg-type]
            **options,  # type: ignore[arg-type]
        )
        return await self._start(partial(run_broker, environment, filled, show=show), own)

    async def start_on_memory_disks(self, count: int) -> dict[int, MemoryDisk]:
        """Start brokers 1 to *count*, each on a disk in memory; returns the disks, by broker."""
        disks = {number: MemoryDisk() for number in range(1, count + 1)}
        for number, disk in disks.items():
            await self.start_broker(f"broker-{number}", disk=disk)
        return disks

    async def _start(
        self, run: Callable[..., Awaitable[None]], disk: NodeDisk | None = None
    ) -> Node:
        node = Node("", trio.Event(), trio.CancelScope(), trio.Event())

        async def live(*, task_status: trio.TaskStatus[str]) -> None:
            try:
                with node.scope:
                    await run(stop=node.stop, task_status=task_status)
            except* Died:
                pass
            finally:
                if disk is not None:
                    disk.close()
                node.ended.set()

        with trio.fail_after(20):
            node.url = await self._nursery.start(live)
        self._nodes.append(node)
        return node

    async def stop(self, node: Node) -> None:
        """End *node* gracefully."""
        node.stop.set()
        with trio.fail_after(20):
            await node.ended.wait()

    async def kill(self, node: Node) -> None:
        """End *node* at once."""
        node.scope.cancel()
        with trio.fail_after(20):
            await node.ended.wait()

    @asynccontextmanager
    async def connection(
        self, url: str, endpoint: Endpoint = CLIENT, *, token: str | None = None
    ) -> AsyncIterator[Connection]:
        """A connection of its own to a node; as a node, where the *endpoint* is for nodes."""
        if endpoint.is_for_nodes:
            shown = NodeCredentials(SECRETS, lambda: token)
            opening = open_node_connection(self.environment, url, endpoint, "test", shown)
        else:
            opening = open_connection(self.environment, url, endpoint, "test", token=token)
        connection = await opening
        await self._nursery.start(connection.run, lambda message: None)
        try:
            yield connection
        finally:
            with trio.CancelScope(shield=True):
                await connection.close()


@asynccontextmanager
async def running_cluster(
    directory: Path, brokers: int = 1, *, rebalance_interval_s: float = 3600.0
) -> AsyncIterator[Cluster]:
    """A register and *brokers* brokers, ended with the block."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, directory)
        await cluster.start_register(rebalance_interval_s=rebalance_interval_s)
        for number in range(1, brokers + 1):
            await cluster.start_broker(f"broker-{number}")
        yield cluster
        nursery.cancel_scope.cancel()


async def describe(cluster: Cluster, topic: str, *, create: bool = True) -> m.TopicInfo:
    """Ask until the register has heard enough to answer."""
    async with cluster.connection(cluster.register.url) as register:
        with trio.fail_after(10):
            while True:
                try:
                    question = m.DescribeTopic(register.next_request(), topic, create)
                    info = (await register.request(question, m.TopicDescription, 5)).topic
                    if all(one.leader is not None for one in info.partitions):
                        return info
                except RefusedError as error:
                    if not error.retryable:
                        raise
                await trio.sleep(0.01)  # nothing announces it to clients


async def eventually(holds: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait until *holds*: for what other processes or tasks do and nothing announces."""
    with trio.fail_after(within_s):
        while not holds():  # noqa: ASYNC110
            await trio.sleep(0.01)
