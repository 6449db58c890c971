"""Answers what clients of this broker ask about topics and the cluster: from what it knows itself,
or by asking, once, the broker that leads the topic's home.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs
import trio

from octopi.environment import Clock, Environment
from octopi.errors import (
    ConnectionLostError,
    NotReadyError,
    OctopiError,
    RefusedError,
    Status,
    UnknownTopicError,
)
from octopi.identifiers import BrokerId, PartitionId
from octopi.ring.homes import merged_page
from octopi.roles.broker.asks import DeciderAsks
from octopi.roles.broker.internal_logs import InternalLogs
from octopi.roles.broker.peer_connection import AskingClient
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.cluster_events import ClusterEvents, OwnEventsService
from octopi.roles.broker.ring.member import RingMember
from octopi.roles.broker.ring.operating import RingOperations
from octopi.roles.broker.ring.peers import RingPeers
from octopi.roles.broker.ring.to_registers import ToRegisters
from octopi.roles.broker.ring.topics.keeper import HomesTopics, RingTopics
from octopi.roles.decider_context import DeciderClient, DeciderContext
from octopi.roles.topic_service import TopicService
from octopi.security.grants import EVERYTHING, Grants
from octopi.security.quotas import Creator
from octopi.transport.failures import failure_of, refusal
from octopi.transport.outbox import Outbox
from octopi.transport.pending_requests import Numbered
from octopi.transport.services import ServiceSession
from octopi.transport.turns import ConnectionTurn
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from octopi.wire.common import PROTOCOL_VERSION

_ONE_TOPIC: Final = m.DescribeTopic | m.CreateTopic | m.AlterTopic | m.DeleteTopic
_LOOKUPS: Final = frozenset({m.DescribeTopic, m.ListTopics, m.DescribeCluster})
"""Requests that change nothing, but for a topic that is made when it is first used."""
_DONE: Final = frozenset({m.Done, m.Failure})
_DESCRIPTION: Final = frozenset({m.TopicDescription, m.Failure})
_PAGE: Final = frozenset({m.TopicList, m.Failure})


@attrs.define(eq=False)
class _OwnAnswer(DeciderClient):
    """Takes the one answer of this broker's own services to a client's request."""

    client: AskingClient
    grants: Grants
    answered: trio.Event = attrs.field(factory=trio.Event)
    answer: object = None

    @property
    def outbox(self) -> Outbox:
        """That of the client's connection."""
        assert self.client.connection is not None
        return self.client.connection.outbox

    @property
    def version(self) -> int:
        """That of the client's connection; the newest, if the answer is not sent there."""
        connection = self.client.connection
        return PROTOCOL_VERSION if connection is None else connection.version

    @property
    def turn(self) -> ConnectionTurn | None:
        """That of the client's connection."""
        return None if self.client.connection is None else self.client.connection.turn

    def post(self, message: object) -> None:
        """Take the answer."""
        self.answer = message
        self.answered.set()


class RingDecider(DeciderAsks):
    """Has requests of clients answered, whichever broker they are connected to."""

    def __init__(
        self,
        clock: Clock,
        topics: RingTopics,
        operations: RingOperations,
        cluster: str,
        peers: RingPeers,
        events: ClusterEvents,
    ) -> None:
        """*cluster*: its id.  *peers*: connections for nothing else than this, so that no client
        delays what the brokers say to each other."""
        self._clock = clock
        self.topics = topics
        self.operations = operations
        self._cluster = cluster
        self._peers = peers
        self._events = events

    async def ask(self, message: Numbered, client: AskingClient) -> bytes:
        if isinstance(message, m.CreateTopic) and message.beside:
            message = await self._placed_beside(message, client)
        match message:
            case m.DescribeTopic() | m.CreateTopic() | m.AlterTopic() | m.DeleteTopic():
                home = self.topics.home_of(message.topic)
                return await self._ask_homes([home], message, client)
            case m.DeleteTopicById():
                return await self._delete_by_id(message, client)
            case m.ListTopics():
                return await self._list(message, client)
            case m.DescribeCluster():
                return encode(await self._described(message, client))
            case m.DescribeEvents():
                found = await self._events.collected(message.after, _grants_of(client))
                return encode(m.EventList(message.request, self._events.life, found))
        return encode(await self.operations.carry_out(message))

    def services(
        self, ask: m.Ask, client: DeciderClient, tasks: trio.Nursery, creator: Creator
    ) -> ServiceSession:
        """The services for a request about homes that this broker leads.

        Raises:
          NotLeaderError, NotReadyError: if it doesn't lead them all, or not yet.
        """
        topics = HomesTopics(self.topics, ask.homes)
        context = DeciderContext(client, tasks, lambda: creator)
        own_events = OwnEventsService(self._events, client)
        return ServiceSession("broker", [TopicService(topics, context), own_events])

    async def _ask_homes(
        self, homes: Sequence[PartitionId], message: Numbered, client: AskingClient
    ) -> bytes:
        """Have *message* answered by the broker that leads *homes*."""
        asked_s = m.DECLARATIONS[type(message)].asked_s
        assert asked_s is not None
        ask = attrs.evolve(client.ask(1, message), homes=list(homes))
        leader = self.topics.leader(homes[0])
        with self._clock.timeout(asked_s):
            if leader.is_me:
                return await self._answer(ask, message, client)
            return await self._pass_on(leader.address, ask, message)
        if type(message) in _LOOKUPS:
            raise NotReadyError("the broker that keeps the topic's record gives no answer")
        raise RefusedError(f"no answer within {asked_s:g} s", Status.ANSWER_LOST)

    async def _placed_beside(self, message: m.CreateTopic, client: AskingClient) -> m.CreateTopic:
        """*message* with the partitions of the topic that the new one is to lie beside: another
        home may keep that one's record, and only the record's partitions count.

        Raises:
          RefusedError, UnknownTopicError: if there is no such topic that the client may know of, or
              the request names other partitions.
          NotReadyError: if its home can't answer now.
        """
        beside = message.beside
        if not _grants_of(client).covers(beside):
            # The answer would tell whether there is one, and where.
            raise RefusedError(f"the token grants nothing on topic {beside!r}", Status.FORBIDDEN)
        question = m.DescribeTopic(message.request, beside, create=False)
        home = self.topics.home_of(beside)
        answer = decode(await self._ask_homes([home], question, client), _DESCRIPTION)
        if isinstance(answer, m.Failure):
            raise refusal(answer)
        assert isinstance(answer, m.TopicDescription), "the codec takes nothing else here"
        wanted = [one.partition for one in answer.topic.partitions]
        if message.partitions is not None or message.partition_count not in (0, len(wanted)):
            raise RefusedError(
                f"a topic beside {beside} has its {len(wanted)} partitions, no other ones",
                Status.INVALID_OPTION,
            )
        return attrs.evolve(message, beside="", partition_count=len(wanted), partitions=wanted)

    async def _answer(self, ask: m.Ask, message: Numbered, client: AskingClient) -> bytes:
        own = _OwnAnswer(client, _grants_of(client))
        creator = Creator(ask.subject, ask.topics_max)
        async with trio.open_nursery() as nursery:
            try:
                self.services(ask, own, nursery, creator).handle(message)
            except OctopiError as error:
                own.post(failure_of(message.request, error))
            await own.answered.wait()
        if own.answer is None or (
            isinstance(own.answer, m.Failure) and own.answer.status == Status.NOT_LEADER
        ):
            raise NotReadyError("this broker does not lead the topic's home any more")
        return encode(own.answer)

    async def _pass_on(self, address: str, ask: m.Ask, message: Numbered) -> bytes:
        if not address:
            raise NotReadyError("this broker does not know where the topic's home is led")
        answered = trio.Event()
        answers: list[object] = []

        def take(answer: object) -> None:
            answers.append(answer)
            answered.set()

        self._peers.ask(address, ask, take)
        await answered.wait()
        match answers[0]:
            case m.Answer(message=data):
                return data
            case m.Failure() as failed:
                error = refusal(failed)
                if error.status is Status.NOT_LEADER:
                    raise NotReadyError(str(error.args[0])) from error
                raise error
            case _ if type(message) in _LOOKUPS:
                raise NotReadyError(f"{address} does not answer: {answers[0]}")
        raise RefusedError(
            f"{address}, which keeps the topic's record, gave no answer: {answers[0]}",
            Status.ANSWER_LOST,
        )

    async def delete_expired(self, topic: str, topic_id: str) -> None:
        """Have the home of *topic* delete it, if it has that id.

        Raises:
          OctopiError: if it is not known to be deleted.
        """
        nobody = AskingClient(None, trio.Semaphore(1))
        order = m.DeleteTopicById(1, topic_id)
        data = await self._ask_homes([self.topics.home_of(topic)], order, nobody)
        answer = decode(data, _DONE)
        if isinstance(answer, m.Failure):
            raise refusal(answer)

    # --- all topics ----------------------------------------------------------------------------

    async def _delete_by_id(self, message: m.DeleteTopicById, client: AskingClient) -> bytes:
        """Delete the topic with an id; any home may keep it, so all are asked.

        Raises:
          UnknownTopicError: if none of them does.
          NotReadyError: if one of them can't answer now, and no other one keeps it.
        """
        failures: list[OctopiError] = []

        async def one(homes: list[PartitionId]) -> None:
            try:
                answer = decode(await self._ask_homes(homes, message, client), _DONE)
                if isinstance(answer, m.Failure):
                    raise refusal(answer)
            except OctopiError as error:
                failures.append(error)

        leaders = list(self.topics.homes_by_leader().values())
        async with trio.open_nursery() as nursery:
            for homes in leaders:
                nursery.start_soon(one, homes)
        if len(failures) == len(leaders):
            raise next(
                (one for one in failures if not isinstance(one, UnknownTopicError)), failures[0]
            )
        return encode(m.Done(message.request))

    async def _list(self, message: m.ListTopics, client: AskingClient) -> bytes:
        """A page of the topics of all homes, in the order of their names."""
        pages = await self._pages(message, client)
        found = [(one.topics, one.more) for one in pages]
        topics, more = merged_page(found, max(1, message.count_max))
        return encode(m.TopicList(message.request, topics, more))

    async def _pages(self, message: m.ListTopics, client: AskingClient) -> list[m.TopicList]:
        """A page of each broker that leads homes.

        Raises:
          NotReadyError: if one of them can't answer now.
        """
        pages: list[m.TopicList] = []
        failures: list[OctopiError] = []

        async def one(homes: list[PartitionId]) -> None:
            try:
                answer = decode(await self._ask_homes(homes, message, client), _PAGE)
                if isinstance(answer, m.TopicList):
                    pages.append(answer)
                elif isinstance(answer, m.Failure):
                    failures.append(refusal(answer))
            except OctopiError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for homes in self.topics.homes_by_leader().values():
                nursery.start_soon(one, homes)
        if failures:
            if isinstance(failures[0], ConnectionLostError):
                raise NotReadyError(str(failures[0]))
            raise failures[0]
        return pages

    async def _described(
        self, message: m.DescribeCluster, client: AskingClient
    ) -> m.ClusterDescription:
        view = self.topics.view
        return m.ClusterDescription(
            message.request,
            self._cluster,
            await self._topic_count(client),
            self.topics.partition_count,
            view.brokers(),
            view.partitions(),
        )

    async def _topic_count(self, client: AskingClient) -> int:
        """The number of topics that the client may know of; of homes that don't answer, none."""
        count, after = 0, ""
        try:
            while True:
                pages = await self._pages(m.ListTopics(1, after, 500), client)
                topics, more = merged_page([(one.topics, one.more) for one in pages], 500)
                count += len(topics)
                if not more or not topics:
                    return count
                after = topics[-1].topic
        except OctopiError:
            return count


def _grants_of(client: AskingClient) -> Grants:
    return EVERYTHING if client.entry is None else client.entry.identity.grants


def begin_deciding(
    environment: Environment,
    replicas: ReplicaManager,
    member: RingMember,
    logs: InternalLogs,
    peers: RingPeers,
    nursery: trio.Nursery,
) -> RingDecider:
    """What answers the requests of clients of the broker *member*, which is in the ring.  *logs*:
    those named ``~topics``.  *peers*: see `RingDecider`.  *nursery*: the broker's."""
    assert member.partitions is not None, "it has a place on the ring"
    topics = RingTopics(
        environment, replicas, member.partitions, member.routes, member, logs, nursery
    )
    nursery.start_soon(topics.run)
    clock = environment.clock
    assert member.chord is not None, "likewise"
    operations = RingOperations(
        clock,
        member.keeper,
        member.partitions,
        member.routes,
        member.chord,
        ToRegisters(environment, member.options, member.keeper, member.partitions, member.chord),
    )
    events = ClusterEvents(
        clock, member.events, member.identity.nonce, peers, partial(_others_of, member)
    )
    return RingDecider(clock, topics, operations, member.cluster, peers, events)


def _others_of(member: RingMember) -> dict[BrokerId, str]:
    """The addresses of the other brokers that are there, as far as *member* knows."""
    chord = member.chord
    entries = () if chord is None else chord.book
    return {one.node.broker: one.node.address for one in entries if not one.is_silent}
