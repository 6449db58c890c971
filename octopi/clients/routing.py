"""Sends a client's requests to the node that can answer them, and retries until a time-out.

The node is the register, a partition's leader or a given broker.  The router knows the addresses of
registers and, from its `LeaderLookup`, where partitions are.  Its callers make the messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from octopi.clients.connections import Connections
from octopi.clients.leader_check import LeaderCheck, judge_leader
from octopi.clients.leader_lookup import LeaderLookup
from octopi.clients.leader_route import LeaderRoute
from octopi.clients.suspicion import RequestSuspicion
from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    NotReadyError,
    RefusedError,
    UnreachableError,
)
from octopi.identifiers import PartitionId, TopicName
from octopi.limits import LEADER_SILENCE_S, READER_SILENCE_S
from octopi.retry import retry
from octopi.wire.messages import DescribeTopic, FindOffset, FoundOffset, TopicDescription, TopicInfo

_T = TypeVar("_T")


class RequestRouter:
    """Routes the requests of one client."""

    def __init__(
        self,
        environment: Environment,
        connections: Connections,
        servers: Sequence[str],
        timeout_s: float,
    ) -> None:
        """*timeout_s*: the time-out for all attempts of one request together."""
        self.lookup = LeaderLookup(environment.clock, self.describe_once)
        self.timeout_s = timeout_s
        self.leader_check = LeaderCheck(self.lookup)
        self._environment = environment
        self._connections = connections
        self._servers = deque(servers)
        """Addresses of registers; the first one is asked."""

    @property
    def attempt_timeout_s(self) -> float:
        """The time-out for one attempt.  It leaves time for a second one, perhaps at another
        node."""
        return self.timeout_s / 2

    async def retry(
        self, what: str, attempt: Callable[[], Awaitable[_T]], timeout_s: float | None = None
    ) -> _T:
        """Call *attempt* until it succeeds, raises an error that won't pass, or time is up."""
        return await retry(self._environment, timeout_s or self.timeout_s, what, attempt)

    async def ask_register(
        self, what: str, question: Callable[[int], Any], expected: type[_T]
    ) -> _T:
        """Ask the register; *question* makes the message with a request number."""
        return await self.retry(what, lambda: self.ask_register_once(question, expected))

    async def ask_register_once(
        self, question: Callable[[int], Any], expected: type[_T], timeout_s: float | None = None
    ) -> _T:
        """One attempt to ask the register.  If it can't be reached and several addresses are known,
        the next attempt uses another one."""
        server = self._servers[0]
        try:
            connection = await self._connections.get(server)
            return await connection.request(
                question(connection.next_request()), expected, timeout_s or self.attempt_timeout_s
            )
        except (UnreachableError, ConnectionLostError):
            if self._servers[0] == server:
                self._servers.rotate(-1)
            raise

    async def ask_broker(
        self, what: str, address: str, question: Callable[[int], Any], expected: type[_T]
    ) -> _T:
        """Ask the broker at *address*."""

        async def attempt() -> _T:
            connection = await self._connections.get(address)
            return await connection.request(
                question(connection.next_request()), expected, self.attempt_timeout_s
            )

        return await self.retry(what, attempt)

    async def ask_leader(
        self,
        what: str,
        topic: TopicName,
        partition: PartitionId,
        question: Callable[[int], Any],
        expected: type[_T],
        wait_s: float = 0.0,
    ) -> _T:
        """Ask the leader of a log, which may wait for *wait_s* before it answers."""
        route = LeaderRoute(self.lookup, topic, partition)

        async def attempt() -> _T:
            place = await route.find()
            judge = partial(judge_leader, place.address, place.epoch)
            patience_s = LEADER_SILENCE_S + (READER_SILENCE_S if wait_s else 0.0)
            suspicion = RequestSuspicion(self._environment.clock, patience_s)
            try:
                async with self.leader_check.unless_replaced(topic, partition, judge, suspicion):
                    connection = await self._connections.get(place.address)
                    return await connection.request(
                        question(connection.next_request()),
                        expected,
                        self.attempt_timeout_s + wait_s,
                    )
            except RefusedError as error:
                if route.redirected(error):
                    return await attempt()
                if error.meaning.look_up:
                    # The broker or this client is out of date; the register knows better.
                    raise NotReadyError(str(error.args[0])) from error
                raise

        return await self.retry(what, attempt, self.timeout_s + wait_s)

    async def find_offset(
        self, topic: TopicName, partition: PartitionId, at: str, value: int = 0
    ) -> FoundOffset:
        """The answer of a log's leader to `octopi.wire.client.FindOffset`.

        Raises:
          UnknownTopicError, RefusedError: UNKNOWN_PARTITION: if there is no such log.
        """
        return await self.ask_leader(
            f"find an offset in {topic}/{partition}",
            topic,
            partition,
            lambda request: FindOffset(request, topic, partition, at, value),
            FoundOffset,
        )

    async def describe_topic(self, topic: TopicName, *, create: bool = False) -> TopicInfo:
        """Ask the register for a topic, and remember where its partitions are.

        Raises:
          UnknownTopicError: if there is no such topic, unless *create*.
        """
        info = await self.retry(
            f"describe topic {topic}", lambda: self.describe_once(topic, create)
        )
        self.lookup.remember(info)
        return info

    async def describe_once(self, name: str, create: bool) -> TopicInfo:
        """One attempt to have a topic described."""
        answer = await self.ask_register_once(
            lambda request: DescribeTopic(request, name, create), TopicDescription
        )
        return answer.topic
