"""How nodes that know only each other's addresses choose the first value of an instance.

Everything else about agreement needs acceptors that are known: broker and directory
(`octopi.wire.agreement.AcceptorId`).  Founders know a list of addresses, and which directory is at
an address they learn by asking.  A directory may also be lost between two answers.  So the first
value is chosen with two quorums of different size (H. Howard, D. Malkhi, A. Spiegelman, "Flexible
Paxos", 2016):

- a founder proposes a *first* value only when **all** founders have promised its ballot, and none
  of them has accepted anything.  The value names the acceptors that promised;
- the value is chosen once a **majority** of those acceptors has accepted it, as any value is.

Another founder that proposes a first value later needs the promises of all, too.  Unless a majority
has lost its disks, one of them has accepted the value and says so.  Then the founder proposes that
value again, if a quorum of the acceptors in it has promised; that is the rule for all values.

It does no I/O: calls are events with the time at which they happen, and results are lists of
effects in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

from octopi.agreement.proposals import may_be_followed, newest
from octopi.identifiers import BrokerId, Incarnation, InstanceId
from octopi.limits import (
    AGREEMENT_ATTEMPT_S,
    REFUSED_BALLOT_WAIT_S,
    REFUSED_BALLOT_WAIT_S_MAX,
)
from octopi.wire.agreement import (
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
class SendToFounder:
    """Send *message* to the founder at *address*; it may be lost."""

    address: str
    message: PrepareBallot | AcceptValue


@attrs.frozen
class FirstChosen:
    """A value is chosen: the first one, or one that follows from it."""

    message: ValueChosen


FoundingEffect: TypeAlias = SendToFounder | FirstChosen


@attrs.define
class _FoundingAttempt:
    ballot: Ballot
    until: float
    promises: dict[str, BallotPromised] = attrs.field(factory=dict)
    value: AgreedValue | None = None
    """What is proposed; None: not all that is needed has promised."""
    accepted: set[AcceptorId] = attrs.field(factory=set)


class Founding:
    """One founder's part in choosing the first value of an instance.

    Invariant: it proposes at most one value in a ballot.
    """

    def __init__(
        self,
        instance: InstanceId,
        addresses: tuple[str, ...],
        broker: BrokerId,
        incarnation: Incarnation,
        first: Callable[[Mapping[str, AcceptorId]], AgreedValue],
        draw: Callable[[], float],
        starts_at: float,
    ) -> None:
        """*addresses*: of all founders, this one among them.  *broker* and *incarnation*: of this
        one, for its ballots.  *first* makes the first value for the acceptors at the addresses.
        *starts_at*: founders that begin at different times don't compete."""
        self._instance = instance
        self._addresses = addresses
        self._broker = broker
        self._incarnation = incarnation
        self._first = first
        self._draw = draw
        self._round = 0
        self._failures = 0
        self._waits_until = starts_at
        self._attempt: _FoundingAttempt | None = None

    @property
    def wakes_at(self) -> float:
        """When `tick` has something to do."""
        return self._waits_until if self._attempt is None else self._attempt.until

    @property
    def missing(self) -> list[str]:
        """The founders that have not promised the present ballot."""
        promised = {} if self._attempt is None else self._attempt.promises
        return [one for one in self._addresses if one not in promised]

    def tick(self, now: float) -> list[FoundingEffect]:
        """Time has passed."""
        if self._attempt is not None and self._attempt.until <= now:
            self._fail(now)
        if self._attempt is not None or now < self._waits_until:
            return []
        self._round += 1
        ballot = Ballot(self._round, self._broker, self._incarnation)
        self._attempt = _FoundingAttempt(ballot, now + AGREEMENT_ATTEMPT_S)
        message = PrepareBallot(self._instance, ballot)
        return [SendToFounder(one, message) for one in self._addresses]

    def receive(self, address: str, message: ToProposer, now: float) -> list[FoundingEffect]:
        """Handle the answer of the founder at *address*."""
        attempt = self._attempt
        if isinstance(message, BallotRefused):
            self._round = max(self._round, message.promised.round)
        if attempt is None or message.ballot != attempt.ballot or address not in self._addresses:
            return []
        match message:
            case BallotPromised() if attempt.value is None:
                attempt.promises[address] = message
                return self._propose(attempt)
            case ValueAccepted() if attempt.value is not None:
                attempt.accepted.add(message.acceptor)
                if not attempt.value.is_quorum(attempt.accepted):
                    return []
                chosen = ValueChosen(self._instance, attempt.ballot, attempt.value)
                self._fail(now)  # nothing is left to do, unless nobody hears of it
                return [FirstChosen(chosen)]
            case BallotRefused() if message.promised > attempt.ballot:
                self._fail(now)
        return []

    def _propose(self, attempt: _FoundingAttempt) -> list[FoundingEffect]:
        """Propose a value, if enough have promised."""
        acceptors = {one: promise.acceptor for one, promise in attempt.promises.items()}
        promises = {one.acceptor: (one.accepted, one.value) for one in attempt.promises.values()}
        value = newest(promises)
        if value is None:
            if len(acceptors) < len(self._addresses):
                return []
            if len(promises) < len(acceptors):
                return []  # two addresses of one founder
            value = self._first(acceptors)
        elif not may_be_followed(value, promises):
            return []
        attempt.value = value
        # Nothing is known of the next ballot: who changes the value prepares one.
        message = AcceptValue(self._instance, attempt.ballot, value, attempt.ballot)
        return [
            SendToFounder(address, message)
            for address, acceptor in acceptors.items()
            if acceptor in value.members
        ]

    def _fail(self, now: float) -> None:
        """The attempt is over.  Rivals wait for different times, so that one of them succeeds."""
        self._attempt = None
        self._failures += 1
        longest_s = min(REFUSED_BALLOT_WAIT_S_MAX, REFUSED_BALLOT_WAIT_S * self._failures)
        self._waits_until = now + self._draw() * longest_s

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        attempt = self._attempt
        assert attempt is None or attempt.ballot.round <= self._round
