"""Redirects clients that should have asked the leader.  Every broker has the partition table."""

from __future__ import annotations

from octopi.errors import NotLeaderError, RefusedError, refused
from octopi.identifiers import PartitionId
from octopi.roles.broker.replica_manager import ReplicaManager


def not_served(manager: ReplicaManager, reason: str, partition: PartitionId) -> RefusedError:
    """The refusal of a broker that does not serve *partition* any more: that it may not
    (`ReplicaManager.fence`), or a `redirect` with *reason*."""
    if (fence := manager.fence(partition)) is not None:
        return refused(fence.status, fence.reason)
    return redirect(manager, reason, partition)


def redirect(manager: ReplicaManager, reason: str, partition: PartitionId) -> NotLeaderError:
    """The refusal *reason* of a broker that does not lead *partition*, with the leader's address
    and epoch if this broker knows them."""
    decided = manager.metadata.partitions.get(partition)
    replica = manager.replica(partition)
    own = replica.machine.state.record if replica is not None else None
    if own and (not decided or (decided.epoch, decided.version) < (own.epoch, own.version)):
        decided = own
    if decided is None or (replica is not None and decided.leader == replica.machine.broker):
        return NotLeaderError(reason)
    address = manager.metadata.address_of(decided.leader)
    return NotLeaderError(reason, address=address, epoch=decided.epoch if address else None)
