"""The streams between this broker's replicas and other brokers, and the link to the controller.

A follower has one stream to its leader, which a task keeps open.  A leader has one stream from each
of its followers, which `octopi.roles.broker.follower_connection` serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import trio

from octopi.environment import Environment
from octopi.errors import StorageError
from octopi.identifiers import BrokerId, PartitionId
from octopi.replication.effects import Refusal
from octopi.roles.broker.broker_health import BrokerHealth
from octopi.roles.broker.catching_up import CatchingUp
from octopi.roles.broker.cluster_metadata import ClusterMetadata
from octopi.roles.broker.controller_link import ControllerLink
from octopi.roles.broker.leader_connection import LeaderConnection
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.roles.broker.replica_ports import ReplicaPorts
from octopi.roles.broker.stream_keys import StreamKeys
from octopi.transport.handshake import NodeCredentials
from octopi.wire import messages as m


class ServedStream(Protocol):
    """A follower's stream on the side of the leader."""

    def post(self, message: m.Followed | m.FollowRefused) -> None:
        """Send *message*, if the follower is still connected."""


class ReplicaStreams(ReplicaPorts):
    """Connects the replicas of this broker with the rest of the cluster."""

    def __init__(
        self,
        environment: Environment,
        replicas: Mapping[PartitionId, ReplicaDriver],
        metadata: ClusterMetadata,
        status: BrokerHealth,
        catching_up: CatchingUp,
        tasks: trio.Nursery,
        agent: str,
        credentials: NodeCredentials,
    ) -> None:
        """*replicas*: the replicas of this broker by partition; the caller adds and removes them
        later."""
        self.controller: ControllerLink | None = None
        """The link to the controller; None until it exists."""
        self.keys = StreamKeys()
        """The keys with which leaders and followers recognise each other."""
        self.serving: dict[tuple[PartitionId, BrokerId], ServedStream] = {}
        """The newest stream of each follower, by partition and broker."""
        self._environment = environment
        self._replicas = replicas
        self._metadata = metadata
        self._status = status
        self._catching_up = catching_up
        self._tasks = tasks
        self._agent = agent
        self._credentials = credentials
        self._following: dict[PartitionId, LeaderConnection] = {}

    def is_following(self, partition: PartitionId) -> bool:
        """Whether a stream to the leader of *partition* is kept open."""
        return partition in self._following

    def close(self) -> None:
        """Close the streams to all leaders."""
        for partition in list(self._following):
            self.stop_following(partition)

    def disk_refused(self, error: StorageError) -> None:
        self._status.refused(error)

    def fence(self, partition: PartitionId) -> Refusal | None:
        return None if self.controller is None else self.controller.fence(partition)

    def to_register(self, message: m.AlterInSync | m.AcceptEpoch | m.Resign) -> None:
        controller = self.controller
        if controller is None:
            return
        match message:
            case m.AlterInSync():
                controller.propose(message)
            case m.AcceptEpoch():
                controller.accept(message)
            case m.Resign():
                controller.resign(message)

    def to_broker(
        self,
        partition: PartitionId,
        broker: BrokerId,
        message: m.Follow | m.Followed | m.FollowRefused | m.Acknowledge,
    ) -> None:
        if isinstance(message, m.Follow | m.Acknowledge):
            following = self._following.get(partition)
            if following is not None and following.leader == broker:
                following.post(self.keys.signed(broker, message))
        else:
            stream = self.serving.get((partition, broker))
            if stream is not None:
                stream.post(message)

    def follow(self, partition: PartitionId, leader: BrokerId) -> None:
        self.stop_following(partition)
        replica = self._replicas[partition]
        stream = LeaderConnection(
            self._environment,
            replica,
            leader,
            self._metadata.address_of,
            self._agent,
            self._credentials,
        )
        self._following[partition] = stream
        self._tasks.start_soon(stream.run)

    def follow_anew(self, partition: PartitionId) -> None:
        stream = self._following.get(partition)
        if stream is not None:
            stream.reopen()

    def produced(self, size_bytes: int) -> None:
        self._catching_up.produced(size_bytes)

    def stop_following(self, partition: PartitionId) -> None:
        stream = self._following.pop(partition, None)
        if stream is not None:
            stream.scope.cancel()
