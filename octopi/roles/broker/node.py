"""The broker's shell: data directory, logs, server, link to the register.

The broker's nursery has these tasks: the server (with one nursery per connection below it), the
flusher, retention, the fan-out to subscribers, and the link to the register.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from octopi.environment import Environment
from octopi.identifiers import BrokerId, TopicId
from octopi.limits import (
    CATCH_UP_SLOWDOWN_MAX,
    LOAD_INTERVAL_S,
    MEMORY_BUDGET_BYTES,
    RELAY_MEMORY_BYTES,
    RETENTION_CHECK_INTERVAL_S,
    RETIRED_KEEP_S,
)
from octopi.logger import get_logger
from octopi.roles.broker.client_parts import ClientParts, ServiceMaker, begin_client_parts
from octopi.roles.broker.controller_link import MemberLink
from octopi.roles.broker.ended_ring import EndedRingSession, load_ended_ring
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.follower_connection import FollowerConnection
from octopi.roles.broker.forwarded_produces import ForwardedProduces, ForwardedProduceService
from octopi.roles.broker.identity import BrokerIdentity, begin_incarnation, store_identity
from octopi.roles.broker.load_report import report_loads
from octopi.roles.broker.peer_connection import PeerConnection
from octopi.roles.broker.register_addresses import RegisterAddresses
from octopi.roles.broker.register_link import RegisterLink
from octopi.roles.broker.relay.registered import BrokerRelays
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.services.context import ClientContext
from octopi.roles.broker.services.no_ring import NoRingService
from octopi.roles.broker.services.session import BrokerSession
from octopi.roles.broker.streams.service import BrokerStreams
from octopi.roles.broker.taking_over import has_announcement, refuse_without_register
from octopi.security.authenticator import Authenticator
from octopi.security.join_secret import SecretSource
from octopi.storage.directories import lock_directory, make_durable_directory
from octopi.storage.flush_policy import FlushOptions
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials, TokenSource
from octopi.transport.memory_budget import MemoryBudget
from octopi.transport.server import serve
from octopi.transport.server_statistics import ServerStatistics
from octopi.transport.services import ServiceSession
from octopi.transport.sessions import Session
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT, FOLLOW, PEER, RELAY, RING, Endpoint

if TYPE_CHECKING:
    from octopi.roles.broker.hand_over_question import HandOverQuestion

_log = get_logger(__name__)


@attrs.frozen
class BrokerOptions:
    """The options of a broker."""

    listen: str
    """``host:port``; with port 0 the system picks a free one."""
    data_directory: str
    registers: list[str]
    """Addresses of the register, or of all of them (``ws://host:port``)."""
    secrets: SecretSource
    """The join secrets, with which register and brokers prove that they belong to the cluster."""
    advertise: str = ""
    """The address that clients are sent to; empty: the address at which the broker listens."""
    broker: BrokerId | None = None
    """The id that the broker shall have; None: the id in the data directory, else one from the
    register."""
    join: tuple[str, ...] = ()
    """Addresses of brokers by which it joins when the register has handed the cluster over; empty:
    it is not prepared for that."""
    host: str = ""
    """The label of its machine: brokers with one label never have replicas of the same partition;
    empty: it is the only broker of its machine."""
    flush: FlushOptions = attrs.field(factory=FlushOptions)
    catch_up_slowdown_max: float = CATCH_UP_SLOWDOWN_MAX
    """The share of their rate that producers may lose while followers catch up; 1: all of it."""
    retention_check_interval_s: float = RETENTION_CHECK_INTERVAL_S
    keep_retired_s: float = RETIRED_KEEP_S
    """How long a replica is kept that this broker gave up (s); 0: not at all."""
    load_interval_s: float = LOAD_INTERVAL_S
    """How often it reports to the register how much it has to do (s); 0: never."""
    agent: str = "octopi-node"
    token: TokenSource = lambda: None
    """The token that the broker shows to the register and to other brokers."""
    authenticator: Authenticator | None = None
    """Authenticates connections.  None disables authentication."""
    relay_memory_bytes: int = RELAY_MEMORY_BYTES
    """What is kept of all topics in memory together; see `octopi.relay.memory`."""
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES
    """The memory that all its connections may use together; see
    `octopi.transport.memory_budget`."""

    @property
    def credentials(self) -> NodeCredentials:
        """The credentials that the broker shows to the register and to other brokers."""
        return NodeCredentials(self.secrets, self.token)


@attrs.define
class BrokerNode:
    """A running broker, as the admin pages see it."""

    environment: Environment
    options: BrokerOptions
    replicas: ReplicaManager
    parts: ClientParts
    traffic: ServerStatistics
    peer: PeerConnection
    """Asks the register what clients ask this broker."""
    forwarded: ForwardedProduces
    """Passes produces on to leaders, for clients that don't reach them."""
    streams: BrokerStreams
    relays: BrokerRelays
    """The topics that it holds in memory."""
    started_at: float
    """When it began to serve, by its clock."""
    question: HandOverQuestion | None = None
    """Whether it goes on without a register; None: it is not prepared for that, and never was."""
    ended: m.ValueChosen | None = None
    """The last record of the cluster from when it had no register; None: it always had one."""
    link: MemberLink | None = None
    """The link to the register; None until it exists."""

    def is_joined(self) -> bool:
        """Whether the register counts it as a live member now."""
        return self.link is not None and self.link.is_joined


def client_services(node: BrokerNode) -> Sequence[ServiceMaker]:
    """The factories of the services of a client connection of *node*; called once per node."""
    own = node.parts.services(node.options.agent, node.started_at, node.peer, node.forwarded)
    return *own, NoRingService


async def run_broker(
    environment: Environment,
    options: BrokerOptions,
    *,
    stop: trio.Event,
    show: Callable[[BrokerNode], None] = lambda node: None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker until *stop* is set, or its register has handed the cluster over to it (see
    `octopi.roles.broker.taking_over`); ``started`` gives its url once it has joined.  *show* is
    called with the node before it joins, for the admin pages.

    Raises:
      DirectoryInUseError: if another process has the data directory.
      StorageError: if the directory can't be read or written.
      UnreachableError: if it can't listen at the address.
      RefusedError: if the register refuses this broker for good, or this broker belongs to a
          cluster without a register.
    """
    disk, data_directory = environment.disk, options.data_directory
    await make_durable_directory(disk, data_directory)
    lock = lock_directory(disk, data_directory)
    try:
        refuse_without_register(environment, data_directory)
        question: HandOverQuestion | None = None
        ended = load_ended_ring(disk, data_directory)
        if ended is None and (options.join or has_announcement(disk, data_directory)):
            from octopi.roles.broker.hand_over_question import begin_question  # most never need it

            question = await begin_question(
                environment,
                data_directory,
                options.agent,
                options.credentials,
                is_prepared=bool(options.join),
            )
        if ended is not None and options.join:
            _log.warning(
                "this cluster had no register before: it can't be handed over to its brokers "
                "again, so --join has no effect"
            )
        identity = await begin_incarnation(environment, data_directory, options.broker)
        flusher = Flusher(environment.clock)
        async with trio.open_nursery() as nursery:
            replicas = ReplicaManager(
                environment,
                data_directory,
                flusher,
                nursery,
                options.flush,
                options.agent,
                credentials=options.credentials,
                lost_power=identity.page_cache != disk.page_cache_id(),
                catch_up_slowdown_max=options.catch_up_slowdown_max,
                keep_retired_s=options.keep_retired_s,
            )
            await replicas.open_all(identity.broker)
            _log.info("logs opened", logs=len(replicas.store), incarnation=identity.incarnation)
            nursery.start_soon(flusher.run)
            nursery.start_soon(replicas.keep_time)
            nursery.start_soon(replicas.keep_deleting)
            nursery.start_soon(replicas.status.disk.run)
            parts = begin_client_parts(
                environment, replicas, options.retention_check_interval_s, nursery
            )
            registers = RegisterAddresses(options.registers)
            peer = PeerConnection(environment, registers, options.agent, options.credentials)
            nursery.start_soon(peer.run)
            forwarded = ForwardedProduces(
                environment, replicas, nursery, options.agent, options.credentials
            )
            traffic = ServerStatistics(MemoryBudget(options.memory_budget_bytes))

            def expired(topic_id: TopicId) -> None:
                if node.link is not None:
                    node.link.expired(topic_id)

            streams = BrokerStreams(environment, replicas, traffic.memory, registers, expired)
            nursery.start_soon(streams.expiry.run)

            def report(message: m.RelayReport) -> None:
                if isinstance(node.link, RegisterLink):
                    node.link.report(message)

            relays = BrokerRelays(
                environment,
                data_directory,
                options.agent,
                options.credentials,
                parts.readers,
                nursery,
                report,
                options.relay_memory_bytes,
            )
            node = BrokerNode(
                environment,
                options,
                replicas,
                parts,
                traffic,
                peer,
                forwarded,
                streams,
                relays,
                environment.clock.now(),
                question,
                ended,
            )
            if question is not None:
                question.has_register = node.is_joined
            relays.load(identity)
            show(node)
            await _serve(node, identity, registers, stop, task_status)
            await replicas.close()
            nursery.cancel_scope.cancel()
    finally:
        lock.release()


async def _serve(
    node: BrokerNode,
    identity: BrokerIdentity,
    registers: RegisterAddresses,
    stop: trio.Event,
    task_status: trio.TaskStatus[str],
) -> None:
    """Serve and stay joined until *stop* is set; then hand over, leave, and close the connections.
    If the register has handed the cluster over, nobody decides who leads instead of this broker."""
    environment, options, replicas = node.environment, node.options, node.replicas
    services = client_services(node)

    async def remember(changed: BrokerIdentity) -> None:
        await store_identity(environment, options.data_directory, changed)

    async with trio.open_nursery() as nursery:
        closing, served = trio.Event(), trio.Event()

        async def serve_clients(*, task_status: trio.TaskStatus[str]) -> None:
            await serve(
                environment,
                options.listen,
                role="broker",
                agent=options.agent,
                sessions={
                    CLIENT: lambda connection, tasks: BrokerSession(
                        ClientContext(
                            environment,
                            replicas,
                            node.parts.readers,
                            connection,
                            tasks,
                            node.relays,
                        ),
                        services,
                    ),
                    FOLLOW: lambda connection, tasks: ServiceSession(
                        "leader", [FollowerConnection(environment, replicas, connection, tasks)]
                    ),
                    RELAY: lambda connection, tasks: node.relays.session(connection),
                    **_peer_sessions(node),
                    **_ring_sessions(node),
                },
                stop=closing,
                traffic=node.traffic,
                authenticator=options.authenticator,
                secrets=options.secrets,
                cluster=lambda: (identity if node.link is None else node.link.identity).cluster,
                task_status=task_status,
            )
            served.set()

        url = await nursery.start(serve_clients)
        address = options.advertise or url
        link = RegisterLink(
            environment,
            registers,
            address,
            options.host,
            options.agent,
            options.credentials,
            identity,
            replicas,
            node.relays,
            remember,
            node.question,
        )
        node.link = link
        replicas.reach(link)
        nursery.start_soon(_join, nursery, link, task_status, address)
        if options.load_interval_s:
            interval_s, readers = options.load_interval_s, node.parts.readers
            nursery.start_soon(report_loads, environment, replicas, readers, link, interval_s)
        taken_over = trio.Event() if node.question is None else node.question.is_done
        await either_of(stop, taken_over)
        if not taken_over.is_set():
            # Other brokers lead before the clients of this one are disconnected, and the register
            # removes this broker from its members before the followers lose their streams.
            replicas.stop()
            await node.parts.prepare_hand_over()
            await node.relays.hand_over()
            await link.hand_over()
        await link.leave()
        closing.set()
        await served.wait()
        nursery.cancel_scope.cancel()


def _peer_sessions(
    node: BrokerNode,
) -> dict[Endpoint, Callable[[Connection, trio.Nursery], Session]]:
    """What a broker answers other brokers: produces that they pass on, and questions of those that
    may go on without a register."""
    if (question := node.question) is None:
        return {
            PEER: lambda connection, tasks: ServiceSession(
                "broker", [ForwardedProduceService(node.replicas, connection)]
            )
        }
    from octopi.roles.broker.hand_over_peers import HandOverService

    return {
        PEER: lambda connection, tasks: ServiceSession(
            "broker",
            [
                ForwardedProduceService(node.replicas, connection),
                HandOverService(connection, tasks, question.state, question.page),
            ],
        )
    }


def _ring_sessions(
    node: BrokerNode,
) -> dict[Endpoint, Callable[[Connection, trio.Nursery], Session]]:
    """What a broker answers others that don't know yet that the cluster has a register again."""
    if (ended := node.ended) is None:
        return {}
    return {RING: lambda connection, tasks: EndedRingSession(connection, ended)}


async def either_of(one: trio.Event, other: trio.Event) -> None:
    """Wait until one of two events is set."""

    async def wait(event: trio.Event) -> None:
        await event.wait()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, one)
        nursery.start_soon(wait, other)


async def _join(
    nursery: trio.Nursery,
    link: MemberLink,
    task_status: trio.TaskStatus[str],
    address: str,
) -> None:
    await nursery.start(link.run)
    task_status.started(address)
