"""A register from its start to its end: its journal, its server, and the tasks beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from octopi.environment import Environment
from octopi.logger import get_logger
from octopi.roles.register.node import RegisterNode
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.own_secret import own_secret
from octopi.roles.register.register_journal import open_register_journal
from octopi.roles.register.services.asked import AskService
from octopi.roles.register.services.cluster import ClusterService
from octopi.roles.register.services.context import RegisterContext, creator_of
from octopi.roles.register.services.operating import OperatingService
from octopi.roles.register.services.topics import TopicService
from octopi.roles.register.sessions import MembershipSession
from octopi.roles.register.startup_recovery import replay
from octopi.storage.directories import lock_directory, make_durable_directory
from octopi.tracing import steps
from octopi.transport.connection import Connection
from octopi.transport.server import serve
from octopi.transport.services import ServiceSession
from octopi.wire.endpoints import CLIENT, MEMBERSHIP, PEER

_log = get_logger(__name__)

CLIENT_SERVICES: Final = (TopicService, OperatingService, ClusterService)
"""The services of a client connection to a register."""


def _client_session(
    node: RegisterNode, connection: Connection, tasks: trio.Nursery
) -> ServiceSession:
    context = RegisterContext(node, connection, tasks, lambda: creator_of(connection.entry))
    return ServiceSession("register", [make(context) for make in CLIENT_SERVICES])


def _peer_session(
    node: RegisterNode, connection: Connection, tasks: trio.Nursery
) -> ServiceSession:
    return ServiceSession("register", [AskService(node, connection, tasks, CLIENT_SERVICES)])


async def _end(node: RegisterNode, asked: trio.Event, ending: trio.Event) -> None:
    """Set *ending* after *asked*, once the elections that are under way have ended."""
    await asked.wait()
    await node.election_driver.finish()
    ending.set()


async def run_register(
    environment: Environment,
    options: RegisterOptions,
    *,
    stop: trio.Event,
    show: Callable[[RegisterNode], None] = lambda node: None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a register until *stop* is set; ``started`` gives its url.  *show* gets it before,
    for people to look at.

    Raises:
      DirectoryInUseError: if another process has the data directory.
      StorageError: if the disk fails or its content can't be read, or the join secret is gone.
      InvalidOptionError: if the join secret is damaged.
      SupersededError: if brokers have joined a newer register of the cluster, or another one.
      UnreachableError: if the register can't listen at the address.
    """
    disk = environment.disk
    await make_durable_directory(disk, f"{options.data_directory}/journal")
    lock = lock_directory(disk, options.data_directory)
    try:
        journal, entries = await open_register_journal(
            environment,
            f"{options.data_directory}/journal",
            snapshot_entries=options.snapshot_entries,
        )
        try:
            async with trio.open_nursery() as nursery:
                ending = trio.Event()
                node = RegisterNode(environment, options, journal, nursery, ending)
                replay(node.controller, entries, options.data_directory)
                _log.info(
                    "journal read",
                    entries=len(entries),
                    cluster=node.controller.state.cluster or None,
                    topics=node.controller.state.topic_count,
                )
                if (trace := environment.trace) is not None:
                    trace(steps.R1Read(entries=entries))
                secrets = options.secrets or await own_secret(
                    environment, options.data_directory, is_first_start=not entries
                )
                node.admissions.start()
                show(node)
                nursery.start_soon(node.gathering.run, options.gather_s)
                nursery.start_soon(_end, node, stop, ending)
                nursery.start_soon(node.election_driver.run)
                nursery.start_soon(node.rebalancing.run, options.rebalance_interval_s)
                await serve(
                    environment,
                    options.listen,
                    role="register",
                    agent=options.agent,
                    sessions={
                        CLIENT: lambda connection, tasks: _client_session(node, connection, tasks),
                        MEMBERSHIP: lambda connection, tasks: MembershipSession(
                            node, connection, tasks
                        ),
                        PEER: lambda connection, tasks: _peer_session(node, connection, tasks),
                    },
                    stop=ending,
                    traffic=node.traffic,
                    authenticator=options.authenticator,
                    secrets=secrets,
                    cluster=lambda: node.controller.state.cluster,
                    task_status=task_status,
                )
                nursery.cancel_scope.cancel()
            if node.failure is not None:
                raise node.failure
        finally:
            with trio.CancelScope(shield=True):
                await journal.close()
    finally:
        lock.release()
