"""What a relay offers to clients about topics and cluster, and to producers.

The messages are those of log topics.  Reading and describing are those of log topics altogether
(`octopi.roles.broker.services`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    InvalidTopicError,
    NotLeaderError,
    NotReadyError,
    RefusedError,
    Status,
    TopicExistsError,
    UnknownTopicError,
)
from octopi.identifiers import BrokerId, Incarnation, PartitionId, TopicName, topic_name
from octopi.model import TopicOptions
from octopi.relay.messages import RelayStatus, SubmitRefusal
from octopi.relay.receiver import NotKnown, NotStored, ProduceOutcome, RelayReceipt
from octopi.roles.broker.readers import Readers
from octopi.roles.broker.received_records import scan_produced
from octopi.roles.broker.relay.links import RelayLinks
from octopi.roles.broker.relay.mesh import RelayMesh
from octopi.roles.broker.relay.partition import RelayPartition, client_epoch
from octopi.roles.broker.relay.stream_log import StreamLog
from octopi.roles.broker.services.context import ServiceContext
from octopi.roles.broker.services.session import BrokerSession
from octopi.security.authorization import not_granted
from octopi.security.grants import Verb
from octopi.storage.time_slices import Slices, in_groups
from octopi.transport.connection import Connection
from octopi.transport.failures import failure
from octopi.transport.services import Service
from octopi.wire import messages as m

_TOPICS_TOLD_MAX: Final = 1_000

_REFUSED: Final = {
    SubmitRefusal.NO_QUORUM: (Status.NOT_READY, "the relay hears no quorum"),
    SubmitRefusal.NOT_READY: (Status.NOT_READY, "no epoch has begun"),
    SubmitRefusal.NOT_SEQUENCER: (Status.NOT_READY, "the sequencer changes"),
    SubmitRefusal.BUFFER_FULL: (Status.NOT_READY, "too much waits for a quorum"),
    SubmitRefusal.TOO_LARGE: (Status.MESSAGE_TOO_LARGE, "it is larger than half of the buffer"),
    SubmitRefusal.TOO_MANY_STREAMS: (
        Status.TOO_MANY,
        "the relay partition of the topic has as many streams as it may",
    ),
}


@attrs.define(eq=False)
class RelayServing:
    """What all connections of clients share."""

    environment: Environment
    mesh: RelayMesh
    me: BrokerId
    incarnation: Incarnation
    partitions: list[RelayPartition]
    links: RelayLinks
    readers: Readers

    def checked(self, topic: str, partition: int) -> tuple[TopicName, RelayPartition]:
        """The topic, and its partition here.

        Raises:
          RefusedError: if there is no such topic, or it has another partition.
        """
        name = self.named(topic)
        right = self.mesh.partition_of(name)
        if partition != right:
            raise RefusedError(
                f"topic {name} has no partition {partition}; it has {right}",
                Status.UNKNOWN_PARTITION,
            )
        return name, self.partitions[right]

    def named(self, topic: str) -> TopicName:
        """*topic* as a name.

        Raises:
          RefusedError: if it is none.
        """
        try:
            return topic_name(topic)
        except InvalidTopicError as error:
            raise RefusedError(str(error), Status.INVALID_TOPIC) from error

    def is_known(self, topic: TopicName) -> bool:
        """Whether *topic* is in use."""
        if topic in self.links.topics:
            return True
        return self.partitions[self.mesh.partition_of(topic)].has(self.mesh.topic_id(topic))

    def log(self, topic: TopicName, partition: RelayPartition) -> StreamLog:
        """The stream of *topic* for readers."""
        return partition.log(topic, self.mesh.topic_id(topic))

    def held(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> list[StreamLog]:
        """Up to *count_max* streams of partitions that this relay holds, behind *after*, in order:
        that of *topic*, or, if it is empty, those of all topics for which *covers* is true."""
        found: list[StreamLog] = []
        for name in sorted(map(TopicName, self.links.topics)):
            partition = self.partitions[self.mesh.partition_of(name)]
            is_behind = (name, partition.relay_set.partition) > after
            if topic in {"", name} and is_behind and covers(name) and partition.member:
                found.append(self.log(name, partition))
                if len(found) == count_max:
                    break
        return found

    def described(self, topic: TopicName) -> m.TopicInfo:
        """Where *topic* is."""
        place = self.place(self.partitions[self.mesh.partition_of(topic)])
        return m.TopicInfo(topic, self.mesh.topic_id(topic), [place], TopicOptions())

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

    def redirected(self, error: NotLeaderError, number: PartitionId) -> NotLeaderError:
        """*error* with the address of the sequencer of partition *number*, or of another member if
        this relay knows of no sequencer."""
        if not 0 <= number < len(self.partitions):
            return error
        partition = self.partitions[number]
        sequencer = partition.sequencer
        if sequencer is None:
            others = [one for one in partition.relay_set.ranked if one != self.me]
            return NotLeaderError(str(error.args[0]), address=self.mesh.relays[others[0]])
        if sequencer == self.me:
            return error
        address = self.mesh.relays[sequencer]
        return NotLeaderError(str(error.args[0]), address=address, epoch=partition.epoch)


class RelayContext(ServiceContext):
    """One connection of a client, as its services see it."""

    def __init__(self, serving: RelayServing, connection: Connection, tasks: trio.Nursery) -> None:
        """*tasks*: the connection's nursery."""
        super().__init__(serving.environment, serving.readers, connection, tasks)
        self.serving = serving

    def served(self, topic: str, partition: PartitionId) -> StreamLog:
        """The stream, if this relay may serve it.

        Raises:
          NotLeaderError: if it may not.
          RefusedError: if there is no such topic or partition.
        """
        log = self.serving.log(*self.serving.checked(topic, partition))
        if not log.epoch:
            raise NotLeaderError(f"relay {self.serving.me} is part of no epoch of the partition")
        return log

    def redirected(self, error: NotLeaderError, partition: PartitionId) -> NotLeaderError:
        """*error* with the address of the sequencer, or of another member if this relay knows of no
        sequencer."""
        return self.serving.redirected(error, partition)

    def describe(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogInfo]]:
        """See `ServiceContext`."""
        found: list[m.LogInfo] = []
        for some in in_groups(self.serving.held(topic, after, count_max, covers)):
            found += [one.describe() for one in some]
            yield
        return found

    def count(
        self, topic: str, after: tuple[str, int], count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[m.LogCount]]:
        """See `ServiceContext`."""
        found: list[m.LogCount] = []
        for one in self.serving.held(topic, after, count_max, covers):
            counted = yield from one.count()
            found.append(counted)
        return found


class RelayClientSession(BrokerSession[RelayContext]):
    """A connection of a client."""

    def handle(self, message: object) -> None:
        """Hand *message* to the service that takes it.

        Raises:
          OctopiError: the answer to the message.
        """
        if type(message) not in self._handlers:
            raise RefusedError(
                f"{m.TYPE_NAMES[type(message)]} is nothing that relays of a static list answer",
                Status.INVALID_OPTION,
            )
        super().handle(message)


class RelayTopicsService(Service):
    """Tells where topics are, and what relays there are."""

    def __init__(self, context: RelayContext) -> None:
        super().__init__(
            {
                m.DescribeTopic: self._describe,
                m.CreateTopic: self._create,
                m.ListTopics: self._list,
                m.DescribeCluster: self._describe_cluster,
                m.DescribeEvents: self._tell_no_events,
            }
        )
        self._serving = context.serving
        self._connection = context.connection

    def _describe(self, message: m.DescribeTopic) -> None:
        serving = self._serving
        topic = serving.named(message.topic)
        found = serving.described(topic)  # a relay that takes no part yet knows no topics
        if not serving.is_known(topic):
            if not message.create:
                raise UnknownTopicError(f"no topic {topic} is in use")
            if not self._connection.grants.allows(Verb.CREATE, topic):
                raise RefusedError(not_granted(Verb.CREATE, topic), Status.FORBIDDEN)
        if message.create:
            serving.links.learn_topic(topic)
        self._connection.post(m.TopicDescription(message.request, found))

    def _create(self, message: m.CreateTopic) -> None:
        serving = self._serving
        topic = serving.named(message.topic)
        is_plain = message.options == TopicOptions() and message.stream is None
        if not is_plain or message.partitions or message.beside or message.partition_count > 1:
            raise RefusedError(
                "a topic in memory has one partition and no options of its own (yet)",
                Status.INVALID_OPTION,
            )
        if serving.is_known(topic):
            raise TopicExistsError(f"topic {topic} is in use already")
        found = serving.described(topic)
        serving.links.learn_topic(topic)
        self._connection.post(m.TopicDescription(message.request, found))

    def _list(self, message: m.ListTopics) -> None:
        covers = self._connection.grants.covers
        names = sorted(
            one for one in self._serving.links.topics if one > message.after and covers(one)
        )
        count = min(message.count_max, _TOPICS_TOLD_MAX)
        found = [self._serving.described(TopicName(one)) for one in names[:count]]
        self._connection.post(m.TopicList(message.request, found, len(names) > count))

    def _describe_cluster(self, message: m.DescribeCluster) -> None:
        serving = self._serving
        places: list[m.PartitionInfo] = []
        for one in serving.partitions:
            with contextlib.suppress(NotReadyError):
                places.append(serving.place(one))
        live = serving.links.incarnations
        brokers = [
            m.BrokerInfo(
                broker,
                address,
                serving.incarnation if broker == serving.me else live.get(broker, Incarnation(0)),
                broker == serving.me or broker in live,
                sum(one.leader == broker for one in places),
            )
            for broker, address in serving.mesh.relays.items()
        ]
        self._connection.post(
            m.ClusterDescription(
                message.request,
                serving.mesh.cluster,
                len(serving.links.topics),
                len(serving.partitions),
                brokers,
                places,
            )
        )

    def _tell_no_events(self, message: m.DescribeEvents) -> None:
        """Relays of a static list keep no list of events."""
        self._connection.post(m.EventList(message.request, "", []))


class RelayProduceService(Service):
    """Takes records, and answers when a quorum has written them."""

    def __init__(self, context: RelayContext) -> None:
        super().__init__({m.Produce: self._produce})
        self._serving = context.serving
        self._connection = context.connection

    def _produce(self, message: m.Produce) -> None:
        serving, connection, request = self._serving, self._connection, message.request
        topic, partition = serving.checked(message.topic, message.partition)
        found = scan_produced(message.records)
        if len(found.runs) != 1 or found.runs[0].count != found.count:
            raise RefusedError(
                "one request to a topic in memory carries records of version 2, of one producer, "
                "in sequence",
                Status.MALFORMED_RECORD,
            )
        member = partition.member
        if member is not None and member.status in {RelayStatus.FENCED, RelayStatus.JOINING}:
            raise NotLeaderError(f"relay {serving.me} is {member.status.value}")

        def answer(outcome: ProduceOutcome) -> None:
            with contextlib.suppress(ConnectionLostError):  # the client asks again elsewhere
                connection.post(self._answer(request, outcome))

        serving.links.learn_topic(topic)
        wall_ms = serving.environment.clock.wall_ms()
        partition.produce(
            serving.mesh.topic_id(topic), bytes(message.records), found.count, wall_ms, answer
        )

    def _answer(self, request: int, outcome: ProduceOutcome) -> object:
        match outcome:
            case RelayReceipt(epoch, offset, message, digest, is_duplicate):
                told = (message, digest) if self._connection.version >= 2 else (None, None)
                return m.Produced(
                    request,
                    offset,
                    client_epoch(epoch),
                    is_duplicate,
                    told[0] or b"",
                    told[1] or b"",
                )
            case NotStored(refused) if refused.verdict is not None:
                return failure(request, refused.verdict.status, refused.verdict.reason)
            case NotStored(refused):
                return failure(request, *_REFUSED[refused.refusal])
            case NotKnown():
                return failure(
                    request, Status.UNCOMMITTED, "no quorum has said in time that it has written it"
                )
