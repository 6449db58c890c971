"""The partitions of a cluster without a register, on one broker: what is agreed on about each, and
what this broker's replicas are told of it.

A machine (`octopi.ring.partition`) decides about each partition.  This is the clock, the acceptor,
the connections and the replicas around all of them.  To the replicas it is their controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from math import inf

import attrs
import trio

from octopi.agreement.proposer import SendToAcceptor
from octopi.coordination.acceptance_pages import pages_of
from octopi.coordination.agreed_partition import RegisteredIncarnation
from octopi.coordination.election import ElectionGoal
from octopi.environment import Environment
from octopi.errors import NotReadyError, OctopiError, RefusedError, Status
from octopi.identifiers import BrokerId, Epoch, InstanceId, PartitionId, TopicId
from octopi.limits import ELECTION_TURN_S, PULSE_S, VALUES_TOLD_MAX
from octopi.logger import get_logger
from octopi.replication.effects import Refusal
from octopi.ring.cluster_record import ClusterRecord, PartitionKind
from octopi.ring.first_partition import first_partition_value, instance_of, partition_of
from octopi.ring.hand_over import HandOver
from octopi.ring.lease_grants import may_accept
from octopi.ring.partition import OwnReplica, RingPartition
from octopi.ring.partition_effects import (
    AnnounceTo,
    AnswerLeader,
    DecidedEffect,
    ElectionBegun,
    InstallDecision,
    LeaderDecided,
    ReplicaAdmitted,
    ReplicaRefused,
    TellValue,
)
from octopi.ring.partition_requests import EndingStep
from octopi.roles.broker.controller_link import ControllerLink
from octopi.roles.broker.identity import BrokerIdentity
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.decision_notes import DecisionNotes
from octopi.roles.broker.ring.installing import DecisionInstalling
from octopi.roles.broker.ring.own_acceptor import OwnAcceptor
from octopi.roles.broker.ring.pulses import RingPulses
from octopi.roles.broker.ring.routes import RingRoutes
from octopi.roles.broker.ring.topics.hosted import HostedTopics
from octopi.roles.noted_events import NotedEvents
from octopi.wire import messages as m

_log = get_logger(__name__)

Answer = Callable[[object], None]
"""Sends a message to whoever asked, if it is still there."""


@attrs.frozen
class RingSurroundings:
    """What the decisions about partitions reach: disk, clock, replicas and other brokers."""

    environment: Environment
    replicas: ReplicaManager
    acceptor: OwnAcceptor
    routes: RingRoutes
    nursery: trio.Nursery
    """The broker's."""
    events: NotedEvents
    """What this broker decides and sees."""
    hand_over: HandOver | None = None
    """What a register handed over."""


class RingPartitions(ControllerLink):
    """The partitions on one broker.  `run` is one task of the broker's nursery."""

    def __init__(
        self,
        around: RingSurroundings,
        me: RegisteredIncarnation,
        ancestors: list[str],
        failed: Callable[[OctopiError], None],
    ) -> None:
        """*me*: this process, whose id the replicas know.  *ancestors*: the nonces of earlier ones
        of which one may be registered.  *failed* is told if this broker can't go on."""
        self.me = me
        self.admitted = trio.Event()
        """Set when this process is registered for all partitions that know its broker."""
        self.decided = trio.Event()
        """Set when there is a decision about a partition."""
        self.events = around.events
        self.refusals: Counter[str] = Counter()
        """How often this broker's acceptor refused a proposer, by the reason."""
        self._environment = around.environment
        self._replicas, self._acceptor = around.replicas, around.acceptor
        self._routes = around.routes
        assert around.acceptor.identity is not None, "a broker with an id has an acceptor"
        self._identity = around.acceptor.identity
        self._ancestors = tuple(ancestors)
        self._nursery = around.nursery
        self.hand_over = around.hand_over
        self._failed = failed
        self._machines: dict[PartitionId, RingPartition] = {}
        self.pulses = RingPulses(
            around.environment.clock,
            me,
            self._machines,
            around.replicas,
            around.acceptor,
            around.routes,
        )
        """Who is there, and which rights to lead this broker has."""
        self.hosted = HostedTopics(around.environment, around.replicas, self.require)
        """The logs of topics that this broker's replicas have."""
        self._notes = DecisionNotes(me, around.replicas, around.events)
        self._resigned: dict[PartitionId, m.Resign] = {}
        """What this broker's replicas can't lead any longer."""
        self._accept_to: dict[PartitionId, tuple[Epoch, Answer]] = {}
        """The newest epoch that this broker was told of, and who told it last."""
        self._installing = DecisionInstalling(
            around.environment.clock, me, self._machines, around.replicas, around.routes
        )
        self._pulse_at = -inf

    # --- the partitions that there are -------------------------------------------------------

    def begin(self, record: ClusterRecord) -> None:
        """The cluster has the partitions of *record*, and those brokers are to lead nothing that
        it says."""
        self.pulses.unwilling = record.unwilling
        self.hosted.taken_over = record.taken_over
        reports = {one.partition: one for one in self._replicas.replica_reports()}
        for number in range(record.partition_count(PartitionKind.LOG)):
            partition = PartitionId(number)
            first = first_partition_value(record, partition)
            if partition in self._machines or first is None:
                continue
            report = reports.get(partition)
            own = OwnReplica(self._ancestors)
            if report is not None:
                own = OwnReplica(self._ancestors, Epoch(report.promised), report.intact)
            draw = self._environment.randomness.random
            instance = instance_of(partition)
            machine = RingPartition(partition, instance, self.me, first, draw, own)
            self._machines[partition] = machine
            told = None if self.hand_over is None else self.hand_over.chosen(partition)
            if told is not None:
                self._do(machine, machine.learn(told, self._now))
            self._installing.install(partition)  # the first value is known to everybody

    def partition(self, number: PartitionId) -> RingPartition | None:
        """What is known of a partition; None: there is none."""
        return self._machines.get(number)

    def leader(self, number: PartitionId) -> BrokerId:
        """Who leads a partition, as far as it is known here.

        Raises:
          NotReadyError: if nothing is known of it.
        """
        if (machine := self._machines.get(number)) is None:
            raise NotReadyError(f"this broker does not know partition {number} yet")
        return machine.agreed.record.leader

    def require(self, number: PartitionId, min_insync: int) -> None:
        """The least number of replicas in sync that a topic asks for in a partition that this
        broker leads."""
        machine = self._machines[number]
        self._do(machine, machine.require(min_insync, self._now))

    def move(self, machine: RingPartition, acceptors: tuple[m.AcceptorId, ...]) -> None:
        """Have *acceptors* decide about a partition."""
        self._do(machine, machine.move(acceptors, self._now))

    def read(self, machine: RingPartition) -> None:
        """Find out what is agreed on about a partition now."""
        self._do(machine, machine.read(self._now))

    def inquire(self, machine: RingPartition) -> None:
        """Find out what the replicas of a partition without a leader have."""
        self._do(machine, machine.inquire(self._now))

    def accept_loss(self, machine: RingPartition, live: frozenset[BrokerId]) -> None:
        """Have the best replica of those on *live* brokers lead that have said what they have."""
        seen = attrs.evolve(self.pulses.seen(), live=live)
        self._do(machine, machine.accept_loss(self._now, seen))

    def end(self, machine: RingPartition, step: EndingStep) -> None:
        """Take a step in handing the cluster over to registers."""
        self._do(machine, machine.end(step, self._now))

    async def has_ended(self, machine: RingPartition, attempt: int) -> bool:
        """Whether this broker's replica has all that was decided about a partition: it is closed in
        that *attempt*, its record is stored here, and there are logs of the topics that it has."""
        agreed, number = machine.agreed, machine.partition
        if not agreed.is_closed or agreed.ending != attempt:
            return False
        replica = self._replicas.replica(number)
        stored = self._replicas.metadata.partitions.get(number)
        if replica is None or stored != agreed.record:
            return False
        return await self.hosted.is_complete(replica)

    def hold(self, machine: RingPartition, goal: ElectionGoal) -> None:
        """Hold an election with that *goal*."""
        self._do(machine, machine.hold(goal, self._now))

    def __iter__(self) -> Iterator[RingPartition]:
        return iter(self._machines.values())

    def _has_part(self, machine: RingPartition) -> bool:
        return self.me.broker in machine.brokers

    @property
    def _now(self) -> float:
        return self._environment.clock.now()

    # --- what other brokers say --------------------------------------------------------------

    def asked(self, message: m.PrepareBallot | m.AcceptValue, answer: Answer) -> None:
        """A proposer asks this broker's acceptor, which says nothing of partitions that this broker
        does not know: it would not know their first values."""
        if (machine := self._machine(message.instance)) is not None:
            may = partial(self._may, machine, message, answer)
            counted = partial(self._count_refusal, answer)
            self._nursery.start_soon(self._acceptor.accept, message, counted, may)

    def _count_refusal(self, answer: Answer, message: object) -> None:
        if isinstance(message, m.BallotRefused):
            self.refusals["ballot"] += 1
        answer(message)

    def _may(
        self, machine: RingPartition, message: m.PrepareBallot | m.AcceptValue, answer: Answer
    ) -> bool:
        """Whether the acceptor may take *message* now: it takes no leader's right away."""
        if not isinstance(message, m.AcceptValue):
            return True
        accepted = self._acceptor.accepted(message.instance)
        try:
            may = may_accept(message, accepted, machine.value, self.pulses.is_suspected)
        except ValueError as error:
            self._unreadable(message.instance, error)
            return False
        if not may:
            self.refusals["leader"] += 1
            # Perhaps this broker alone has not heard that the leader was replaced.
            answer(m.KnownValues((m.KnownValue(message.instance, machine.value.change),)))
        return may

    def heard(self, message: m.AnnounceEpoch | m.Pulse, answer: Answer) -> None:
        """Another broker holds an election, or is there."""
        if isinstance(message, m.Pulse):
            answer(self.pulses.heard(message))
        else:
            self._announced(message, answer)

    def answered(self, message: object) -> None:
        """What another broker, or a part of this one, answers without being asked by a request."""
        match message:
            case m.AcceptEpoch():
                self._accepted(message)
            case m.BallotPromised() | m.ValueAccepted() | m.BallotRefused() | m.AcceptorDeparted():
                self._receive(message)

    def _receive(self, message: m.ToProposer) -> None:
        if (machine := self._machine(message.instance)) is None:
            return
        try:
            self._do(machine, machine.receive(message, self._now))
        except ValueError as error:
            self._unreadable(message.instance, error)

    def learn(self, message: m.ValueChosen) -> None:
        """Another broker tells what was chosen."""
        if (machine := self._machine(message.instance)) is None:
            return
        try:
            self._do(machine, machine.learn(message, self._now))
        except ValueError as error:
            self._unreadable(message.instance, error)
            return
        # An acceptor that has left learns it so.
        self._nursery.start_soon(self._acceptor.accept, message, lambda answer: None)

    def compare(self, message: m.KnownValues, answer: Answer) -> None:
        """Another broker knows these values: tell it newer ones, or let it know that it has newer
        ones."""
        older: list[m.KnownValue] = []
        for one in message.values:
            if (machine := self._machine(one.instance)) is None:
                continue
            mine = machine.value.change
            if one.change < mine and machine.chosen is not None:
                answer(machine.chosen)
            elif one.change > mine:
                older.append(m.KnownValue(one.instance, mine))
        if older:
            answer(m.KnownValues(tuple(older)))

    def known_values(self) -> Iterator[m.KnownValues]:
        """What this broker knows, for comparing."""
        known = [
            m.KnownValue(instance_of(machine.partition), machine.value.change)
            for machine in self._machines.values()
        ]
        for at in range(0, len(known), VALUES_TOLD_MAX):
            yield m.KnownValues(tuple(known[at : at + VALUES_TOLD_MAX]))

    def _announced(self, message: m.AnnounceEpoch, answer: Answer) -> None:
        """A broker holds an election, and waits for this one's replica to accept its epoch."""
        known = self._accept_to.get(message.partition)
        if known is None or known[0] <= message.epoch:
            self._accept_to[message.partition] = (message.epoch, answer)
            self._replicas.announced(message)

    def _accepted(self, message: m.AcceptEpoch) -> None:
        """A replica has accepted an epoch that this broker announced."""
        machine = self._machines.get(message.partition)
        if machine is not None:
            self._do(machine, machine.accepted(message, self._now, self.pulses.seen()))

    def _machine(self, instance: InstanceId) -> RingPartition | None:
        """None: this broker knows no such partition, or not yet."""
        partition = partition_of(instance)
        return None if partition is None else self._machines.get(partition)

    def _unreadable(self, instance: int, error: ValueError) -> None:
        """A value can't be read: no broker of ours proposes one."""
        _log.sparing(self._environment.clock).error(
            "what is said about a partition can't be read", value=instance, why=str(error)
        )

    # --- what this broker's replicas ask for -------------------------------------------------

    @property
    def is_joined(self) -> bool:
        """Whether this process is registered for all partitions that know its broker."""
        return self.admitted.is_set()

    def fence(self, partition: PartitionId) -> Refusal | None:
        machine, replica = self._machines.get(partition), self._replicas.replica(partition)
        if machine is None or replica is None:
            return None
        leader = replica.machine.leader
        fence = self.pulses.fence(machine, None if leader is None else leader.epoch)
        if fence is None and leader is not None and self.hosted.is_behind(replica):
            return Refusal(
                Status.NOT_READY,
                f"this broker has just begun to lead partition {partition}, and finds out which "
                "topics it has",
            )
        return fence

    def propose(self, change: m.AlterInSync) -> None:
        machine = self._machines[change.partition]
        self._do(machine, machine.propose(change, self._now))

    def accept(self, acceptance: m.AcceptEpoch) -> None:
        epoch, answer = self._accept_to.get(acceptance.partition, (None, None))
        if answer is not None and epoch == acceptance.epoch:
            for page in pages_of(acceptance):
                answer(page)

    def resign(self, resignation: m.Resign) -> None:
        self._resigned[resignation.partition] = resignation
        self._resign_where_possible()

    def _resign_where_possible(self) -> None:
        """Have another broker lead where this one's replica asked for that, as soon as one is there
        that takes records."""
        for partition, asked in list(self._resigned.items()):
            machine = self._machines[partition]
            record = machine.agreed.record
            if (asked.leader, asked.epoch) != (record.leader, record.epoch):
                del self._resigned[partition]
                continue
            takes = partial(self._takes_records, partition)
            if any(map(takes, self.pulses.others.intersection(record.in_sync))):
                self._do(machine, machine.resign(asked, self._now))

    def _takes_records(self, partition: PartitionId, broker: BrokerId) -> bool:
        return self.pulses.takes_records(broker, partition)

    def report(self, status: m.BrokerStatus) -> None:
        """Does nothing: it is told with the pulses."""

    def expired(self, topic_id: TopicId) -> None:
        """Does nothing: `octopi.roles.broker.ring.topics.streams` has them deleted."""

    # --- what machines say -------------------------------------------------------------------

    def _do(self, machine: RingPartition, effects: list[DecidedEffect]) -> None:
        number = machine.partition
        for effect in effects:
            match effect:
                case SendToAcceptor(acceptor, message):
                    if acceptor == self._identity:
                        self.asked(message, self.answered)
                    else:
                        self._routes.send(acceptor, message)
                case TellValue(brokers, told):
                    self._nursery.start_soon(self._acceptor.accept, told, lambda answer: None)
                    self._routes.tell(brokers, told)
                case AnnounceTo(brokers, message):
                    self._announce(brokers, message)
                case ReplicaAdmitted():
                    if (replica := self._replicas.replica(number)) is not None:
                        replica.joined()
                    self._installing.install(number)
                case ReplicaRefused(why):
                    self._failed(RefusedError(f"partition {number}: {why}", Status.BROKER_FENCED))
                case InstallDecision(record):
                    self._notes.in_force(record)
                    self._installing.install(number)
                    self.decided.set()
                    self.decided = trio.Event()
                case AnswerLeader(message):
                    self._replicas.in_sync_altered(message)
                case ElectionBegun(epoch):
                    self.events.announced(number, epoch)
                case LeaderDecided():
                    self._notes.decided(effect)

    def _announce(self, brokers: tuple[BrokerId, ...], message: m.AnnounceEpoch) -> None:
        for broker in brokers:
            if broker == self.me.broker:
                self._announced(message, self.answered)
            else:
                self._routes.post(broker, message)

    # --- tasks -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep time until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._installing.run)
            nursery.start_soon(self.hosted.run)
            nursery.start_soon(self._keep_time)

    async def _keep_time(self) -> None:
        clock = self._environment.clock
        while True:
            now = clock.now()
            if now >= self._pulse_at:
                self._pulse_at = now + PULSE_S
                self.pulses.send()
            self._installing.note_live(self.pulses.others)
            self._note_fences()
            self._resign_where_possible()
            seen = self.pulses.seen()
            for machine in list(self._machines.values()):
                if self._has_part(machine):
                    self._do(machine, machine.tick(now, seen))
                else:
                    self._do(machine, machine.pursue(now))
            self._note_admitted()
            wakes_at = min(self._pulse_at, now + ELECTION_TURN_S, self.pulses.next_end())
            await clock.sleep_until(wakes_at)

    def _note_fences(self) -> None:
        """Have replicas begin to serve clients, or stop, if they may not do what they did."""
        for replica in self._replicas.replicas:
            if (self.fence(replica.partition) is not None) != replica.is_fenced:
                replica.look_at_fence()

    def _note_admitted(self) -> None:
        if self.admitted.is_set() or not self._machines:
            return
        broker = self.me.broker
        if all(
            one.is_registered
            for one in self._machines.values()
            if broker in one.agreed.record.replicas or one.agreed.incarnation(broker) is not None
        ):
            self.admitted.set()
            self._replicas.status.joined()


async def begin_partitions(
    around: RingSurroundings,
    identity: BrokerIdentity,
    failed: Callable[[OctopiError], None],
) -> RingPartitions:
    """The partitions on the broker *identity*, whose replicas begin.

    Raises:
      StorageError: if one of them can't.
    """
    assert identity.broker is not None
    await around.replicas.set_identity(identity.broker, identity.incarnation)
    me = RegisteredIncarnation(identity.broker, identity.incarnation, identity.nonce)
    partitions = RingPartitions(around, me, identity.ancestors, failed)
    around.replicas.reach(partitions)
    return partitions
