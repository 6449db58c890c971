"""A register and brokers as processes, every way between them through the network's proxies."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from typing import Final

import trio

from octopi.simulation.history import LogName
from tests.chaos.proxy import Network
from tests.processes import NodeProcess, NodeProcesses

REGISTER: Final = "register"

_PORTS: Final = range(20_000, 32_000)
"""Below those that the system gives to whoever connects: a node that was killed has to get
its own again."""


class ChaosCluster:
    """The nodes of one run."""

    def __init__(self, nodes: NodeProcesses, nursery: trio.Nursery) -> None:
        self.network = Network(nursery, self._pids)
        self.nodes: dict[str, NodeProcess] = {}
        """By name; brokers are ``broker-1`` and so on, by their ids."""
        self.register_url = ""
        self._processes = nodes

    async def start(self, brokers: int) -> None:
        """Start a register and *brokers* brokers."""
        port = free_port()
        self.register_url = await self.network.open(REGISTER, port)
        await self._start(REGISTER, port, "--gather", "0")
        for number in range(1, brokers + 1):
            name, port = f"broker-{number}", free_port()
            url = await self.network.open(name, port)
            await self._start(name, port, "--register", self.register_url, "--advertise", url)

    async def _start(self, name: str, port: int, *options: str) -> None:
        role = REGISTER if name == REGISTER else "broker"
        node = self._processes.node(name, role, "--listen", f"127.0.0.1:{port}", *options)
        self.nodes[name] = node
        await in_thread(node.start)

    @property
    def brokers(self) -> list[str]:
        """The names of the brokers."""
        return [name for name in self.nodes if name != REGISTER]

    def _pids(self) -> dict[str, int]:
        return {name: node.pid for name, node in self.nodes.items() if node.is_running}

    def records(self, broker: str, log: LogName, end: int) -> bytes:
        """The bytes of *log* up to *end*, as the disk of *broker* has them."""
        directory = self.nodes[broker].data_dir / "logs" / str(log.partition) / log.topic
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))[:end]

    def complaints(self) -> list[str]:
        """Lines of the nodes' logs that tell of what must not be, whatever fails around."""
        return [
            f"{name}: {line}"
            for name, node in self.nodes.items()
            for line in node.log().splitlines()
            if not line.startswith("{") or '"level": "error"' in line
        ]


def free_port() -> int:
    """A port of this machine where nobody listens."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


async def in_thread(act: Callable[[], object]) -> None:
    """Wait for a process without keeping the clients from going on."""
    await trio.to_thread.run_sync(act)
