"""All brokers compute the same first value of a partition, from the growth that made it."""

from __future__ import annotations

from octopi.coordination.agreed_partition import decode_partition
from octopi.identifiers import BrokerId, ClusterId, InstanceId, PartitionId
from octopi.ring.cluster_record import PartitionKind, formed
from octopi.ring.first_partition import first_partition_value, instance_of, partition_of
from tests.ring.nodes import node

FOUNDERS = tuple(node(one, point=one << 49) for one in range(1, 6))
RECORD = formed(ClusterId("c" * 16), 8, 3, FOUNDERS)


def test_the_first_replicas_are_in_sync_and_the_first_of_them_leads() -> None:
    value = first_partition_value(RECORD, PartitionId(0))
    assert value is not None
    agreed = decode_partition(value.content)
    record = agreed.record
    assert record.leader == record.replicas[0]
    assert record.leader_incarnation == 1
    assert record.in_sync == sorted(record.replicas)
    assert tuple(record.replicas) == RECORD.first_replicas(PartitionKind.LOG, PartitionId(0))
    assert (record.epoch, record.version, agreed.announced) == (1, 0, 1)
    assert agreed.incarnations == ()
    assert len(value.acceptors) == 5
    assert value.acceptors == tuple(
        sorted(RECORD.first_acceptors(PartitionKind.LOG, PartitionId(0)) or ())
    )


def test_whatever_the_cluster_becomes_the_first_value_stays() -> None:
    grown = RECORD.grown(PartitionKind.LOG, 4, 3, tuple(node(one) for one in (6, 7, 8)))
    grown = grown.with_leaving(BrokerId(1)).without(BrokerId(1)).with_next_id()
    for number in range(8):
        known = first_partition_value(RECORD, PartitionId(number))
        assert first_partition_value(grown, PartitionId(number)) == known
    added = first_partition_value(grown, PartitionId(8))
    assert added is not None
    assert {one.broker for one in added.acceptors} == {6, 7, 8}


def test_a_partition_that_nobody_made_has_no_value() -> None:
    assert first_partition_value(RECORD, PartitionId(8)) is None


def test_values_of_partitions_stand_beside_the_one_of_the_cluster() -> None:
    assert [partition_of(instance_of(PartitionId(one))) for one in (0, 1, 7)] == [0, 1, 7]
    assert partition_of(InstanceId(0)) is None
