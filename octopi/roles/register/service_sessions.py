"""What a register serves to brokers and clients, and the tasks of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import trio

from octopi.roles.asked import AskService
from octopi.roles.decider_context import DeciderClient, creator_of
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
from octopi.wire.endpoints import CLIENT, MEMBERSHIP, PEER, Endpoint
from octopi.wire.messages import Ask

NodeSession: TypeAlias = Callable[[RegisterNode, Connection, trio.Nursery], Session]


def _topics(context: RegisterContext) -> TopicService:
    return TopicService(context.node.topics, context)


CLIENT_SERVICES: Final = (_topics, OperatingService, ClusterService)
"""The factories of the services of a client connection to a register."""


def _services(context: RegisterContext) -> ServiceSession:
    """The services of a client of a register."""
    return ServiceSession("register", (make(context) for make in CLIENT_SERVICES))


def _client_session(
    node: RegisterNode, connection: Connection, tasks: trio.Nursery
) -> ServiceSession:
    context = RegisterContext(node, connection, tasks, lambda: creator_of(connection.entry))
    return _services(context)


def _peer_session(
    node: RegisterNode, connection: Connection, tasks: trio.Nursery
) -> ServiceSession:
    def services(
        ask: Ask, client: DeciderClient, tasks: trio.Nursery, creator: Creator
    ) -> ServiceSession:
        return _services(RegisterContext(node, client, tasks, lambda: creator))

    return ServiceSession("register", [AskService(node.environment, connection, tasks, services)])


SESSIONS: Final[Mapping[Endpoint, NodeSession]] = {
    CLIENT: _client_session,
    MEMBERSHIP: MembershipSession,
    PEER: _peer_session,
}
"""For each endpoint the function that makes the session of a connection."""


def run_parts(node: RegisterNode, tasks: trio.Nursery) -> None:
    """Start the tasks of *node* in *tasks*."""
    tasks.start_soon(node.gathering.run, node.options.gather_s)
    tasks.start_soon(node.election_driver.run)
    tasks.start_soon(node.rebalancing.run, node.options.rebalance_interval_s)
