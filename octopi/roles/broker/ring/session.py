"""The connections of other brokers of the ring, and of clients, to a broker of the ring."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import trio

from octopi.coordination.consistent_hash import HashCircle
from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    InvalidTopicError,
    NotReadyError,
    OctopiError,
    RefusedError,
    Status,
)
from octopi.identifiers import PartitionId, topic_name
from octopi.ring.cluster_record import PartitionKind
from octopi.ring.points import partition_key
from octopi.roles.answers import refuse
from octopi.roles.asked import AskService
from octopi.roles.broker.forwarded_produces import ForwardedProduceService
from octopi.roles.broker.hand_over_peers import HandOverService
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.admission import give_id
from octopi.roles.broker.ring.description import described
from octopi.roles.broker.ring.member import RingMember
from octopi.roles.broker.ring.taken_over import TakenOver
from octopi.roles.broker.ring.topics.asking import RingDecider
from octopi.roles.broker.services.context import ClientContext
from octopi.roles.decider_context import DeciderClient
from octopi.security.quotas import Creator
from octopi.transport.connection import Connection
from octopi.transport.services import Service, ServiceSession
from octopi.wire import messages as m


class RingSession:
    """A connection of another broker."""

    def __init__(
        self,
        member: RingMember,
        decider: Callable[[], RingDecider],
        connection: Connection,
        tasks: trio.Nursery,
    ) -> None:
        """*decider*: raises NotReadyError until the broker is a member of the ring.  *tasks*: the
        connection's nursery."""
        self._member = member
        self._decider = decider
        self._connection = connection
        self._tasks = tasks

    def handle(self, message: object) -> None:
        """Handle *message*.

        Raises:
          OctopiError: the answer to a request.
        """
        if isinstance(message, m.Admit):
            self._tasks.start_soon(self._admit, message)
        elif isinstance(message, m.HostTopic):
            self._tasks.start_soon(self._host, message)
        else:
            self._member.receive(message, self._answer, self._tasks)

    def _answer(self, message: object) -> None:
        with contextlib.suppress(ConnectionLostError):
            self._connection.post(message)

    async def _admit(self, message: m.Admit) -> None:
        try:
            self._answer(await give_id(self._member.chord, self._member.keeper, message))
        except OctopiError as error:
            refuse(self._connection, message.request, error)

    async def _host(self, message: m.HostTopic) -> None:
        try:
            await self._decider().topics.receive(message)
            self._answer(m.TopicHosted(message.request))
        except OctopiError as error:
            refuse(self._connection, message.request, error)

    def token_refreshed(self) -> None:
        """Does nothing: the endpoint takes no fresh tokens."""

    def closed(self) -> None:
        """The connection has ended."""


class RingAskSession(ServiceSession):
    """A connection over which another broker asks what its clients asked it."""

    def __init__(
        self,
        environment: Environment,
        decider: Callable[[], RingDecider],
        connection: Connection,
        tasks: trio.Nursery,
        taken_over: TakenOver,
        replicas: ReplicaManager,
    ) -> None:
        """*decider*: raises NotReadyError until the broker is a member of the ring.  *taken_over*:
        answers brokers that still have a register.  *replicas*: take produces that other brokers
        pass on."""

        def services(
            ask: m.Ask, client: DeciderClient, tasks: trio.Nursery, creator: Creator
        ) -> ServiceSession:
            return decider().services(ask, client, tasks, creator)

        super().__init__(
            "broker",
            [
                AskService(environment, connection, tasks, services),
                HandOverService(connection, tasks, taken_over.state, taken_over.page),
                ForwardedProduceService(replicas, connection),
            ],
        )


class RingService(Service):
    """Answers what people ask about the ring."""

    def __init__(
        self,
        member: Callable[[], RingMember],
        decider: Callable[[], RingDecider],
        context: ClientContext,
    ) -> None:
        """*decider*: raises NotReadyError until the broker is a member of the ring."""
        connection, tasks = context.connection, context.tasks
        super().__init__(
            {
                m.DescribeRing: self._describe,
                m.Locate: lambda message: tasks.start_soon(self._locate, message),
                m.OrderLeave: lambda message: tasks.start_soon(self._leave, message),
            }
        )
        self._member = member()
        self._decider = decider
        self._connection = connection

    def _describe(self, message: m.DescribeRing) -> None:
        self._connection.post(described(message.request, self._member, self._member.keeper))

    async def _leave(self, message: m.OrderLeave) -> None:
        try:
            progress = await self._decider().operations.leave(message)
            with contextlib.suppress(ConnectionLostError):
                self._connection.post(progress)
        except OctopiError as error:
            refuse(self._connection, message.request, error)

    async def _locate(self, message: m.Locate) -> None:
        try:
            partition = self._partition(message)
            key = partition_key(partition)
            found = await self._member.locate(key)
            located = m.Located(
                message.request, partition, key, found.holder, found.successors, found.steps
            )
            with contextlib.suppress(ConnectionLostError):
                self._connection.post(located)
        except OctopiError as error:
            refuse(self._connection, message.request, error)

    def _partition(self, message: m.Locate) -> PartitionId:
        """The partition that is asked about.

        Raises:
          RefusedError: if there is none, or the topic has no legal name.
          NotReadyError: if the number of partitions is not known yet.
        """
        record = self._member.keeper.record
        if record is None:
            raise NotReadyError(self._member.waits_for)
        if message.topic:
            try:
                topic = topic_name(message.topic)
            except InvalidTopicError as error:
                raise RefusedError(str(error), Status.INVALID_TOPIC) from error
            return HashCircle(record.home_count).partitions(topic, 1)[0]
        count = record.partition_count(PartitionKind.LOG)
        if message.partition >= count:
            raise RefusedError(
                f"there is no partition {message.partition}: the cluster has {count}, from 0",
                Status.UNKNOWN_PARTITION,
            )
        return message.partition
