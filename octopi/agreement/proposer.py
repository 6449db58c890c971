"""The proposer of an instance: it changes the agreed value by compare and set.

It does no I/O: calls are events with the time at which they happen, and results are lists of
effects in order.  A change goes through these states.

=============  ==========================================  ====================================
state          event                                       next
=============  ==========================================  ====================================
waiting        its turn, and the next ballot is promised   proposing
waiting        its turn                                    preparing
preparing      a quorum promised                           proposing what the newest value needs
proposing      a quorum accepted the change                told and concluded; the next in line
proposing      a quorum accepted another proposal          told; proposing again
any of these   a refusal, or no quorum in time             waiting, for a random time
any of these   its deadline                                concluded, in doubt
=============  ==========================================  ====================================

Each proposal asks for the promise of the proposer's next ballot, too, so the next change of the
same proposer needs one round trip.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import attrs

from octopi.agreement.proposals import (
    Change,
    Promise,
    Proposal,
    confirm,
    may_be_followed,
    newest,
    proposal,
)
from octopi.identifiers import BrokerId, Incarnation, InstanceId
from octopi.limits import (
    AGREEMENT_ATTEMPT_S,
    AGREEMENT_TIMEOUT_S,
    REFUSED_BALLOT_WAIT_S,
    REFUSED_BALLOT_WAIT_S_MAX,
)
from octopi.wire.agreement import (
    AcceptorDeparted,
    AcceptorId,
    AcceptValue,
    AgreedValue,
    Ballot,
    BallotPromised,
    BallotRefused,
    PrepareBallot,
    ToProposer,
    ValueAccepted,
    ValueChosen,
)


@attrs.frozen
class ChangeMade:
    """The change was made: its result was chosen."""

    value: AgreedValue


@attrs.frozen
class ChangeNotMade:
    """The change did not apply to *value*, which was chosen after every attempt at the change: it
    was made before, and *value* follows from it, or it never will be."""

    why: str
    value: AgreedValue


@attrs.frozen
class ChangeInDoubt:
    """No majority answered in time.  The change may have been made, or may still be: the one
    that asked for it counts both, and asks again."""


ChangeOutcome: TypeAlias = ChangeMade | ChangeNotMade | ChangeInDoubt


@attrs.frozen
class SendToAcceptor:
    """Send *message*; it may be lost."""

    acceptor: AcceptorId
    message: PrepareBallot | AcceptValue


@attrs.frozen
class TellChosen:
    """Tell *acceptors*, and all who use the value, what was chosen."""

    acceptors: frozenset[AcceptorId]
    message: ValueChosen


@attrs.frozen
class ConcludeChange:
    """The outcome of a change, with the number under which it was asked for."""

    number: int
    outcome: ChangeOutcome


ProposerEffect: TypeAlias = SendToAcceptor | TellChosen | ConcludeChange


@attrs.frozen
class _Asked:
    number: int
    change: Change
    deadline: float


@attrs.define
class _Preparing:
    ballot: Ballot
    until: float
    asked: set[AcceptorId] = attrs.field(factory=set)
    promises: dict[AcceptorId, Promise] = attrs.field(factory=dict)

    @property
    def acceptors(self) -> set[AcceptorId]:
        """Those that are asked."""
        return self.asked


@attrs.define
class _Proposing:
    ballot: Ballot
    successor: Ballot
    until: float
    proposal: Proposal
    read: AgreedValue
    asked: _Asked | None
    """The change that is being made; None: only what is under way is completed."""
    accepted: set[AcceptorId] = attrs.field(factory=set)
    promised: set[AcceptorId] = attrs.field(factory=set)
    """Those that have promised the successor, and nothing higher."""

    @property
    def acceptors(self) -> frozenset[AcceptorId]:
        """Those that are asked."""
        return self.proposal.value.members


class Proposer:
    """Changes the value of one instance, one change after the other.

    Invariant: a ballot that it proposes in was promised by a quorum of the value that it read, and
    it proposes in no ballot twice.
    """

    def __init__(
        self,
        instance: InstanceId,
        broker: BrokerId,
        incarnation: Incarnation,
        known: AgreedValue,
        draw: Callable[[], float],
    ) -> None:
        """*known*: a value that is chosen, such as the first one; only the acceptors in it are
        asked at first.  *draw* gives random numbers from 0 to 1."""
        self.known = known
        """The newest value that is known to be chosen."""
        self._instance = instance
        self._broker = broker
        self._incarnation = incarnation
        self._draw = draw
        self._round = 0
        """The highest round that was used or heard of."""
        self._line: deque[_Asked] = deque()
        self._attempt: _Preparing | _Proposing | None = None
        self._promised: Ballot | None = None
        """A ballot of its own, not used yet, that a quorum promised when it accepted `known`."""
        self._completes = False
        """Whether it proposed the joint value that was chosen last, so it completes the change of
        acceptors.  Otherwise the proposer of the next change does."""
        self._failures = 0
        self._waits_until = 0.0
        self._hints: frozenset[AcceptorId] = frozenset()
        """Acceptors that may know a newer value than `known`."""

    @property
    def wakes_at(self) -> float | None:
        """When `tick` has something to do; None: never without another event."""
        times = [one.deadline for one in self._line]
        if self._attempt is not None:
            times.append(self._attempt.until)
        elif self._has_work:
            times.append(self._waits_until)
        return min(times, default=None)

    @property
    def _has_work(self) -> bool:
        return bool(self._line) or (self._completes and self.known.is_joint)

    def ask(self, number: int, change: Change, now: float) -> list[ProposerEffect]:
        """Ask for *change*; its outcome has the *number*."""
        self._line.append(_Asked(number, change, now + AGREEMENT_TIMEOUT_S))
        return self._go_on(now)

    def tick(self, now: float) -> list[ProposerEffect]:
        """Time has passed."""
        effects: list[ProposerEffect] = []
        while self._line and self._line[0].deadline <= now:
            # What is proposed for it may be chosen nevertheless, or never.
            self._attempt = None
            effects.append(ConcludeChange(self._line.popleft().number, ChangeInDoubt()))
        if self._attempt is not None and self._attempt.until <= now:
            effects += self._fail(now)
        return effects + self._go_on(now)

    def chosen(self, message: ValueChosen, now: float) -> list[ProposerEffect]:
        """Another proposer told what was chosen."""
        self._learn(message.value)
        self._round = max(self._round, message.ballot.round)
        return self._go_on(now)

    def receive(self, message: ToProposer, now: float) -> list[ProposerEffect]:
        """Handle the answer of an acceptor."""
        attempt = self._attempt
        if isinstance(message, BallotRefused):
            self._round = max(self._round, message.promised.round)
        if attempt is None or message.ballot != attempt.ballot:
            return []
        if message.acceptor not in attempt.acceptors:
            return []  # another one, at the address of one that was asked and is gone
        match attempt, message:
            case _Preparing(), BallotPromised():
                attempt.promises[message.acceptor] = (message.accepted, message.value)
                return self._prepared(attempt, now)
            case _Proposing(), ValueAccepted():
                attempt.accepted.add(message.acceptor)
                if message.promised == attempt.successor:
                    attempt.promised.add(message.acceptor)
                return self._accepted(attempt, now)
            case _Preparing(), AcceptorDeparted():
                self._hints |= set(message.successors)
                return self._prepare_more(attempt, self._hints)
            case _Proposing(), AcceptorDeparted():
                self._hints |= set(message.successors)
                return self._fail(now)
            case _, BallotRefused() if not self._is_own(message.promised):
                return self._fail(now)
        return []  # it came twice, or late

    def _go_on(self, now: float) -> list[ProposerEffect]:
        """Begin the next attempt, if there is work and none is under way."""
        if self._attempt is not None or not self._has_work or now < self._waits_until:
            return []
        ballot, self._promised = self._promised, None
        if ballot is not None:
            return self._propose(ballot, self.known, now)
        attempt = _Preparing(self._next_ballot(), now + AGREEMENT_ATTEMPT_S)
        self._attempt = attempt
        return self._prepare_more(attempt, self.known.members | self._hints)

    def _prepare_more(
        self, attempt: _Preparing, acceptors: frozenset[AcceptorId]
    ) -> list[ProposerEffect]:
        """Ask those of *acceptors* that were not asked in this attempt."""
        message = PrepareBallot(self._instance, attempt.ballot)
        more = sorted(set(acceptors) - attempt.asked)
        attempt.asked.update(more)
        return [SendToAcceptor(one, message) for one in more]

    def _prepared(self, attempt: _Preparing, now: float) -> list[ProposerEffect]:
        read = newest(attempt.promises)
        if read is None:
            return []
        if may_be_followed(read, attempt.promises):
            return self._propose(attempt.ballot, read, now)
        return self._prepare_more(attempt, read.members)

    def _propose(self, ballot: Ballot, read: AgreedValue, now: float) -> list[ProposerEffect]:
        asked = self._line[0] if self._line else None
        what = proposal(read, self.known, asked.change if asked else confirm)
        successor = self._next_ballot()
        self._attempt = _Proposing(ballot, successor, now + AGREEMENT_ATTEMPT_S, what, read, asked)
        message = AcceptValue(self._instance, ballot, what.value, successor)
        return [SendToAcceptor(one, message) for one in sorted(what.value.members)]

    def _accepted(self, attempt: _Proposing, now: float) -> list[ProposerEffect]:
        what, value = attempt.proposal, attempt.proposal.value
        if not value.is_quorum(attempt.accepted):
            return []
        self._attempt = None
        self._failures = 0
        self._learn(value)
        self._completes = value.is_joint
        if value == self.known and value.is_quorum(attempt.promised):
            self._promised = attempt.successor
        told = ValueChosen(self._instance, attempt.ballot, value)
        # Those that are no acceptors any more leave when they hear of it.
        effects: list[ProposerEffect] = [TellChosen(value.members | attempt.read.members, told)]
        if what.asked and attempt.asked is not None:
            self._line.popleft()
            no_change = what.no_change
            outcome = ChangeNotMade(no_change.why, value) if no_change else ChangeMade(value)
            effects.append(ConcludeChange(attempt.asked.number, outcome))
        return effects + self._go_on(now)

    def _learn(self, value: AgreedValue) -> None:
        """*value* is chosen."""
        if value.change > self.known.change:
            self.known = value
            self._promised = None
            self._hints = frozenset()

    def _is_own(self, ballot: Ballot) -> bool:
        return (ballot.broker, ballot.incarnation) == (self._broker, self._incarnation)

    def _fail(self, now: float) -> list[ProposerEffect]:
        """The attempt failed.  Rivals wait for different times, so that one of them succeeds."""
        self._attempt = None
        self._failures += 1
        longest_s = min(REFUSED_BALLOT_WAIT_S_MAX, REFUSED_BALLOT_WAIT_S * self._failures)
        self._waits_until = now + self._draw() * longest_s
        return self._go_on(now)

    def _next_ballot(self) -> Ballot:
        self._round += 1
        return Ballot(self._round, self._broker, self._incarnation)

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        attempt = self._attempt
        if isinstance(attempt, _Proposing):
            assert attempt.proposal.value.follows(attempt.read)
            assert self._promised is None
            assert attempt.asked in {None, *self._line}
        assert self._promised is None or self._promised.round <= self._round
