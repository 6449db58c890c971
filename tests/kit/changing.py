"""A simulated cluster with a register whose brokers may change over to one without."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import attrs

from octopi.coordination.agreed_partition import decode_partition
from octopi.identifiers import BrokerId, PartitionId
from octopi.model import PartitionRecord
from octopi.ring.hand_over import HandOver, handed_over_entries
from octopi.roles.broker.taking_over import is_taken_over
from octopi.simulation.disk.disk import DiskSnapshot
from octopi.testing import Cluster
from octopi.testing.program import Host
from tests.kit.registers_and_ring import RegistersAndRing
from tests.kit.ring import address


class ChangingCluster(RegistersAndRing):
    """One register or several, and brokers that are prepared to go on without."""

    def __init__(
        self,
        cluster: Cluster,
        brokers: Iterable[str],
        *,
        registers: Iterable[str] = ("r",),
        partitions: int = 8,
        replicas: int = 3,
        prepared: bool = True,
    ) -> None:
        super().__init__(cluster, brokers, registers, partitions, replicas)
        self.join = {name: self._addresses() if prepared else () for name in self.brokers}
        """By which addresses each broker joins when it is started the next time."""
        for name in self.registers:
            cluster.program(name, partial(self._run_register, name))
        for number, name in enumerate(self.brokers, 1):
            cluster.program(name, partial(self._run_broker, name, BrokerId(number)))

    def _addresses(self) -> tuple[str, ...]:
        return tuple(address(one) for one in self.brokers)

    async def _run_broker(self, name: str, broker: BrokerId, host: Host) -> None:
        join = self.join[name]
        if not (join and is_taken_over(host.disk, "data")):
            await self._run_with_registers(name, self.register_addresses, join, host, broker)
        self.nodes.pop(name, None)
        await self.ring.run(name, self.join[name], host)

    # --- the disk of a register ----------------------------------------------------------------

    def back_up(self, name: str) -> DiskSnapshot:
        """A copy of what is on the disk of a register."""
        return self.cluster._simulated.nodes[name].host.disk.snapshot()

    def restore(self, name: str, copy: DiskSnapshot) -> None:
        """Start a register with an older copy of its disk."""
        self.cluster.kill(name)
        self.cluster._simulated.nodes[name].host.disk.restore(copy)
        self.cluster.restart(name)

    def replace(self, name: str) -> None:
        """Start a register with an empty disk."""
        self.cluster.wipe(name)
        self.cluster.restart(name)

    # --- what is decided -----------------------------------------------------------------------

    async def joined(self, *names: str, within_s: float = 30.0) -> None:
        """Wait until brokers, by default all, have joined the register, and are prepared if they
        can be."""

        def are_there() -> bool:
            nodes = [self.nodes.get(name) for name in names or self.brokers]
            return all(node is not None and node.is_joined() for node in nodes)

        await self.cluster.eventually(are_there, "the brokers have joined", within_s=within_s)

    async def in_ring(self, within_s: float = 60.0) -> None:
        """Wait until all brokers are in one ring."""
        await self.ring.ideal(*self.brokers, within_s=within_s)

    def check_handed_over(self) -> None:
        """Check that all brokers have taken over the same, and all that the registers decided."""
        for name in self.brokers:
            hand_over = self.ring.nodes[name].hand_over
            assert hand_over is not None
            for node in self.register_nodes.values():
                state = node.controller.state
                if not node.handing_over.is_done.is_set():
                    continue  # another one is active
                assert state.handed_over is not None
                assert HandOver(handed_over_entries(state)).record == hand_over.record
                for partition in range(hand_over.record.taken_over):
                    chosen = hand_over.chosen(PartitionId(partition))
                    decided = state.partitions.get(PartitionId(partition))
                    assert (chosen is None) == (decided is None)
                    if chosen is not None and decided is not None:
                        taken = decode_partition(chosen.value.content).record
                        assert record_content(taken) == record_content(decided)

    def known_records(self) -> Iterator[PartitionRecord]:
        """What brokers know to be decided now, whoever decided it."""
        for register in self.register_nodes.values():
            if register.handing_over.is_done.is_set():
                yield from register.controller.state.partitions.values()
        for with_register in self.nodes.values():
            yield from with_register.replicas.decisions()
        for without in self.ring.nodes.values():
            yield from without.replicas.decisions()
        for member in self.ring.members().values():
            if member.partitions is not None:
                yield from (machine.agreed.record for machine in member.partitions)


@attrs.define
class OneDecider:
    """Checks that all records of one epoch and version of a partition are the same."""

    changing: ChangingCluster
    seen: dict[tuple[int, int, int], PartitionRecord] = attrs.field(factory=dict)

    def look(self) -> None:
        for record in self.changing.known_records():
            key = (record.partition, record.epoch, record.version)
            before = self.seen.setdefault(key, record)
            assert record_content(before) == record_content(record), (before, record)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await self.changing.cluster.sleep(0.02)


def record_content(record: PartitionRecord) -> tuple[object, ...]:
    return (
        record.leader,
        record.leader_incarnation,
        sorted(record.replicas),
        sorted(record.in_sync),
    )
