"""Known mistakes, planted one by one: the rules of random walks notice each of them.

The search through all runs of a few ballots has further ones (`tests.agreement.test_small_scope`):
those that need a rare order of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import attrs
import pytest

from octopi.agreement import proposer
from octopi.agreement.acceptor import (
    Acceptor,
    AcceptorEffect,
    AcceptorState,
    Persist,
)
from octopi.agreement.entries import AcceptEntry, AcceptorEntry, LeftEntry
from octopi.agreement.proposals import proposal
from octopi.agreement.proposer import (
    ChangeNotMade,
    ConcludeChange,
    Proposer,
    ProposerEffect,
)
from octopi.agreement.values import first_value
from octopi.identifiers import BrokerId
from octopi.wire.agreement import AcceptorId, AcceptValue, AgreedValue, Ballot, is_majority
from tests.agreement.test_proposer import ask_after_a_missed_move
from tests.agreement.world import INSTANCE, BrokenRule, Broker, ToBroker, World, walk

Plant = Callable[[pytest.MonkeyPatch], None]

WALKS = 200
STEPS = 400
FIRST = World(4, 3, Random(0)).first
MUTANTS: list[tuple[str, Plant]] = []


def mutant(rule: str) -> Callable[[Plant], Plant]:
    """Register a function that plants a mistake; *rule*: how the broken rule is worded."""

    def register(plant: Plant) -> Plant:
        MUTANTS.append((rule, plant))
        return plant

    return register


@mutant("what was refused came true")
def a_refusal_is_believed_before_it_is_confirmed(patch: pytest.MonkeyPatch) -> None:
    propose = Proposer._propose

    def believing(
        self: Proposer, ballot: Ballot, read: AgreedValue, now: float
    ) -> list[ProposerEffect]:
        asked = self._line[0] if self._line else None
        effects = propose(self, ballot, read, now)
        if asked is not None and effects:
            made = proposal(read, self.known, asked.change)
            if made.no_change is not None:
                outcome = ChangeNotMade(made.no_change.why, self.known)
                effects.append(ConcludeChange(asked.number, outcome))
        return effects

    patch.setattr(Proposer, "_propose", believing)


@mutant("two histories|two values|without a joint")
def the_next_ballot_is_used_without_promises(patch: pytest.MonkeyPatch) -> None:
    accepted = Proposer._accepted
    after = AcceptorState.after

    def trusting(self: Proposer, attempt: Any, now: float) -> list[ProposerEffect]:  # noqa: ANN401
        attempt.promised |= attempt.accepted
        return accepted(self, attempt, now)

    def promising_less(self: AcceptorState, entry: Any) -> AcceptorState:  # noqa: ANN401
        if isinstance(entry, AcceptEntry):
            entry = attrs.evolve(entry, successor=entry.ballot)
        return after(self, entry)

    patch.setattr(Proposer, "_accepted", trusting)
    patch.setattr(AcceptorState, "after", promising_less)


def without_entries(patch: pytest.MonkeyPatch, method: str) -> None:
    """*method* of acceptors persists nothing."""
    known = getattr(Acceptor, method)

    def forgetful(self: Acceptor, *arguments: object) -> list[AcceptorEffect]:
        effects: list[AcceptorEffect] = known(self, *arguments)
        return [one for one in effects if not isinstance(one, Persist)]

    patch.setattr(Acceptor, method, forgetful)


@mutant("promise is answered that is not durable|promise is broken")
def promises_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    without_entries(patch, "_prepare")


@mutant("acceptance is answered that is not durable")
def accepted_values_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    without_entries(patch, "_accept")


@mutant("is answered that is not durable")
def answers_do_not_wait_for_the_device(patch: pytest.MonkeyPatch) -> None:
    accept = World._accept

    def hasty(self: World, broker: Broker, sent: ToBroker) -> None:
        accept(self, broker, sent)
        for answer in broker.held:
            self._check_answer(broker, answer.message)
        self.messages += broker.held
        broker.held.clear()

    patch.setattr(World, "_accept", hasty)


@mutant("two histories|two values|is lost")
def a_broker_with_an_empty_disk_is_the_same_acceptor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "new_identity", lambda self, broker: self.brokers[broker].identity)
    # Otherwise the rule about promises notices it first.
    patch.setattr(World, "_check_answer", lambda self, broker, message: None)


@mutant("two histories|two values|is lost")
def an_acceptor_that_left_forgets_everything(patch: pytest.MonkeyPatch) -> None:
    after = AcceptorState.after

    def forgetting(self: AcceptorState, entry: AcceptorEntry) -> AcceptorState:
        return AcceptorState(value=FIRST) if isinstance(entry, LeftEntry) else after(self, entry)

    patch.setattr(AcceptorState, "after", forgetting)
    patch.setattr(World, "_check_answer", lambda self, broker, message: None)


@mutant("two histories|two values|is lost")
def an_acceptor_that_left_still_promises(patch: pytest.MonkeyPatch) -> None:
    prepare = Acceptor._prepare

    def promising(self: Acceptor, ballot: Ballot) -> list[AcceptorEffect]:
        state = self.state
        if not state.successors:
            return prepare(self, ballot)
        self.state = attrs.evolve(state, successors=())
        effects = prepare(self, ballot)
        self.state = attrs.evolve(state, promised=self.state.promised)
        return effects

    patch.setattr(Acceptor, "_prepare", promising)


@mutant("the acceptors change without a joint value")
def first_acceptors_are_those_that_a_broker_sees(patch: pytest.MonkeyPatch) -> None:
    """The network is split between 1, 2 and 3, 4, and both halves begin."""
    proposer_of = World._proposer

    def seen_by(world: World, broker: int) -> AgreedValue:
        numbers = [1, 2] if broker <= 2 else [3, 4]
        seen = [attrs.evolve(world.first.acceptors[0], broker=BrokerId(one)) for one in numbers]
        return first_value(seen, b"")

    def seeing_acceptor(self: World, identity: AcceptorId) -> Acceptor:
        return Acceptor(INSTANCE, identity, seen_by(self, identity.broker))

    def seeing_proposer(self: World, broker: BrokerId, incarnation: int) -> Proposer:
        one = proposer_of(self, broker, incarnation)
        one.known = seen_by(self, broker)
        return one

    patch.setattr(World, "_acceptor", seeing_acceptor)
    patch.setattr(World, "_proposer", seeing_proposer)
    patch.setattr(World, "_check_answer", lambda self, broker, message: None)


@mutant("is told that is not chosen|two histories|two values")
def the_acceptors_change_by_one_majority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AgreedValue, "is_quorum", lambda self, have: is_majority(have, self.acceptors))


@mutant("is told that is not chosen")
def a_value_is_told_when_one_acceptor_has_it(patch: pytest.MonkeyPatch) -> None:
    accepted = Proposer._accepted

    def eager(self: Proposer, attempt: Any, now: float) -> list[ProposerEffect]:  # noqa: ANN401
        attempt.accepted |= attempt.proposal.value.members
        return accepted(self, attempt, now)

    patch.setattr(Proposer, "_accepted", eager)


@mutant("two histories|two values|without a joint")
def a_proposer_takes_the_first_value_that_it_hears(patch: pytest.MonkeyPatch) -> None:
    def first(promises: Any) -> AgreedValue | None:  # noqa: ANN401
        return next((value for _, value in promises.values() if value is not None), None)

    patch.setattr(proposer, "newest", first)


@mutant("promise is answered that is not durable")
def an_acceptor_accepts_below_its_promise(patch: pytest.MonkeyPatch) -> None:
    accept = Acceptor._accept

    def lax(self: Acceptor, message: AcceptValue) -> list[AcceptorEffect]:
        if self.state.successors or message.ballot >= self.state.promised:
            return accept(self, message)
        self.state = attrs.evolve(
            self.state, promised=message.ballot, accepted=min(self.state.accepted, message.ballot)
        )
        return accept(self, message)

    patch.setattr(Acceptor, "_accept", lax)


def scenarios(seeds: range) -> None:
    ask_after_a_missed_move(World(5, 3, Random(0)))
    for seed in seeds:
        walk(seed, STEPS)


@pytest.mark.parametrize(("rule", "plant"), MUTANTS, ids=[plant.__name__ for _, plant in MUTANTS])
def test_a_planted_mistake_is_noticed(
    rule: str, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(BrokenRule, match=rule):
        scenarios(range(WALKS))
