"""Brokers of a ring that hand their cluster over to registers, in a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import attrs

from octopi.model import PartitionRecord
from octopi.ring.ending import Ending
from octopi.roles.broker.ended_ring import registers_of
from octopi.roles.broker.ring.member import RingMember
from octopi.roles.broker.taking_over import is_taken_over
from octopi.roles.register.node import RegisterNode
from octopi.testing import Cluster
from octopi.testing.program import Host
from tests.kit.changing import record_content
from tests.kit.registers_and_ring import RegistersAndRing, register_address
from tests.kit.ring import address


class EndingCluster(RegistersAndRing):
    """Founders of a ring, and registers with empty disks."""

    def __init__(
        self,
        cluster: Cluster,
        brokers: Iterable[str],
        *,
        registers: Iterable[str] = ("r",),
        partitions: int = 8,
        replicas: int = 3,
        former: str = "",
    ) -> None:
        """*former*: the register that the brokers have at first; empty: they are founders."""
        super().__init__(cluster, brokers, registers, partitions, replicas)
        self.former = former
        for name in (*self.registers, *([former] if former else [])):
            cluster.program(name, partial(self._run_register, name))
        for name in self.brokers:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a broker on a new host."""
        self.cluster.program(name, partial(self._run_broker, name))

    async def _run_broker(self, name: str, host: Host) -> None:
        join = tuple(map(address, self.brokers))
        while not (registers := registers_of(host.disk, "data")):
            if self.former and not is_taken_over(host.disk, "data"):
                former = register_address(self.former)
                await self._run_with_registers(name, (former,), join, host)
            self.nodes.pop(name, None)
            await self.ring.run(name, join, host)
        self.ring.nodes.pop(name, None)
        await self._run_with_registers(name, registers, join if self.former else (), host)

    # --- what is decided -----------------------------------------------------------------------

    async def in_ring(self, within_s: float = 60.0) -> None:
        """Wait until all brokers are in one ring."""
        await self.ring.ideal(*self.brokers, within_s=within_s)

    async def joined(self, within_s: float = 60.0) -> None:
        """Wait until all brokers have joined a register."""

        def are_there() -> bool:
            nodes = [self.nodes.get(name) for name in self.brokers]
            return all(node is not None and node.is_joined() for node in nodes)

        await self.cluster.eventually(are_there, "the brokers have joined", within_s=within_s)

    @property
    def endings(self) -> list[Ending]:
        """What the brokers in the ring know of the order."""
        records = [one.keeper.record for one in self.ring.members().values()]
        return [one.ending for one in records if one is not None and one.ending is not None]

    @property
    def register(self) -> RegisterNode:
        """The register that decides."""
        nodes = [self.register_nodes[name] for name in self.registers]
        return next(one for one in nodes if one.controller.state.cluster)

    def known_records(self) -> Iterator[PartitionRecord]:
        """What is known to be decided now, whoever decided it."""
        for register in self.register_nodes.values():
            yield from register.controller.state.partitions.values()
        for with_register in self.nodes.values():
            yield from with_register.replicas.decisions()
        for without in self.ring.nodes.values():
            yield from without.replicas.decisions()
            if without.member is not None and without.member.partitions is not None:
                yield from (one.agreed.record for one in without.member.partitions)


@attrs.define
class OneDeciderSince:
    """Checks that all records of one epoch and version of a partition are the same, that all
    partitions are closed when registers decide, and that a register begins with the last record of
    the ring."""

    ending: EndingCluster
    seen: dict[tuple[int, int, int], PartitionRecord] = attrs.field(factory=dict)
    last: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    """The highest epoch and version of each partition in the ring."""
    taken: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    """With which epoch and version a register began."""
    values: dict[int, tuple[int, bool]] = attrs.field(factory=dict)
    """The newest value of each partition: the count of its changes, and whether it is closed."""
    members: dict[str, RingMember] = attrs.field(factory=dict)
    """The last process of each broker that was in the ring."""

    def look(self) -> None:
        for record in self.ending.known_records():
            key = (record.partition, record.epoch, record.version)
            before = self.seen.setdefault(key, record)
            assert record_content(before) == record_content(record), (before, record)
        for name, node in self.ending.ring.nodes.items():
            if node.member is not None:
                self.members[name] = node.member
        for member in self.members.values():
            for one in member.partitions or ():
                record = one.agreed.record
                number = (record.epoch, record.version)
                self.last[one.partition] = max(self.last.get(one.partition, (0, 0)), number)
                value = (one.value.change, one.agreed.is_closed)
                self.values[one.partition] = max(self.values.get(one.partition, (-1, False)), value)
        endings = [one.record.ending for one in self.members.values() if one.record is not None]
        if any(one is not None and one.is_over for one in endings):
            still_open = [one for one, (_, is_closed) in self.values.items() if not is_closed]
            assert not still_open, f"the ring decides about partitions {still_open}, too"
        for name in self.ending.registers:
            register = self.ending.register_nodes.get(name)
            if register is None:
                continue
            for record in register.controller.state.partitions.values():
                number = (record.epoch, record.version)
                begun = self.taken.setdefault(record.partition, number)
                last = self.last.get(record.partition, (0, 0))
                assert last <= begun, f"two decide about partition {record.partition}"

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await self.ending.cluster.sleep(0.02)
