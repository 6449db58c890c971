"""A register of several, from its start to its end: while it is active it is a register like any
other, which starts from the journal that the registers agree on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import trio

from octopi.agreement.journal.replica import JournalReplica
from octopi.agreement.journal.stored import StoredState
from octopi.coordination.cluster_state import ClusterState
from octopi.environment import Environment
from octopi.errors import InvalidOptionError, LogReadOnlyError
from octopi.limits import REGISTERS_MAX
from octopi.logger import get_logger
from octopi.roles.register.group.agreed_journal import AgreedJournal
from octopi.roles.register.group.alone import REPLICA, take_over_journal
from octopi.roles.register.group.group import RegisterGroup
from octopi.roles.register.group.links import RegisterPeer
from octopi.roles.register.group.sessions import (
    ActiveConnections,
    RegisterSession,
    StandbySession,
)
from octopi.roles.register.group.standby import StandbyRegister
from octopi.roles.register.group.stored_journal import StoredJournal
from octopi.roles.register.node import RegisterNode
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.register_journal import JournalTracer, decode, encode
from octopi.roles.register.service_sessions import (
    SESSIONS,
    NodeSession,
    begin,
    end_when_handed_over,
    keep_tasks,
)
from octopi.roles.register.startup_recovery import replay
from octopi.security.join_secret import SECRET_FILE
from octopi.storage.directories import lock_directory, make_durable_directory
from octopi.storage.time_slices import Slices, in_groups
from octopi.tracing import steps
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials
from octopi.transport.memory_budget import MemoryBudget
from octopi.transport.server import serve
from octopi.transport.server_statistics import ServerStatistics
from octopi.transport.sessions import Session
from octopi.wire.endpoints import REGISTERS, Endpoint
from octopi.wire.registers import RegisterId

_log = get_logger(__name__)

_DEPOSED: Final = "this register is not the active one any more"


async def run_register_of_several(
    environment: Environment,
    options: RegisterOptions,
    *,
    stop: trio.Event,
    show: Callable[[RegisterNode], None] = lambda node: None,
    show_standby: Callable[[StandbyRegister], None] = lambda standby: None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a register of several until *stop* is set; ``started`` gives its url.  *show* gets the
    node whenever this register becomes active, and *show_standby* what there is instead before and
    whenever it isn't any more, for people to look at.

    Raises:
      InvalidOptionError: if *options* don't name the registers rightly.
      CorruptLogError: if the journal is damaged.
      DirectoryInUseError: if another process has the data directory.
      StorageError: if the disk fails or its content can't be read.
      UnreachableError: if the register can't listen at the address.
    """
    address = _own_address(options)
    disk = environment.disk
    path = f"{options.data_directory}/{REPLICA}"
    await make_durable_directory(disk, path)
    lock = lock_directory(disk, options.data_directory)
    try:
        stored, state = await StoredJournal.open(
            environment, path, snapshot_entries=options.snapshot_entries
        )
        try:
            _check_is_listed(address, options.peers, state)
            state = await take_over_journal(
                environment, options.data_directory, stored, state, address, folding
            )
            replica = JournalReplica(
                RegisterId(address, stored.directory),
                options.peers,
                state,
                environment.randomness.random,
                environment.clock.now(),
            )
            assert options.secrets is not None
            credentials = NodeCredentials(options.secrets, options.token)

            def connect(other: str) -> RegisterPeer:
                return RegisterPeer(environment, other, options.agent, credentials)

            group = RegisterGroup(
                environment, replica, stored, connect, folding, options.snapshot_entries
            )
            await _Running(environment, options, group, show, show_standby).run(stop, task_status)
            if group.failure is not None:
                raise group.failure
        finally:
            with trio.CancelScope(shield=True):
                await stored.close()
    finally:
        lock.release()


def folding(contents: Sequence[bytes]) -> Slices[list[bytes]]:
    """The fewest contents of entries that lead to the same state as *contents*, found in slices."""
    state = ClusterState()
    for some in in_groups([*contents]):
        for one in some:
            state.apply(decode(one))
        yield
    found: list[bytes] = []
    for entries in in_groups([*state.entries()]):
        found += map(encode, entries)
        yield
    return found


def _own_address(options: RegisterOptions) -> str:
    """The address of this register.

    Raises:
      InvalidOptionError: if the peers can't be right.
    """
    address, peers = options.address, options.peers
    if len(set(peers)) < len(peers) or len(peers) > REGISTERS_MAX:
        raise InvalidOptionError(f"peers are 1 to {REGISTERS_MAX} different addresses: {peers}")
    if options.secrets is None:
        raise InvalidOptionError(
            "several registers need one join secret: make it with `octopi-node secret new`, and "
            f"give each of them its file (--join-secret); a register that was alone may have it in "
            f"{options.data_directory}/{SECRET_FILE}"
        )
    return address


def _check_is_listed(address: str, peers: Sequence[str], state: StoredState) -> None:
    """Check that the register at *address* is one of *peers*, or leaves them.

    Raises:
      InvalidOptionError: if it is neither.
    """
    if address in peers:
        return
    if address not in {one.address for one in state.history.voters}:
        raise InvalidOptionError(
            f"the registers {', '.join(peers)} don't include this one, {address}: all of them get "
            "the same list; --advertise says which address is this one's"
        )
    _log.warning("this register leaves the others", registers=", ".join(peers))


class _Running:
    """One process of a register of several."""

    def __init__(
        self,
        environment: Environment,
        options: RegisterOptions,
        group: RegisterGroup,
        show: Callable[[RegisterNode], None],
        show_standby: Callable[[StandbyRegister], None],
    ) -> None:
        self._environment = environment
        self._options = options
        self._group = group
        self._show, self._show_standby = show, show_standby
        self._node: RegisterNode | None = None
        self._connections = ActiveConnections()
        self._traffic = ServerStatistics(MemoryBudget(options.memory_budget_bytes))
        self._standby = StandbyRegister(environment, options, group, self._traffic)

    async def run(self, stop: trio.Event, task_status: trio.TaskStatus[str]) -> None:
        options, closing = self._options, trio.Event()
        self._show_standby(self._standby)
        sessions: Mapping[Endpoint, Callable[[Connection, trio.Nursery], Session]] = {
            **{endpoint: partial(self._session, make) for endpoint, make in SESSIONS.items()},
            REGISTERS: lambda connection, tasks: RegisterSession(self._group),
        }
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._group.run)
            url = await nursery.start(
                partial(
                    serve,
                    self._environment,
                    options.listen,
                    role="register",
                    agent=options.agent,
                    sessions=sessions,
                    stop=closing,
                    traffic=self._traffic,
                    authenticator=options.authenticator,
                    secrets=options.secrets,
                    cluster=lambda: self._standby.cluster,
                )
            )
            task_status.started(url)
            nursery.start_soon(self._act, stop, closing, nursery.cancel_scope)

    async def _act(self, stop: trio.Event, closing: trio.Event, scope: trio.CancelScope) -> None:
        """Be active whenever the others agree, until *stop* is set or the disk fails."""
        group = self._group
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_wake, stop, group)
            while not stop.is_set() and group.failure is None:
                if group.replica.may_decide:
                    await self._be_active(stop)
                else:
                    await group.changed()
            nursery.cancel_scope.cancel()
        await group.step_down()
        closing.set()
        scope.cancel()

    async def _be_active(self, stop: trio.Event) -> None:
        """Be active in this term, until it is over or *stop* is set."""
        environment, options, group = self._environment, self._options, self._group
        term, trace = group.replica.term, environment.trace
        journal = AgreedJournal(group, None if trace is None else JournalTracer(trace))
        entries = journal.read()
        ending = trio.Event()
        _log.info("this register is active", term=term, entries=len(entries))
        async with trio.open_nursery() as nursery:
            tasks: trio.Nursery = await nursery.start(keep_tasks)
            node = RegisterNode(environment, options, journal, tasks, ending, self._traffic)
            replay(node.controller, entries, options.data_directory)
            if trace is not None:
                trace(steps.R1Read(entries=entries))
            connections = self._connections = ActiveConnections()
            try:
                begin(node, tasks)
                self._node = node
                self._show(node)
                nursery.start_soon(end_when_handed_over, node, tasks)
                nursery.start_soon(_end_with, journal, group, ending)
                nursery.start_soon(_end_asked, stop, node, ending)
                await ending.wait()
            except LogReadOnlyError as error:  # it was deposed just now
                _log.info("this register is not active", term=term, why=str(error))
            except trio.Cancelled:
                connections.is_over = True  # the tasks that would hear of it end, too
                raise
            finally:
                self._node = None
                node.decisions.fail(LogReadOnlyError(_DEPOSED))
            self._show_standby(self._standby)
            await connections.end(_DEPOSED)
            connections.is_over = True
            nursery.cancel_scope.cancel()
        if not journal.is_over:
            await group.step_down()
        _log.info("this register is a standby", term=group.replica.term)

    def _session(self, make: NodeSession, connection: Connection, tasks: trio.Nursery) -> Session:
        def active() -> Session | None:
            if (node := self._node) is None:
                return None
            return self._connections.of(partial(make, node), connection, tasks)

        return active() or StandbySession(self._group, active)


async def _wake(stop: trio.Event, group: RegisterGroup) -> None:
    await stop.wait()
    group.note_change()


async def _end_with(journal: AgreedJournal, group: RegisterGroup, ending: trio.Event) -> None:
    """Set *ending* when the term is over."""
    while not journal.is_over:
        await group.changed()
    ending.set()


async def _end_asked(stop: trio.Event, node: RegisterNode, ending: trio.Event) -> None:
    """Set *ending* after *stop*, once the elections that are under way have ended."""
    await stop.wait()
    await node.election_driver.finish()
    ending.set()
