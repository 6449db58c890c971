"""The register's shell: journal, sessions, and telling brokers what was decided.

The register decides in one synchronous stretch (ask the `Controller`, append to the
journal, apply), so decisions never interleave.  Waiting begins after that: until the
journal is durable nothing is told to anyone, and a client that created a topic hears of
it when the brokers have it.

Tasks: one server, one that ends the gathering; the sessions' tasks belong to their
connections.
"""

from __future__ import annotations

import contextlib
from typing import Final

import trio

from octopi.coordination.controller import Controller
from octopi.coordination.journal_entries import Entry, TopicCreated
from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    NotReadyError,
    OctopiError,
    RefusedError,
    Status,
    StorageError,
    SupersededError,
)
from octopi.limits import (
    GATHER_S,
)
from octopi.logger import get_logger
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.departures import Departures
from octopi.roles.register.election_driver import ElectionDriver
from octopi.roles.register.event_log import EventLog
from octopi.roles.register.hand_overs import HandOvers
from octopi.roles.register.journal import Journal
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.rebalancing import Rebalancing
from octopi.roles.register.sessions import MembershipSession
from octopi.roles.register.startup_recovery import former_cluster, tell_older_copy
from octopi.roles.register.topics import Topics
from octopi.tracing import steps
from octopi.transport.memory_budget import MemoryBudget
from octopi.transport.server_statistics import ServerStatistics
from octopi.wire.messages import (
    BrokerInfo,
    Inventory,
    Join,
    PartitionRecord,
    RemovedTopic,
    TopicRecord,
)

_log = get_logger(__name__)

CONFLICT: Final = "conflict"
"""The message that a broker holds records of topics that are not the register's."""


class RegisterNode:
    """One running register; made and driven by `run_register`."""

    def __init__(
        self,
        environment: Environment,
        options: RegisterOptions,
        journal: Journal,
        tasks: trio.Nursery,
        stop: trio.Event,
    ) -> None:
        """*stop* is set when the register can't go on, at the latest."""
        self.environment = environment
        self.controller = Controller(options.partition_count, options.replica_count)
        self.members: dict[int, MembershipSession] = {}
        """Sessions of joined brokers, by broker id."""
        self.events = EventLog(environment.clock)
        self.traffic = ServerStatistics(MemoryBudget(options.memory_budget_bytes))
        self.options = options
        self.decisions = DecisionLog(environment, self.controller, journal, self.events, stop)
        self._gathered = trio.Event()
        self._joins_held = 0
        """Brokers that came before it may decide, and are not in yet."""
        self._comes_again: dict[str, float] = {}
        """Brokers that could not be let in as the journal did not take it, by the nonces of their
        lives, and until when they are expected to come again: what they told counts for nothing
        yet, and may be what somebody asks for."""
        self._all_came = trio.Event()
        """Every broker of the journal has joined."""
        self._first_joins: dict[str, Join] = {}
        """Of brokers that came before there was a cluster here, by the nonces of their lives."""
        self._stop = stop
        self._tasks = tasks
        self.election_driver = ElectionDriver(self, tasks)
        self.rebalancing = Rebalancing(self, self.election_driver, options.replica_count)
        self.departures = Departures(self, tasks)
        self.hand_overs = HandOvers(self, self.election_driver)
        self.topics = Topics[MembershipSession](
            environment, self.controller, self.decisions, self, tasks
        )

    # --- deciding --------------------------------------------------------------------

    @property
    def failure(self) -> OctopiError | None:
        """Why the register can't go on."""
        return self.decisions.failure

    def record(self, entries: list[Entry]) -> None:
        """See `DecisionLog.record`."""
        self.decisions.record(entries)

    async def durable(self) -> None:
        """See `DecisionLog.durable`."""
        await self.decisions.durable()

    def start(self) -> None:
        """Begin a life of the register, if there was one before.

        Raises:
          StorageError: if the disk doesn't take it.
        """
        if self.controller.state.cluster:
            secret = "" if self.controller.state.secret else self._token() + self._token()
            self.record(self.controller.start(self._token(), secret=secret))
            self.election_driver.wait_for_brokers()

    # --- gathering -------------------------------------------------------------------

    async def gather(self, seconds: float) -> None:
        """Let brokers come first, at most so long: what the journal doesn't know, because it is
        new or because the register was ended while it learned it again, they do."""
        with self.environment.clock.timeout(seconds):
            await self._all_came.wait()
        if (trace := self.environment.trace) is not None:
            trace(steps.R5Gathered(cluster=self.controller.state.cluster))
        self._gathered.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it ends connections by itself: then no broker is gone because of that."""
        return self._stop.is_set()

    @property
    def is_gathering(self) -> bool:
        """Whether it still listens to brokers before it decides anything."""
        now = self.environment.clock.now()
        comes_again = any(until > now for until in self._comes_again.values())
        return not self._gathered.is_set() or self._joins_held > 0 or comes_again

    @property
    def journal_bytes(self) -> int:
        """How long the journal is."""
        return self.decisions.size_bytes

    def require_gathered(self) -> None:
        """Refuse what can't be known or decided yet."""
        if self.is_gathering:
            raise NotReadyError("the register has just started and listens to brokers first")

    def require_learned(self) -> None:
        """Refuse to say that there is no such topic while nobody has told this register of any:
        its disk may be a new one, and brokers know.

        Raises:
          NotReadyError, RefusedError: if it is so.
        """
        self.require_gathered()
        if not self.controller.state.cluster:
            raise RefusedError("no broker has joined", Status.NO_BROKER)

    # --- membership ------------------------------------------------------------------

    async def admit(
        self, session: MembershipSession, join: Join, inventory: list[Inventory]
    ) -> int:
        """Let a broker join; return its id.  Its session is told what it has to know.

        Raises:
          ConnectionLostError: if the broker is gone.
          RefusedError: see `Controller.admit`.
        """
        state = self.controller.state
        if not state.cluster:
            self._first_joins[join.nonce] = join
        if join.broker is None or not state.cluster:
            self._joins_held += 1
            try:
                await self._gathered.wait()
            finally:
                self._joins_held -= 1
        if session.is_closed:  # at the very moment at which it might have gone on
            raise ConnectionLostError("the broker left before it was let in")
        self._comes_again[join.nonce] = self.environment.clock.now() + GATHER_S
        if not state.cluster:
            self._form()
        former = self.members.get(join.broker) if join.broker is not None else None
        if former is not None and former.is_closed and self.controller.is_later_life(join):
            self.departures.gone(former)
        try:
            admission = self.controller.admit(join, inventory)
        except SupersededError as error:
            _log.error("superseded", why=str(error), next=error.meaning.next)
            self.decisions.fail(error)
            raise
        except RefusedError as error:
            del self._comes_again[join.nonce]
            strangers = _log.sparing(self.environment.clock)
            strangers.warning("broker refused", address=join.address, why=str(error))
            raise
        tell_older_copy(admission)
        if (trace := self.environment.trace) is not None:
            admitted = {"broker": admission.broker, "incarnation": join.incarnation}
            trace(steps.J5Admitting(**admitted, entries=admission.entries))
        self.record(admission.entries)
        self.controller.admitted(admission)
        now = self.environment.clock.now()
        del self._comes_again[join.nonce]
        self._comes_again = {one: at for one, at in self._comes_again.items() if at > now}
        former = self.members.get(admission.broker)
        self.members[admission.broker] = session
        session.joined_as(admission.broker, join.incarnation)
        if admission.learned:
            self.election_driver.wait_for_brokers()
        learned = [one.record for one in admission.entries if isinstance(one, TopicCreated)]
        if learned:
            # No task of the session: with that, a lost broker would leave others without them.
            self._tasks.start_soon(self._tell_learned, learned, session)
        for holder, removed in admission.held_elsewhere():
            if (member := self.members.get(holder)) is not None:
                self._tasks.start_soon(self.have_removed, member, [removed])
        if state.brokers.keys() <= self.members.keys():
            self._all_came.set()
        if former is not None:
            self._tasks.start_soon(former.replace)
        else:
            self.controller.draining.discard(admission.broker)
            self.hand_overs.starts_anew(admission.broker)
        if admission.conflicts:
            strangers = _log.sparing(self.environment.clock)
            strangers.error(CONFLICT, broker=admission.broker, what=admission.conflicts)
        await self.durable()
        if trace is not None:
            trace(steps.J5Admitted(**admitted, entries=admission.entries))
            if admission.is_back:
                trace(steps.R8Restored(**admitted))
        _log.info(
            "broker is back" if admission.is_back else "broker joined",
            broker=admission.broker,
            address=join.address,
            incarnation=join.incarnation,
        )
        return admission.broker

    def _form(self) -> None:
        """Form the cluster that those which came first belong to, or a new one."""
        former = former_cluster(self._first_joins.values())
        cluster = former.cluster or self._token()
        nonce, secret = self._token(), self._token() + self._token()
        self.record(self.controller.form(cluster, nonce, former.generation + 1, secret=secret))
        self._first_joins.clear()
        if former.cluster:
            self.election_driver.wait_for_brokers()
        _log.info(
            "cluster formed",
            cluster=cluster,
            generation=former.generation + 1,
            taken_over=bool(former.cluster),
        )

    def _token(self) -> str:
        return self.environment.randomness.token_bytes(8).hex()

    async def brief(self, session: MembershipSession, broker: int) -> None:
        """Tell a broker that has just joined all that concerns it; then clients are sent to
        it, but for what it could not do.  The others hear what changed by its coming."""
        state = self.controller.state
        self.hand_overs.tell_stopping_to(session)
        # First what is deleted: a topic of the same name may have been made since.
        await self.have_removed(session, self.controller.removals_of(broker))
        table, topics = list(state.partitions.values()), self.controller.topics_of(broker)
        await session.install_partitions(table, self.controller.describe_brokers())
        await session.install_topics(topics)
        if not (session.is_closed or session.is_silent):
            if (trace := self.environment.trace) is not None:
                trace(steps.J6Serving(broker=broker, incarnation=session.incarnation))
            self.controller.serves(broker, session.incarnation)
        await self.durable()
        for partition in list(self.controller.elections.changes):
            self.election_driver.announce_to(session, partition)
        self.election_driver.look()
        others = [member for member in self.members.values() if member is not session]
        await self.tell_partitions(list(state.partitions.values()), others)

    async def _tell_learned(self, topics: list[TopicRecord], session: MembershipSession) -> None:
        """Brokers that joined before the register knew *topics* again hear of them: they may hold
        replicas, and never have been told.  That of *session*, who brought them, is briefed."""
        partitions = self.controller.state.partitions
        async with trio.open_nursery() as nursery:
            for broker, member in self.members.items():
                held = [
                    topic
                    for topic in topics
                    if any(broker in partitions[one].replicas for one in topic.partitions)
                ]
                if member is not session:
                    nursery.start_soon(member.install_topics, held)

    async def tell_partitions(
        self, records: list[PartitionRecord], members: list[MembershipSession]
    ) -> None:
        """Every broker remembers the whole table, not only its part, so that a register that
        lost its disk learns of partitions whose brokers are away."""
        brokers = self.controller.describe_brokers()
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(self.tell, member, records, brokers)

    async def tell(
        self, member: MembershipSession, records: list[PartitionRecord], brokers: list[BrokerInfo]
    ) -> None:
        """Tell one broker decisions about partitions."""
        await member.install_partitions(records, brokers)
        if not member.is_closed:
            # A partition that was new to it was none that it could accept an epoch of before.
            await self.election_driver.announce_again(member, records)

    async def have_removed(self, session: MembershipSession, topics: list[RemovedTopic]) -> None:
        """Have a broker remove deleted topics, and remember which it has removed."""
        for topic in await session.remove_topics(topics):
            # Not remembered, it hears of it again, harmlessly.
            with contextlib.suppress(NotReadyError, StorageError):
                self.record(self.controller.removed(topic.topic_id, session.broker))
        with contextlib.suppress(NotReadyError):
            await self.durable()
