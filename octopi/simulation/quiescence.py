"""Determines what a simulated cluster lacks to be at rest.

This reads what the register has made durable, and the bytes on the disks, because what nodes report
may be wrong.
"""

from __future__ import annotations

from octopi.identifiers import BrokerId
from octopi.simulation.cluster import DATA_DIRECTORY, SimulatedCluster
from octopi.simulation.disk.log_bytes import ReplicaBytes
from octopi.simulation.history.events import LogName
from octopi.wire.messages import PartitionRecord


class Quiescence:
    """Examines *cluster*."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.cut_off = ""
        """A host that doesn't come back and isn't considered; empty if there is none."""

    @property
    def brokers(self) -> list[str]:
        """The hosts of the brokers that are considered."""
        return [node.name for node in self._cluster.brokers if node.name != self.cut_off]

    @property
    def records(self) -> list[PartitionRecord]:
        """The newest decision of the register about each partition."""
        return list(self._cluster.decided.state.partitions.values())

    def not_serving(self) -> str:
        """The names of the nodes that don't serve."""
        waiting = [
            node.name
            for node in self._cluster.servers
            if not (node.host.is_up and node.url and not node.stop.is_set())
            and node.name != self.cut_off
        ]
        return ", ".join(waiting)

    def ids(self) -> set[BrokerId]:
        """The ids of the present brokers."""
        found = map(self._cluster.broker_of, self.brokers)
        return {one for one in found if one is not None}

    def is_gone(self, broker: BrokerId) -> bool:
        """Whether *broker* was lost with its disk: its host has another broker now."""
        return self._cluster.broker_of(self._cluster.host_of(broker)) != broker

    def lost(self) -> list[tuple[PartitionRecord, BrokerId]]:
        """The replicas of brokers that were lost with their disks, each as partition and broker."""
        return [
            (record, broker)
            for record in self.records
            for broker in record.replicas
            if self.is_gone(broker)
        ]

    def behind(self) -> list[tuple[PartitionRecord, set[BrokerId]]]:
        """Partitions with replicas that are not in sync, and the brokers of these replicas."""
        away = self._cluster.broker_of(self.cut_off)
        found = [(one, {*one.replicas} - {away} - {*one.in_sync}) for one in self.records]
        return [(record, brokers) for record, brokers in found if brokers]

    def replicas(self, log: LogName) -> list[ReplicaBytes]:
        """The bytes of *log* on the disks of its replicas."""
        record = self._cluster.decided.state.partitions[log.partition]
        hosts = map(self._cluster.host_of, record.replicas)
        return [self.replica(host, log) for host in hosts if host != self.cut_off]

    def replica(self, host: str, log: LogName) -> ReplicaBytes:
        """The bytes of *log* on the disk of *host*."""
        disk = self._cluster.nodes[host].host.disk
        return ReplicaBytes(disk, DATA_DIRECTORY, log.topic, log.partition)
