"""One broker's part in deciding about one partition, in a cluster without a register.

The acceptors of the partition agree on its record (`octopi.agreement`,
`octopi.coordination.agreed_partition`).  Any broker of its replica group proposes changes, so each
has a machine of this class.  It does no I/O: calls are events with the time at which they happen,
and results are lists of effects in order.

====================================  ==============================================================
event                                 what happens
====================================  ==============================================================
the broker was restarted              it proposes to be registered (`check_in`); its replica does
                                      nothing before
the replica leads, and asks for       the change is proposed.  What the replica is answered follows
another in-sync set                   from a chosen value (`judge_in_sync`); without one, it asks on
the leader is suspected, restarted    when its turn comes, this broker announces an epoch.  When
or registered anew, nobody is in      replicas have accepted it, the broker proposes the decision
sync, or an epoch was announced and
not decided
this broker leads, and another one    it has the newest value repeated (`ElectionTurns.is_kept_out`)
is there and not registered
the leader can't lead any more        it announces an epoch itself
a value was chosen                    the replica acts on its record
====================================  ==============================================================

The turns: in-sync replicas come first, then the other brokers of the group, by their ids.  A broker
that hears of another one's announcement waits for its decision.  Two that announce at once hold the
election of one epoch, each for itself, and the first decision counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from math import inf

import attrs

from octopi.agreement.lease import Lease
from octopi.agreement.proposals import Change, confirm, move_acceptors
from octopi.agreement.proposer import (
    ChangeInDoubt,
    ChangeMade,
    ChangeNotMade,
    ChangeOutcome,
    ConcludeChange,
    Proposer,
    ProposerEffect,
    SendToAcceptor,
    TellChosen,
)
from octopi.coordination.agreed_partition import (
    AgreedPartition,
    RegisteredIncarnation,
    decode_partition,
)
from octopi.coordination.election import NO_GOAL, ElectionGoal
from octopi.coordination.partition_changes import (
    InSyncVerdict,
    PartitionChange,
    alter_in_sync,
    announce_after,
    check_in,
    host,
    judge_in_sync,
    of_partition,
)
from octopi.identifiers import NO_EPOCH, BrokerId, Epoch, InstanceId, PartitionId
from octopi.ring.election_turns import ElectionTurns, SeenBrokers
from octopi.ring.partition_effects import (
    AnnounceTo,
    AnswerLeader,
    DecidedEffect,
    ElectionBegun,
    InstallDecision,
    ReplicaAdmitted,
    ReplicaRefused,
    TellValue,
)
from octopi.ring.partition_election import OwnElection
from octopi.ring.partition_requests import (
    Announcement,
    AskedChange,
    CheckIn,
    ElectionDecision,
    EndingStep,
    LeastInSync,
    OtherAcceptors,
    ReadValue,
)
from octopi.wire.agreement import (
    AcceptorId,
    AcceptValue,
    AgreedValue,
    BallotPromised,
    ToProposer,
    ValueChosen,
)
from octopi.wire.messages import AcceptEpoch, AlterInSync, AnnounceEpoch, InSyncAltered, Resign


@attrs.frozen
class OwnReplica:
    """What this broker's replica had when its process started."""

    ancestors: tuple[str, ...] = ()
    """The nonces of earlier incarnations of this data directory, of which one may be registered."""
    promised: Epoch = NO_EPOCH
    """The highest epoch that the replica has accepted."""
    is_intact: bool = True
    """Whether it has all that it ever acknowledged."""


class RingPartition:
    """What one broker knows and proposes about one partition.

    Invariant: `agreed` is the content of `value`, the newest value known to be chosen here, and
    `brokers` are those of both.
    """

    def __init__(
        self,
        partition: PartitionId,
        instance: InstanceId,
        me: RegisteredIncarnation,
        known: AgreedValue,
        draw: Callable[[], float],
        own: OwnReplica = OwnReplica(),
    ) -> None:
        """*known*: a value that is chosen, such as the first one.  *draw* gives random numbers from
        0 to 1.

        Raises:
          ValueError: if *known* is about no partition.
        """
        self.partition = partition
        self.me = me
        self.value = known
        self.agreed: AgreedPartition = decode_partition(known.content)
        self.brokers = _group(self.value, self.agreed)
        """The brokers of the replica group: replicas and acceptors."""
        self.chosen: ValueChosen | None = None
        """The message that told `value`; None: it is the first one."""
        self.is_registered = self.agreed.incarnation(me.broker) == me
        self._instance = instance
        self._own = own
        self._turns = ElectionTurns(me.broker, draw)
        self._proposer = Proposer(instance, me.broker, me.incarnation, known, draw)
        self._asked: dict[int, AskedChange] = {}
        self._numbers = 0
        self._election: OwnElection | None = None
        self._is_refused = False
        self.given_up = NO_EPOCH
        """The newest epoch in which this broker led and proposed a value that announces another
        one: whatever its acceptors granted it, it has no right to lead in that epoch any more."""
        self._reads_ended = 0
        """How often the newest value was found out."""
        self._proposed: AgreedValue | None = None
        """The value that it proposed last."""

    # --- events ------------------------------------------------------------------------------

    def learn(self, message: ValueChosen, now: float) -> list[DecidedEffect]:
        """Another broker told what was chosen.

        Raises:
          ValueError: if it is about no partition; nothing was done.
        """
        decode_partition(message.value.content)
        return self._perform(self._proposer.chosen(message, now), now, message)

    def receive(self, message: ToProposer, now: float) -> list[DecidedEffect]:
        """An acceptor answers.

        Raises:
          ValueError: if it knows a value that is about no partition; nothing was done.
        """
        if isinstance(message, BallotPromised) and message.value is not None:
            decode_partition(message.value.content)
        return self._perform(self._proposer.receive(message, now), now)

    def propose(self, request: AlterInSync, now: float) -> list[DecidedEffect]:
        """This broker's replica asks for another in-sync set; it repeats that until it is
        answered."""
        if request in self._asked.values():
            return []
        return self._change(request, alter_in_sync(request), now)

    def accepted(self, message: AcceptEpoch, now: float, seen: SeenBrokers) -> list[DecidedEffect]:
        """A replica has accepted an epoch that this broker announced."""
        election = self._election
        if election is None:
            return []
        election.accept(message)
        return self._decide(election, now, seen)

    def resign(self, message: Resign, now: float) -> list[DecidedEffect]:
        """This broker's replica can't lead any longer: another one shall, if there is one."""
        record = self.agreed.record
        if self._election is not None or (message.leader, message.epoch) != (
            record.leader,
            record.epoch,
        ):
            return []
        goal = ElectionGoal(avoid=frozenset({self.me.broker}))
        return self._begin(OwnElection(goal), now)

    def hold(self, goal: ElectionGoal, now: float) -> list[DecidedEffect]:
        """Hold an election with that *goal*, unless one is held: its result, if it is decided,
        comes as close to the goal as the record allows."""
        return [] if self._election is not None else self._begin(OwnElection(goal), now)

    def inquire(self, now: float) -> list[DecidedEffect]:
        """Find out what replicas have, by an election that is not decided (`inquiry`), unless one
        is held.  It does harm only to a leader that there is."""
        if self._election is not None:
            return []
        return self._begin(OwnElection(NO_GOAL, is_inquiry=True), now)

    @property
    def inquiry(self) -> OwnElection | None:
        """What replicas have said in an inquiry; None: none is under way any more."""
        election = self._election
        return election if election is not None and election.is_inquiry else None

    def accept_loss(self, now: float, seen: SeenBrokers) -> list[DecidedEffect]:
        """Have the best of the replicas that have accepted in an inquiry lead, whatever it
        lacks."""
        inquiry = self.inquiry
        change = None if inquiry is None else inquiry.ordered(seen.live, seen.leaderships)
        if inquiry is None or change is None:
            return []
        inquiry.is_deciding = True
        return self._change(ElectionDecision(inquiry), change, now)

    def move(self, acceptors: Collection[AcceptorId], now: float) -> list[DecidedEffect]:
        """Have *acceptors* be those of the partition."""
        group = tuple(sorted(acceptors))
        if any(isinstance(one, OtherAcceptors) for one in self._asked.values()):
            return []
        return self._ask(OtherAcceptors(group), move_acceptors(group), now)

    def require(self, min_insync: int, now: float) -> list[DecidedEffect]:
        """The least number of in-sync replicas that a topic here asks for."""
        if self.agreed.min_insync == min_insync or LeastInSync() in self._asked.values():
            return []
        return self._change(LeastInSync(), host(min_insync), now)

    def end(self, step: EndingStep, now: float) -> list[DecidedEffect]:
        """Take a step in handing the cluster over to registers."""
        return [] if step in self._asked.values() else self._change(step, step.change, now)

    def read(self, now: float) -> list[DecidedEffect]:
        """Find out the newest value."""
        return [] if ReadValue() in self._asked.values() else self._ask(ReadValue(), confirm, now)

    def pursue(self, now: float) -> list[DecidedEffect]:
        """Time has passed, and this broker is not in the group: it only goes on with what it asked
        for."""
        effects = self._perform(self._proposer.tick(now), now) if self._asked else []
        return effects + self._hold_on(now)

    def tick(self, now: float, seen: SeenBrokers) -> list[DecidedEffect]:
        """Time has passed, or what is seen of the others has changed."""
        effects = self._perform(self._proposer.tick(now), now)
        effects += self._keep_registered(now)
        if self.leads and self._turns.is_kept_out(self.agreed, now, seen):
            effects += self.read(now)
        election = self._election
        if election is None:
            if self._is_my_turn(now, seen):
                goal = ElectionGoal(avoid=seen.unwilling)
                return effects + self._begin(OwnElection(goal), now)
            in_doubt = self._turns.is_in_doubt(self.agreed, now, seen)
            return effects + (self.read(now) if in_doubt else [])
        effects += self._decide(election, now, seen)
        return effects + self._hold_on(now)

    def _hold_on(self, now: float) -> list[DecidedEffect]:
        """Go on with the election, if there is one."""
        election = self._election
        if election is None:
            return []
        effects = self._announcement(election) if election.is_to_be_announced(now) else []
        if election.has_failed(now):
            self._end_election(now)
        return effects

    # --- what is known -----------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether this incarnation of the broker leads, as far as it is known here."""
        record = self.agreed.record
        me = self.me
        return (record.leader, record.leader_incarnation) == (me.broker, me.incarnation)

    def may_act(self, lease: Lease, epoch: Epoch, now: float) -> bool:
        """Whether this broker, which leads in *epoch*, has the right to act as the leader, by what
        it was granted for that epoch."""
        return now < self.acts_until(lease, epoch)

    def acts_until(self, lease: Lease, epoch: Epoch) -> float:
        """Until when it has that right; -inf: it has none.

        What it proposed itself may be chosen without it, so acceptors in that value have to grant
        the right as well.
        """
        if epoch <= self.given_up:
            return -inf
        values = [self.value]
        if self._proposed is not None and self._proposed.change > self.value.change:
            values.append(self._proposed)
        return min(lease.until(one) for one in values)

    @property
    def next_read(self) -> int:
        """The number of the first read (`read`) that begins from now on."""
        return self._reads_ended + 1 + (ReadValue() in self._asked.values())

    def has_read(self, number: int) -> bool:
        """Whether the read with that *number* has ended: `value` is as new as when it began."""
        return self._reads_ended >= number

    @property
    def _is_witness(self) -> bool:
        """Whether this broker has no replica, as far as it is known here."""
        return self.me.broker not in self.agreed.record.replicas

    # --- proposing ---------------------------------------------------------------------------

    def _change(
        self, asked: AskedChange, change: PartitionChange, now: float
    ) -> list[DecidedEffect]:
        return self._ask(asked, of_partition(change), now)

    def _ask(self, asked: AskedChange, change: Change, now: float) -> list[DecidedEffect]:
        self._numbers += 1
        self._asked[self._numbers] = asked
        return self._perform(self._proposer.ask(self._numbers, change, now), now)

    def _perform(
        self, effects: list[ProposerEffect], now: float, told: ValueChosen | None = None
    ) -> list[DecidedEffect]:
        performed = self._learned(told, now)
        for effect in effects:
            match effect:
                case TellChosen(acceptors, message):
                    before = self.agreed.record.replicas
                    performed += self._learned(message, now)
                    brokers = {one.broker for one in acceptors}.union(before)
                    performed.append(TellValue(frozenset(brokers | self.brokers), message))
                case ConcludeChange(number, outcome):
                    performed += self._concluded(self._asked.pop(number), outcome, now)
                case SendToAcceptor(_, message):
                    if isinstance(message, AcceptValue):
                        self._note_proposed(message.value)
                    performed.append(effect)
        return performed

    def _note_proposed(self, value: AgreedValue) -> None:
        """This broker proposes *value*, which may be one that it read and that others proposed."""
        self._proposed = value
        record = self.agreed.record
        if self.leads and decode_partition(value.content).announced > record.epoch:
            self.given_up = record.epoch

    def _learned(self, message: ValueChosen | None, now: float) -> list[DecidedEffect]:
        """*message* was chosen: act on it, if it is news."""
        if message is None or message.value.change <= self.value.change:
            return []
        before = self.agreed
        self.value, self.chosen = message.value, message
        self.agreed = decode_partition(message.value.content)
        self.brokers = _group(self.value, self.agreed)
        effects: list[DecidedEffect] = []
        if not self.is_registered and self.agreed.incarnation(self.me.broker) == self.me:
            self.is_registered = True
            effects.append(ReplicaAdmitted())
        if self.agreed.record != before.record:
            effects.append(InstallDecision(self.agreed.record))
        if self.agreed.announced > before.announced:
            # Somebody holds an election.  If it is not this broker, the other one needs time.
            self._turns.wait(now)
        if self._election is not None and self._election.is_over(self.agreed):
            self._election = None
        return effects

    def _concluded(
        self, asked: AskedChange, outcome: ChangeOutcome, now: float
    ) -> list[DecidedEffect]:
        match asked, outcome:
            case AlterInSync(), ChangeMade(value):
                record = decode_partition(value.content).record
                return [AnswerLeader(InSyncAltered(asked, True, record))]
            case AlterInSync(), ChangeNotMade(_, value):
                record = decode_partition(value.content).record
                if judge_in_sync(asked, record) is InSyncVerdict.UNKNOWN:
                    # The leader counts both sets, until it steps down because of this record.
                    return [InstallDecision(record)]
                return [AnswerLeader(InSyncAltered(asked, False, record))]
            case CheckIn(), ChangeNotMade(why, value):
                agreed = decode_partition(value.content)
                known = agreed.incarnation(self.me.broker)
                if known != self.me and not agreed.is_closed:
                    self._is_refused = True
                    return [ReplicaRefused(why)]
            case Announcement(election), ChangeMade(value) | ChangeNotMade(_, value):
                # If it was not made, another broker has announced an epoch, or this one did in an
                # attempt that it took for failed.  Any broker may hold the election of an epoch: it
                # is decided once.
                agreed = decode_partition(value.content)
                effects: list[DecidedEffect] = []
                if isinstance(outcome, ChangeMade):
                    effects.append(ElectionBegun(agreed.announced))
                if election is self._election:
                    effects += self._announced(election, agreed, now)
                return effects
            case ElectionDecision(election), ChangeMade(value):
                return [election.decided(decode_partition(value.content).record)]
            case ReadValue(), ChangeNotMade():
                self._reads_ended += 1
            case ((Announcement(election) | ElectionDecision(election)), _):
                if election is self._election:
                    self._end_election(now)
            case _, (ChangeMade() | ChangeNotMade() | ChangeInDoubt()):
                pass
        return []

    def _keep_registered(self, now: float) -> list[DecidedEffect]:
        """Have this broker be registered, if it has a replica, or an earlier incarnation is
        registered: its successors have to follow it, also when it gets a replica again."""
        if self.is_registered or self._is_refused or CheckIn() in self._asked.values():
            return []
        if self._is_witness and self.agreed.incarnation(self.me.broker) is None:
            return []
        own = self._own
        change = check_in(self.me, own.ancestors, own.promised, intact=own.is_intact)
        return self._change(CheckIn(), change, now)

    # --- elections ---------------------------------------------------------------------------

    def _is_my_turn(self, now: float, seen: SeenBrokers) -> bool:
        """Whether this broker is to hold an election now."""
        is_mine = self._turns.is_mine(self.agreed, self.brokers, now, seen)
        is_mine = is_mine and not self.agreed.is_closed
        return is_mine and (self.is_registered or self._is_witness)

    def _begin(self, election: OwnElection, now: float) -> list[DecidedEffect]:
        self._election = election
        change = announce_after(self.agreed.record.epoch, self.agreed.announced)
        return self._change(Announcement(election), change, now)

    def _announced(
        self, election: OwnElection, agreed: AgreedPartition, now: float
    ) -> list[DecidedEffect]:
        """The highest epoch that was announced is that of *agreed*."""
        if agreed.announced > agreed.record.epoch:
            election.announced(agreed.announced, now)
        if election.epoch is None or election.is_over(self.agreed):
            self._end_election(now)
            return []
        return self._announcement(election) if election.is_to_be_announced(now) else []

    def _announcement(self, election: OwnElection) -> list[DecidedEffect]:
        assert election.epoch is not None
        message = AnnounceEpoch(self.partition, election.epoch)
        return [AnnounceTo(tuple(self.agreed.record.replicas), message)]

    def _decide(self, election: OwnElection, now: float, seen: SeenBrokers) -> list[DecidedEffect]:
        """Propose the decision, if it is possible."""
        serves = partial(_serves, seen, self.partition)
        change = election.decision(self.agreed, seen.live, seen.leaderships, now, serves)
        if change is None:
            return []
        election.is_deciding = True
        return self._change(ElectionDecision(election), change, now)

    def _end_election(self, now: float) -> None:
        """It came to nothing: others have a chance to hold one first."""
        self._election = None
        self._turns.wait(now)

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self.agreed == decode_partition(self.value.content)
        assert self.brokers == _group(self.value, self.agreed)
        assert self._proposer.known.change == self.value.change
        if self._election is not None:
            assert not self._election.is_over(self.agreed)
        self._proposer.check_invariants()


def _serves(seen: SeenBrokers, partition: PartitionId, broker: BrokerId) -> bool:
    return seen.serves(broker, partition)


def _group(value: AgreedValue, agreed: AgreedPartition) -> frozenset[BrokerId]:
    return frozenset((*(one.broker for one in value.members), *agreed.record.replicas))
