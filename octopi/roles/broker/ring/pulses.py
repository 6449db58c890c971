"""Who is there, and which rights to lead this broker has: the pulses between the brokers that
decide about partitions together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from math import inf

from octopi.agreement.heard import HeardBrokers
from octopi.coordination.agreed_partition import RegisteredIncarnation
from octopi.environment import Clock
from octopi.errors import ConnectionLostError, Status
from octopi.identifiers import BrokerId, Epoch, Incarnation, PartitionId
from octopi.limits import PULSE_STATUS_S, VALUES_TOLD_MAX
from octopi.logger import get_logger
from octopi.replication.effects import Refusal
from octopi.ring.election_turns import SeenBrokers
from octopi.ring.first_partition import instance_of
from octopi.ring.lease_grants import LeaseHolder, granted
from octopi.ring.partition import RingPartition
from octopi.ring.told_health import ToldHealth
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.held_leases import HeldLeases
from octopi.roles.broker.ring.own_acceptor import OwnAcceptor
from octopi.roles.broker.ring.routes import RingRoutes
from octopi.roles.broker.status_report import status_of
from octopi.wire import messages as m
from octopi.wire.membership import BrokerStatus

_log = get_logger(__name__)


class RingPulses:
    """The pulses of one broker, in both directions."""

    def __init__(
        self,
        clock: Clock,
        me: RegisteredIncarnation,
        machines: Mapping[PartitionId, RingPartition],
        replicas: ReplicaManager,
        acceptor: OwnAcceptor,
        routes: RingRoutes,
    ) -> None:
        """*machines*: those of all partitions; the caller adds more later."""
        assert acceptor.identity is not None, "a broker with an id has an acceptor"
        self._identity = acceptor.identity
        self._clock = clock
        self._me = me
        self._machines = machines
        self._replicas = replicas
        self._acceptor = acceptor
        self._routes = routes
        self._heard = HeardBrokers(clock.now())
        self._leases = HeldLeases()
        self.unwilling: frozenset[BrokerId] = frozenset()
        """The brokers that are to lead only what no other broker can lead."""
        self._health = ToldHealth()
        self._status = BrokerStatus("", None, None, [])
        """What this broker told last."""
        self._status_at = -inf
        self._lost: Counter[BrokerId] = Counter()
        """How many pulses in a row found no process."""

    # --- who is there ------------------------------------------------------------------------

    @property
    def others(self) -> frozenset[BrokerId]:
        """The other brokers that are there."""
        return self._heard.live(self._clock.now())

    @property
    def live(self) -> frozenset[BrokerId]:
        """The brokers that are there, this one among them."""
        return self.others | {self._me.broker}

    def is_suspected(self, broker: BrokerId, incarnation: Incarnation) -> bool:
        """Whether that process is taken for dead."""
        if broker == self._me.broker:
            return incarnation < self._me.incarnation
        return self._heard.is_suspected(broker, incarnation, self._clock.now())

    def is_there(self, broker: BrokerId) -> bool:
        """Whether a broker is there: by its pulses, or, if none ever came, by the address book."""
        return broker in self.live or not (
            self._heard.knows(broker) or self._routes.is_silent(broker)
        )

    def seen(self) -> SeenBrokers:
        """What this broker sees of the others now."""
        leaders = Counter(one.agreed.record.leader for one in self._machines.values())
        return SeenBrokers(
            self.live, self.is_suspected, leaders, self.unwilling, self.takes_records
        )

    # --- disks and replicas --------------------------------------------------------------------

    def status(self, broker: BrokerId) -> BrokerStatus | None:
        """What a broker that is there told of its disk; None: nothing is known."""
        return self._health.status(broker) if self.is_there(broker) else None

    def trouble(self, broker: BrokerId, partition: PartitionId) -> str:
        """Why the replica of a broker that is there takes no records; empty: no reason is known."""
        return self._health.trouble(broker, partition) if self.is_there(broker) else ""

    def takes_records(self, broker: BrokerId, partition: PartitionId) -> bool:
        """Whether a broker's replica takes records, as far as it is known here."""
        return not self._health.trouble(broker, partition)

    def is_troubled(self, broker: BrokerId) -> bool:
        """Whether any replica of a broker takes no records."""
        return self._health.is_troubled(broker)

    def _news(self, now: float) -> BrokerStatus | None:
        """What to tell of this broker's disk and replicas now; None: nothing."""
        health, replicas = self._replicas.status, self._replicas.replicas
        status = status_of(health.disk.trouble, health.disk.room(), health.troubles(replicas))
        self._health.told(self._me.broker, self._me.incarnation, status)
        before, self._status = self._status, status
        is_same = (status.disk_trouble, status.replicas) == (before.disk_trouble, before.replicas)
        if is_same and now < self._status_at + PULSE_STATUS_S:
            return None
        self._status_at = now
        return status

    # --- sending and answering ---------------------------------------------------------------

    def heard(self, message: m.Pulse) -> m.PulseHeard:
        """Another broker is there, and leads some partitions; return the answer."""
        self._heard.hear(message.broker, message.incarnation, self._clock.now())
        if message.status is not None:
            self._health.told(message.broker, message.incarnation, message.status)
        grants = []
        for one in message.leads:
            machine = self._machines.get(one.partition)
            leads = LeaseHolder(message.broker, message.incarnation, one.epoch)
            if machine is not None and self._grants(machine) == leads:
                grants.append(one.partition)
        return m.PulseHeard(message.request, self._identity, self._me.incarnation, tuple(grants))

    def _grants(self, machine: RingPartition) -> LeaseHolder | None:
        instance = instance_of(machine.partition)
        try:
            return granted(self._acceptor.accepted(instance), machine.value)
        except ValueError as error:  # no broker of ours proposes such a value
            _log.sparing(self._clock).error(
                "what is said about a partition can't be read", value=instance, why=str(error)
            )
            return None

    def send(self) -> None:
        """Tell all brokers with which this one decides about something that it is there."""
        me, now = self._me, self._clock.now()
        peers: set[BrokerId] = set()
        for machine in self._machines.values():
            if me.broker in machine.brokers:
                peers |= machine.brokers
        news = self._news(now)
        led = [(machine, m.LedEpoch(machine.partition, epoch)) for machine, epoch in self._led()]
        for broker in sorted(peers | {me.broker}):
            leads = [
                one
                for machine, one in led
                if any(member.broker == broker for member in machine.value.members)
            ]
            pulse = m.Pulse(1, me.broker, me.incarnation, tuple(leads[:VALUES_TOLD_MAX]), news)
            if broker == me.broker:
                self._leases.granted(pulse, self.heard(pulse), now)
            else:
                self._routes.ask(broker, pulse, partial(self._answered, broker, pulse, now))

    def _answered(self, broker: BrokerId, pulse: m.Pulse, sent_at: float, answer: object) -> None:
        match answer:
            case m.PulseHeard():
                self._lost[broker] = 0
                now = self._clock.now()
                self._heard.hear(answer.acceptor.broker, answer.incarnation, now)
                self._leases.granted(pulse, answer, sent_at)
            case ConnectionLostError():
                self._lost[broker] += 1
                if self._lost[broker] > 1:
                    # The connection broke, and a new one was refused.
                    self._heard.hear_end(broker)

    # --- rights ------------------------------------------------------------------------------

    def _led(self) -> Iterator[tuple[RingPartition, Epoch]]:
        """The partitions that this broker's replicas lead, and in which epoch."""
        for machine in self._machines.values():
            replica = self._replicas.replica(machine.partition)
            if replica is not None and replica.machine.leader is not None:
                yield machine, replica.machine.leader.epoch

    def led(self) -> list[tuple[PartitionId, bool]]:
        """The partitions that this broker leads, and whether it has the right to lead each now."""
        now, may_act = self._clock.now(), self._leases.may_act
        return [(one.partition, may_act(one, epoch, now)) for one, epoch in self._led()]

    def next_end(self) -> float:
        """When the next right of this broker ends, by its clock, if nobody grants it anew; inf: it
        has none."""
        ends = [self._leases.acts_until(machine, epoch) for machine, epoch in self._led()]
        now = self._clock.now()
        return min((one for one in ends if one > now), default=inf)

    def fence(self, machine: RingPartition, leads: Epoch | None) -> Refusal | None:
        """Why this broker may not serve clients in a partition, in which it *leads* in that epoch,
        or follows (None); None: it may.

        A leader needs the right to lead.  A follower has to hear a majority of the acceptors: on
        the other side of a split, another leader may commit what this one never hears of.
        """
        partition = machine.partition
        if leads is not None:
            if self._leases.may_act(machine, leads, self._clock.now()):
                return None
            return Refusal(
                Status.NO_QUORUM,
                f"this broker leads partition {partition}, and no majority of those that decide "
                "about it grants it the right to: another broker may lead by now",
            )
        live = self.live
        if machine.value.is_quorum([one for one in machine.value.members if one.broker in live]):
            return None
        return Refusal(
            Status.NO_QUORUM,
            f"this broker follows in partition {partition}, and hears no majority of those that "
            "decide about it: it may be cut off",
        )
