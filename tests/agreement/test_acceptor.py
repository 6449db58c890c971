"""What an acceptor answers, and what it has on its device before."""

from __future__ import annotations

import attrs
import pytest

from octopi.agreement.acceptor import Acceptor, AcceptorState, AnswerProposer, Persist
from octopi.agreement.acceptors import Acceptors
from octopi.agreement.entries import AcceptEntry, LeftEntry, PromiseEntry
from octopi.agreement.values import first_value
from octopi.identifiers import BrokerId, DirectoryId, Incarnation, InstanceId
from octopi.limits import ACCEPTORS_MAX, AGREED_BYTES_MAX
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

ONE = InstanceId(1)
A, B, C, D = (AcceptorId(BrokerId(number), DirectoryId("d")) for number in (1, 2, 3, 4))
FIRST = first_value([A, B, C], b"first")
SECOND = FIRST.with_content(b"second")
JOINT = SECOND.moved_to([B, C, D])
MOVED = JOINT.completed()


def ballot(number: int) -> Ballot:
    return Ballot(number, BrokerId(9), Incarnation(1))


def acceptor(identity: AcceptorId = A) -> Acceptor:
    return Acceptor(ONE, identity, FIRST)


def prepare(number: int) -> PrepareBallot:
    return PrepareBallot(ONE, ballot(number))


def accept(number: int, value: AgreedValue = SECOND, successor: int = 0) -> AcceptValue:
    return AcceptValue(ONE, ballot(number), value, ballot(successor or number))


def refused(number: int, promised: int) -> list[AnswerProposer]:
    return [AnswerProposer(BallotRefused(ONE, A, ballot(number), ballot(promised)))]


def test_a_promise_is_stored_before_it_is_answered_with_what_was_accepted() -> None:
    one = acceptor()
    assert one.receive(prepare(1)) == [
        Persist(PromiseEntry(ONE, ballot(1))),
        AnswerProposer(BallotPromised(ONE, A, ballot(1), NO_BALLOT, FIRST)),
    ]
    one.receive(accept(1))
    assert one.receive(prepare(2)) == [
        Persist(PromiseEntry(ONE, ballot(2))),
        AnswerProposer(BallotPromised(ONE, A, ballot(2), ballot(1), SECOND)),
    ]


def test_an_acceptance_is_stored_with_the_promise_of_the_next_ballot_before_it_is_answered() -> (
    None
):
    assert acceptor().receive(accept(1, successor=2)) == [
        Persist(AcceptEntry(ONE, ballot(1), ballot(2), SECOND)),
        AnswerProposer(ValueAccepted(ONE, A, ballot(1), ballot(2))),
    ]


def test_a_ballot_is_promised_once_and_nothing_below_a_promise_is_promised_or_accepted() -> None:
    one = acceptor()
    one.receive(prepare(3))
    assert one.receive(prepare(3)) == refused(3, 3)
    assert one.receive(prepare(2)) == refused(2, 3)
    assert one.receive(accept(2)) == refused(2, 3)
    one.receive(accept(3, successor=5))
    assert one.receive(prepare(4)) == refused(4, 5)
    assert one.receive(accept(4)) == refused(4, 5)


def test_ballots_are_ordered_by_round_then_broker_then_incarnation() -> None:
    ordered = [
        NO_BALLOT,
        Ballot(1, BrokerId(2), Incarnation(9)),
        Ballot(1, BrokerId(3), Incarnation(1)),
        Ballot(1, BrokerId(3), Incarnation(2)),
        Ballot(2, BrokerId(1), Incarnation(1)),
    ]
    assert ordered == sorted(ordered)


def test_a_message_that_comes_twice_is_answered_twice_and_stored_once() -> None:
    one = acceptor()
    one.receive(accept(1, successor=2))
    assert one.receive(accept(1, successor=2)) == [
        AnswerProposer(ValueAccepted(ONE, A, ballot(1), ballot(2)))
    ]
    one.receive(prepare(4))
    assert one.receive(accept(1, successor=2)) == [
        AnswerProposer(ValueAccepted(ONE, A, ballot(1), ballot(4)))
    ]


def test_an_acceptor_leaves_when_it_hears_that_others_were_chosen_and_says_who() -> None:
    one = acceptor()
    one.receive(accept(1))
    left = LeftEntry(ONE, ballot(5), MOVED.acceptors)
    assert one.receive(ValueChosen(ONE, ballot(5), MOVED)) == [Persist(left)]
    assert one.state == AcceptorState(ballot(5), ballot(5), None, MOVED.acceptors)
    for message in (prepare(9), accept(9, MOVED)):
        departed = AcceptorDeparted(ONE, A, ballot(9), MOVED.acceptors)
        assert one.receive(message) == [AnswerProposer(departed)]


def test_an_acceptor_leaves_for_no_joint_value_and_for_none_older_than_what_it_accepted() -> None:
    one = acceptor()
    one.receive(accept(6, JOINT))
    assert one.receive(ValueChosen(ONE, ballot(6), JOINT)) == []
    assert one.receive(ValueChosen(ONE, ballot(5), MOVED)) == []
    assert one.state.value == JOINT


def test_a_broker_that_never_was_an_acceptor_leaves_nothing_behind() -> None:
    one = Acceptor(ONE, AcceptorId(BrokerId(7), DirectoryId("d")), FIRST)
    assert one.receive(ValueChosen(ONE, ballot(5), MOVED)) == []
    assert one.state == AcceptorState()


def test_an_acceptor_that_left_comes_back_with_a_value_that_names_it() -> None:
    for message in (
        accept(8, MOVED.moved_to([A])),
        ValueChosen(ONE, ballot(8), MOVED.moved_to([A])),
    ):
        one = acceptor()
        one.receive(accept(1))
        one.receive(ValueChosen(ONE, ballot(5), MOVED))
        effects = one.receive(message)
        assert effects[0] == Persist(AcceptEntry(ONE, ballot(8), ballot(8), MOVED.moved_to([A])))
        assert one.state.value == MOVED.moved_to([A])


def test_an_acceptor_that_left_does_not_come_back_below_its_promise() -> None:
    one = acceptor()
    one.receive(prepare(9))
    one.receive(ValueChosen(ONE, ballot(5), MOVED))
    assert one.state.promised == ballot(9)
    assert one.receive(ValueChosen(ONE, ballot(8), MOVED.moved_to([A]))) == []
    assert one.receive(accept(8, MOVED.moved_to([A]))) == refused(8, 9)


def test_another_directory_of_the_same_broker_is_another_acceptor() -> None:
    fresh = AcceptorId(A.broker, DirectoryId("e"))
    one = Acceptor(ONE, fresh, FIRST)
    assert one.receive(accept(1)) == []
    promised = BallotPromised(ONE, fresh, ballot(1), NO_BALLOT, None)
    assert AnswerProposer(promised) in one.receive(prepare(1))
    assert not SECOND.is_quorum([fresh, B])


def test_the_acceptors_of_a_broker_are_restored_from_their_fewest_entries() -> None:
    first = {ONE: FIRST, InstanceId(2): FIRST}
    acceptors = Acceptors(A, first.get)
    for message in (
        accept(1, successor=3),
        attrs.evolve(prepare(2), instance=InstanceId(2)),
        attrs.evolve(prepare(7), instance=InstanceId(3)),
        attrs.evolve(accept(8), instance=InstanceId(3)),
        attrs.evolve(ValueChosen(ONE, ballot(9), MOVED), instance=InstanceId(3)),
    ):
        acceptors.receive(message)
    acceptors.of(InstanceId(4))
    entries = acceptors.entries()
    assert entries == [
        AcceptEntry(ONE, ballot(1), ballot(3), SECOND),
        PromiseEntry(InstanceId(2), ballot(2)),
        PromiseEntry(InstanceId(3), ballot(9)),
        LeftEntry(InstanceId(3), ballot(9), MOVED.acceptors),
    ]
    again = Acceptors(A, first.get)
    again.replay(entries)
    for instance in (ONE, InstanceId(2), InstanceId(3), InstanceId(4)):
        assert again.of(instance).state == acceptors.of(instance).state


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (attrs.evolve(FIRST, acceptors=()), "1 to 32 acceptors, not 0"),
        (
            FIRST.moved_to([attrs.evolve(A, broker=BrokerId(n)) for n in range(ACCEPTORS_MAX + 1)]),
            "1 to 32 acceptors, not 33",
        ),
        (FIRST.moved_to([A, attrs.evolve(A, directory=DirectoryId("e"))]), "one acceptor at most"),
        (FIRST.with_content(bytes(AGREED_BYTES_MAX + 1)), "at most 65536 bytes"),
        (attrs.evolve(FIRST, change=-1), "negative"),
    ],
)
def test_a_value_that_no_proposer_proposes_says_why(value: AgreedValue, why: str) -> None:
    assert why in value.fault()
    assert FIRST.fault() == JOINT.fault() == ""


def test_a_value_is_followed_by_itself_or_by_one_step() -> None:
    for later in (FIRST, SECOND, FIRST.moved_to([D])):
        assert later.follows(FIRST)
    assert MOVED.follows(JOINT)
    for wrong in (
        attrs.evolve(SECOND, change=2),
        attrs.evolve(SECOND, acceptors=(D,), previous=(D,)),
        JOINT.with_content(b"third"),
        JOINT.moved_to([A]),
    ):
        assert not any(wrong.follows(one) for one in (FIRST, JOINT) if one != wrong)
