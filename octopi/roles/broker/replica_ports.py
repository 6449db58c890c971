"""The ports of a replica: what it needs of the broker around it."""

from __future__ import annotations

from typing import Protocol

from octopi.errors import StorageError
from octopi.identifiers import BrokerId, PartitionId
from octopi.replication.effects import Refusal
from octopi.wire.messages import (
    AcceptEpoch,
    Acknowledge,
    AlterInSync,
    Follow,
    Followed,
    FollowRefused,
    Resign,
)


class ReplicaPorts(Protocol):
    """What a replica needs of the broker around it; see `octopi.roles.broker.replica_streams`."""

    def fence(self, partition: PartitionId) -> Refusal | None:
        """See `octopi.roles.broker.controller_link.ControllerLink.fence`."""

    def to_register(self, message: AlterInSync | AcceptEpoch | Resign) -> None:
        """Send *message* to the controller, if it is there; otherwise the replica sends it again
        later."""

    def to_broker(
        self,
        partition: PartitionId,
        broker: BrokerId,
        message: Follow | Followed | FollowRefused | Acknowledge,
    ) -> None:
        """Send *message* on the stream with *broker*, if there is one."""

    def follow(self, partition: PartitionId, leader: BrokerId) -> None:
        """Keep a stream to *leader* open from now on."""

    def follow_anew(self, partition: PartitionId) -> None:
        """Close the stream to the leader, and open another one after a while."""

    def stop_following(self, partition: PartitionId) -> None:
        """Close the stream to the leader."""

    def produced(self, size_bytes: int) -> None:
        """Note that producers appended *size_bytes*."""

    def disk_refused(self, error: StorageError) -> None:
        """A write or a flush failed on the disk: it is full, or has a fault."""
