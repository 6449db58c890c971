"""Streams over HTTP in a cluster without a register: any broker answers, by what it has itself, or
by passing the request on to the leader of the stream's home or of its partition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from octopi.environment import Environment
from octopi.errors import NotReadyError, OctopiError, RefusedError, Status
from octopi.identifiers import PartitionId, TopicId, TopicName
from octopi.limits import HTTP_BODY_BYTES_MAX
from octopi.logger import get_logger
from octopi.model import StreamDefinition, TopicRecord
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.topics.asking import RingDecider
from octopi.roles.broker.ring.topics.keeper import HomesTopics, RingTopics
from octopi.roles.broker.streams.service import BrokerStreams
from octopi.roles.streams import exchange
from octopi.roles.streams.deciding import StreamDecisions, StreamTopics
from octopi.roles.streams.exchange import StreamCaller
from octopi.roles.streams.forwarding import forward, is_forwarded, look_again
from octopi.security.quotas import Creator
from octopi.streams import paths
from octopi.streams.forks import order_of
from octopi.transport.http_requests import HttpAnswer, HttpRequest
from octopi.transport.memory_budget import MemoryBudget

_log = get_logger(__name__)


class RingStreams:
    """See `octopi.roles.streams.exchange.StreamService`."""

    def __init__(
        self,
        environment: Environment,
        replicas: ReplicaManager,
        memory: MemoryBudget,
        decider: Callable[[], RingDecider],
        tasks: trio.Nursery,
    ) -> None:
        """*decider*: raises NotReadyError until the broker is in the ring.  *tasks*: the
        broker's."""
        self._environment = environment
        self._replicas = replicas
        self._memory = memory
        self._decider = decider
        self._tasks = tasks
        self.led = BrokerStreams(environment, replicas, memory, (), self._expired)
        """The streams that this broker leads."""
        self._expiring: set[TopicId] = set()

    async def answer(self, request: HttpRequest, caller: StreamCaller) -> HttpAnswer:
        """The answer; errors are answers, too."""
        try:
            return await self._answer(request, caller)
        except OctopiError as error:
            return exchange.problem_answer(error)

    async def _answer(self, request: HttpRequest, caller: StreamCaller) -> HttpAnswer:
        topic = paths.topic_of(request.path)
        if request.method not in {"PUT", "DELETE"} and self.led.has_log(topic):
            return await self.led.answer(request, caller)
        if order_of(request.headers) is not None:
            raise RefusedError(
                "a cluster without a register forks no streams yet", Status.INVALID_OPTION
            )
        topics = self._decider().topics
        home = topics.home_of(topic)
        if topics.leader(home).is_me:
            of_home = _HomeStreams(self._environment, topics, home, self.led)
            return await StreamDecisions(of_home, self._memory).answer(request, caller)
        if is_forwarded(request):
            raise look_again("this broker does not keep the stream's record")
        caller.require_method(request.method, topic)
        memory = caller.accounts(self._memory)
        body = await exchange.received(request, memory, HTTP_BODY_BYTES_MAX)

        async def locate() -> str:
            leader = topics.leader(home)
            if leader.is_me or not leader.address:
                raise NotReadyError("no other broker keeps the stream's record now")
            return leader.address

        return await forward(self._environment, request, body, caller, locate)

    def _expired(self, topic_id: TopicId) -> None:
        """A stream has expired: have its home delete it.  Repeated until it is gone."""
        log = next((one for one in self._replicas.store if one.topic_id == topic_id), None)
        if log is not None and topic_id not in self._expiring:
            self._expiring.add(topic_id)
            self._tasks.start_soon(self._delete, log.topic.topic, topic_id)

    async def _delete(self, topic: str, topic_id: TopicId) -> None:
        try:
            await self._decider().delete_expired(topic, topic_id)
        except OctopiError as error:
            clock = self._environment.clock
            _log.sparing(clock).info("expired topic not deleted", topic=topic, why=str(error))
        finally:
            self._expiring.discard(topic_id)


class _HomeStreams(StreamTopics):
    """The topics of a home that this broker leads."""

    def __init__(
        self, environment: Environment, topics: RingTopics, home: PartitionId, led: BrokerStreams
    ) -> None:
        """Raises:
        NotLeaderError, NotReadyError: if it doesn't, or not yet.
        """
        self._environment = environment
        self._view = topics.view
        self._topics = HomesTopics(topics, [home])
        self._led = led

    def known(self, topic: TopicName) -> TopicRecord | None:
        return self._topics.ready(topic)

    def has_forks(self, topic: TopicName) -> bool:
        return False

    async def find(self, topic: TopicName, *, creator: Creator | None) -> TopicRecord:
        return await self._topics.find(topic, creator=creator)

    async def create(
        self, topic: TopicName, *, beside: str, creator: Creator, stream: StreamDefinition
    ) -> TopicRecord:
        return await self._topics.create(topic, beside=beside, creator=creator, stream=stream)

    async def delete(self, topic: TopicName) -> None:
        await self._topics.delete(topic)

    async def served(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        body: bytes,
        place: Callable[[], Awaitable[PartitionId]],
    ) -> HttpAnswer:
        topic, partition = paths.topic_of(request.path), await place()
        answer = await self._led.served(request, caller, topic, str(partition), body)
        if answer is not None:
            return answer

        async def locate() -> str:
            found = self._view.partition(await place())
            if not found.leader_address:
                raise NotReadyError("no broker leads the stream's partition now")
            return found.leader_address

        return await forward(self._environment, request, body, caller, locate)
