"""Brokers of a ring on hosts of a simulated cluster, which may be killed, cut off and replaced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import trio

from octopi.ring.cluster_record import ClusterRecord
from octopi.roles.broker.ring.member import RingMember
from octopi.roles.broker.ring.node import RingBroker, run_ring_broker
from octopi.roles.broker.ring.options import RingOptions
from octopi.testing import Cluster
from octopi.testing.program import Host
from tests.kit.join_secrets import SECRETS

PORT: Final = 9101


def address(name: str) -> str:
    return f"ws://{name}:{PORT}"


class RingOfHosts:
    """Brokers of a cluster without a register, each on a host of *cluster*."""

    def __init__(self, cluster: Cluster, *, replicas: int = 3, partitions: int = 8) -> None:
        self.cluster = cluster
        self.nodes: dict[str, RingBroker] = {}
        """The newest process on each host."""
        self._lives: dict[str, int] = {}
        self._stops: dict[str, trio.Event] = {}
        self.errors: dict[str, list[Exception]] = {}
        self._replicas, self._partitions = replicas, partitions

    def start(self, name: str, join: Iterable[str]) -> None:
        """Start a broker on a new host, which joins by the hosts *join*."""
        addresses = tuple(address(one) for one in join)

        async def run(host: Host) -> None:
            await self.run(name, addresses, host)

        self.cluster.program(name, run)

    async def run(self, name: str, addresses: tuple[str, ...], host: Host) -> None:
        options = RingOptions(
            listen=f"{name}:{PORT}",
            data_directory="data",
            join=addresses,
            secrets=SECRETS,
            partition_count=self._partitions,
            replica_count=self._replicas,
        )

        def show(node: RingBroker) -> None:
            self.nodes[name] = node
            self._lives[name] = host.life

        stop = self._stops[name] = trio.Event()
        try:
            await run_ring_broker(host.environment, options, stop=stop, show=show)
        except Exception as error:
            self.errors.setdefault(name, []).append(error)
            raise

    def stop(self, name: str) -> None:
        """Have the broker on a host stop in good order."""
        self._stops[name].set()

    def member(self, name: str) -> RingMember:
        member = self.nodes[name].member
        assert member is not None
        return member

    def members(self) -> dict[str, RingMember]:
        """Those in the ring whose processes run, by host."""
        found = {
            name: node.member
            for name, node in self.nodes.items()
            if self._runs(name) and node.member is not None
        }
        return {name: one for name, one in found.items() if one.is_member}

    def _runs(self, name: str) -> bool:
        """Whether the process that `nodes` has is the present one."""
        program = self.cluster.programs[name]
        return program.is_up and program.life_count == self._lives[name]

    def record(self, name: str) -> ClusterRecord:
        record = self.member(name).keeper.record
        assert record is not None
        return record

    def is_ideal(self, names: Iterable[str]) -> bool:
        """Whether exactly these brokers are one ring, as their sorted list says, and know the same
        record of the cluster."""
        members = self.members()
        if set(members) != set(names):
            return False
        chords = [one.chord for one in members.values() if one.chord is not None]
        chords.sort(key=lambda one: one.me.place)
        nodes = [one.me for one in chords]
        count = len(nodes)
        for at, chord in enumerate(chords):
            behind = [nodes[(at + step) % count] for step in range(1, min(count, 5))]
            if list(chord.neighbours.successors) != behind:
                return False
            if count > 1 and chord.neighbours.predecessor != nodes[at - 1]:
                return False
        return len({one.keeper.record for one in members.values()}) == 1

    async def ideal(self, *names: str, within_s: float = 60.0) -> None:
        """Wait until `is_ideal`."""
        await self.cluster.eventually(
            lambda: self.is_ideal(names), f"{', '.join(names)} are one ring", within_s=within_s
        )
