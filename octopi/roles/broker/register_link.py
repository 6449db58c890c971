"""The link to the register: joins, carries out decisions in order, and joins again after any loss.

A broker that loses the register doesn't stop: it leads its partitions on.  Only a refusal that
can't change by itself ends the link.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import attrs
import trio

from octopi.coordination.acceptance_pages import pages_of
from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    DiskFullError,
    ProtocolError,
    RefusedError,
    Status,
    UnreachableError,
)
from octopi.identifiers import BrokerId, Incarnation, PartitionId, TopicId
from octopi.limits import (
    BACKOFF_S_FIRST,
    GATHER_S,
    HAND_OVER_ALL_S,
    LINK_GRACE_S,
    LINK_TRIES,
    MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
    REDIRECTS_IN_A_ROW_MAX,
    REQUEST_TIMEOUT_S,
)
from octopi.logger import get_logger
from octopi.replication.effects import Refusal
from octopi.retry import backoff_s
from octopi.roles.broker.controller_link import Decisions, MemberLink, RelayOrders
from octopi.roles.broker.identity import BrokerIdentity
from octopi.roles.broker.link_failures import first_error, is_final
from octopi.roles.broker.order_parts import check_each_once
from octopi.roles.broker.register_addresses import RegisterAddresses
from octopi.roles.broker.register_orders import Order, answer_announcement, answer_seal
from octopi.tracing import steps
from octopi.tracing.step import Step
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials, open_node_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import MEMBERSHIP

if TYPE_CHECKING:
    from octopi.roles.broker.hand_over_question import HandOverQuestion

_log = get_logger(__name__)

_PAGE: Final = 1_000

_DUPLICATE_PATIENCE_S: Final = 3 * MEMBERSHIP_HEARTBEAT_TIMEOUT_S
"""How long the register may still count an earlier incarnation of this broker as live."""


class RegisterLink(MemberLink):
    """Keeps a broker joined to its register.  `run` is one task of the broker's nursery."""

    def __init__(
        self,
        environment: Environment,
        registers: RegisterAddresses,
        address: str,
        host: str,
        agent: str,
        credentials: NodeCredentials,
        identity: BrokerIdentity,
        decisions: Decisions,
        relays: RelayOrders,
        remember: Callable[[BrokerIdentity], Awaitable[None]],
        question: HandOverQuestion | None = None,
    ) -> None:
        """*question*: asks the register whether it has handed the cluster over; None: this broker
        is not prepared for that, and never was."""
        self._environment = environment
        self._question = question
        self._relays = relays
        self._registers = registers
        self._address = address
        self._host = host
        self._agent = agent
        self._credentials = credentials
        self._identity = identity
        self._decisions = decisions
        self._remember = remember
        self._connection: Connection | None = None
        self._next = trio.Event()
        """Set when there is a new membership connection."""
        self._failures = 0
        """How many attempts in a row failed to join the register."""
        self._has_joined = self._is_leaving = False
        self._scope = trio.CancelScope()

    @property
    def identity(self) -> BrokerIdentity:
        """The identity of this broker."""
        return self._identity

    @property
    def is_joined(self) -> bool:
        """Whether the register counts this broker as a live member now."""
        return self._connection is not None

    async def joined(self) -> None:
        """Wait until the broker is a member, if it has not been one yet."""
        while not self._has_joined:
            await self._next.wait()

    def propose(self, change: m.AlterInSync) -> None:
        if (connection := self._open_connection) is not None:
            self._post(connection, change, steps.E16Proposing, steps.E16Proposed)

    def accept(self, acceptance: m.AcceptEpoch) -> None:
        if (connection := self._open_connection) is not None:
            for page in pages_of(acceptance):
                self._post(connection, page, steps.E6Accepting, steps.E6Accepted)

    def resign(self, resignation: m.Resign) -> None:
        if (connection := self._open_connection) is not None:
            self._post(connection, resignation, steps.E19Resigning, steps.E19Resigned)

    def fence(self, partition: PartitionId) -> Refusal | None:
        return None  # acknowledgements rest on the in-sync set alone

    def report(self, status: m.BrokerStatus | m.BrokerLoad | m.RelayReport) -> None:
        """Report which troubles this broker has, how much it has to do, or that an epoch of a relay
        partition has begun."""
        connection = self._open_connection
        if connection is not None and connection.version >= m.DECLARATIONS[type(status)].since:
            connection.post(status)

    def expired(self, topic_id: TopicId) -> None:
        if (connection := self._open_connection) is not None:
            connection.post(m.StreamExpired(topic_id))

    @property
    def _open_connection(self) -> Connection | None:
        connection = self._connection
        return None if connection is None or connection.end_reason is not None else connection

    def _post(
        self,
        connection: Connection,
        message: m.AlterInSync | m.AcceptEpoch | m.Resign,
        before: Callable[..., Step],
        after: Callable[..., Step],
    ) -> None:
        """Send *message*, between the trace steps *before* and *after*."""
        trace = self._environment.trace
        if trace is not None:
            trace(before(**attrs.asdict(message)))
        connection.post(message)
        if trace is not None:
            trace(after(**attrs.asdict(message)))

    # --- leaving -----------------------------------------------------------------------

    async def hand_over(self) -> None:
        """Have the register move the leaderships of this broker to others.  Returns when the
        register needs this broker no longer, when no other broker can take its place, after
        `HAND_OVER_ALL_S`, or soon if the register is away."""
        with self._environment.clock.timeout(HAND_OVER_ALL_S):
            while (connection := await self._joined_connection()) is not None:
                try:
                    answer = await self._tell_stopping(connection)
                except ConnectionLostError:
                    continue  # ask again on the next connection, if there is one
                if isinstance(answer, m.Failure):
                    _log.warning("the register hands nothing over", why=answer.reason)
                return
            _log.warning(
                "stopping without a register: no other broker can lead instead of this one"
            )
            return
        _log.warning("stopping, though others may need this broker", after_s=HAND_OVER_ALL_S)

    async def _tell_stopping(self, connection: Connection) -> object:
        """Tell the register that this broker is about to stop; return the register's answer.

        Raises:
          ConnectionLostError: if the connection ends before the answer.
        """
        answers: list[object] = []
        answered = trio.Event()

        def take(answer: object) -> None:
            answers.append(answer)
            answered.set()

        if (trace := self._environment.trace) is not None:
            trace(steps.E21Stopping(*self._incarnation))
        connection.ask(m.Stopping(connection.next_request()), take)
        if trace is not None:
            trace(steps.E21Told(*self._incarnation))
        await answered.wait()
        if isinstance(answers[0], ConnectionLostError):
            raise answers[0]
        return answers[0]

    @property
    def _incarnation(self) -> tuple[BrokerId | None, Incarnation]:
        return self._identity.broker, self._identity.incarnation

    async def _joined_connection(self) -> Connection | None:
        """The connection with the register, or the next one if it is made soon; otherwise None."""
        with self._environment.clock.timeout(LINK_GRACE_S):
            while True:
                connection = self._open_connection
                if connection is not None:
                    return connection
                if self._failures > LINK_TRIES:
                    return None
                await self._next.wait()
        return None

    async def leave(self) -> None:
        """Say goodbye to the register, and don't join again."""
        self._is_leaving = True
        connection, self._connection = self._connection, None
        if connection is not None and connection.end_reason is None:
            if (trace := self._environment.trace) is not None:
                trace(steps.E24Leaving(*self._incarnation))
            connection.post(m.Goodbye())
            if trace is not None:
                trace(steps.E24Left(*self._incarnation))
            await connection.close(1000, "the broker stops")
        self._scope.cancel()

    # --- joining -----------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[BrokerIdentity]) -> None:
        """Stay joined until cancelled, or until `leave`.  ``started`` when joined for the first
        time.

        Raises:
          RefusedError: with WRONG_CLUSTER, BROKER_FENCED, or a DUPLICATE_BROKER that lasts.
          StorageError: if the disk fails to store this broker's identity.
        """
        with self._scope:
            await self._stay_joined(task_status)
        if not self._has_joined:
            await trio.sleep_forever()  # the caller waits for ``started``, which didn't come

    async def _stay_joined(self, task_status: trio.TaskStatus[BrokerIdentity]) -> None:
        clock, randomness = self._environment.clock, self._environment.randomness
        duplicate_since = math.inf
        redirects = 0
        while True:
            register = self._registers.first
            joined_at: float | None = None
            refusal: RefusedError | None = None
            try:
                connection = await open_node_connection(
                    self._environment, register, MEMBERSHIP, self._agent, self._credentials
                )
                if (trace := self._environment.trace) is not None:
                    trace(steps.J2Connected(register=register))
                async with trio.open_nursery() as nursery:
                    session = _Session(
                        self._environment,
                        connection,
                        self._identity,
                        self._decisions,
                        self._relays,
                        self._question,
                    )
                    await nursery.start(session.run)
                    try:
                        question = self._question
                        if question is not None and await question.ask(connection, self._identity):
                            return  # nobody leads by this register any more
                        self._identity = await session.join(
                            self._address, self._host, self._remember
                        )
                        if question is not None and question.is_prepared:
                            connection.post(m.RingReady(question.directory))
                        self._failures, duplicate_since, redirects = 0, math.inf, 0
                        self._registers.prefer(register)
                        joined_at = clock.now()
                        self._connection = connection
                        self._next.set()
                        self._next = trio.Event()
                        self._decisions.joined()
                        self._relays.joined()
                        _log.info(
                            "joined",
                            register=register,
                            broker=self._identity.broker,
                            cluster=self._identity.cluster,
                            incarnation=self._identity.incarnation,
                        )
                        if not self._has_joined:
                            self._has_joined = True
                            task_status.started(self._identity)
                        await session.run_orders()
                    finally:
                        self._connection = None
                        nursery.cancel_scope.cancel()
            except* (ConnectionLostError, UnreachableError, ProtocolError) as group:
                if not self._is_leaving:
                    _log.warning("register lost", register=register, why=str(first_error(group)))
            except* DiskFullError as group:
                full = first_error(group)
                assert isinstance(full, DiskFullError)
                self._decisions.disk_refused(full)
                _log.warning("can't join before the disk has space", why=str(full))
            except* RefusedError as group:
                one = first_error(group)
                assert isinstance(one, RefusedError)
                refusal = one
            if refusal is not None and self._registers.redirected(refusal):
                redirects += 1
                if redirects <= REDIRECTS_IN_A_ROW_MAX:
                    continue
            elif refusal is not None:
                duplicate = refusal.status == Status.DUPLICATE_BROKER
                duplicate_since = min(duplicate_since, clock.now()) if duplicate else math.inf
                # A broker must not stop leading because its token or its join secret is not valid
                # any more, because another program has the register's address, or because a message
                # was changed on its way: its operator can correct that.
                is_for_good = is_final(refusal) and (
                    not self._has_joined or refusal.meaning.of_identity
                )
                if clock.now() - duplicate_since > _DUPLICATE_PATIENCE_S or is_for_good:
                    raise refusal
                if self._question is not None and self._question.waits_for:
                    sparing = _log.sparing(clock)
                    sparing.warning("waits", register=register, why=self._question.waits_for)
                else:
                    _log.warning(
                        "register refuses",
                        register=register,
                        why=str(refusal),
                        next=refusal.meaning.next,
                    )
            if joined_at is not None:
                # The register still counts this incarnation as live for a moment.
                await clock.sleep_until(joined_at + BACKOFF_S_FIRST)
                continue
            redirects = 0
            self._registers.failed(register)
            self._failures += 1
            pause_s = BACKOFF_S_FIRST
            if self._failures > LINK_TRIES:
                pause_s = backoff_s(randomness, self._failures - LINK_TRIES)
            await clock.sleep_until(clock.now() + pause_s)


class _Session:
    """One membership connection, from the broker's side."""

    def __init__(
        self,
        environment: Environment,
        connection: Connection,
        identity: BrokerIdentity,
        decisions: Decisions,
        relays: RelayOrders,
        question: HandOverQuestion | None,
    ) -> None:
        self._question = question
        self._environment = environment
        self._connection = connection
        self._identity = identity
        self._decisions = decisions
        self._relays = relays
        self._send, self._orders = trio.open_memory_channel[Order](math.inf)
        # This channel has no bound of its own: the register waits for each answer, so only a few
        # orders are on their way, and the connection stops reading at its own limit.

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run the connection; orders end with it."""
        with self._send:
            await self._connection.run(self._send.send_nowait, task_status=task_status)

    async def join(
        self, address: str, host: str, remember: Callable[[BrokerIdentity], Awaitable[None]]
    ) -> BrokerIdentity:
        """Report what this broker has, then ask to join; return the identity of this broker from
        then on.

        Raises:
          RefusedError, ConnectionLostError, StorageError: if joining fails.
        """
        identity = self._identity
        trace = self._environment.trace
        if identity.broker is not None:
            await self._decisions.set_identity(identity.broker, identity.incarnation)
        sets, relayed = self._relays.reported()
        topics, reports = self._decisions.topics(), self._decisions.replica_reports()
        topics = [*topics, *relayed]
        partitions = self._decisions.decisions()
        for at in range(0, max(len(topics), len(partitions), len(reports), len(sets)), _PAGE):
            page = slice(at, at + _PAGE)
            inventory = m.Inventory(partitions[page], topics[page], reports[page], list(sets[page]))
            if trace is not None:
                logs = [one for one in inventory.topics if not one.is_relay]
                trace(steps.J3Reporting(inventory.partitions, logs, inventory.standings))
            await self._connection.send(inventory)
        if trace is not None:
            trace(steps.J4Joining(*identity.facts))
        joined = await self._connection.request(
            m.Join(
                self._connection.next_request(),
                identity.cluster,
                identity.broker,
                identity.incarnation,
                identity.nonce,
                identity.ancestors,
                identity.register,
                address,
                identity.credential,
                host,
            ),
            m.Joined,
            REQUEST_TIMEOUT_S + GATHER_S,
        )
        member = identity.joined(joined, self._environment.disk.page_cache_id())
        if trace is not None:
            trace(steps.J4Joined(*member.facts))
        if member != identity:
            # The identity is durable before any order of this register is carried out.
            await remember(member)
        await self._decisions.set_identity(joined.broker, identity.incarnation)
        self._identity = member
        return member

    async def run_orders(self) -> None:
        """Carry out orders, one after another, until the connection ends.

        Raises:
          ConnectionLostError: when the connection has ended.
          ProtocolError: if an order names something twice; nothing of it was done.
        """
        async with trio.open_nursery() as nursery:
            async for order in self._orders:
                if isinstance(order, m.PrepareHandOver):
                    nursery.start_soon(self._prepare, order)
                elif isinstance(order, m.SealTopic):
                    nursery.start_soon(answer_seal, self._decisions, self._connection, order)
                else:
                    await self._carry_out(order)
            nursery.cancel_scope.cancel()
        raise ConnectionLostError(self._connection.end_reason or "the connection ended")

    async def _prepare(self, order: m.PrepareHandOver) -> None:
        """Prepare a hand-over, while other orders are carried out."""
        await self._decisions.prepare_hand_over(order.partition)
        with contextlib.suppress(ConnectionLostError):
            self._connection.post(m.Done(order.request))

    async def _carry_out(self, order: Order) -> None:
        """Carry out *order*, and name in the answer what failed.  The register, which knows whether
        that is still wanted, orders it again."""
        if isinstance(order, m.InstallPartitions | m.InstallTopics | m.RemoveTopics):
            check_each_once(order)
        match order:
            case m.AnnounceHandOver():
                await answer_announcement(self._question, self._connection, order)
                return
            case m.AnnounceEpoch():
                self._decisions.announced(order)
                return
            case m.InSyncAltered():
                self._decisions.in_sync_altered(order)
                return
            case m.BrokersStopping():
                self._decisions.brokers_stopping(order.brokers)
                return
            case m.PrepareHandOver() | m.SealTopic():
                return  # it is done beside the other orders
            case m.InstallPartitions():
                undone = await self._decisions.install_partitions(order.partitions, order.brokers)
            case m.InstallTopics():
                undone = await self._decisions.install_topics(order.topics)
            case m.RemoveTopics():
                undone = await self._decisions.remove_topics(order.topics)
                undone += await self._relays.remove(order.topics)
            case m.InstallRelaySets():
                undone = await self._relays.install(
                    self._identity, order.sets, order.topics, order.brokers, order.sequencers
                )
        if undone:
            _log.error(
                "orders of the register failed",
                order=m.TYPE_NAMES[type(order)],
                count=len(undone),
                why=undone[0].reason,
            )
        self._connection.post(m.OrderCarriedOut(order.request, undone))
