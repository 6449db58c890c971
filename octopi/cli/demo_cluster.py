"""The cluster of `demo`: registers and brokers, as processes of this machine."""

from __future__ import annotations

import http.client
import json
from abc import ABC, abstractmethod
from typing import Final

import trio

from octopi.cli.config import join_secret_in
from octopi.cli.free_ports import free_ports
from octopi.cli.node_processes import NodeProcesses
from octopi.cli.secret_files import add_secret
from octopi.limits import JOIN_SECRET_BYTES
from octopi.operating_system import SystemRandomness
from octopi.transport.addresses import server_address

_ANSWER_S: Final = 1.0
"""How long a register may take to say which one is active."""


class DemoBrokers(ABC):
    """A cluster of brokers, with ids from 1 on."""

    def __init__(self, nodes: NodeProcesses) -> None:
        self.nodes: Final = nodes
        self.addresses: tuple[str, ...] = ()
        """Of the nodes that clients ask first, once they were started."""

    @abstractmethod
    async def start(self, broker_count: int) -> None:
        """Start everything; return when all serve.

        Raises:
          CommandError: if a node did not start.
        """

    @abstractmethod
    async def start_broker(self, broker: int) -> None:
        """Start a broker; return when it serves.

        Raises:
          CommandError: if it did not start.
        """

    async def kill_broker(self, broker: int) -> None:
        """Kill a broker; return when it has ended."""
        await self.nodes.kill(broker_name(broker))

    def make_secret(self) -> str:
        """Make a join secret; return the path of its file."""
        path = self.nodes.directory / "join-secret"
        add_secret(path, SystemRandomness().token_bytes(JOIN_SECRET_BYTES))
        return str(path)


class DemoCluster(DemoBrokers):
    """A register, or several, and the brokers of their cluster."""

    def __init__(self, nodes: NodeProcesses, register_count: int) -> None:
        super().__init__(nodes)
        self.register_count: Final = register_count
        self._secret = join_secret_in(str(nodes.directory / register_name(1, register_count)))

    async def start(self, broker_count: int) -> None:
        if self.register_count == 1:
            name = register_name(1, 1)
            self.addresses = (await self.nodes.start(name, "register", "--gather", "0"),)
        else:
            self._secret = self.make_secret()
            ports = free_ports(self.register_count)
            self.addresses = tuple(f"ws://127.0.0.1:{port}" for port in ports)
        async with trio.open_nursery() as nursery:
            if self.register_count > 1:
                for number in range(1, self.register_count + 1):
                    nursery.start_soon(self.start_register, number)
            for broker in range(1, broker_count + 1):
                nursery.start_soon(self.start_broker, broker)

    async def start_register(self, number: int) -> None:
        """Start one of several registers, which count from 1; return when it serves."""
        address = self.addresses[number - 1]
        await self.nodes.start(
            register_name(number, self.register_count),
            "register",
            *("--listen", address.removeprefix("ws://"), "--peers", ",".join(self.addresses)),
            *("--join-secret", self._secret, "--gather", "0"),
        )

    async def start_broker(self, broker: int) -> None:
        await self.nodes.start(
            broker_name(broker),
            "broker",
            *("--register", ",".join(self.addresses), "--id", str(broker)),
            *("--join-secret", self._secret),
        )

    async def kill_register(self, number: int) -> None:
        """Kill a register; return when it has ended."""
        await self.nodes.kill(register_name(number, self.register_count))

    async def active_register(self, *, but: int | None = None) -> int | None:
        """The number of the register of several that says that it is active; None: none does.
        *but* one isn't asked."""
        for number, address in enumerate(self.addresses, 1):
            if (
                number != but
                and await trio.to_thread.run_sync(_named_active_by, address) == address
            ):
                return number
        return None


def register_name(number: int, count: int) -> str:
    """The name of the process of register *number*, of *count*, and of its folder."""
    return "register" if count == 1 else f"register-{number}"


def broker_name(broker: int) -> str:
    """The name of the broker's process and of its folder."""
    return f"broker-{broker}"


def _named_active_by(address: str) -> str:
    """The address of the register that the one at *address* takes for the active one; empty: it
    knows of none, or does not answer."""
    host, port = server_address(address)
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/api/v1/status")
        return str(json.loads(connection.getresponse().read())["active_register"])
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return ""
    finally:
        connection.close()
