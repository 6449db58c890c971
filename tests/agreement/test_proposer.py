"""How a proposer changes a value: round trips, rivals, refusals, doubts, and other acceptors."""

from __future__ import annotations

from random import Random

import pytest

from octopi.agreement.proposals import NoChange, confirm, move_acceptors
from octopi.agreement.proposer import (
    ChangeInDoubt,
    ChangeMade,
    ChangeNotMade,
    ConcludeChange,
    Proposer,
    ProposerEffect,
    SendToAcceptor,
    TellChosen,
)
from octopi.identifiers import BrokerId, Incarnation
from octopi.limits import (
    AGREEMENT_ATTEMPT_S,
    AGREEMENT_TIMEOUT_S,
    REFUSED_BALLOT_WAIT_S,
    REFUSED_BALLOT_WAIT_S_MAX,
)
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
    ValueAccepted,
    ValueChosen,
)
from tests.agreement.history import operations
from tests.agreement.test_acceptor import FIRST, JOINT, MOVED, ONE, SECOND, A, B, C, D
from tests.agreement.world import World

ME, LIFE = BrokerId(1), Incarnation(3)


def second(value: AgreedValue) -> AgreedValue | NoChange:
    return NoChange("it is made") if value.content == b"second" else value.with_content(b"second")


def third(value: AgreedValue) -> AgreedValue:
    return value.with_content(b"third")


def proposer(known: AgreedValue = FIRST, draw: float = 1.0) -> Proposer:
    return Proposer(ONE, ME, LIFE, known, lambda: draw)


def ballot(number: int, broker: int = ME) -> Ballot:
    return Ballot(number, BrokerId(broker), LIFE if broker == ME else Incarnation(1))


def prepares(number: int, *acceptors: AcceptorId) -> list[ProposerEffect]:
    message = PrepareBallot(ONE, ballot(number))
    return [SendToAcceptor(one, message) for one in acceptors]


def accepts(number: int, value: AgreedValue, *acceptors: AcceptorId) -> list[ProposerEffect]:
    message = AcceptValue(ONE, ballot(number), value, ballot(number + 1))
    return [SendToAcceptor(one, message) for one in acceptors]


def promised(
    number: int,
    acceptor: AcceptorId,
    accepted: Ballot = NO_BALLOT,
    value: AgreedValue | None = FIRST,
) -> BallotPromised:
    return BallotPromised(ONE, acceptor, ballot(number), accepted, value)


def accepted(number: int, acceptor: AcceptorId, promise: int = 0) -> ValueAccepted:
    return ValueAccepted(ONE, acceptor, ballot(number), ballot(promise or number + 1))


def refused(number: int, by: Ballot) -> BallotRefused:
    return BallotRefused(ONE, A, ballot(number), by)


def test_a_change_takes_two_round_trips_and_the_next_one_takes_one() -> None:
    one = proposer()
    assert one.ask(1, second, 0) == prepares(1, A, B, C)
    assert one.receive(promised(1, A), 0) == []
    assert one.receive(promised(1, B), 0) == accepts(1, SECOND, A, B, C)
    assert one.receive(accepted(1, B), 0) == []
    assert one.receive(accepted(1, C), 0) == [
        TellChosen(frozenset({A, B, C}), ValueChosen(ONE, ballot(1), SECOND)),
        ConcludeChange(1, ChangeMade(SECOND)),
    ]
    assert one.wakes_at is None
    assert one.ask(2, third, 0) == accepts(2, third(SECOND), A, B, C)


def test_the_next_change_prepares_if_a_rival_may_have_come_between() -> None:
    for promise, told in ((9, None), (2, third(SECOND))):
        one = proposer()
        one.ask(1, second, 0)
        one.receive(promised(1, A), 0)
        one.receive(promised(1, B), 0)
        one.receive(accepted(1, B), 0)
        one.receive(accepted(1, C, promise), 0)
        if told is not None:
            one.chosen(ValueChosen(ONE, ballot(7, broker=2), told), 0)
        [effect, *_] = one.ask(2, confirm, 0)
        assert isinstance(effect, SendToAcceptor)
        assert isinstance(effect.message, PrepareBallot)
        assert effect.message.ballot > ballot(2 if told is None else 7)


def test_changes_are_made_one_after_the_other_in_the_order_of_asking() -> None:
    one = proposer()
    one.ask(1, second, 0)
    assert one.ask(2, third, 0) == []
    one.receive(promised(1, A), 0)
    one.receive(promised(1, B), 0)
    one.receive(accepted(1, A), 0)
    effects = one.receive(accepted(1, B), 0)
    assert ConcludeChange(1, ChangeMade(SECOND)) in effects
    assert effects[-3:] == accepts(2, third(SECOND), A, B, C)


def test_the_value_of_the_highest_ballot_is_followed_whatever_else_was_promised() -> None:
    one = proposer()
    one.ask(1, third, 0)
    one.receive(promised(1, A), 0)
    effects = one.receive(promised(1, C, ballot(1, broker=0), SECOND), 0)
    assert effects == accepts(1, third(SECOND), A, B, C)


def test_that_a_change_does_not_apply_is_said_when_a_later_ballot_has_confirmed_it() -> None:
    one = proposer()
    one.ask(1, second, 0)
    one.receive(promised(1, A, ballot(1, broker=0), SECOND), 0)
    assert one.receive(promised(1, B), 0) == accepts(1, SECOND, A, B, C)
    one.receive(accepted(1, A), 0)
    [told, concluded] = one.receive(accepted(1, B), 0)
    assert told == TellChosen(frozenset({A, B, C}), ValueChosen(ONE, ballot(1), SECOND))
    assert concluded == ConcludeChange(1, ChangeNotMade("it is made", SECOND))


def test_a_refused_ballot_is_followed_by_a_higher_one_after_a_random_wait() -> None:
    one = proposer(draw=0.5)
    one.ask(1, second, 0)
    assert one.receive(refused(1, ballot(6, broker=2)), 0) == []
    assert one.wakes_at == REFUSED_BALLOT_WAIT_S / 2
    assert one.tick(REFUSED_BALLOT_WAIT_S / 4) == []
    assert one.tick(REFUSED_BALLOT_WAIT_S / 2) == prepares(7, A, B, C)
    one.receive(refused(7, ballot(8, broker=2)), 0)
    assert one.wakes_at == REFUSED_BALLOT_WAIT_S
    for _ in range(2 * round(REFUSED_BALLOT_WAIT_S_MAX / REFUSED_BALLOT_WAIT_S)):
        one._fail(0)
    assert one.wakes_at == REFUSED_BALLOT_WAIT_S_MAX / 2


def test_answers_that_come_late_or_twice_change_nothing() -> None:
    one = proposer()
    one.ask(1, second, 0)
    one.receive(promised(1, A), 0)
    assert one.receive(promised(1, A), 0) == []
    one.receive(promised(1, B), 0)
    assert one.receive(promised(1, C), 0) == []
    assert one.receive(accepted(1, A), 0) == []
    assert one.receive(accepted(1, A), 0) == []
    # An acceptor refuses a message that it gets for the second time.
    assert one.receive(refused(1, ballot(1)), 0) == []
    assert one.receive(refused(1, ballot(2)), 0) == []
    assert one.receive(accepted(1, B), 0) != []
    assert one.receive(accepted(1, C), 0) == []


def test_who_answers_in_the_place_of_one_that_is_gone_does_not_end_an_attempt() -> None:
    """Another directory has its address, and has left the instance, or promised more."""
    one = proposer()
    one.ask(1, second, 0.0)
    for number in (1, 2):  # preparing, and then proposing
        one.receive(AcceptorDeparted(ONE, D, ballot(1), (A, B, C)), 0.1)
        one.receive(BallotRefused(ONE, D, ballot(1), ballot(7, broker=9)), 0.1)
        if number == 1:
            one.receive(promised(1, A), 0.1)
            one.receive(promised(1, B), 0.1)
    one.receive(accepted(1, A), 0.2)
    effects = one.receive(accepted(1, B), 0.2)
    assert any(isinstance(effect, ConcludeChange) for effect in effects)


def test_an_attempt_without_a_majority_is_repeated_and_the_outcome_is_in_doubt_in_the_end() -> None:
    one = proposer(draw=0.0)
    one.ask(1, second, 0)
    one.receive(promised(1, A), 0)
    assert one.wakes_at == AGREEMENT_ATTEMPT_S
    assert one.tick(AGREEMENT_ATTEMPT_S) == prepares(2, A, B, C)
    one.ask(2, third, AGREEMENT_ATTEMPT_S)
    effects = one.tick(AGREEMENT_TIMEOUT_S)
    assert effects == [ConcludeChange(1, ChangeInDoubt()), *prepares(3, A, B, C)]
    assert one.receive(promised(2, B), AGREEMENT_TIMEOUT_S) == []


@pytest.mark.parametrize(("away", "is_made"), [(3, True), (1, False)])
def test_a_later_read_ends_the_doubt_about_a_change(away: int, *, is_made: bool) -> None:
    """One acceptor accepted it.  The majority that reads has that acceptor, or does not; then the
    change is out of the question, although the acceptor comes back."""
    world = World(3, 3, Random(1))
    name = world.append(1)
    for _ in range(3):
        world.deliver(0)
    for number in (1, 2, 3):
        world.sync(number)
    for _ in range(3):
        world.deliver(0)
    world.settle(2, 3)
    assert world.outcomes == {1: ChangeInDoubt()}
    for number in (1, 2):
        world.read(number)
        world.settle(away)
        away = 0
        outcome = world.outcomes[number + 1]
        assert isinstance(outcome, ChangeNotMade)
        assert (name in operations(outcome.value)) == is_made


def test_acceptors_move_by_a_joint_value_that_needs_both_majorities() -> None:
    one = proposer(SECOND)
    one.ask(1, move_acceptors([B, C, D]), 0)
    one.receive(promised(1, A, ballot(1, broker=0), SECOND), 0)
    assert one.receive(promised(1, B), 0) == accepts(1, JOINT, A, B, C, D)
    assert one.receive(accepted(1, C), 0) == []
    assert one.receive(accepted(1, D), 0) == [], "no majority of the former ones"
    effects = one.receive(accepted(1, B), 0)
    assert effects == [
        TellChosen(frozenset({A, B, C, D}), ValueChosen(ONE, ballot(1), JOINT)),
        ConcludeChange(1, ChangeMade(JOINT)),
        *accepts(2, MOVED, B, C, D),
    ]
    one.receive(accepted(2, C), 0)
    [told] = one.receive(accepted(2, D), 0)
    assert told == TellChosen(frozenset({A, B, C, D}), ValueChosen(ONE, ballot(2), MOVED))
    assert one.wakes_at is None


def test_a_joint_value_that_may_not_be_chosen_is_proposed_again_before_anything_else() -> None:
    one = proposer(SECOND)
    one.ask(1, third, 0)
    one.receive(promised(1, C, ballot(1, broker=0), JOINT), 0)
    assert one.receive(promised(1, A), 0) == [], "D has to promise, too"
    assert one.receive(promised(1, D, value=None), 0) == accepts(1, JOINT, A, B, C, D)
    one.receive(accepted(1, B), 0)
    one.receive(accepted(1, D), 0)
    effects = one.receive(accepted(1, C), 0)
    assert effects[1:] == accepts(2, MOVED, B, C, D)
    one.receive(accepted(2, B), 0)
    effects = one.receive(accepted(2, C), 0)
    assert effects[1:] == accepts(3, third(MOVED), B, C, D)


def test_a_move_to_the_same_or_to_impossible_acceptors_is_no_change() -> None:
    for group in ([C, B, A], []):
        assert isinstance(move_acceptors(group)(FIRST), NoChange)


def test_only_the_proposer_that_moved_the_acceptors_completes_the_move_unasked() -> None:
    one = proposer(SECOND)
    assert one.chosen(ValueChosen(ONE, ballot(1, broker=2), JOINT), 0) == []
    assert one.wakes_at is None


def ask_after_a_missed_move(world: World) -> str:
    """Acceptors 1 to 3 become 3 to 5 while nothing reaches 1.  Then 1 asks for an operation, and
    nothing reaches 3.  Return the name of the operation."""
    world.move(2, [3, 4, 5])
    world.settle(1)
    name = world.append(1)
    world.settle(3)
    return name


def test_a_proposer_finds_the_acceptors_by_one_that_left() -> None:
    world = World(5, 3, Random(0))
    name = ask_after_a_missed_move(world)
    assert world.brokers[BrokerId(2)].acceptor.state.successors
    assert {one.broker for one in world.newest.acceptors} == {3, 4, 5}
    assert name in operations(world.newest)


@pytest.mark.parametrize("seed", range(10))
def test_rivals_that_ask_at_the_same_time_all_succeed(seed: int) -> None:
    world = World(5, 5, Random(seed))
    names = [world.append(number) for number in world.brokers]
    world.settle()
    assert sorted(operations(world.newest)) == sorted(names)
    assert set(names) == world.made
