"""A register from its start to its end: its journal, its server, and the tasks beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from octopi.environment import Environment
from octopi.logger import get_logger
from octopi.roles.register.group.alone import take_over_replica
from octopi.roles.register.group.running import folding, run_register_of_several
from octopi.roles.register.group.standby import StandbyRegister
from octopi.roles.register.node import RegisterNode
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.own_secret import own_secret
from octopi.roles.register.register_journal import open_register_journal
from octopi.roles.register.service_sessions import (
    SESSIONS,
    begin,
    end_when_handed_over,
    keep_tasks,
)
from octopi.roles.register.startup_recovery import replay
from octopi.storage.directories import lock_directory, make_durable_directory
from octopi.tracing import steps
from octopi.transport.server import serve

_log = get_logger(__name__)


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
    show_standby: Callable[[StandbyRegister], None] = lambda standby: None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a register until *stop* is set; ``started`` gives its url.  *show* gets it before,
    for people to look at.  If it is one of several (`RegisterOptions.peers`), see
    `octopi.roles.register.group.running.run_register_of_several`.

    Raises:
      DirectoryInUseError: if another process has the data directory.
      StorageError: if the disk fails or its content can't be read, or the join secret is gone.
      InvalidOptionError: if the join secret is damaged, or the register is one of several.
      SupersededError: if brokers have joined a newer register of the cluster, or another one.
      UnreachableError: if the register can't listen at the address.
    """
    if options.peers:
        await run_register_of_several(
            environment,
            options,
            stop=stop,
            show=show,
            show_standby=show_standby,
            task_status=task_status,
        )
        return
    disk = environment.disk
    await make_durable_directory(disk, f"{options.data_directory}/journal")
    lock = lock_directory(disk, options.data_directory)
    try:
        await take_over_replica(
            environment,
            options.data_directory,
            folding,
            snapshot_entries=options.snapshot_entries,
        )
        journal, entries = await open_register_journal(
            environment,
            f"{options.data_directory}/journal",
            snapshot_entries=options.snapshot_entries,
        )
        try:
            async with trio.open_nursery() as nursery:
                ending = trio.Event()
                tasks: trio.Nursery = await nursery.start(keep_tasks)
                node = RegisterNode(environment, options, journal, tasks, ending)
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
                begin(node, tasks)
                show(node)
                nursery.start_soon(end_when_handed_over, node, tasks)
                nursery.start_soon(_end, node, stop, ending)
                await serve(
                    environment,
                    options.listen,
                    role="register",
                    agent=options.agent,
                    sessions={endpoint: partial(make, node) for endpoint, make in SESSIONS.items()},
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
