"""The acceptor of an instance: what it promised and accepted, and what it answers.

It does no I/O: a message is an event, and the result is a list of effects in order.  `Persist`
takes effect at once and is durable later.  An answer may be sent only when everything persisted
before it is durable, also by earlier events, since an answer may say again what an earlier event
persisted.  The shell that performs the effects keeps one journal for all instances of a broker, so
one wait for the device serves all answers that wait.

An acceptor never forgets.  When another group has taken over, it drops the value and keeps its
promise and the way to its successors (`LeftEntry`) for ever.  If it took part again without that
knowledge, its old group could choose a second history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import attrs

from octopi.agreement.entries import AcceptEntry, AcceptorEntry, LeftEntry, PromiseEntry
from octopi.identifiers import InstanceId
from octopi.wire.agreement import (
    NO_BALLOT,
    AcceptorDeparted,
    AcceptorId,
    AcceptValue,
    AgreedValue,
    Ballot,
    BallotPromised,
    BallotRefused,
    PrepareBallot,
    ToAcceptor,
    ToProposer,
    ValueAccepted,
    ValueChosen,
)


@attrs.frozen
class Persist:
    """Append *entry* to the journal."""

    entry: AcceptorEntry


@attrs.frozen
class AnswerProposer:
    """Send *message* to the proposer that asked, when all that was persisted is durable."""

    message: ToProposer


AcceptorEffect: TypeAlias = Persist | AnswerProposer


@attrs.frozen
class AcceptorState:
    """What an acceptor remembers of an instance.

    Invariant: it accepted nothing above its promise.
    """

    promised: Ballot = NO_BALLOT
    accepted: Ballot = NO_BALLOT
    """The ballot of `value`; if it left, of the chosen value that says so."""
    value: AgreedValue | None = None
    successors: tuple[AcceptorId, ...] = ()
    """Who took over.  Empty: it has not left."""

    def after(self, entry: AcceptorEntry) -> AcceptorState:
        """The state after *entry* of the journal."""
        match entry:
            case PromiseEntry(ballot=ballot):
                return attrs.evolve(self, promised=ballot)
            case AcceptEntry(ballot=ballot, successor=successor, value=value):
                return AcceptorState(successor, ballot, value)
            case LeftEntry(ballot=ballot, successors=successors):
                return AcceptorState(max(self.promised, ballot), ballot, None, successors)

    def entries(self, instance: InstanceId) -> Iterator[AcceptorEntry]:
        """The fewest entries that lead to this state, beginning with the first one."""
        if self.value is not None and self.accepted > NO_BALLOT:
            yield AcceptEntry(instance, self.accepted, self.promised, self.value)
            return
        if self.promised > NO_BALLOT:
            yield PromiseEntry(instance, self.promised)
        if self.successors:
            yield LeftEntry(instance, self.accepted, self.successors)


class Acceptor:
    """The acceptor of one instance on one broker."""

    def __init__(
        self, instance: InstanceId, identity: AcceptorId, first: AgreedValue | None = None
    ) -> None:
        """*first*: the first value of the instance, if this acceptor is one of its first ones;
        otherwise None: it learns a value when it is asked to accept one."""
        self._instance = instance
        self._identity = identity
        self.state = AcceptorState()
        if first is not None:
            self.begin(first)

    @property
    def lacks_value(self) -> bool:
        """Whether it knows no value, not even a first one, and has not left."""
        return self.state.value is None and not self.state.successors

    def begin(self, first: AgreedValue) -> None:
        """*first* is the first value of the instance, of which this acceptor knows none.  It counts
        as accepted before all ballots, also if this acceptor has promised one."""
        assert self.lacks_value
        if self._identity in first.members:
            self.state = attrs.evolve(self.state, value=first)

    def replay(self, entries: Iterable[AcceptorEntry]) -> None:
        """Take over what the journal says, at a start."""
        for entry in entries:
            self.state = self.state.after(entry)

    def receive(self, message: ToAcceptor) -> list[AcceptorEffect]:
        """Handle *message*."""
        match message:
            case PrepareBallot():
                return self._prepare(message.ballot)
            case AcceptValue():
                return self._accept(message)
            case ValueChosen():
                return self._chosen(message)

    def _prepare(self, ballot: Ballot) -> list[AcceptorEffect]:
        state = self.state
        if state.successors:
            return [self._departed(ballot)]
        if ballot <= state.promised:
            return [self._refused(ballot)]
        promised = BallotPromised(
            self._instance, self._identity, ballot, state.accepted, state.value
        )
        return [self._persist(PromiseEntry(self._instance, ballot)), AnswerProposer(promised)]

    def _accept(self, message: AcceptValue) -> list[AcceptorEffect]:
        state, ballot = self.state, message.ballot
        if self._identity not in message.value.members:
            # Another directory of this broker is meant, or was.
            return [self._departed(ballot)] if state.successors else []
        if state.value is not None and (ballot, message.value) == (state.accepted, state.value):
            return [self._accepted(ballot)]  # the message came twice
        if ballot < state.promised:
            return [self._refused(ballot)]
        entry = AcceptEntry(self._instance, ballot, message.successor, message.value)
        return [self._persist(entry), self._accepted(ballot)]

    def _chosen(self, message: ValueChosen) -> list[AcceptorEffect]:
        state, ballot, value = self.state, message.ballot, message.value
        if self._identity in value.members:
            if state.successors and ballot >= state.promised:
                # It is an acceptor again, and missed the message that asked it to accept this.
                return [self._persist(AcceptEntry(self._instance, ballot, ballot, value))]
            return []
        took_part = state.value is not None or state.promised > NO_BALLOT
        if value.is_joint or ballot <= state.accepted or not took_part:
            return []
        return [self._persist(LeftEntry(self._instance, ballot, value.acceptors))]

    def _persist(self, entry: AcceptorEntry) -> Persist:
        self.state = self.state.after(entry)
        return Persist(entry)

    def _accepted(self, ballot: Ballot) -> AnswerProposer:
        promised = self.state.promised
        return AnswerProposer(ValueAccepted(self._instance, self._identity, ballot, promised))

    def _refused(self, ballot: Ballot) -> AnswerProposer:
        promised = self.state.promised
        return AnswerProposer(BallotRefused(self._instance, self._identity, ballot, promised))

    def _departed(self, ballot: Ballot) -> AnswerProposer:
        successors = self.state.successors
        return AnswerProposer(AcceptorDeparted(self._instance, self._identity, ballot, successors))

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        state = self.state
        assert state.accepted <= state.promised
        assert not (state.successors and state.value is not None)
        assert state.value is None or self._identity in state.value.members
