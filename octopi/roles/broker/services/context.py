"""What the services of one client connection share: streams, tasks, memory and refusals."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Final

import trio

from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    NotLeaderError,
    OctopiError,
    RefusedError,
    Status,
    refused,
)
from octopi.identifiers import PartitionId
from octopi.roles.answers import refuse
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.local_stream import LocalStream
from octopi.roles.broker.memory_topics import NO_MEMORY_TOPICS, MemoryTopics
from octopi.roles.broker.readers import Readers
from octopi.roles.broker.redirects import not_served
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.waiting_tasks import WaitingTasks
from octopi.storage.time_slices import Slices
from octopi.transport.connection import Connection
from octopi.transport.peer_names import connection_name
from octopi.wire import messages as m
from octopi.wire.endpoints import PASSED_ON

NOT_SERVED = "this broker doesn't serve the partition any more"

OF_MEMORY: Final[frozenset[type]] = PASSED_ON | {
    m.Produce,
    m.Fetch,
    m.FindOffset,
    m.Subscribe,
    m.DescribeLogs,
    m.CountMessages,
    m.DescribeReadings,
    m.DescribeRelayStream,
}
"""The messages about topics that topics in memory answer, or whoever decides about topics."""


class ServiceContext(WaitingTasks, ABC):
    """One client connection of a broker with logs, or of one with streams in memory."""

    def __init__(
        self,
        environment: Environment,
        readers: Readers,
        connection: Connection,
        tasks: trio.Nursery,
    ) -> None:
        """*tasks*: the connection's nursery, in which the services start theirs."""
        self.environment = environment
        self.readers = readers
        self.connection = connection
        self.tasks = tasks

    @abstractmethod
    def served(self, topic: str, partition: PartitionId) -> LocalStream:
        """The stream, if this broker may serve it.

        Raises:
          NotLeaderError: if this broker doesn't serve it.
          RefusedError: if there is none.
        """

    @abstractmethod
    def redirected(self, error: NotLeaderError, partition: PartitionId) -> RefusedError:
        """*error* with the address of the leader of *partition*, if this broker knows it."""

    @abstractmethod
    def describe(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogInfo]]:
        """Up to *count_max* streams that come after *after* in order: those of *topic*, or, if it
        is empty, those of all topics for which *covers* is true."""

    @abstractmethod
    def count(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogCount]]:
        """How many messages the streams have that `describe` finds."""

    def check_kind(self, message: object) -> None:
        """Check that the topic of *message* can have what it asks for.

        Raises:
          RefusedError: WRONG_KIND.
        """

    @contextlib.contextmanager
    def refusing(self, stream: LocalStream, request: int) -> Iterator[None]:
        """Answer *request* with the error that occurs within the block; the block may wait."""
        try:
            yield
        except ConnectionLostError:
            pass
        except OctopiError as error:
            self.refuse(stream, request, error)

    def refuse(self, stream: LocalStream, request: int, error: OctopiError) -> None:
        """Answer *request*, which is about *stream*, with *error*."""
        if not stream.epoch and not isinstance(error, NotLeaderError):
            error = NotLeaderError(NOT_SERVED)  # which explains the other one
        if isinstance(error, NotLeaderError):
            error = self.redirected(error, stream.partition)
        refuse(self.connection, request, error)


class ClientContext(ServiceContext):
    """One client connection of a broker with logs."""

    def __init__(
        self,
        environment: Environment,
        manager: ReplicaManager,
        readers: Readers,
        connection: Connection,
        tasks: trio.Nursery,
        memory: MemoryTopics = NO_MEMORY_TOPICS,
    ) -> None:
        """*tasks*: the connection's nursery, in which the services start theirs.  *memory*: the
        topics that this broker holds in memory."""
        super().__init__(environment, readers, connection, tasks)
        self.manager = manager
        self.logs = manager.store
        self.memory = memory

    @property
    def subject(self) -> str:
        """The subject of the client's token; empty: it has no token."""
        entry = self.connection.entry
        return "" if entry is None else entry.identity.subject

    @property
    def name(self) -> str:
        """What the client calls its connection; empty: nothing."""
        return connection_name(self.connection.greeting)

    def served(self, topic: str, partition: PartitionId) -> LocalStream:
        """The log or stream, if this broker may serve it.

        Raises:
          NotLeaderError: if this broker doesn't serve it, or has no such log.
          RefusedError: see `require_right`.
        """
        if self.memory.has(topic):
            return self.memory.served(topic, partition)
        return self.log(topic, partition)

    def log(self, topic: str, partition: PartitionId) -> LocalLog:
        """The log, if this broker may serve it.

        Raises: see `served`.
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

    def redirected(self, error: NotLeaderError, partition: PartitionId) -> RefusedError:
        """See `ServiceContext`."""
        return not_served(self.manager, str(error.args[0]), partition)

    def refuse(self, stream: LocalStream, request: int, error: OctopiError) -> None:
        """See `ServiceContext`.  Partitions of memory have numbers of their own."""
        if self.memory.is_one(stream):
            if not stream.epoch and not isinstance(error, NotLeaderError):
                error = NotLeaderError(NOT_SERVED)
            if isinstance(error, NotLeaderError):
                error = self.memory.redirected(error, stream.partition)
            refuse(self.connection, request, error)
        else:
            super().refuse(stream, request, error)

    def check_kind(self, message: object) -> None:
        """Check that the topic of *message* can have what it asks for.

        Raises:
          RefusedError: WRONG_KIND, if a topic in memory has none of that.
        """
        topic = getattr(message, "topic", "")
        if topic and type(message) not in OF_MEMORY and self.memory.has(topic):
            raise RefusedError(
                f"topic {topic} is in memory: it knows no {m.TYPE_NAMES[type(message)]}",
                Status.WRONG_KIND,
            )

    def describe(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogInfo]]:
        """See `ServiceContext`."""
        logs = yield from self.logs.describe(topic, after, count_max, covers)
        streams = yield from self.memory.describe(topic, after, count_max, covers)
        return sorted([*logs, *streams], key=_place)[:count_max] if streams else logs

    def count(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogCount]]:
        """See `ServiceContext`."""
        logs = yield from self.logs.count(topic, after, count_max, covers)
        streams = yield from self.memory.count(topic, after, count_max, covers)
        return sorted([*logs, *streams], key=_place)[:count_max] if streams else logs


def _place(log: m.LogInfo | m.LogCount) -> tuple[str, int]:
    return log.topic, log.partition
