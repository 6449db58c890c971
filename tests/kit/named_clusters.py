"""Clusters whose brokers are called by name: of real processes, or in the test's process.

Both answer the same questions and end brokers the same ways, so that a scenario chooses
only by what it is about: processes where something dies for real, else the faster one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import trio

import octopi
from harness.machines import Machine
from harness.processes import NodeProcess, NodeProcesses, node_processes
from octopi.cli.free_ports import free_ports
from octopi.environment import Trace
from tests.kit.cluster import Cluster, Node
from tests.kit.disk import MemoryDisk
from tests.kit.register_processes import three_registers
from tests.kit.replicas import DataDirectory, Servers
from tests.kit.ring_processes import start_ring


class Deciders(StrEnum):
    """Who decides which broker leads what."""

    ONE_REGISTER = "one register"
    THREE_REGISTERS = "three registers"
    BROKERS = "brokers"


each_way = pytest.mark.parametrize("deciders", list(Deciders), ids=str)
"""Has a test run once with each."""

each_with_registers = pytest.mark.parametrize(
    "deciders", [Deciders.ONE_REGISTER, Deciders.THREE_REGISTERS], ids=str
)
"""The same for what holds only where a register decides: without any a majority of the brokers has
to be alive, and gives ids and places replicas otherwise."""

LEADER_S = 40.0
"""A partition has a leader sooner than this, if it can have one."""


class NamedBrokers(ABC):
    """A cluster, its brokers called ``broker-1``, ``broker-2`` and so on."""

    names: list[str]

    @property
    @abstractmethod
    def url(self) -> Servers:
        """The addresses of who decides: what clients need."""

    @abstractmethod
    def data_dir(self, name: str) -> Path:
        """Where that broker keeps its data."""

    @abstractmethod
    def address(self, name: str) -> str:
        """Where that broker serves."""

    @abstractmethod
    async def kill(self, name: str) -> None:
        """End it without warning."""

    @abstractmethod
    async def restart(self, name: str) -> None:
        """Start it again with the data and the address that it had; wait until it joined."""

    @property
    def data_dirs(self) -> list[DataDirectory]:
        """All brokers' data directories."""
        return [DataDirectory(self.data_dir(name)) for name in self.names]

    async def create(self, topic: str, partitions: int = 1) -> None:
        """Make a topic."""
        async with octopi.connect(self.url) as client:
            await client.create_topic(topic, partitions)

    async def place(self, topic: str) -> octopi.PartitionInfo:
        """Wait until the topic's first partition has a leader; say where it is."""
        with trio.fail_after(LEADER_S):
            async with octopi.connect(self.url, request_timeout_s=LEADER_S) as client:
                while True:
                    place = (await client.describe_topic(topic)).partitions[0]
                    if place.leader is not None:
                        return place
                    await trio.sleep(0.01)  # nothing announces it to clients

    async def in_sync(self, topic: str, count: int) -> octopi.PartitionInfo:
        """Wait until so many are in sync."""
        with trio.fail_after(LEADER_S):
            while True:
                place = await self.place(topic)
                if len(place.in_sync) == count:
                    return place
                await trio.sleep(0.01)  # nothing announces it to clients

    async def leader(self, topic: str) -> str:
        """The name of the broker that leads it, as soon as one does."""
        return self.named((await self.place(topic)).leader_address)

    async def leader_after(self, topic: str, former: str) -> str:
        """The name of the broker that leads it, as soon as that is another one than *former*, which
        the register may not have noticed yet."""
        with trio.fail_after(LEADER_S):
            while True:
                name = await self.leader(topic)
                if name != former:
                    return name
                await trio.sleep(0.01)  # nothing announces it to clients

    async def followers(self, topic: str) -> list[str]:
        """The names of the other brokers."""
        leader = await self.leader(topic)
        return [name for name in self.names if name != leader]

    def named(self, address: str) -> str:
        """Whose address that is."""
        (name,) = [name for name in self.names if self.address(name) == address]
        return name


class ProcessCluster(NamedBrokers):
    """Real processes."""

    def __init__(
        self, nodes: NodeProcesses, registers: list[NodeProcess], *, on_machines: bool = False
    ) -> None:
        """*registers*: none in a cluster whose brokers decide.  *on_machines*: each broker is on a
        machine of its own."""
        self.registers = registers
        self._on_machines = on_machines
        self.brokers: dict[str, NodeProcess] = {}
        self.names = []
        self._nodes = nodes

    @property
    def register(self) -> NodeProcess:
        """The register, of which there is one."""
        (register,) = self.registers
        return register

    @property
    def url(self) -> Servers:
        urls = [one.url for one in self.registers or self.brokers.values()]
        return urls[0] if len(urls) == 1 else urls

    def data_dir(self, name: str) -> Path:
        return self.brokers[name].data_dir

    def address(self, name: str) -> str:
        return self.brokers[name].url

    def add(self, count: int) -> list[NodeProcess]:
        """Describe further brokers, not started yet."""
        added = []
        registers = ",".join(one.url for one in self.registers)
        for _ in range(count):
            name = f"broker-{len(self.names) + 1}"
            self.names.append(name)
            machine = Machine(self._nodes.directory / f"{name}.machine")
            self.brokers[name] = self._nodes.node(
                name,
                "broker",
                "--register",
                registers,
                machine=machine if self._on_machines else None,
            )
            added.append(self.brokers[name])
        return added

    async def kill(self, name: str) -> None:
        self.brokers[name].kill9()

    async def restart(self, name: str) -> None:
        await trio.to_thread.run_sync(self.brokers[name].restart)


@asynccontextmanager
async def process_cluster(
    directory: Path,
    brokers: int = 3,
    *,
    deciders: Deciders = Deciders.ONE_REGISTER,
    on_machines: bool = False,
) -> AsyncIterator[ProcessCluster]:
    """*brokers* brokers and who decides for them, as processes; *on_machines*: with one register,
    each on one whose power and disk may fail (`harness.machines`)."""
    with node_processes(directory) as nodes:
        if deciders is Deciders.BROKERS:
            cluster = ProcessCluster(nodes, [])
            for one in await trio.to_thread.run_sync(start_ring, nodes, brokers, "broker"):
                cluster.names.append(one.name)
                cluster.brokers[one.name] = one
        else:
            if deciders is Deciders.THREE_REGISTERS:
                registers = await trio.to_thread.run_sync(three_registers, nodes)
            else:
                machine = Machine(directory / "register.machine") if on_machines else None
                register = nodes.node("register", "register", "--gather", "0", machine=machine)
                registers = [await trio.to_thread.run_sync(register.start)]
            cluster = ProcessCluster(nodes, registers, on_machines=on_machines)
            await start_together(cluster.add(brokers))
        yield cluster


async def start_together(nodes: list[NodeProcess]) -> None:
    """Start processes at the same time; wait until all serve."""
    for node in nodes:
        node.launch()
    for node in nodes:
        await trio.to_thread.run_sync(node.wait_ready)


class LocalCluster(NamedBrokers):
    """Everything in the test's process."""

    def __init__(self, cluster: Cluster, deciders: Deciders = Deciders.ONE_REGISTER) -> None:
        self.cluster = cluster
        self._deciders = deciders
        self.names = []
        self._nodes: dict[str, Node] = {}
        self._ids: dict[str, int | None] = {}
        self.disks: dict[str, MemoryDisk | None] = {}
        self.traces: dict[str, Trace] = {}
        """Observers of the steps of brokers that are started from now on."""
        self.options: dict[str, Any] = {}
        """How brokers run that are started from now on."""

    @property
    def url(self) -> Servers:
        return self.cluster.addresses or self.cluster.register.url

    def data_dir(self, name: str) -> Path:
        return self.cluster.directory / name

    @property
    def data_dirs(self) -> list[DataDirectory]:
        return [DataDirectory(self.data_dir(name), self.disks[name]) for name in self.names]

    def address(self, name: str) -> str:
        return self._nodes[name].url

    def node(self, name: str) -> Node:
        """The running broker of that name."""
        return self._nodes[name]

    async def found(self, count: int) -> None:
        """Start the brokers of a cluster that has no register."""
        self.names += [f"broker-{number}" for number in range(1, count + 1)]
        listens = {
            name: f"127.0.0.1:{port}"
            for name, port in zip(self.names, free_ports(count), strict=True)
        }
        self.cluster.addresses = [f"ws://{one}" for one in listens.values()]

        async def start(name: str) -> None:
            self.disks[name] = self._ids[name] = None
            self._nodes[name] = await self.cluster.start_founder(
                name, listen=listens[name], trace=self.traces.get(name)
            )

        async with trio.open_nursery() as nursery:
            for name in self.names:
                nursery.start_soon(start, name)

    async def add(self, disk: MemoryDisk | None = None, broker: int | None = None) -> str:
        """Start one more broker, with the id *broker* if that is given; return its name."""
        name = f"broker-{len(self.names) + 1}"
        self.disks[name] = disk
        self._ids[name] = broker
        self._nodes[name] = await self.cluster.start_broker(
            name, disk=disk, trace=self.traces.get(name), broker=broker, **self.options
        )
        self.names.append(name)
        return name

    async def kill(self, name: str) -> None:
        await self.cluster.kill(self._nodes[name])

    async def stop(self, name: str) -> None:
        """End it gracefully."""
        await self.cluster.stop(self._nodes[name])

    async def restart(self, name: str) -> None:
        listen = self._nodes[name].url.removeprefix("ws://")
        if self._deciders is Deciders.BROKERS:
            self._nodes[name] = await self.cluster.start_founder(
                name, listen=listen, disk=self.disks[name], trace=self.traces.get(name)
            )
            return
        self._nodes[name] = await self.cluster.start_broker(
            name,
            listen=listen,
            disk=self.disks[name],
            trace=self.traces.get(name),
            broker=self._ids[name],
            **self.options,
        )


@asynccontextmanager
async def local_cluster(
    directory: Path, brokers: int = 3, *, deciders: Deciders = Deciders.ONE_REGISTER
) -> AsyncIterator[LocalCluster]:
    """*brokers* brokers, and who decides for them, in this process."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, directory)
        local = LocalCluster(cluster, deciders)
        match deciders:
            case Deciders.ONE_REGISTER:
                await cluster.start_register()
            case Deciders.THREE_REGISTERS:
                await cluster.start_three_registers()
            case Deciders.BROKERS:
                await local.found(brokers)
        while len(local.names) < brokers:
            await local.add()
        yield local
        nursery.cancel_scope.cancel()
