"""The port of a broker with logs to the topics that it holds in memory, if it holds any.

`octopi.roles.broker.relay.registered` implements it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from octopi.errors import NotLeaderError, RefusedError, Status
from octopi.identifiers import PartitionId
from octopi.roles.broker.local_stream import LocalStream
from octopi.storage.time_slices import Slices
from octopi.transport.connection import Connection
from octopi.wire import messages as m

_NONE: Final = (
    "this broker keeps topics in logs, none in memory; `octopi-node status` shows its cluster, and "
    "`octopi-node topics describe` where a topic is"
)


class MemoryTopics(Protocol):
    """The topics in memory that this broker holds."""

    def has(self, topic: str) -> bool:
        """Whether *topic* is one of them."""

    def is_one(self, stream: LocalStream) -> bool:
        """Whether *stream* is one of them."""

    def served(self, topic: str, partition: PartitionId) -> LocalStream:
        """The stream of a topic that is one of them.

        Raises:
          RefusedError: if this broker may not serve it; it names another one.
        """

    def redirected(self, error: NotLeaderError, partition: PartitionId) -> RefusedError:
        """*error* with the address of another member of the relay *partition*."""

    def produce(self, connection: Connection, message: m.Produce) -> None:
        """Take records for a topic that is one of them, and answer when a quorum has them.

        Raises:
          RefusedError: if this broker can't take them; it may name another one.
        """

    def describe(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogInfo]]:
        """See `octopi.roles.broker.services.context.ServiceContext`."""

    def count(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogCount]]:
        """See `octopi.roles.broker.services.context.ServiceContext`."""

    def relays(self, request: int) -> m.RelayList:
        """How this broker takes part in its relay partitions."""

    def stream_description(self, message: m.DescribeRelayStream) -> m.RelayStreamDescription:
        """The digests of a stream.

        Raises:
          RefusedError: if the topic is none of these, or this broker may not serve it.
        """


class NoMemoryTopics(MemoryTopics):
    """Of a broker that holds none."""

    def has(self, topic: str) -> bool:
        return False

    def is_one(self, stream: LocalStream) -> bool:
        return False

    def describe(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogInfo]]:
        return []
        yield

    def count(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogCount]]:
        return []
        yield

    def relays(self, request: int) -> m.RelayList:
        raise RefusedError(_NONE, Status.WRONG_ENDPOINT)

    def stream_description(self, message: m.DescribeRelayStream) -> m.RelayStreamDescription:
        raise RefusedError(_NONE, Status.WRONG_ENDPOINT)

    def served(self, topic: str, partition: PartitionId) -> LocalStream:
        raise NotLeaderError(_NONE)

    def redirected(self, error: NotLeaderError, partition: PartitionId) -> RefusedError:
        return error

    def produce(self, connection: Connection, message: m.Produce) -> None:
        raise NotLeaderError(_NONE)


NO_MEMORY_TOPICS: Final = NoMemoryTopics()
