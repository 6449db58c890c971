"""A broker with topics in memory: data directory, server, connections to the other relays, clock.

The broker's nursery has these tasks: the server (with one nursery for each connection below it), a
connection to each relay of a smaller id, the clock of the machines, the fan-out to readers, and the
storing of the generation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import InvalidOptionError, OctopiError, StorageError
from octopi.identifiers import BrokerId, Incarnation, PartitionId
from octopi.limits import RELAY_TICK_S
from octopi.logger import get_logger
from octopi.relay.incarnations import RelayLife
from octopi.relay.memory import RelayMemory
from octopi.relay.message_ids import MessageIds, node_name
from octopi.relay.messages import RelayMessage
from octopi.roles.broker.identity import BrokerIdentity, begin_incarnation, store_identity
from octopi.roles.broker.readers import Readers
from octopi.roles.broker.relay.context import RelayClientSession, RelayContext, RelayServing
from octopi.roles.broker.relay.links import OwnGreeting, PartitionLinks, RelayLinks
from octopi.roles.broker.relay.mesh import RelayMesh
from octopi.roles.broker.relay.options import RelayOptions
from octopi.roles.broker.relay.partition import (
    RelayPartition,
    hand_over,
    make_room,
    why_not_normal,
)
from octopi.roles.broker.relay.services import RelayProduceService, RelayTopicsService
from octopi.roles.broker.relay.session import RelaySession
from octopi.roles.broker.relay.store import RelayStore
from octopi.roles.broker.relay.view_service import RelayViewService
from octopi.roles.broker.services.describe import DescribeService
from octopi.roles.broker.services.node import NodeService
from octopi.roles.broker.services.read import ReadService
from octopi.roles.broker.services.subscribe import SubscribeService
from octopi.storage.directories import lock_directory, make_durable_directory
from octopi.transport.connection import Connection
from octopi.transport.memory_budget import MemoryBudget
from octopi.transport.server import serve
from octopi.transport.server_statistics import ServerStatistics
from octopi.wire.endpoints import CLIENT, RELAY

_log = get_logger(__name__)


@attrs.define(eq=False)
class RelayBroker:
    """A running relay, as its pages and tests see it."""

    environment: Environment
    options: RelayOptions
    mesh: RelayMesh
    identity: BrokerIdentity
    traffic: ServerStatistics
    memory: RelayMemory
    """What all streams may hold together."""
    partitions: dict[PartitionId, RelayPartition] = attrs.field(factory=dict)
    links: RelayLinks | None = None
    failure: OctopiError | None = None
    """Why it ends."""
    failed: trio.Event = attrs.field(factory=trio.Event)

    def fail(self, error: OctopiError) -> None:
        """It can't go on."""
        self.failure = self.failure or error
        self.failed.set()

    @property
    def why_not_ready(self) -> str:
        """Why it is not part of an epoch in all of its partitions; empty: it is."""
        if why := why_not_normal(self.partitions.values()):
            return why
        return "" if self.partitions else "the relay does not listen yet"


async def run_relay_broker(
    environment: Environment,
    options: RelayOptions,
    *,
    stop: trio.Event,
    show: Callable[[RelayBroker], None] = lambda node: None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a relay until *stop* is set; ``started`` gives its url once it takes part in all of its
    partitions, for which a quorum of each relay set has to be there.

    Raises:
      InvalidOptionError: if the list of relays is wrong.
      DirectoryInUseError: if another process has the data directory.
      StorageError: if the directory can't be read or written, or has forgotten starts.
      UnreachableError: if it can't listen at the address.
    """
    counts = options.partition_count, options.replica_count
    mesh = RelayMesh(options.relays, *counts, options.placed)
    if options.broker not in mesh.relays:
        raise InvalidOptionError(f"relay {options.broker} (--id) is not in --relay-peers")
    disk, data_directory = environment.disk, options.data_directory
    await make_durable_directory(disk, data_directory)
    lock = lock_directory(disk, data_directory)
    try:
        identity = await begin_incarnation(environment, data_directory, options.broker)
        store = RelayStore(disk, data_directory)
        store.load()
        traffic = ServerStatistics(MemoryBudget(options.memory_budget_bytes))
        memory = RelayMemory(options.relay_memory_bytes)
        node = RelayBroker(environment, options, mesh, identity, traffic, memory)
        show(node)
        async with trio.open_nursery() as nursery:
            await _serve(node, store, nursery, stop, task_status)
            nursery.cancel_scope.cancel()
    finally:
        lock.release()
    if node.failure is not None:
        raise node.failure  # outside of the nurseries, which would wrap it


async def _serve(
    node: RelayBroker,
    store: RelayStore,
    nursery: trio.Nursery,
    stop: trio.Event,
    task_status: trio.TaskStatus[str],
) -> None:
    environment, options, mesh = node.environment, node.options, node.mesh
    serving = _begin(node, store, nursery)
    closing, served = trio.Event(), trio.Event()
    own_node = partial(NodeService, options.agent, environment.clock.now())
    own = (RelayTopicsService, RelayProduceService, RelayViewService)
    reading = (ReadService, SubscribeService, DescribeService)

    def client(connection: Connection, tasks: trio.Nursery) -> RelayClientSession:
        context = RelayContext(serving, mesh, connection, tasks)
        return RelayClientSession(context, [*own, *reading, own_node])

    async def serve_all(*, task_status: trio.TaskStatus[str]) -> None:
        try:
            await serve(
                environment,
                options.listen,
                role="broker",
                agent=options.agent,
                sessions={
                    CLIENT: client,
                    RELAY: lambda connection, tasks: RelaySession(
                        lambda: serving.links, connection
                    ),
                },
                stop=closing,
                traffic=node.traffic,
                authenticator=options.authenticator,
                secrets=options.secrets,
                cluster=lambda: mesh.cluster,
                task_status=task_status,
            )
        finally:
            served.set()

    try:
        await nursery.start(serve_all)
    except OctopiError as error:
        node.fail(error)
        return
    nursery.start_soon(serving.links.run)
    nursery.start_soon(serving.readers.tail_broadcast.run)
    nursery.start_soon(_keep_time, node, lambda: task_status.started(mesh.relays[options.broker]))
    async with trio.open_nursery() as waiting:
        waiting.start_soon(_first_of, stop, waiting.cancel_scope)
        waiting.start_soon(_first_of, node.failed, waiting.cancel_scope)
    if not node.failed.is_set():
        await _hand_over(node)
    closing.set()
    await served.wait()


def _begin(node: RelayBroker, store: RelayStore, nursery: trio.Nursery) -> RelayServing:
    """Make the parts of *node*."""
    environment, options, mesh, identity = (
        node.environment,
        node.options,
        node.mesh,
        node.identity,
    )
    me, incarnation = options.broker, identity.incarnation

    def take(
        sender: BrokerId, partition: PartitionId, life: RelayLife, message: RelayMessage
    ) -> None:
        node.partitions[partition].receive(sender, life, message)

    def forgot(known: Incarnation) -> None:
        nursery.start_soon(_count_on, node, known)

    links = node.links = RelayLinks(
        environment,
        mesh,
        OwnGreeting(me, incarnation, identity.nonce),
        options.agent,
        options.credentials,
        take,
        forgot,
    )
    # One source of ids for all partitions, so none is given twice.
    ids = MessageIds(node_name(me, incarnation))
    node.partitions = {
        one.partition: RelayPartition(
            environment,
            one,
            me,
            incarnation,
            store,
            ids,
            options.bounds,
            node.memory,
            PartitionLinks(links, one.partition),
            nursery,
            node.fail,
        )
        for one in mesh.sets
    }
    for number, wished in mesh.wished.items():
        node.partitions[number].wish(wished)
    return RelayServing(
        environment,
        mesh,
        me,
        incarnation,
        node.partitions,
        links,
        Readers(environment.clock),
    )


async def _count_on(node: RelayBroker, known: Incarnation) -> None:
    """Another relay knows a later start of this one: its data directory was lost, or is an old
    copy.  Have the next start count on from there, and end."""
    directory = node.options.data_directory
    try:
        later = attrs.evolve(node.identity, incarnation=known)
        await store_identity(node.environment, directory, later)
    except StorageError as error:
        node.fail(error)
        return
    node.fail(
        StorageError(
            f"{directory} has forgotten starts of this relay: it counts "
            f"{node.identity.incarnation}, and another relay knows {known}; start it again, and it "
            "counts on from there"
        )
    )


async def _keep_time(node: RelayBroker, ready: Callable[[], None]) -> None:
    """Tell the machines the time; call *ready* once, when this relay takes part for the first
    time."""
    clock, is_ready = node.environment.clock, False
    while True:
        for one in node.partitions.values():
            one.tick()
        make_room(node.memory, node.partitions.values(), clock.now())
        if not is_ready and not node.why_not_ready:
            is_ready = True
            ready()
        await clock.sleep_until(clock.now() + RELAY_TICK_S)


async def _hand_over(node: RelayBroker) -> None:
    """Have others be the sequencers, before clients and relays lose their connections."""
    await hand_over(node.environment.clock, node.partitions.values())


async def _first_of(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
