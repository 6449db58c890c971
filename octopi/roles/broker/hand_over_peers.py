"""Brokers ask each other whether a hand-over took place, when the register can't know it
(`docs/decisions/0126-brokers-ask-each-other-whether-a-hand-over-took-place.md`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

import trio

from octopi.environment import Environment
from octopi.errors import OctopiError
from octopi.identifiers import BrokerId
from octopi.limits import HAND_OVER_ASK_S
from octopi.logger import get_logger
from octopi.ring.hand_over_fate import ToldState
from octopi.roles.answers import refuse
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials, open_node_connection
from octopi.transport.services import Service
from octopi.wire import messages as m
from octopi.wire.endpoints import PEER
from octopi.wire.ring import RingNode

_log = get_logger(__name__)

_T = TypeVar("_T")


class HandOverPeers:
    """Asks other brokers about a hand-over."""

    def __init__(self, environment: Environment, agent: str, credentials: NodeCredentials) -> None:
        self._environment = environment
        self._agent = agent
        self._credentials = credentials

    async def states(
        self, nodes: Iterable[RingNode], attempt: str, *, give_up: bool
    ) -> dict[BrokerId, ToldState]:
        """What *nodes* say about *attempt*, as far as they answer within `HAND_OVER_ASK_S`.  One
        that has lost its disk says nothing.  *give_up*: ask them to promise not to take over."""
        told: dict[BrokerId, ToldState] = {}

        async def ask(node: RingNode) -> None:
            state = await self._talk(node.address, partial(_ask_state, attempt, give_up))
            if state is not None and state.directory == node.directory:
                told[node.broker] = ToldState(
                    state.is_taken_over, state.is_given_up, state.may_give_up
                )

        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(ask, node)
        return told

    async def entries(self, node: RingNode, attempt: str) -> list[bytes] | None:
        """What was handed over, from a broker that has taken over; None: it does not tell it."""
        return await self._talk(node.address, partial(_ask_entries, attempt))

    async def _talk(
        self, address: str, talk: Callable[[Connection], Awaitable[_T | None]]
    ) -> _T | None:
        """The result of *talk* with the broker at *address*, within `HAND_OVER_ASK_S`; None: there
        is none."""
        found: list[_T | None] = []
        with self._environment.clock.timeout(HAND_OVER_ASK_S):
            try:
                connection = await open_node_connection(
                    self._environment, address, PEER, self._agent, self._credentials
                )
            except OctopiError as error:
                self._unanswered(address, error)
                return None
            async with trio.open_nursery() as nursery:
                await nursery.start(connection.run, lambda message: None)
                try:
                    found.append(await talk(connection))
                except OctopiError as error:
                    self._unanswered(address, error)
                nursery.cancel_scope.cancel()
        return found[0] if found else None

    def _unanswered(self, address: str, error: OctopiError) -> None:
        sparing = _log.sparing(self._environment.clock)
        sparing.info("a broker does not say whether it took over", broker=address, why=str(error))


async def _ask_state(attempt: str, give_up: bool, connection: Connection) -> m.HandOverState:
    question = m.AskHandOverState(connection.next_request(), attempt, give_up)
    return await connection.request(question, m.HandOverState, HAND_OVER_ASK_S)


async def _ask_entries(attempt: str, connection: Connection) -> list[bytes] | None:
    entries: list[bytes] = []
    while True:
        question = m.AskHandOver(connection.next_request(), len(entries), attempt)
        page = await connection.request(question, m.HandOverPage, HAND_OVER_ASK_S)
        if not page.is_handed_over:
            return None
        entries += page.entries
        if not page.more:
            return entries


class HandOverService(Service):
    """Answers what other brokers ask about a hand-over."""

    def __init__(
        self,
        connection: Connection,
        tasks: trio.Nursery,
        state: Callable[[m.AskHandOverState], Awaitable[m.HandOverState]],
        page: Callable[[m.AskHandOver], m.HandOverPage],
    ) -> None:
        super().__init__(
            {
                m.AskHandOverState: lambda message: tasks.start_soon(self._tell, message),
                m.AskHandOver: lambda message: connection.post(page(message)),
            }
        )
        self._connection = connection
        self._state = state

    async def _tell(self, message: m.AskHandOverState) -> None:
        try:
            self._connection.post(await self._state(message))
        except OctopiError as error:
            refuse(self._connection, message.request, error)
