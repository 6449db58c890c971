"""A leader whose disk fails asks the register for another leader."""

from __future__ import annotations

from octopi.errors import StorageError
from octopi.logger import get_logger
from octopi.replication.partition_replica import PartitionReplica
from octopi.roles.broker.replica_ports import ReplicaPorts
from octopi.transport.failures import told
from octopi.wire.messages import Resign

_log = get_logger(__name__)


class Resignation:
    """Resigns for the replica of *machine*, at most once in each epoch that it leads."""

    def __init__(self, machine: PartitionReplica, ports: ReplicaPorts) -> None:
        self._machine = machine
        self._ports = ports
        self._sent: Resign | None = None
        self.is_refusing = False
        """Whether the disk failed to take the last append."""

    def resign(self, error: StorageError) -> None:
        """Ask for another leader, if this replica leads and another replica is in sync."""
        leader = self._machine.leader
        if leader is None:
            return
        # Another replica shall lead, so this leader proposes to remove none from the in-sync set,
        # although a replica lags as soon as it has accepted the next epoch.
        self.is_refusing, leader.takes_records = True, False
        if self.has_resigned or len(leader.in_sync) < 2:
            return
        partition = self._machine.partition
        _log.warning("resigning", partition=partition, epoch=leader.epoch, why=str(error))
        reason = told(str(error))
        self._sent = Resign(partition, leader.epoch, leader.broker, leader.incarnation, reason)
        self._ports.to_register(self._sent)

    def withdraw(self) -> None:
        """The disk takes records again, and the replica leads on unless another one leads by
        now."""
        self.is_refusing = False
        if (leader := self._machine.leader) is not None:
            leader.takes_records = True

    def repeat(self) -> None:
        """Ask again, because the request may have been lost with the link to the register; but not
        if the disk takes records again."""
        if self._sent is not None and self.has_resigned and self.is_refusing:
            self._ports.to_register(self._sent)

    @property
    def has_resigned(self) -> bool:
        """Whether another leader was asked for in the epoch in which the replica leads."""
        leader = self._machine.leader
        return leader is not None and self._sent is not None and self._sent.epoch == leader.epoch
