"""A leader whose disk fails asks for another one: once an epoch, and again over a new link."""

from __future__ import annotations

from typing import cast

import attrs

from octopi.errors import StorageError
from octopi.replication.partition_replica import PartitionReplica
from octopi.roles.broker.replica_ports import ReplicaPorts
from octopi.roles.broker.resignation import Resignation
from octopi.wire.messages import Resign

FAILURE = StorageError("the disk is gone")


@attrs.define
class Leader:
    epoch: int
    in_sync: list[int]
    broker: int = 1
    incarnation: int = 7
    takes_records: bool = True


@attrs.define
class Replica:
    leader: Leader | None
    partition: int = 3


@attrs.define
class Ports:
    asked: list[Resign] = attrs.field(factory=list)

    def to_register(self, message: Resign) -> None:
        self.asked.append(message)


def resignation(replica: Replica, ports: Ports) -> Resignation:
    return Resignation(cast(PartitionReplica, replica), cast(ReplicaPorts, ports))


def test_a_leader_resigns_once_in_each_epoch() -> None:
    replica, ports = Replica(Leader(4, [1, 2])), Ports()
    own = resignation(replica, ports)
    assert not own.has_resigned
    own.resign(FAILURE)
    own.resign(FAILURE)
    assert own.has_resigned
    assert [(one.epoch, one.leader) for one in ports.asked] == [(4, 1)]
    replica.leader = Leader(6, [1, 2])
    assert not own.has_resigned
    own.resign(FAILURE)
    assert [one.epoch for one in ports.asked] == [4, 6]


def test_a_leader_that_is_alone_in_sync_does_not_resign() -> None:
    ports = Ports()
    resignation(Replica(Leader(4, [1])), ports).resign(FAILURE)
    resignation(Replica(None), ports).resign(FAILURE)
    assert ports.asked == []


def test_a_resignation_is_repeated_only_in_its_epoch() -> None:
    replica, ports = Replica(Leader(4, [1, 2])), Ports()
    own = resignation(replica, ports)
    own.repeat()
    own.resign(FAILURE)
    own.repeat()
    assert [one.epoch for one in ports.asked] == [4, 4]
    replica.leader = Leader(5, [1, 2])
    own.repeat()
    replica.leader = None
    own.repeat()
    assert [one.epoch for one in ports.asked] == [4, 4]


def test_a_resignation_is_not_repeated_when_the_disk_takes_records_again() -> None:
    replica, ports = Replica(Leader(4, [1, 2])), Ports()
    own = resignation(replica, ports)
    own.resign(FAILURE)
    own.withdraw()
    own.repeat()
    assert len(ports.asked) == 1
    own.resign(FAILURE)
    own.repeat()
    assert len(ports.asked) == 2


def test_a_leader_proposes_no_removal_until_its_disk_takes_records_again() -> None:
    replica, ports = Replica(Leader(4, [1])), Ports()
    assert replica.leader is not None
    own = resignation(replica, ports)
    own.resign(FAILURE)
    assert own.is_refusing
    assert not replica.leader.takes_records
    own.withdraw()
    assert not own.is_refusing
    assert replica.leader.takes_records
