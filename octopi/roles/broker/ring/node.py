"""A broker of a cluster without a register: data directory, replicas, server, ring."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import InvalidOptionError, NotReadyError, OctopiError
from octopi.identifiers import RING_LOGS, TOPICS_LOG, address_fault
from octopi.limits import (
    ADDRESS_BYTES_MAX,
    CATCH_UP_SLOWDOWN_MAX,
    FOUNDERS_MAX,
)
from octopi.ring.founders import founder_list
from octopi.ring.hand_over import HandOver
from octopi.roles.broker.asks import DeciderAsks
from octopi.roles.broker.client_parts import ClientParts, ServiceMaker, begin_client_parts
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.follower_connection import FollowerConnection
from octopi.roles.broker.forwarded_produces import ForwardedProduces
from octopi.roles.broker.identity import BrokerIdentity, begin_incarnation, store_identity
from octopi.roles.broker.internal_logs import InternalLogs
from octopi.roles.broker.peer_connection import AskingClient
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.ending import RingEnding
from octopi.roles.broker.ring.handing_over import hand_over_all
from octopi.roles.broker.ring.member import RingMember
from octopi.roles.broker.ring.options import RingOptions
from octopi.roles.broker.ring.peers import RingPeers
from octopi.roles.broker.ring.session import RingAskSession, RingService, RingSession
from octopi.roles.broker.ring.taken_over import TakenOver
from octopi.roles.broker.ring.topics.asking import RingDecider, begin_deciding
from octopi.roles.broker.ring.topics.streams import RingStreams
from octopi.roles.broker.services.context import ClientContext
from octopi.roles.broker.services.session import BrokerSession
from octopi.roles.broker.taking_over import load_hand_over
from octopi.storage.directories import lock_directory, make_durable_directory
from octopi.transport.memory_budget import MemoryBudget
from octopi.transport.pending_requests import Numbered
from octopi.transport.server import serve
from octopi.transport.server_statistics import ServerStatistics
from octopi.transport.services import ServiceSession
from octopi.wire.endpoints import CLIENT, FOLLOW, PEER, RING


@attrs.define
class RingBroker:
    """A running broker of the ring, as its pages see it."""

    environment: Environment
    options: RingOptions
    traffic: ServerStatistics
    replicas: ReplicaManager
    parts: ClientParts
    streams: RingStreams
    """Over HTTP."""
    hand_over: HandOver | None
    """What a register handed over; None: the cluster never had one."""
    member: RingMember | None = None
    """None until it listens."""
    decider: RingDecider | None = None
    """None until it is in the ring."""


async def run_ring_broker(
    environment: Environment,
    options: RingOptions,
    *,
    stop: trio.Event,
    show: Callable[[RingBroker], None] = lambda node: None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker of the ring until *stop* is set, it has left the cluster for good, or registers
    decide from now on (`octopi.roles.broker.ended_ring`); ``started`` gives its url once it is a
    member.

    Raises:
      InvalidOptionError: if the addresses to join by are none.
      DirectoryInUseError: if another process has the data directory.
      StorageError: if the directory can't be read or written.
      UnreachableError: if it can't listen at the address.
      RefusedError: if the others refuse this broker for good.
    """
    _check(options)
    disk, data_directory = environment.disk, options.data_directory
    await make_durable_directory(disk, data_directory)
    lock = lock_directory(disk, data_directory)
    problems: list[OctopiError] = []
    try:
        hand_over = load_hand_over(environment, data_directory)
        identity = await begin_incarnation(environment, data_directory, None)
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
                catch_up_slowdown_max=CATCH_UP_SLOWDOWN_MAX,
                keep_retired_s=options.keep_retired_s,
                internal_logs=RING_LOGS,
            )
            await replicas.open_all(identity.broker)
            nursery.start_soon(flusher.run)
            nursery.start_soon(replicas.keep_time)
            nursery.start_soon(replicas.keep_deleting)
            nursery.start_soon(replicas.status.disk.run)
            topic_logs = InternalLogs(environment, replicas.replica, TOPICS_LOG)
            interval_s = options.retention_check_interval_s
            parts = begin_client_parts(environment, replicas, interval_s, nursery, topic_logs)
            traffic = ServerStatistics(MemoryBudget(options.memory_budget_bytes))

            def decider() -> RingDecider:
                if node.decider is None:
                    raise NotReadyError("this broker is not in the ring yet")
                return node.decider

            streams = RingStreams(environment, replicas, traffic.memory, decider, nursery)
            nursery.start_soon(streams.led.expiry.run)
            node = RingBroker(environment, options, traffic, replicas, parts, streams, hand_over)
            show(node)
            await _serve(node, identity, topic_logs, nursery, stop, task_status, problems)
            await replicas.close()
            nursery.cancel_scope.cancel()
    finally:
        lock.release()
    if problems:
        raise problems[0]  # outside of the nurseries, which would wrap it


async def _serve(
    node: RingBroker,
    identity: BrokerIdentity,
    topic_logs: InternalLogs,
    nursery: trio.Nursery,
    stop: trio.Event,
    task_status: trio.TaskStatus[str],
    problems: list[OctopiError],
) -> None:
    environment, options = node.environment, node.options
    replicas, readers = node.replicas, node.parts.readers
    started_at = environment.clock.now()
    closing, served = trio.Event(), trio.Event()

    async def remember(changed: BrokerIdentity) -> None:
        await store_identity(environment, options.data_directory, changed)

    def member() -> RingMember:
        if node.member is None:
            node.member = RingMember(
                environment,
                options,
                address,
                identity,
                remember,
                nursery,
                replicas,
                node.hand_over,
            )
        return node.member

    def decider() -> RingDecider:
        if node.decider is None:
            raise NotReadyError(member().waits_for or "this broker has just joined the ring")
        return node.decider

    taken_over = TakenOver(environment, options.data_directory, node.hand_over, identity.broker)
    forwarded = ForwardedProduces(
        environment, replicas, nursery, options.agent, options.credentials
    )
    services: list[ServiceMaker] = [
        *node.parts.services(options.agent, started_at, _LaterDecider(decider), forwarded),
        partial(RingService, member, decider),
    ]

    async def serve_all(*, task_status: trio.TaskStatus[str]) -> None:
        try:
            await serve(
                environment,
                options.listen,
                role="broker",
                agent=options.agent,
                sessions={
                    CLIENT: lambda connection, tasks: BrokerSession(
                        ClientContext(environment, replicas, readers, connection, tasks),
                        services,
                    ),
                    PEER: lambda connection, tasks: RingAskSession(
                        environment, decider, connection, tasks, taken_over, replicas
                    ),
                    RING: lambda connection, tasks: RingSession(
                        member(), decider, connection, tasks
                    ),
                    FOLLOW: lambda connection, tasks: ServiceSession(
                        "leader",
                        [FollowerConnection(environment, replicas, connection, tasks)],
                    ),
                },
                stop=closing,
                traffic=node.traffic,
                authenticator=options.authenticator,
                secrets=options.secrets,
                cluster=lambda: "" if node.member is None else node.member.cluster,
                task_status=task_status,
            )
        finally:
            served.set()

    try:
        address = await nursery.start(serve_all)
    except OctopiError as error:
        problems.append(error)
        return
    address = options.advertise or address

    async def live() -> None:
        await nursery.start(member().run)
        asks = RingPeers(
            environment, nursery, options.agent, options.credentials, lambda *said: None, PEER
        )
        node.decider = begin_deciding(environment, replicas, member(), topic_logs, asks, nursery)
        partitions = member().partitions
        assert partitions is not None, "it is in the ring"
        ending = RingEnding(environment.clock, member().keeper, partitions, node.decider.topics)
        nursery.start_soon(ending.run)
        task_status.started(address)

    nursery.start_soon(live)
    async with trio.open_nursery() as waiting:
        waiting.start_soon(_first_of, stop, waiting.cancel_scope)
        waiting.start_soon(_first_of, member().ended, waiting.cancel_scope)
    if (failure := member().failure) is not None:
        problems.append(failure)
    elif member().has_registers:
        pass  # nobody decides now who leads instead of this broker
    elif (partitions := member().partitions) is not None:
        replicas.stop()
        await node.parts.prepare_hand_over()
        await hand_over_all(environment.clock, partitions)
    closing.set()
    await served.wait()


class _LaterDecider(DeciderAsks):
    """That of this broker, as soon as it is in the ring."""

    def __init__(self, decider: Callable[[], RingDecider]) -> None:
        self._decider = decider

    async def ask(self, message: Numbered, client: AskingClient) -> bytes:
        return await self._decider().ask(message, client)


async def _first_of(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _check(options: RingOptions) -> None:
    """Check the addresses to join by.

    Raises:
      InvalidOptionError: if they are none.
    """
    if not options.join:
        raise InvalidOptionError("a broker without a register needs addresses to join by (--join)")
    for one in options.join:
        if why := address_fault(one):
            raise InvalidOptionError(f"--join {one}: {why}")
        if len(one) > ADDRESS_BYTES_MAX:
            raise InvalidOptionError(f"--join: an address has at most {ADDRESS_BYTES_MAX} bytes")
    if len(founder_list(options.join)) > FOUNDERS_MAX:
        raise InvalidOptionError(f"--join takes at most {FOUNDERS_MAX} different addresses")
