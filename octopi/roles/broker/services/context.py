"""What the services of one client connection share: its logs, tasks, memory and refusals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import trio

from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    NotLeaderError,
    NotReadyError,
    OctopiError,
    refused,
)
from octopi.identifiers import PartitionId, TopicId
from octopi.roles.answers import refuse
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.readers import Readers
from octopi.roles.broker.redirects import not_served
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.waiting_tasks import WaitingTasks
from octopi.transport.connection import Connection
from octopi.transport.peer_names import connection_name

NOT_SERVED = "this broker doesn't serve the partition any more"


class ClientContext(WaitingTasks):
    """One client connection of a broker, as its services see it."""

    def __init__(
        self,
        environment: Environment,
        manager: ReplicaManager,
        readers: Readers,
        connection: Connection,
        tasks: trio.Nursery,
    ) -> None:
        """*tasks*: the connection's nursery, in which the services start theirs."""
        self.environment = environment
        self.manager = manager
        self.logs = manager.store
        self.readers = readers
        self.connection = connection
        self.tasks = tasks

    @property
    def subject(self) -> str:
        """The subject of the client's token; empty: it has no token."""
        entry = self.connection.entry
        return "" if entry is None else entry.identity.subject

    @property
    def name(self) -> str:
        """What the client calls its connection; empty: nothing."""
        return connection_name(self.connection.greeting)

    def served(self, topic: str, partition: PartitionId) -> LocalLog:
        """The log, if this broker may serve it.

        Raises:
          NotLeaderError: if this broker doesn't serve it.
          RefusedError: see `require_right`.
        """
        log = self.logs.find(topic, partition)
        self.require_right(partition)
        if not log.epoch:
            raise NotLeaderError(
                f"this broker was not (yet) appointed for partition {partition}: ask the register"
            )
        return log

    def require_right(self, partition: PartitionId) -> None:
        """Check that the controller lets this broker serve clients in the partition.

        Raises:
          RefusedError: if it doesn't, such as `NoQuorumError`.
        """
        if (fence := self.manager.fence(partition)) is not None:
            raise refused(fence.status, fence.reason)

    def replica(self, partition: PartitionId) -> ReplicaDriver:
        """This broker's replica of the partition.

        Raises:
          NotLeaderError: if this broker has no replica of it.
        """
        replica = self.manager.replica(partition)
        if replica is None:
            raise NotLeaderError("this broker is no replica of the partition: ask the register")
        return replica

    def require_end(self, log: LocalLog, partition: PartitionId) -> None:
        """Check that *log*'s highwater mark covers all that was ever acknowledged.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition.
          NotReadyError: if this broker doesn't lead the log yet, or has not committed yet what the
              log held when the leadership began.
        """
        leader = self.replica(partition).machine.leader
        if leader is None:
            raise NotLeaderError(f"this broker does not lead partition {partition}")
        led = leader.logs.get(TopicId(log.topic.topic_id))  # None: a new log
        # The leader's own mark may be ahead: it is published after the effects before it.
        if led is None or not led.knows_end(log.highwater):
            raise NotReadyError(
                f"the new leader of partition {partition} has not yet committed and published what "
                "it had when it was elected"
            )

    @contextlib.contextmanager
    def refusing(self, log: LocalLog, request: int) -> Iterator[None]:
        """Answer *request* with the error that occurs within the block; the block may wait."""
        try:
            yield
        except ConnectionLostError:
            pass
        except OctopiError as error:
            gone = not_served(self.manager, NOT_SERVED, log.partition)
            refuse(self.connection, request, error if log.epoch else gone)
