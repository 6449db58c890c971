"""All runs of a few ballots on a few acceptors, with the acceptors and rules of the product.

A ballot stands for one attempt of one proposer, so several proposers need no further state.  Each
message may come late, in any order, or never.  Odd ballots are a leader's attempts at the operation
``q``, which applies until the operation ``e`` was made, as a change of the in-sync set applies
until an epoch is decided.  Even ballots make ``e``, and then operations that always apply.  Where
acceptors move, each ballot may also ask for the next group.

*together* has a majority promise in one step, behind which fewer states lie.  A lower ballot that
proposes after a higher one was prepared would need an acceptor of both majorities to have promised
the lower one before, so no choice is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, TypeVar

import attrs

from octopi.agreement import proposals
from octopi.agreement.acceptor import Acceptor, AcceptorState, AnswerProposer
from octopi.agreement.proposals import Change, NoChange, Promise
from octopi.agreement.values import first_value
from octopi.identifiers import BrokerId, DirectoryId, Incarnation, InstanceId
from octopi.wire.agreement import (
    NO_BALLOT,
    AcceptorId,
    AcceptValue,
    AgreedValue,
    Ballot,
    BallotPromised,
    PrepareBallot,
    ToAcceptor,
    ValueAccepted,
)
from tests.agreement.history import fault_in, is_chosen, operations, with_operation

_T = TypeVar("_T")

INSTANCE = InstanceId(1)
A, B, C, D = (AcceptorId(BrokerId(number), DirectoryId("d")) for number in (1, 2, 3, 4))
FIRST = first_value([A, B, C], b"")
MOVED = (A, B, D)


@attrs.frozen
class BallotState:
    """What came of one ballot."""

    promises: tuple[tuple[AcceptorId, Promise], ...] = ()
    proposed: AgreedValue | None = None
    refuses: bool = False
    """Whether the proposer said that ``q`` does not apply."""
    accepted: frozenset[AcceptorId] = frozenset()


@attrs.frozen(eq=False)
class State:
    """Of the whole group.  Of equal parts there is one object, so states are compared fast."""

    acceptors: tuple[AcceptorState, ...]
    ballots: tuple[BallotState, ...]
    refused: bool = False
    """Whether the leader believes that ``q`` was not made and never will be."""
    forgot: bool = False

    @property
    def key(self) -> object:
        """Equal for equal states."""
        parts = (tuple(map(id, self.acceptors)), tuple(map(id, self.ballots)))
        return (*parts, self.refused, self.forgot)


@attrs.frozen
class Found:
    """What a search ended with."""

    fault: str
    """Empty: all runs were searched and kept the rules."""
    states: int
    steps: list[str]
    """The shortest run that breaks a rule."""


class Search:
    """A breadth-first search."""

    def __init__(
        self,
        ballots: int,
        acceptors: tuple[AcceptorId, ...] = (A, B, C),
        *,
        moves: bool = False,
        together: bool = False,
        forgets: bool = False,
        reuses: bool = False,
        lasting: bool = True,
        confirms: bool = True,
        prepares: bool = True,
    ) -> None:
        """The last five plant mistakes of what is around the machines: an acceptor goes on without
        its disk; a restarted proposer uses its ballot 2 again; promises are not stored; a refusal
        is believed at once; a leader proposes on its former value without promises."""
        self._acceptors = acceptors
        self._moves, self._together, self._forgets = moves, together, forgets
        self._lasting, self._confirms, self._prepares = lasting, confirms, prepares
        self._reuses = reuses
        self._numbers = [
            Ballot(min(number, 2) if reuses else number, BrokerId(1), Incarnation(1))
            for number in range(1, ballots + 1)
        ]
        self._steps: dict[tuple[int, int, int, int], _Step] = {}
        self._same: dict[Any, Any] = {}

    def run(self) -> Found:
        first = tuple(self._one(Acceptor(INSTANCE, one, FIRST).state) for one in self._acceptors)
        idle = self._one(BallotState())
        start = State(first, tuple(idle for _ in self._numbers))
        came: dict[object, tuple[State, str] | None] = {start.key: None}
        edge = [start]
        while edge:
            reached = []
            for state in edge:
                for label, after in self._next(state):
                    if (key := after.key) in came:
                        continue
                    came[key] = (state, label)
                    if fault := self._fault(after):
                        return Found(fault, len(came), _run_to(after, came))
                    reached.append(after)
            edge = reached
        return Found("", len(came), [])

    def _fault(self, state: State) -> str:
        chosen = [
            one.proposed
            for one in state.ballots
            if one.proposed is not None and is_chosen(one.proposed, one.accepted)
        ]
        if fault := fault_in(chosen):
            return fault
        if state.refused and any("q" in operations(one) for one in chosen):
            return "q was believed to be refused and is chosen"
        return ""

    def _next(self, state: State) -> Iterator[tuple[str, State]]:
        for number in range(len(self._numbers)):
            yield from self._promised(state, number)
            yield from self._proposed(state, number)
            yield from self._accepted(state, number)
            yield from self._believed(state, number)
        if self._forgets and not state.forgot:
            for index, identity in enumerate(self._acceptors):
                fresh = self._one(Acceptor(INSTANCE, identity, FIRST).state)
                if state.acceptors[index] != fresh:
                    acceptors = _with(state.acceptors, index, fresh)
                    yield (
                        f"{identity.broker} forgets",
                        attrs.evolve(state, acceptors=acceptors, forgot=True),
                    )

    def _promised(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        ballot = self._numbers[number]
        if not self._together:
            for index in range(len(self._acceptors)):
                after = self._prepare(state, number, index)
                if after is not None:
                    yield f"{self._acceptors[index].broker} promises {number + 1}", after
            return
        # The former ballots have proposed, or never will.
        if state.ballots[number].proposed is not None or not all(
            one.proposed is not None for one in state.ballots[:number]
        ):
            return
        able = [
            index
            for index, one in enumerate(state.acceptors)
            if ballot > one.promised and not one.successors
        ]
        for count in range(1, len(able) + 1):
            for group in combinations(able, count):
                after = state
                for index in group:
                    made = self._prepare(after, number, index)
                    assert made is not None
                    after = made
                names = "".join(str(self._acceptors[index].broker) for index in group)
                for label, proposed in self._proposed(after, number, least=True):
                    yield f"{names} promise, {label}", proposed

    def _prepare(self, state: State, number: int, index: int) -> State | None:
        ballot = self._numbers[number]
        before, at = state.acceptors[index], state.ballots[number]
        identity = self._acceptors[index]
        if self._reuses and before.promised == ballot and at.proposed is None:
            before = self._one(attrs.evolve(before, promised=NO_BALLOT))
        step = self._step(index, before, PrepareBallot(INSTANCE, ballot))
        if not isinstance(step.answer, BallotPromised):
            return None
        answer = step.answer
        if at.proposed is None:  # afterwards a promise only fences
            promises = dict(at.promises) | {identity: (answer.accepted, answer.value)}
            at = attrs.evolve(at, promises=tuple(sorted(promises.items(), key=lambda one: one[0])))
        after = step.after if self._lasting else state.acceptors[index]
        if after is state.acceptors[index] and at == state.ballots[number]:
            return None
        return attrs.evolve(
            state,
            acceptors=_with(state.acceptors, index, after),
            ballots=_with(state.ballots, number, self._one(at)),
        )

    def _proposed(
        self, state: State, number: int, *, least: bool = False
    ) -> Iterator[tuple[str, State]]:
        at = state.ballots[number]
        if at.proposed is not None or (self._together and not least):
            return
        read = proposals.newest(dict(at.promises))
        promised = [one for one, _ in at.promises]
        if read is not None and proposals.may_be_followed(read, promised):
            if least and any(
                proposals.may_be_followed(read, [one for one in promised if one != left])
                for left in promised
            ):
                return
        elif not self._prepares and number >= 2 and number % 2 == 0:
            read = state.ballots[number - 2].proposed
        else:
            return
        if read is None:
            return
        for change in self._changes(number, read):
            for known in self._known(state, read):
                made = proposals.proposal(read, known, change)
                refuses = (
                    made.no_change is not None and number % 2 == 0 and "q" not in operations(read)
                )
                value = self._one(made.value)
                after = attrs.evolve(at, promises=(), proposed=value, refuses=refuses)
                yield (
                    f"ballot {number + 1} proposes {value.change}: {operations(value)}",
                    attrs.evolve(
                        state,
                        ballots=_with(state.ballots, number, self._one(after)),
                        refused=state.refused or (refuses and not self._confirms),
                    ),
                )

    def _changes(self, number: int, read: AgreedValue) -> Iterator[Change]:
        if number % 2 == 0:
            yield (
                lambda value: (
                    NoChange("too late")
                    if {"q", "e"} & set(operations(value))
                    else with_operation(value, "q")
                )
            )
        else:
            name = str(number + 1) if "e" in operations(read) else "e"
            yield lambda value: with_operation(value, name)
            if self._reuses:
                yield lambda value: with_operation(value, str(number + 1))
        if self._moves and not read.is_joint and read.acceptors != MOVED:
            yield proposals.move_acceptors(MOVED)

    def _known(self, state: State, read: AgreedValue) -> Iterator[AgreedValue]:
        """What the proposer may know to be chosen, as far as it makes a difference."""
        yield FIRST
        if read.is_joint and any(
            one.proposed == read and is_chosen(read, one.accepted) for one in state.ballots
        ):
            yield read

    def _accepted(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        at, ballot = state.ballots[number], self._numbers[number]
        if at.proposed is None:
            return
        for index, identity in enumerate(self._acceptors):
            if identity in at.accepted:
                continue
            message = AcceptValue(INSTANCE, ballot, at.proposed, ballot)
            step = self._step(index, state.acceptors[index], message)
            if isinstance(step.answer, ValueAccepted):
                accepted = attrs.evolve(at, accepted=at.accepted | {identity})
                yield (
                    f"{identity.broker} accepts {number + 1}",
                    attrs.evolve(
                        state,
                        acceptors=_with(state.acceptors, index, step.after),
                        ballots=_with(state.ballots, number, self._one(accepted)),
                    ),
                )

    def _believed(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        at = state.ballots[number]
        if not at.refuses or state.refused or at.proposed is None:
            return
        if is_chosen(at.proposed, at.accepted):
            yield "the leader believes that q is refused", attrs.evolve(state, refused=True)

    def _step(self, index: int, state: AcceptorState, message: ToAcceptor) -> _Step:
        """What an acceptor in *state* makes of *message*; computed once."""
        value = message.value if isinstance(message, AcceptValue) else None
        key = (index, id(state), message.ballot.round, id(value))
        if key not in self._steps:
            acceptor = Acceptor(INSTANCE, self._acceptors[index])
            acceptor.state = state
            answers = [
                one.message for one in acceptor.receive(message) if isinstance(one, AnswerProposer)
            ]
            acceptor.check_invariants()
            self._steps[key] = _Step(self._one(acceptor.state), answers[0] if answers else None)
        return self._steps[key]

    def _one(self, part: _T) -> _T:
        """The one object that stands for all that are equal to *part*."""
        one: _T = self._same.setdefault(part, part)
        return one


@attrs.frozen
class _Step:
    after: AcceptorState
    answer: object


def _with(items: tuple[_T, ...], index: int, item: _T) -> tuple[_T, ...]:
    return (*items[:index], item, *items[index + 1 :])


def _run_to(state: State, came: dict[object, tuple[State, str] | None]) -> list[str]:
    labels = []
    while (before := came[state.key]) is not None:
        state, label = before
        labels.append(label)
    return labels[::-1]
