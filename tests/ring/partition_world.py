"""Brokers that decide about one partition by themselves, with replicas, disks and a network.

Replicas, logs and the ghost that knows what was committed are those of `tests.replication.cluster`,
without its register.  In its place are the machines of the product: acceptors, `RingPartition`,
pulses and leases.  Messages are lost, doubled and reordered, processes stop between two effects,
clocks differ in their rates.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count, pairwise
from random import Random
from typing import Any, Final

import attrs

from octopi.agreement.acceptor import Acceptor, AnswerProposer, Persist
from octopi.agreement.entries import AcceptEntry, AcceptorEntry
from octopi.agreement.heard import HeardBrokers
from octopi.agreement.lease import Lease
from octopi.agreement.proposer import SendToAcceptor
from octopi.agreement.values import first_value
from octopi.coordination.agreed_partition import (
    AgreedPartition,
    RegisteredIncarnation,
    decode_partition,
    encode_partition,
)
from octopi.identifiers import (
    BrokerId,
    DirectoryId,
    Epoch,
    Incarnation,
    InstanceId,
    PartitionId,
    TopicId,
)
from octopi.model import PartitionRecord
from octopi.replication.partition_replica import Role
from octopi.ring.election_turns import SeenBrokers
from octopi.ring.lease_grants import LeaseHolder, granted, may_accept
from octopi.ring.partition import OwnReplica, RingPartition
from octopi.ring.partition_effects import (
    AnnounceTo,
    AnswerLeader,
    DecidedEffect,
    InstallDecision,
    ReplicaAdmitted,
    ReplicaRefused,
    TellValue,
)
from octopi.wire import messages as m
from octopi.wire.agreement import AcceptorId, AgreedValue, Ballot, ToAcceptor, ToProposer
from tests.agreement.history import is_chosen
from tests.replication.cluster import Cluster, Envelope, Node, require

INSTANCE: Final = InstanceId(1)
NUMBER: Final = PartitionId(0)
CLOCK_RATES: Final = (0.87, 1.13)
"""The slowest and the fastest clock: as much as `octopi.limits.SUSPECT_S` allows for."""


@attrs.frozen
class ForAcceptor:
    """A proposer's message, and the process that sent it."""

    acceptor: AcceptorId
    message: ToAcceptor
    process: int


@attrs.frozen
class ForProposer:
    """An acceptor's answer to a process."""

    process: int
    message: ToProposer


@attrs.frozen
class Chosen:
    """A value was chosen."""

    message: m.ValueChosen


@attrs.frozen
class Announced:
    """An epoch begins; the broker that says so waits for acceptances."""

    message: m.AnnounceEpoch


@attrs.frozen
class Pulse:
    """A broker is there, and leads, if it does."""

    sent_at: float
    incarnation: Incarnation
    leads: LeaseHolder | None


@attrs.frozen
class PulseGranted:
    """The answer to the pulse of a leader that is granted its right."""

    acceptor: AcceptorId
    sent_at: float
    leads: LeaseHolder


class Host:
    """One broker: an acceptor with its disk, and while it runs, its machines."""

    def __init__(self, world: PartitionWorld, broker: BrokerId, node: Node | None) -> None:
        self.world = world
        self.broker = broker
        self.node = node
        self.identity = AcceptorId(broker, DirectoryId(f"d{broker}"))
        self.rate = world.random.uniform(*CLOCK_RATES)
        self.disk: list[AcceptorEntry] = []
        self.written: list[AcceptorEntry] = []
        self.held: list[tuple[BrokerId, ForProposer]] = []
        self.process = 0
        self.incarnation = Incarnation(0)
        self.partition: RingPartition | None = None
        """None: it is down."""
        self.acceptor = Acceptor(INSTANCE, self.identity, world.first)
        self.heard = HeardBrokers(0.0)
        self.leases: dict[LeaseHolder, Lease] = {}
        self.unwilling: frozenset[BrokerId] = frozenset()
        """The brokers of which it knows that they are drained, or leave."""

    @property
    def now(self) -> float:
        """The time by its clock."""
        return self.world.now * self.rate

    def start(self) -> None:
        """Its process starts, with what is on the disk."""
        self.process = next(self.world.processes)
        if self.node is not None and self.node.replica is None:
            self.node.start()
        self.incarnation = Incarnation(
            self.incarnation + 1 if self.node is None else self.node.incarnation
        )
        own = OwnReplica()
        nonce = f"p{self.process}"
        if self.node is not None and self.node.replica is not None:
            report = self.node.replica.report
            nonce = self.node.nonce
            own = OwnReplica(tuple(self.node.ancestors), report.promised, report.intact)
        self.acceptor = Acceptor(INSTANCE, self.identity, self.world.first)
        self.acceptor.replay(self.disk)
        self.written, self.held = [], []
        self.heard, self.leases = HeardBrokers(self.now), {}
        me = RegisteredIncarnation(self.broker, self.incarnation, nonce)
        draw = self.world.random.random
        self.partition = RingPartition(NUMBER, INSTANCE, me, self.world.first, draw, own)

    def stop(self, written: int = 0) -> None:
        """Its process ends; of what is not durable the first *written* entries are on the
        device."""
        if self.partition is not None:
            self.world.durable(self, self.written[:written])
        self.partition = None
        self.written, self.held = [], []
        if self.node is not None and self.node.replica is not None:
            self.node.crash()
        for node in self.world.nodes.values():
            leader = None if node.replica is None else node.replica.leader
            if leader is not None and (session := leader.sessions.get(self.broker)) is not None:
                assert node.replica is not None
                node.perform(node.replica.stream_closed(self.broker, *session.number))

    @property
    def seen(self) -> SeenBrokers:
        """What it sees of the others."""
        return SeenBrokers(
            self.heard.live(self.now) | {self.broker},
            lambda broker, incarnation: self.suspects(broker, incarnation),
            {},
            self.unwilling,
        )

    def suspects(self, broker: BrokerId, incarnation: Incarnation) -> bool:
        """Whether that process is taken for dead."""
        if broker == self.broker:
            return incarnation < self.incarnation
        return self.heard.is_suspected(broker, incarnation, self.now)

    @property
    def leads(self) -> LeaseHolder | None:
        """As what it leads, by its replica."""
        replica = None if self.node is None else self.node.replica
        if self.partition is None or replica is None or replica.leader is None:
            return None
        epoch = replica.leader.epoch
        return LeaseHolder(self.broker, Incarnation(replica.leader.incarnation), epoch)

    def has_right(self) -> bool:
        """Whether it leads, and has the right to, by its clock."""
        leads = self.leads
        if leads is None or leads not in self.leases or self.partition is None:
            return False
        return self.partition.may_act(self.leases[leads], leads.epoch, self.now)


class PartitionWorld(Cluster):
    """Brokers 1 to *brokers*, of which the first *replicas* have a replica at first, and the first
    *keeping* may have one."""

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 5,
        replicas: int = 3,
        acceptors: int = 5,
        keeping: int | None = None,
    ) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.processes = count(1)
        self.min_insync = 1
        self._set_up_ghost()
        ids = [BrokerId(one) for one in range(1, brokers + 1)]
        record = PartitionRecord(
            NUMBER, Epoch(1), 0, ids[0], Incarnation(1), ids[:replicas], ids[:replicas]
        )
        content = encode_partition(AgreedPartition(record, Epoch(1)))
        group = [AcceptorId(one, DirectoryId(f"d{one}")) for one in ids[:acceptors]]
        self.first = first_value(group, content)
        self._accepted: dict[Ballot, tuple[AgreedValue, set[AcceptorId]]] = {}
        self.chosen: dict[int, AgreedValue] = {0: self.first}
        self.decisions: dict[int, AgreedPartition] = {0: decode_partition(content)}
        self.announcers: dict[tuple[int, Epoch], BrokerId] = {}
        """Who told a replica of an epoch last."""
        self.losses = 0
        """How often a leader was chosen that may lack something."""
        self.cut: frozenset[int] = frozenset()
        """Brokers that can't be reached from the others, nor reach them."""
        self.nodes = {one: Node(self, one, self.topics) for one in ids[: keeping or replicas]}
        self.hosts = {one: Host(self, one, self.nodes.get(one)) for one in ids}
        for host in self.hosts.values():
            host.start()

    def _set_up_ghost(self) -> None:
        self.topics = [TopicId("topic-0")]
        self.network = []
        self.committed = {topic: [] for topic in self.topics}
        self.acknowledged = {topic: set() for topic in self.topics}
        self.answers = []
        self._led = {}
        self._nonces = count()

    # --- what the ghost asks -------------------------------------------------------------

    @property
    def agreed(self) -> AgreedPartition:
        """What was chosen last."""
        return self.decisions[max(self.decisions)]

    @property
    def decided(self) -> PartitionRecord:
        return self.agreed.record

    def _is_of_the_past(self, epoch: int) -> bool:
        return epoch < self.decided.recovered_epoch

    # --- time ----------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and have all machines notice."""
        self.now += seconds
        for broker in self.hosts:
            self.tick(broker)

    def tick(self, broker: int) -> None:
        """A broker looks at its clock."""
        host = self.hosts[BrokerId(broker)]
        if host.partition is not None:
            self.do(host, host.partition.tick(host.now, host.seen))
        if host.node is not None and host.node.replica is not None:
            host.node.perform(host.node.replica.tick(host.now))
        self._check_rights()

    def pulse(self, broker: int) -> None:
        """A broker tells all others that it is there."""
        host = self.hosts[BrokerId(broker)]
        if host.partition is None:
            return
        pulse = Pulse(host.now, host.incarnation, host.leads)
        for other in self.hosts:
            if other != host.broker:
                self.network.append(Envelope(host.broker, other, pulse))
        self._grant(host, host, pulse)

    # --- the network ---------------------------------------------------------------------

    def send(self, sender: Node, to: int, message: object) -> None:
        if to != 0:
            super().send(sender, to, message)
        elif isinstance(message, m.AcceptEpoch):
            asked = self.announcers[sender.broker, message.epoch]
            self.network.append(Envelope(sender.broker, asked, message))
        else:  # to its own broker's machine, which it reaches later, or never
            self.network.append(Envelope(sender.broker, sender.broker, message))

    def deliver(self, at: int, *, keep: bool = False, limit: int | None = None) -> None:
        envelope = self.network[at]
        host = self.hosts[BrokerId(envelope.to)]
        sender, now = BrokerId(envelope.sender), host.now
        if (envelope.to in self.cut) != (envelope.sender in self.cut) and envelope.sender != 0:
            self.network.pop(at)
            return
        if isinstance(envelope.message, m.FollowRefused) and host.node is not None:
            host.node.wants_stream = True  # it tries again
        if not self._is_for_machines(envelope.message):
            super().deliver(at, keep=keep, limit=limit)
            return
        if not keep:
            self.network.pop(at)
        partition = host.partition
        if partition is None:
            return
        match envelope.message:
            case ForAcceptor() as asked:
                if asked.acceptor == host.identity:
                    self._ask_acceptor(host, sender, asked)
            case ForProposer(process, message):
                if process == host.process:
                    self.do(host, partition.receive(message, now))
            case Chosen(message):
                self.do(host, partition.learn(message, now))
                for effect in host.acceptor.receive(message):
                    assert isinstance(effect, Persist)
                    host.written.append(effect.entry)
            case Announced(message):
                if host.node is not None and host.node.replica is not None:
                    self.announcers[host.broker, message.epoch] = sender
                    host.node.perform(host.node.replica.announced(message), limit)
                    self.follow_process(host)
            case m.AcceptEpoch() as message:
                self.do(host, partition.accepted(message, now, host.seen))
            case m.AlterInSync() as message:
                self.do(host, partition.propose(message, now))
            case Pulse() as pulse:
                host.heard.hear(sender, pulse.incarnation, now)
                self._grant(host, self.hosts[sender], pulse)
            case PulseGranted() as grant:
                host.leases.setdefault(grant.leads, Lease()).granted(grant.acceptor, grant.sent_at)
        self._check_rights()

    def _is_for_machines(self, message: object) -> bool:
        return isinstance(
            message,
            ForAcceptor
            | ForProposer
            | Chosen
            | Announced
            | m.AcceptEpoch
            | m.AlterInSync
            | Pulse
            | PulseGranted,
        )

    def _ask_acceptor(self, host: Host, sender: BrokerId, asked: ForAcceptor) -> None:
        assert host.partition is not None
        accepted, known = host.acceptor.state.value, host.partition.value
        if isinstance(asked.message, m.AcceptValue) and not may_accept(
            asked.message, accepted, known, host.suspects
        ):
            return
        for effect in host.acceptor.receive(asked.message):
            match effect:
                case Persist(entry):
                    host.written.append(entry)
                case AnswerProposer(message):
                    host.held.append((sender, ForProposer(asked.process, message)))
        host.acceptor.check_invariants()

    def _grant(self, host: Host, leader: Host, pulse: Pulse) -> None:
        """*host* answers a pulse of *leader*."""
        assert host.partition is not None
        holder = granted(host.acceptor.state.value, host.partition.value)
        if pulse.leads is None or holder != pulse.leads:
            return
        grant = PulseGranted(host.identity, pulse.sent_at, pulse.leads)
        if host is leader:
            host.leases.setdefault(grant.leads, Lease()).granted(grant.acceptor, grant.sent_at)
        else:
            self.network.append(Envelope(host.broker, leader.broker, grant))

    def sync(self, broker: int) -> None:
        """What an acceptor has written becomes durable, and its answers go out."""
        host = self.hosts[BrokerId(broker)]
        self.durable(host, host.written)
        host.written = []
        for to, answer in host.held:
            self.network.append(Envelope(host.broker, to, answer))
        host.held = []
        self._check_rights()

    def _has_stream(self, node: Node) -> bool:
        """Whether the leader that *node* follows has a stream with it."""
        record = node.state.record
        leader = None if record is None else self.nodes[BrokerId(record.leader)].replica
        if leader is None or leader.leader is None:
            return True  # nobody to follow
        session = leader.leader.sessions.get(BrokerId(node.broker))
        return session is not None and session.open and session.number[0] == node.incarnation

    def follow(self, node: Node) -> None:
        """A follower opens its stream to the leader."""
        if node.replica is not None and node.replica.role is Role.FOLLOWER:
            node.perform(node.replica.stream_opened())

    # --- what machines say ---------------------------------------------------------------

    def do(self, host: Host, effects: list[DecidedEffect]) -> None:
        node, partition = host.node, host.partition
        assert partition is not None
        partition.check_invariants()
        for effect in effects:
            match effect:
                case SendToAcceptor(acceptor, message):
                    sent = ForAcceptor(acceptor, message, host.process)
                    self.network.append(Envelope(host.broker, acceptor.broker, sent))
                case TellValue(brokers, told):
                    require(
                        self.chosen.get(told.value.change) == told.value,
                        "only chosen values are told",
                    )
                    for one in sorted(brokers):
                        self.network.append(Envelope(host.broker, one, Chosen(told)))
                case AnnounceTo(brokers, announced):
                    for one in brokers:
                        self.network.append(Envelope(host.broker, one, Announced(announced)))
                case ReplicaAdmitted() if node is not None and node.replica is not None:
                    node.ancestors = []
                    node.perform(node.replica.joined())
                    self.tell(node, partition.agreed.record)
                case ReplicaRefused():
                    self._stopped(host)
                    return
                case InstallDecision(record) if node is not None:
                    self.tell(node, record)
                case AnswerLeader(answer):
                    self.network.append(Envelope(0, host.broker, answer))
                case _:
                    pass

    def _stopped(self, host: Host) -> None:
        host.stop()

    def follow_process(self, host: Host) -> None:
        """If the replica's process ended, so did the broker's."""
        if host.node is not None and host.node.replica is None:
            host.stop()

    # --- what is chosen ------------------------------------------------------------------

    def durable(self, host: Host, entries: list[AcceptorEntry]) -> None:
        """An acceptor has *entries* on its device."""
        for entry in entries:
            host.disk.append(entry)
            if not isinstance(entry, AcceptEntry):
                continue
            value, accepted = self._accepted.setdefault(entry.ballot, (entry.value, set()))
            require(value == entry.value, "a ballot has one value")
            accepted.add(host.identity)
            if is_chosen(value, accepted):
                self._choose(value)

    def _choose(self, value: AgreedValue) -> None:
        known = self.chosen.setdefault(value.change, value)
        require(known == value, "one history is chosen")
        if value.change in self.decisions:
            return
        # It may be chosen with the ones before it, or be found to be chosen after the next ones.
        is_newest = value.change > max(self.decisions)
        before, after = self.agreed, decode_partition(value.content)
        self.decisions[value.change] = after
        in_order = [self.decisions[change] for change in sorted(self.decisions)]
        for one, other in pairwise(in_order):
            old, new = one.record, other.record
            require(
                (new.epoch, new.version) >= (old.epoch, old.version)
                and other.announced >= one.announced,
                "epochs, versions and announcements only grow",
            )
        if not is_newest:
            return
        old, new = before.record, after.record
        if new.recovered_epoch == new.epoch > old.epoch:
            self.losses += 1
            members = [
                self.nodes[one]
                for one in old.lost
                if (known_as := after.incarnation(BrokerId(one))) is not None
                and known_as.incarnation == self.nodes[one].incarnation
            ]
            self._recovered(self.nodes[new.leader], members)

    def _check_rights(self) -> None:
        """Whoever has the right to lead is the one that was decided on last, and no other one can
        be decided on."""
        holders = [one.leads for one in self.hosts.values() if one.has_right()]
        require(len(holders) < 2, "two leaders have the right to lead")
        for leads in holders:
            assert leads is not None
            require(
                self.agreed.announced <= leads.epoch,
                "a leader has the right to lead while an epoch after its own is announced",
            )

    # --- in order --------------------------------------------------------------------------

    def settle(self, seconds: float) -> None:
        """Let time pass in which everything works, except for brokers that are down or cut off."""
        until = self.now + seconds
        while self.now < until:
            for host in self.hosts.values():
                if host.partition is not None:
                    self.pulse(host.broker)
            self.flow()
            self.open_streams()
            self.pass_time(0.05)

    def open_streams(self) -> None:
        """Followers without a stream open one."""
        for node in self.nodes.values():
            if node.wants_stream or not self._has_stream(node):
                node.wants_stream = False
                self.follow(node)

    def flow(self, *, steps: int = 5000) -> None:
        """Deliver everything in order, and let replicas follow, until nothing is on its way."""
        for _ in range(steps):
            for broker in self.hosts:
                self.sync(broker)
            self.replicate()
            if not self.network:
                return
            while self.network:
                self.deliver(0)
        raise AssertionError("messages never end")

    def replicate(self) -> None:
        """Devices are quick, and leaders send their followers what they lack."""
        for node in self.nodes.values():
            self._replicate(node)

    def _replicate(self, node: Node) -> None:
        if node.replica is None:
            return
        for topic in sorted(node.wants_flush):
            node.perform(node.flush(topic))
        leader = node.replica.leader
        if leader is None:
            return
        for broker in list(leader.sessions):
            for topic in self.topics:
                session = leader.sessions.get(broker)
                if session is None or (broker, *session.number, topic) not in node.cursors:
                    continue
                key = (broker, *session.number, topic)
                end = len(node.logs[topic].rows)
                mark = leader.logs[topic].log.highwater
                if node.cursors[key] < end or self._told.get((node.broker, key)) != mark:
                    self._told[node.broker, key] = mark
                    node.stream(broker, topic, 3)

    @property
    def _told(self) -> dict[Any, int]:
        if not hasattr(self, "_told_marks"):
            self._told_marks: dict[Any, int] = defaultdict(lambda: -1)
        return self._told_marks

    def produced(self) -> bool:
        """Whether the leader takes a message, and it is committed."""
        host, topic = self.leader(), self.topics[0]
        if host is None or host.node is None:
            return False
        before = len(self.acknowledged[topic])
        number = sum(producer == 0 for _, (producer, _) in host.node.logs[topic].rows)
        host.node.perform(host.node.produce(topic, (0, number)))
        self.settle(0.2)
        return len(self.acknowledged[topic]) > before

    def leader(self) -> Host | None:
        """The broker that leads as it was decided last."""
        record = self.decided
        host = self.hosts[record.leader]
        leads = host.leads
        return host if leads is not None and leads.epoch == record.epoch else None
