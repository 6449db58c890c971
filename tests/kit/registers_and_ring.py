"""A simulated cluster whose brokers have registers, or a ring, and may change over."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import trio

from octopi.identifiers import BrokerId
from octopi.roles.broker.node import BrokerNode, BrokerOptions, run_broker
from octopi.roles.register.node import RegisterNode
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.running import run_register
from octopi.testing import Cluster
from octopi.testing.program import Host
from tests.kit.join_secrets import SECRETS
from tests.kit.ring import PORT, RingOfHosts

REGISTER_PORT = 7000


def register_address(name: str) -> str:
    return f"ws://{name}:{REGISTER_PORT}"


class RegistersAndRing:
    """Hosts for registers and brokers, and the processes that run on them."""

    def __init__(
        self,
        cluster: Cluster,
        brokers: Iterable[str],
        registers: Iterable[str],
        partitions: int,
        replicas: int,
    ) -> None:
        self.cluster = cluster
        self.ring = RingOfHosts(cluster, partitions=partitions, replicas=replicas)
        self.brokers = tuple(brokers)
        self.registers = tuple(registers)
        self.nodes: dict[str, BrokerNode] = {}
        """The newest process of each broker that has a register."""
        self.register_nodes: dict[str, RegisterNode] = {}
        self.errors: dict[str, list[Exception]] = {}
        self._partitions, self._replicas = partitions, replicas

    @property
    def register_addresses(self) -> list[str]:
        return list(map(register_address, self.registers))

    async def _run_register(self, name: str, host: Host) -> None:
        is_one_of_several = name in self.registers and len(self.registers) > 1
        options = RegisterOptions(
            listen=f"{name}:{REGISTER_PORT}",
            data_directory="data",
            partition_count=self._partitions,
            replica_count=self._replicas,
            gather_s=1.0,
            secrets=SECRETS,
            peers=tuple(self.register_addresses) if is_one_of_several else (),
        )

        def show(node: RegisterNode) -> None:
            self.register_nodes[name] = node

        await self._noting(name, partial(run_register, host.environment, options, show=show))

    async def _run_with_registers(
        self,
        name: str,
        registers: Iterable[str],
        join: tuple[str, ...],
        host: Host,
        broker: BrokerId | None = None,
    ) -> None:
        """Run a broker that has *registers*, by their addresses."""
        options = BrokerOptions(
            listen=f"{name}:{PORT}",
            data_directory="data",
            registers=list(registers),
            secrets=SECRETS,
            broker=broker,
            join=join,
        )

        def show(node: BrokerNode) -> None:
            self.nodes[name] = node

        await self._noting(name, partial(run_broker, host.environment, options, show=show))

    async def _noting(self, name: str, run: partial) -> None:  # type: ignore[type-arg]
        try:
            await run(stop=trio.Event())
        except Exception as error:
            self.errors.setdefault(name, []).append(error)
            raise
