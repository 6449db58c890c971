"""Streams over HTTP at a register: see `octopi.roles.streams.deciding`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from octopi.environment import Environment
from octopi.errors import NotReadyError, OctopiError
from octopi.identifiers import PartitionId, TopicName
from octopi.model import StreamDefinition, TopicRecord
from octopi.roles.register.node import RegisterNode
from octopi.roles.streams import exchange
from octopi.roles.streams.deciding import StreamDecisions, StreamTopics
from octopi.roles.streams.exchange import StreamCaller
from octopi.roles.streams.forwarding import forward
from octopi.security.quotas import Creator
from octopi.transport.http_requests import HttpAnswer, HttpRequest


class RegisterStreams(StreamDecisions):
    """The streams of a register's topics."""

    def __init__(self, environment: Environment, node: RegisterNode) -> None:
        super().__init__(_RegisterTopics(environment, node), node.traffic.memory)
        self._handing_over = node.handing_over

    async def answer(self, request: HttpRequest, caller: StreamCaller) -> HttpAnswer:
        """See `octopi.roles.streams.exchange.StreamService`: a register that has handed over names
        a broker."""
        if self._handing_over.is_done.is_set():
            try:
                self._handing_over.refuse_client()
            except OctopiError as error:
                return exchange.problem_answer(error)
        return await super().answer(request, caller)


class _RegisterTopics(StreamTopics):
    def __init__(self, environment: Environment, node: RegisterNode) -> None:
        self._environment = environment
        self._node = node

    def known(self, topic: TopicName) -> TopicRecord | None:
        return self._node.controller.state.topic(topic)

    def has_forks(self, topic: TopicName) -> bool:
        return self._node.controller.state.has_forks(topic)

    async def find(self, topic: TopicName, *, creator: Creator | None) -> TopicRecord:
        return await self._node.topics.find(topic, creator=creator)

    async def create(
        self, topic: TopicName, *, beside: str, creator: Creator, stream: StreamDefinition
    ) -> TopicRecord:
        return await self._node.topics.create(topic, beside=beside, creator=creator, stream=stream)

    async def delete(self, topic: TopicName) -> None:
        await self._node.topics.delete(topic)

    async def served(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        body: bytes,
        place: Callable[[], Awaitable[PartitionId]],
    ) -> HttpAnswer:
        async def locate() -> str:
            controller = self._node.controller
            partition = await place()
            found = controller.view.partition(controller.state.partitions[partition])
            if found.leader is None or not found.leader_address:
                raise NotReadyError("no broker leads the stream's partition now")
            return found.leader_address

        return await forward(self._environment, request, body, caller, locate)
