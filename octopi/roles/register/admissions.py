"""How brokers join: the register admits them, forms the cluster with the first of them, and sends
each the decisions that it has to know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import trio

from octopi.coordination.controller import Controller
from octopi.coordination.journal_entries import TopicAltered, TopicCreated
from octopi.environment import Environment
from octopi.errors import ConnectionLostError, RefusedError, SupersededError
from octopi.identifiers import BrokerId
from octopi.logger import get_logger
from octopi.roles.register.announcements import Announcements
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.departures import Departures
from octopi.roles.register.election_driver import ElectionDriver
from octopi.roles.register.gathering import Gathering
from octopi.roles.register.hand_overs import HandOvers
from octopi.roles.register.member import Member
from octopi.roles.register.members import Members
from octopi.roles.register.register_tracer import RegisterTracer
from octopi.roles.register.relay_sets import RelaySets
from octopi.roles.register.startup_recovery import former_cluster, tell_older_copy
from octopi.wire.messages import Inventory, Join, TopicRecord

_log = get_logger(__name__)

CONFLICT: Final = "conflict"
"""The message that a broker holds records of topics that are not the register's."""


class Admissions:
    """Admits brokers to the cluster of one register."""

    def __init__(
        self,
        environment: Environment,
        controller: Controller,
        decisions: DecisionLog,
        tracer: RegisterTracer,
        gathering: Gathering,
        members: Members,
        announcements: Announcements,
        election_driver: ElectionDriver,
        departures: Departures,
        hand_overs: HandOvers,
        relay_sets: RelaySets,
        tasks: trio.Nursery,
    ) -> None:
        """*tasks*: the nursery of the tasks that tell brokers what another broker has reported."""
        self._environment = environment
        self._controller = controller
        self._decisions = decisions
        self._tracer = tracer
        self._gathering = gathering
        self._members = members
        self._announcements = announcements
        self._election_driver = election_driver
        self._departures = departures
        self._hand_overs = hand_overs
        self._relay_sets = relay_sets
        self._tasks = tasks
        self._first_joins: dict[str, Join] = {}
        """The `join` messages of brokers that came before a cluster was formed, by the nonces of
        their incarnations."""

    def start(self) -> None:
        """Begin the next generation of the register, if it belongs to a cluster already.

        Raises:
          StorageError: if the journal can't be written.
        """
        if self._controller.state.cluster:
            secret = "" if self._controller.state.secret else self._token() + self._token()
            self._decisions.persist(self._controller.start(self._token(), secret=secret))
            self._election_driver.wait_for_brokers()
            self._relay_sets.start()

    async def admit(self, member: Member, join: Join, inventory: list[Inventory]) -> BrokerId:
        """Let a broker join; return its id.  `sync` must follow.

        Raises:
          ConnectionLostError: if the broker is gone.
          RefusedError: see `Controller.admit`.
        """
        state = self._controller.state
        if not state.cluster:
            self._first_joins[join.nonce] = join
        if join.broker is None or not state.cluster:
            await self._gathering.wait()
        if member.is_closed:  # the connection ended just when the broker could be admitted
            raise ConnectionLostError("the broker left before it was let in")
        self._gathering.expect(join.nonce)
        if not state.cluster:
            self._form()
        known = state.brokers.get(join.broker) if join.broker is not None else None
        is_same_process = known is not None and known.nonce == join.nonce
        former = self._members.get(join.broker) if join.broker is not None else None
        if former is not None and former.is_closed and self._controller.is_later_life(join):
            self._departures.gone(former)
        try:
            admission = self._controller.admit(join, inventory)
        except SupersededError as error:
            _log.error("superseded", why=str(error), next=error.meaning.next)
            self._decisions.fail(error)
            raise
        except RefusedError as error:
            self._gathering.forget(join.nonce)
            strangers = _log.sparing(self._environment.clock)
            strangers.warning("broker refused", address=join.address, why=str(error))
            raise
        tell_older_copy(admission)
        self._decisions.persist(admission)
        self._controller.admitted(admission)
        self._gathering.admitted(join.nonce)
        former = self._members.get(admission.broker)
        self._members.joined(member, admission.broker, join.incarnation)
        if admission.learned:
            self._election_driver.wait_for_brokers()
            if self._controller.has_lost_all_leaders:
                self._election_driver.waits_for_nobody()
        entries = admission.entries
        learned = [one.record for one in entries if isinstance(one, TopicCreated | TopicAltered)]
        learned = [one for one in learned if not one.is_relay]
        self._relay_sets.start()
        if learned:
            # Not a task of the session: else the others would not be told if this broker is lost.
            self._tasks.start_soon(self._members.tell_learned, learned, member)
        for holder, removed in admission.held_elsewhere():
            if (other := self._members.get(holder)) is not None:
                self._tasks.start_soon(self._members.have_removed, other, [removed])
        if state.brokers.keys() <= self._members.keys():
            self._gathering.all_came()
        if former is not None:
            self._tasks.start_soon(former.replace)
        elif not is_same_process:  # one that was only silent stays drained
            self._controller.draining.discard(admission.broker)
            self._hand_overs.starts_anew(admission.broker)
        if admission.conflicts:
            strangers = _log.sparing(self._environment.clock)
            strangers.error(CONFLICT, broker=admission.broker, what=admission.conflicts)
        await self._decisions.durable(admission)
        _log.info(
            "broker is back" if admission.is_back else "broker joined",
            broker=admission.broker,
            address=join.address,
            incarnation=join.incarnation,
        )
        return admission.broker

    def _form(self) -> None:
        """Form a cluster: the one that the brokers which came first belong to, or a new one."""
        former = former_cluster(self._first_joins.values())
        cluster = former.cluster or self._token()
        nonce, secret = self._token(), self._token() + self._token()
        self._decisions.persist(
            self._controller.form(cluster, nonce, former.generation + 1, secret=secret)
        )
        self._first_joins.clear()
        if former.cluster:
            self._election_driver.wait_for_brokers()
        _log.info(
            "cluster formed",
            cluster=cluster,
            generation=former.generation + 1,
            taken_over=bool(former.cluster),
        )

    def _token(self) -> str:
        return self._environment.randomness.token_bytes(8).hex()

    async def sync(self, member: Member, broker: BrokerId, reported: Iterable[TopicRecord]) -> None:
        """Send a newly joined broker, which has *reported* these topics, the partition table and
        its topics; once it has answered, send clients to it, except for what it could not do.  Then
        tell the other brokers what its joining has changed."""
        controller, state = self._controller, self._controller.state
        # Before it leads by an order that comes next, it knows what its topics require by now.
        await member.install_options(controller.view.outdated(broker, reported))
        self._hand_overs.tell_stopping_to(member)
        # First what is deleted: a topic of the same name may have been made since.
        await self._members.have_removed(member, controller.view.removals_of(broker))
        await self._relay_sets.sync(member)
        table, topics = list(state.partitions.values()), controller.view.topics_of(broker)
        await member.install_partitions(table, controller.view.brokers())
        await member.install_topics(topics)
        if not (member.is_closed or member.is_silent):
            self._tracer.serving(broker, member.incarnation)
            controller.serves(broker, member.incarnation)
        await self._decisions.durable()
        for partition in list(controller.elections.changes):
            self._announcements.tell(member, partition)
        self._election_driver.look()
        others = [one for one in self._members.values() if one is not member]
        await self._members.tell_partitions(list(state.partitions.values()), others)
