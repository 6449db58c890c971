"""What a replica of a partition needs of its surroundings."""

from __future__ import annotations

from typing import Protocol

from octopi.errors import StorageError
from octopi.identifiers import BrokerId, PartitionId
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

    def to_register(self, message: AlterInSync | AcceptEpoch | Resign) -> None:
        """Send it, if the controller is there; the replica repeats it otherwise."""

    def to_broker(
        self,
        partition: PartitionId,
        broker: BrokerId,
        message: Follow | Followed | FollowRefused | Acknowledge,
    ) -> None:
        """Send it on the stream with *broker*, if there is one."""

    def follow(self, partition: PartitionId, leader: BrokerId) -> None:
        """Keep a stream to *leader* open from now on."""

    def follow_anew(self, partition: PartitionId) -> None:
        """Close that stream, and open another one after a while."""

    def stop_following(self, partition: PartitionId) -> None:
        """Close that stream."""

    def produced(self, size_bytes: int) -> None:
        """Producers had so much appended."""

    def disk_refused(self, error: StorageError) -> None:
        """The disk did not take a write or a flush: it is full, or fails."""
