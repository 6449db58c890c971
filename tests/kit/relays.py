"""Relays of a static list on hosts of a simulated cluster, which may be killed and cut off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import trio

from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import PARTITION_COUNT_DEFAULT, RELAY_MEMORY_BYTES
from octopi.relay.buffer import BufferBounds
from octopi.relay.member import RelayMember
from octopi.roles.broker.relay.mesh import PlacedStreams
from octopi.roles.broker.relay.node import RelayBroker, run_relay_broker
from octopi.roles.broker.relay.options import RelayOptions
from octopi.testing import Cluster
from octopi.testing.program import Host
from tests.kit.join_secrets import SECRETS

PORT: Final = 9101


class RelaysOfHosts:
    """Relays, each on a host of *cluster* of its own."""

    def __init__(
        self,
        cluster: Cluster,
        names: Iterable[str] = "abc",
        *,
        partitions: int = PARTITION_COUNT_DEFAULT,
        replicas: int = 3,
        bounds: BufferBounds | None = None,
        placed: Sequence[PlacedStreams] = (),
        memory_bytes: int = RELAY_MEMORY_BYTES,
    ) -> None:
        self.cluster = cluster
        self.names = list(names)
        self.nodes: dict[str, RelayBroker] = {}
        """The newest process on each host."""
        self._lives: dict[str, int] = {}
        self._stops: dict[str, trio.Event] = {}
        self.errors: dict[str, list[Exception]] = {}
        self._partitions, self._replicas = partitions, replicas
        self._bounds = bounds or BufferBounds()
        self._placed, self._memory_bytes = placed, memory_bytes

    @property
    def addresses(self) -> list[str]:
        return [f"ws://{name}:{PORT}" for name in self.names]

    def id_of(self, name: str) -> BrokerId:
        return BrokerId(self.names.index(name) + 1)

    def name_of(self, broker: BrokerId) -> str:
        return self.names[broker - 1]

    def start(self, *names: str) -> None:
        """Start these relays, or all."""
        for name in names or self.names:
            self._start(name)

    def stop(self, name: str) -> None:
        """Have a relay end as after SIGTERM."""
        self._stops[name].set()

    def _start(self, name: str) -> None:
        async def run(host: Host) -> None:
            await self.run(name, host)

        self.cluster.program(name, run)

    async def run(self, name: str, host: Host) -> None:
        options = RelayOptions(
            listen=f"{name}:{PORT}",
            data_directory="data",
            broker=self.id_of(name),
            relays={self.id_of(one): f"ws://{one}:{PORT}" for one in self.names},
            secrets=SECRETS,
            partition_count=self._partitions,
            replica_count=self._replicas,
            bounds=self._bounds,
            placed=self._placed,
            relay_memory_bytes=self._memory_bytes,
        )

        def show(node: RelayBroker) -> None:
            self.nodes[name] = node
            self._lives[name] = host.life

        stop = self._stops[name] = trio.Event()
        try:
            await run_relay_broker(host.environment, options, stop=stop, show=show)
        except Exception as error:
            self.errors.setdefault(name, []).append(error)
            raise

    def running(self) -> dict[str, RelayBroker]:
        """Those whose processes run, by host."""
        return {name: node for name, node in self.nodes.items() if self._runs(name)}

    def _runs(self, name: str) -> bool:
        program = self.cluster.programs[name]
        return program.is_up and program.life_count == self._lives[name]

    def members(self, partition: int = 0) -> dict[str, RelayMember]:
        """The machines of a partition on the relays that run."""
        number = PartitionId(partition)
        found = {name: node.partitions for name, node in self.running().items()}
        return {
            name: member
            for name, partitions in found.items()
            if partitions and (member := partitions[number].member) is not None
        }

    def are_alike(self, names: Iterable[str]) -> bool:
        """Whether exactly these relays run, and are part of the same epochs, with the same
        histories."""
        if set(self.running()) != set(names):
            return False
        for partition in range(self._partitions):
            members = self.members(partition).values()
            if not all(one.is_normal and one.streams.is_whole for one in members):
                return False
            if len({one.epoch for one in members}) > 1:
                return False
            ends = [
                {one.topic_id: (one.buffer.end, one.highwater) for one in of.streams}
                for of in members
            ]
            if any(one != ends[0] for one in ends):
                return False
        return True

    async def alike(self, *names: str, within_s: float = 30.0) -> None:
        """Wait until `are_alike`."""
        wanted = names or tuple(self.names)
        await self.cluster.eventually(
            lambda: self.are_alike(wanted), f"{', '.join(wanted)} are alike", within_s=within_s
        )
