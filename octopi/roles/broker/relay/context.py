"""What the services of one client connection of a relay share, and where a client is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import (
    InvalidTopicError,
    NoQuorumError,
    NotLeaderError,
    NotReadyError,
    OctopiError,
    RefusedError,
    Status,
)
from octopi.identifiers import (
    BrokerId,
    Incarnation,
    PartitionId,
    TopicId,
    TopicName,
    topic_name,
)
from octopi.roles.broker.local_stream import LocalStream
from octopi.roles.broker.readers import Readers
from octopi.roles.broker.relay.links import RelayLinks
from octopi.roles.broker.relay.mesh import Mesh, RelayMesh
from octopi.roles.broker.relay.partition import RelayPartition
from octopi.roles.broker.relay.stream_log import StreamLog
from octopi.roles.broker.services.context import ServiceContext
from octopi.roles.broker.services.session import BrokerSession
from octopi.storage.time_slices import Slices, in_groups
from octopi.transport.close_codes import close_code
from octopi.transport.connection import Connection
from octopi.wire import messages as m

_CLOSE_REASON_BYTES_MAX: Final = 123  # RFC 6455, section 5.5


@attrs.define(eq=False)
class RelayServing:
    """What all connections of clients share."""

    environment: Environment
    mesh: Mesh
    me: BrokerId
    incarnation: Incarnation
    partitions: Mapping[PartitionId, RelayPartition]
    links: RelayLinks
    readers: Readers

    def checked(self, topic: str, partition: int) -> tuple[TopicName, TopicId, RelayPartition]:
        """The topic, its id, and its partition here.

        Raises:
          RefusedError: if there is no such topic, or it has another partition.
        """
        name = self.named(topic)
        place = self.mesh.place(name)
        found = None if place is None else self.partitions.get(place.partition)
        if place is None or found is None:
            raise NotLeaderError(f"this broker has no topic {name} in memory")
        if partition != place.partition:
            raise RefusedError(
                f"topic {name} has no partition {partition}; it has {place.partition}",
                Status.UNKNOWN_PARTITION,
            )
        return name, place.topic_id, found

    def named(self, topic: str) -> TopicName:
        """*topic* as a name.

        Raises:
          RefusedError: if it is none.
        """
        try:
            return topic_name(topic)
        except InvalidTopicError as error:
            raise RefusedError(str(error), Status.INVALID_TOPIC) from error

    def served(self, topic: str, partition: PartitionId) -> StreamLog:
        """The stream, if this relay may serve it.

        Raises:
          NotLeaderError: if it may not.
          RefusedError: if there is no such topic or partition.
        """
        name, topic_id, found = self.checked(topic, partition)
        log = found.log(name, topic_id)
        if not log.epoch:
            raise NotLeaderError(f"relay {self.me} is part of no epoch of the partition")
        return log

    def held(
        self,
        names: Iterable[str],
        topic: str,
        after: tuple[str, int],
        count_max: int,
        covers: Callable[[str], bool],
    ) -> list[StreamLog]:
        """Up to *count_max* streams of partitions that this relay holds, behind *after*, in order:
        that of *topic*, or, if it is empty, those of all *names* for which *covers* is true."""
        found: list[StreamLog] = []
        for name in sorted(map(TopicName, names)):
            place = self.mesh.place(name)
            partition = None if place is None else self.partitions.get(place.partition)
            if place is None or partition is None or partition.member is None:
                continue
            if topic in {"", name} and (name, place.partition) > after and covers(name):
                found.append(partition.log(name, place.topic_id))
                if len(found) == count_max:
                    break
        return found

    @property
    def is_cut_off(self) -> bool:
        """Whether this relay hears no quorum of any of its partitions."""
        held = [one for one in self.partitions.values() if one.member is not None]
        return bool(held) and all(one.is_fenced for one in held)

    @property
    def others(self) -> str:
        """Addresses of other relays, as many as fit into the reason of a closed connection."""
        found = ""
        for broker, address in self.mesh.relays.items():
            longer = f"{found} {address}".strip()
            if broker != self.me and len(longer) <= _CLOSE_REASON_BYTES_MAX:
                found = longer
        return found

    def place(self, partition: RelayPartition) -> m.PartitionInfo:
        """Where *partition* is, for clients: its sequencer is its leader.

        Raises:
          NotReadyError: if this relay is a member and part of no epoch.
        """
        relays = self.mesh.relays
        members = list(partition.relay_set.ranked)
        sequencer = partition.sequencer
        if partition.member is None:
            sequencer = partition.receives_for
        elif sequencer is None:
            status = partition.member.status.value
            raise NotReadyError(
                f"relay {self.me} is {status} in partition {partition.relay_set.partition}: it is "
                "part of no epoch"
            )
        # Of the others, only those that are part of the epoch now: a reader at one that was cut off
        # learns from the list that it isn't any more.
        live = partition.live or members
        readers = [one for one in live if one == self.me] or [sequencer]
        readers += [one for one in live if one not in readers]
        return m.PartitionInfo(
            partition.relay_set.partition,
            partition.epoch,
            sequencer,
            relays[sequencer],
            members,
            live,
            [relays[one] for one in readers],
        )

    def redirected(self, error: NotLeaderError, number: PartitionId) -> RefusedError:
        """*error* with the address of the sequencer of partition *number*, or of another member if
        this relay knows of no sequencer: then it may be fenced."""
        partition = self.partitions.get(number)
        if partition is None:
            return error
        sequencer = partition.sequencer
        if sequencer is None:
            others = [one for one in partition.relay_set.ranked if one != self.me]
            address = self.mesh.relays.get(others[0], "")
            if partition.is_fenced:
                why = f"relay {self.me} hears no quorum of partition {number}"
                return NoQuorumError(why, address=address)
            return NotLeaderError(str(error.args[0]), address=address)
        if sequencer == self.me:
            return error
        address = self.mesh.relays.get(sequencer, "")
        return NotLeaderError(str(error.args[0]), address=address, epoch=partition.epoch)


class RelayContext(ServiceContext):
    """One connection of a client, as its services see it."""

    def __init__(
        self, serving: RelayServing, mesh: RelayMesh, connection: Connection, tasks: trio.Nursery
    ) -> None:
        """*tasks*: the connection's nursery."""
        super().__init__(serving.environment, serving.readers, connection, tasks)
        self.serving = serving
        self.mesh = mesh

    def served(self, topic: str, partition: PartitionId) -> StreamLog:
        """The stream, if this relay may serve it.

        Raises:
          NotLeaderError: if it may not.
          RefusedError: if there is no such topic or partition.
        """
        return self.serving.served(topic, partition)

    def redirected(self, error: NotLeaderError, partition: PartitionId) -> RefusedError:
        """*error* with the address of the sequencer, or of another member if this relay knows of no
        sequencer; of a fenced relay, NoQuorumError."""
        return self.serving.redirected(error, partition)

    def refuse(self, stream: LocalStream, request: int, error: OctopiError) -> None:
        """Answer *request*, or end a reading.  A relay that is cut off then closes the connection
        of its reader, which is better served by any other."""
        super().refuse(stream, request, error)
        if self.serving.is_cut_off:
            code, others = close_code(Status.NO_QUORUM), self.serving.others
            self.tasks.start_soon(self.connection.close, code, others)

    def describe(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogInfo]]:
        """See `ServiceContext`."""
        found: list[m.LogInfo] = []
        names = self.serving.links.topics
        for some in in_groups(self.serving.held(names, topic, after, count_max, covers)):
            found += [one.describe() for one in some]
            yield
        return found

    def count(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogCount]]:
        """See `ServiceContext`."""
        found: list[m.LogCount] = []
        for one in self.serving.held(self.serving.links.topics, topic, after, count_max, covers):
            counted = yield from one.count()
            found.append(counted)
        return found


class RelayClientSession(BrokerSession[RelayContext]):
    """A connection of a client."""

    def _unknown(self, message: object) -> RefusedError:
        """See `ServiceSession`."""
        return RefusedError(
            f"topics in memory know no {m.TYPE_NAMES[type(message)]}", Status.WRONG_KIND
        )
