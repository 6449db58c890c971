"""Sends a client's requests to the node that can answer them, and retries until a time-out.

The node is the register, a partition's leader or a given broker.  What the register answers, any
node may be asked: a broker passes it on.  The router knows the addresses of such nodes
(`octopi.clients.entrances`) and, from its `LeaderLookup`, where partitions are.  Its callers make
the messages.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from octopi.clients.answers import NodeInfo
from octopi.clients.connections import Connections
from octopi.clients.entrances import Entrances
from octopi.clients.leader_check import LeaderCheck, judge_leader
from octopi.clients.leader_lookup import LeaderLookup
from octopi.clients.leader_route import LeaderRoute
from octopi.clients.suspicion import RequestSuspicion
from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    NotReadyError,
    OctopiError,
    RefusedError,
    Status,
    UnreachableError,
)
from octopi.identifiers import PartitionId, TopicName
from octopi.limits import HEARTBEAT_INTERVAL_S, LEADER_SILENCE_S, READER_SILENCE_S
from octopi.retry import may_pass, retry
from octopi.transport.connection import Connection
from octopi.transport.pending_requests import Numbered
from octopi.wire.messages import (
    ClusterDescription,
    DescribeNode,
    DescribeTopic,
    FindOffset,
    FoundOffset,
    NodeDescription,
    TopicDescription,
    TopicInfo,
    Welcome,
)

_T = TypeVar("_T")

_SILENCE_S: Final = 1.2 * HEARTBEAT_INTERVAL_S
"""A node that is there sends something within this time."""


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
        self._entrances = Entrances(servers)

    def now(self) -> float:
        """The time (monotonic, s)."""
        return self._environment.clock.now()

    @property
    def attempt_timeout_s(self) -> float:
        """The time-out for one attempt.  It leaves time for a second one, perhaps at another
        node."""
        return self.timeout_s / 2

    async def retry(
        self,
        what: str,
        attempt: Callable[[], Awaitable[_T]],
        timeout_s: float | None = None,
        passes: Callable[[OctopiError], bool] = may_pass,
    ) -> _T:
        """Call *attempt* until it succeeds, raises an error that won't pass, or time is up."""
        return await retry(self._environment, timeout_s or self.timeout_s, what, attempt, passes)

    async def ask_register(
        self, what: str, question: Callable[[int], Any], expected: type[_T]
    ) -> _T:
        """Ask the register, or a broker that passes the question on; *question* makes the message
        with a request number."""
        return await self.retry(what, lambda: self.ask_register_once(question, expected))

    async def ask_register_once(
        self,
        question: Callable[[int], Any],
        expected: type[_T],
        timeout_s: float | None = None,
        *,
        is_lookup: bool = False,
    ) -> _T:
        """One attempt to ask the register, or a broker that passes the question on.  If that node
        can't answer and others are known, the next attempt asks another one.

        *is_lookup*: the answer changes nothing, so it can be asked for at another node before this
        one has answered.

        Raises:
          ConnectionLostError: if the register may have carried out what it was asked.
          OctopiError: if it has not, any other error.
        """
        entrances = self._entrances
        server, patience_s = entrances.current, entrances.patience_s if is_lookup else None
        limit_s = timeout_s or self.attempt_timeout_s
        is_broker = False
        try:
            with self._environment.clock.timeout(patience_s or math.inf):
                connection = await self._connections.get(server)
                greeting = connection.greeting
                is_broker = isinstance(greeting, Welcome) and greeting.role != "register"
                message = question(connection.next_request())
                if is_broker:
                    answer = await self._pass_through(connection, message, expected, limit_s)
                else:
                    answer = await connection.request(message, expected, limit_s)
                entrances.answered()
                self._learn(answer)
                return answer
        except (UnreachableError, ConnectionLostError):
            entrances.failed(server)
            raise
        except RefusedError as error:
            if error.status == Status.NOT_LEADER and not is_broker:
                entrances.redirected(server, error.address)
                # It names a register, and callers would take that for the leader of a partition.
                raise NotReadyError(str(error.args[0])) from error
            if is_broker and error.retryable:
                entrances.failed(server)
            if error.status == Status.ANSWER_LOST:
                raise ConnectionLostError(str(error.args[0])) from error
            raise
        entrances.failed(server, was_silent=True)
        raise ConnectionLostError(f"{server} gave no answer within {patience_s:g} s")

    async def _pass_through(
        self, connection: Connection, message: Numbered, expected: type[_T], timeout_s: float
    ) -> _T:
        """`Connection.request` of what the broker passes on.  If there is no answer in time, the
        connection goes on unless the broker is silent: the register may be slow, and the program
        may produce and consume over this connection.

        Raises:
          ConnectionLostError: also if there is no answer in time.
        """
        clock = self._environment.clock
        with clock.timeout(timeout_s):
            return await connection.request(message, expected, 2 * timeout_s)
        text = f"{connection.peer} passed a request on, and gave no answer within {timeout_s:g} s"
        if clock.now() - connection.last_received_at > _SILENCE_S:
            self._connections.discard(connection, text)
        raise ConnectionLostError(text)

    def _learn(self, answer: object) -> None:
        """Remember where brokers are."""
        if isinstance(answer, TopicDescription):
            for place in (*answer.topic.partitions, *answer.topic.sealed_partitions):
                self._entrances.learn(place.readers)
        elif isinstance(answer, ClusterDescription):
            self._entrances.learn(one.address for one in answer.brokers if one.live)

    async def ask_broker(
        self,
        what: str,
        address: str,
        question: Callable[[int], Any],
        expected: type[_T],
        wait_s: float = 0.0,
    ) -> _T:
        """Ask the broker at *address*, which may wait for *wait_s* before it answers."""

        async def attempt() -> _T:
            connection = await self._connections.get(address)
            return await connection.request(
                question(connection.next_request()), expected, self.attempt_timeout_s + wait_s
            )

        return await self.retry(what, attempt, self.timeout_s + wait_s)

    async def describe_node(self, address: str | None = None) -> NodeInfo:
        """The node at *address*; None: the one that this client's questions go to."""
        where = address if address is not None else self._entrances.current

        async def attempt() -> NodeInfo:
            connection = await self._connections.get(where)
            greeting = connection.greeting
            assert isinstance(greeting, Welcome)
            uptime_s = None
            try:
                answer = await connection.request(
                    DescribeNode(connection.next_request()), NodeDescription, self.attempt_timeout_s
                )
                uptime_s = answer.uptime_ms / 1000
            except RefusedError as error:
                if error.status != Status.UNSUPPORTED_VERSION:
                    raise
            return NodeInfo(where, greeting.role, greeting.agent, connection.version, uptime_s)

        return await self.retry(f"describe the node at {where}", attempt)

    async def ask_leader(
        self,
        what: str,
        topic: TopicName,
        partition: PartitionId,
        question: Callable[[int], Any],
        expected: type[_T],
        wait_s: float = 0.0,
        passes: Callable[[OctopiError], bool] = may_pass,
        *,
        follows_generations: bool = False,
    ) -> _T:
        """Ask the leader of a log, which may wait for *wait_s* before it answers, again after
        errors that can pass.  *follows_generations*: see `LeaderLookup.topic`."""
        route = LeaderRoute(self.lookup, topic, partition, follows_generations=follows_generations)

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
                if error.meaning.look_up and error.status is not Status.STALE_ROUTE:
                    # The broker or this client is out of date; the register knows better.
                    raise NotReadyError(str(error.args[0])) from error
                raise route.reported(error) from error

        return await self.retry(what, attempt, self.timeout_s + wait_s, passes)

    async def find_offset(
        self, topic: TopicName, partition: PartitionId, at: str, value: int | bytes = 0
    ) -> FoundOffset:
        """The answer of a log's leader to `octopi.wire.client.FindOffset`; *value*: of
        a message its id.

        Raises:
          UnknownTopicError, RefusedError: UNKNOWN_PARTITION: if there is no such log.
        """
        number, identity = (0, value) if isinstance(value, bytes) else (value, b"")
        return await self.ask_leader(
            f"find an offset in {topic}/{partition}",
            topic,
            partition,
            lambda request: FindOffset(request, topic, partition, at, number, identity),
            FoundOffset,
            follows_generations=True,  # a place in one log is the same by any list of them
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
            lambda request: DescribeTopic(request, name, create),
            TopicDescription,
            is_lookup=not create,
        )
        return answer.topic
