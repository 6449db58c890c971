"""The first value that acceptors agree on about a partition: a function of the cluster record.

The first value counts as chosen, so all brokers have to know the same one
(`octopi.ring.cluster_record`).  By it the first of the partition's first replicas leads, in the
incarnation that it had when the partition was made, with all replicas in sync: their logs are
empty.  No incarnation is registered yet, and no replica acts before its broker's is.  So if that
leader has been restarted meanwhile, an election comes first.
"""

from __future__ import annotations

from octopi.agreement.values import first_value
from octopi.coordination.agreed_partition import AgreedPartition, encode_partition
from octopi.identifiers import Epoch, InstanceId, PartitionId
from octopi.model import PartitionRecord
from octopi.ring.cluster_record import ClusterRecord, PartitionKind
from octopi.ring.groups import replica_group
from octopi.wire.agreement import AgreedValue

_FIRST_INSTANCE = 1
"""The number of the value about partition 0.  Value 0 is about the cluster."""


def instance_of(partition: PartitionId) -> InstanceId:
    """The number of the agreed value about *partition*, which has logs."""
    return InstanceId(_FIRST_INSTANCE + partition)


def partition_of(instance: InstanceId) -> PartitionId | None:
    """The partition that agreed value *instance* is about; None: it is about none."""
    return PartitionId(instance - _FIRST_INSTANCE) if instance >= _FIRST_INSTANCE else None


def first_partition_value(record: ClusterRecord, partition: PartitionId) -> AgreedValue | None:
    """The first value about *partition*, which has logs; None: there is no such partition."""
    growth = record.growth_of(PartitionKind.LOG, partition)
    if growth is None:
        return None
    replicas, acceptors = replica_group(partition, growth.replicas, growth.members)
    ids = [one.broker for one in replicas]
    first = PartitionRecord(
        partition=partition,
        epoch=Epoch(1),
        version=0,
        leader=replicas[0].broker,
        leader_incarnation=replicas[0].incarnation,
        replicas=ids,
        in_sync=sorted(ids),
    )
    content = encode_partition(AgreedPartition(first, Epoch(1)))
    return first_value([one.identity for one in acceptors], content)
