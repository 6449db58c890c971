"""What a relay offers to clients about topics and cluster, and to producers.

The messages are those of log topics.  Reading and describing are those of log topics altogether
(`octopi.roles.broker.services`).
"""

from __future__ import annotations

import contextlib
from typing import Final

from octopi.errors import (
    ConnectionLostError,
    NotLeaderError,
    NotReadyError,
    RefusedError,
    Status,
    TopicExistsError,
    UnknownTopicError,
)
from octopi.identifiers import Incarnation, TopicName
from octopi.model import TopicOptions
from octopi.relay.messages import RelayStatus, SubmitRefusal
from octopi.relay.receiver import NotKnown, NotStored, ProduceOutcome, RelayReceipt
from octopi.roles.broker.received_records import scan_produced
from octopi.roles.broker.relay.context import RelayContext, RelayServing
from octopi.roles.broker.relay.partition import client_epoch
from octopi.security.authorization import not_granted
from octopi.security.grants import Verb
from octopi.transport.connection import Connection
from octopi.transport.failures import failure
from octopi.transport.services import Service
from octopi.wire import messages as m

_TOPICS_TOLD_MAX: Final = 1_000

_REFUSED: Final = {
    SubmitRefusal.NO_QUORUM: (Status.NOT_READY, "the relay hears no quorum"),
    SubmitRefusal.NOT_READY: (Status.NOT_READY, "no epoch has begun"),
    SubmitRefusal.NOT_SEQUENCER: (Status.NOT_READY, "the sequencer changes"),
    SubmitRefusal.BUFFER_FULL: (Status.BUFFER_FULL, "too much waits for a quorum"),
    SubmitRefusal.MEMORY_FULL: (
        Status.BUFFER_FULL,
        "the sequencer's memory for all topics (--relay-memory) is full of what waits for a quorum",
    ),
    SubmitRefusal.TOO_LARGE: (Status.MESSAGE_TOO_LARGE, "it is larger than half of the buffer"),
    SubmitRefusal.TOO_MANY_STREAMS: (
        Status.TOO_MANY,
        "the relay partition of the topic has as many streams as it may",
    ),
}


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
        self._mesh = context.mesh
        self._connection = context.connection

    def _is_known(self, topic: TopicName) -> bool:
        """Whether *topic* is in use."""
        serving, place = self._serving, self._mesh.place(topic)
        return topic in serving.links.topics or serving.partitions[place.partition].has(
            place.topic_id
        )

    def _described(self, topic: TopicName) -> m.TopicInfo:
        """Where *topic* is."""
        topic_id, partition = self._mesh.place(topic)
        place = self._serving.place(self._serving.partitions[partition])
        return m.TopicInfo(topic, topic_id, [place], TopicOptions(), m.TopicKind.RELAY)

    def _describe(self, message: m.DescribeTopic) -> None:
        serving = self._serving
        topic = serving.named(message.topic)
        found = self._described(topic)  # a relay that takes no part yet knows no topics
        if not self._is_known(topic):
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
        if self._is_known(topic):
            raise TopicExistsError(f"topic {topic} is in use already")
        found = self._described(topic)
        serving.links.learn_topic(topic)
        self._connection.post(m.TopicDescription(message.request, found))

    def _list(self, message: m.ListTopics) -> None:
        covers = self._connection.grants.covers
        names = sorted(
            one for one in self._serving.links.topics if one > message.after and covers(one)
        )
        count = min(message.count_max, _TOPICS_TOLD_MAX)
        found = [self._described(TopicName(one)) for one in names[:count]]
        self._connection.post(m.TopicList(message.request, found, len(names) > count))

    def _describe_cluster(self, message: m.DescribeCluster) -> None:
        serving = self._serving
        places: list[m.PartitionInfo] = []
        for one in serving.partitions.values():
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
        produce(self._serving, self._connection, message)
        self._serving.links.learn_topic(message.topic)


def produce(serving: RelayServing, connection: Connection, message: m.Produce) -> None:
    """Take the records of *message*, and answer when a quorum has written them.

    Raises:
      RefusedError: if they, or their topic, are none that this relay can take.
      NotLeaderError: if this relay is part of no epoch of the partition.
    """
    request = message.request
    if message.condition is not None:
        raise RefusedError(
            f"topic {message.topic} is in memory: nothing is appended to it on a condition",
            Status.WRONG_KIND,
        )
    _, topic_id, partition = serving.checked(message.topic, message.partition)
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
            connection.post(_answer(connection, request, outcome))

    wall_ms = serving.environment.clock.wall_ms()
    partition.produce(topic_id, bytes(message.records), found.count, wall_ms, answer)


def _answer(connection: Connection, request: int, outcome: ProduceOutcome) -> object:
    match outcome:
        case RelayReceipt(epoch, offset, message, digest, is_duplicate):
            told = (message, digest) if connection.version >= 2 else (None, None)
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
