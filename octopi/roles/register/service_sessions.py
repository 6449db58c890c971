"""What a register serves to brokers and clients, and the tasks of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import trio

from octopi.errors import NotReadyError
from octopi.roles.asked import AskService
from octopi.roles.decider_context import DeciderClient, creator_of
from octopi.roles.register.handing_over import HandingOver
from octopi.roles.register.node import RegisterNode
from octopi.roles.register.services.cluster import ClusterService
from octopi.roles.register.services.context import RegisterContext
from octopi.roles.register.services.operating import OperatingService
from octopi.roles.register.sessions import MembershipSession
from octopi.roles.topic_service import TopicService
from octopi.security.quotas import Creator
from octopi.transport.connection import Connection
from octopi.transport.services import ServiceSession
from octopi.transport.sessions import Session
from octopi.wire.endpoints import CLIENT, MEMBERSHIP, NOTICES, PEER, Endpoint
from octopi.wire.messages import Ask, DescribeNode, HandOverToRing

NodeSession: TypeAlias = Callable[[RegisterNode, Connection, trio.Nursery], Session]


def _topics(context: RegisterContext) -> TopicService:
    return TopicService(context.node.topics, context)


CLIENT_SERVICES: Final = (_topics, OperatingService, ClusterService)
"""The factories of the services of a client connection to a register."""


def _services(context: RegisterContext) -> ServiceSession:
    """The services of a client of a register."""
    return ServiceSession("register", (make(context) for make in CLIENT_SERVICES))


def _client_session(node: RegisterNode, connection: Connection, tasks: trio.Nursery) -> Session:
    context = RegisterContext(node, connection, tasks, lambda: creator_of(connection.entry))
    return UntilHandedOver(node.handing_over, _services(context))


def _peer_session(
    node: RegisterNode, connection: Connection, tasks: trio.Nursery
) -> ServiceSession:
    def services(
        ask: Ask, client: DeciderClient, tasks: trio.Nursery, creator: Creator
    ) -> ServiceSession:
        if node.handing_over.is_done.is_set():
            raise NotReadyError("this cluster has no register any more: ask its brokers")
        return _services(RegisterContext(node, client, tasks, lambda: creator))

    return ServiceSession("register", [AskService(node.environment, connection, tasks, services)])


class UntilHandedOver:
    """A client's session, until the register has handed its cluster over."""

    def __init__(self, handing_over: HandingOver, session: Session) -> None:
        self._handing_over = handing_over
        self._session = session

    def handle(self, message: object) -> None:
        """Handle *message*, or refuse it.

        Raises:
          OctopiError: the answer to a request.
        """
        if self._handing_over.is_done.is_set() and type(message) not in _STILL_ANSWERED | NOTICES:
            self._handing_over.refuse_client()
        self._session.handle(message)

    def token_refreshed(self) -> None:
        """The peer has sent a fresh token."""
        self._session.token_refreshed()

    def closed(self) -> None:
        """The connection has ended."""
        self._session.closed()


_STILL_ANSWERED: Final = frozenset({HandOverToRing, DescribeNode})
"""What a register answers that has handed over."""

SESSIONS: Final[Mapping[Endpoint, NodeSession]] = {
    CLIENT: _client_session,
    MEMBERSHIP: MembershipSession,
    PEER: _peer_session,
}
"""For each endpoint the function that makes the session of a connection."""


async def keep_tasks(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """``started`` gives a nursery for the tasks of a register, until it is cancelled."""
    async with trio.open_nursery() as tasks:
        task_status.started(tasks)
        await trio.sleep_forever()


async def end_when_handed_over(node: RegisterNode, tasks: trio.Nursery) -> None:
    """Once *node* has handed over, end its *tasks*, and have brokers ask what was handed over."""
    await node.handing_over.is_done.wait()
    tasks.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        for member in list(node.members.values()):
            nursery.start_soon(member.dismiss)


def begin(node: RegisterNode, tasks: trio.Nursery) -> None:
    """Decide from now on, with the tasks of *node* in *tasks*; not if it has handed over.

    Raises:
      StorageError, NotReadyError: if the journal can't be written.
    """
    node.handing_over.replayed()
    if not node.handing_over.is_done.is_set():
        node.admissions.start()
        run_parts(node, tasks)


def run_parts(node: RegisterNode, tasks: trio.Nursery) -> None:
    """Start the tasks of *node* in *tasks*."""
    tasks.start_soon(node.gathering.run, node.options.gather_s)
    tasks.start_soon(node.election_driver.run)
    tasks.start_soon(node.rebalancing.run, node.options.rebalance_interval_s)
    tasks.start_soon(node.shedding.run)
    node.generations.resume()
