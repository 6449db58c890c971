"""Counting which values are chosen, from what acceptors say."""

from __future__ import annotations

import pytest

from octopi.identifiers import BrokerId, DirectoryId, Incarnation
from octopi.simulation.invariants.chosen_values import ChosenValues, ForkError, follows
from octopi.wire.agreement import AcceptorId, AgreedValue, Ballot

A, B, C, D = (AcceptorId(BrokerId(one), DirectoryId(f"disk-{one}")) for one in range(1, 5))
FIRST = AgreedValue(0, (A, B, C), (A, B, C), b"first")


def ballot(number: int, broker: int = 1) -> Ballot:
    return Ballot(number, BrokerId(broker), Incarnation(1))


def test_a_value_is_chosen_when_a_majority_has_accepted_it_in_one_ballot() -> None:
    values, second = ChosenValues(FIRST), FIRST.with_content(b"second")
    values.propose(ballot(1), second)
    values.propose(ballot(2), second)
    assert values.accept(ballot(1), A) == []
    assert values.accept(ballot(2), B) == []
    assert values.pending == [second, second]
    assert values.accept(ballot(2), C) == [second]
    assert values.newest == second
    assert values.is_chosen(FIRST)
    assert values.pending == []


def test_what_a_chosen_value_was_built_on_is_chosen_with_it() -> None:
    values, second = ChosenValues(FIRST), FIRST.with_content(b"second")
    third = second.with_content(b"third")
    values.propose(ballot(1), second)
    values.accept(ballot(1), A)
    values.promise(ballot(2), ballot(1), second)
    values.propose(ballot(2), third)
    values.accept(ballot(2), A)
    assert values.accept(ballot(2), B) == [second, third]
    assert values.accept(ballot(1), C) == []  # it was chosen long ago


def test_a_value_is_built_on_what_was_told_with_the_promises_of_its_ballot() -> None:
    """Not on what one acceptor accepted that gave none."""
    values, second = ChosenValues(FIRST), FIRST.with_content(b"second")
    third = second.with_content(b"third")
    values.propose(ballot(1, 2), FIRST.with_content(b"another"))
    values.accept(ballot(1, 2), C)
    values.propose(ballot(1), second)
    values.accept(ballot(1), A)
    values.promise(ballot(2), ballot(1), second)
    values.promise(ballot(2), ballot(0), FIRST)
    values.propose(ballot(2), third)
    values.accept(ballot(2), A)
    assert values.accept(ballot(2), B) == [second, third]


def test_a_value_that_was_proposed_once_more_leads_to_what_it_was_built_on_at_first() -> None:
    values, second = ChosenValues(FIRST), FIRST.with_content(b"second")
    third = second.with_content(b"third")
    values.promise(ballot(2), ballot(1), second)
    values.propose(ballot(2), third)
    values.promise(ballot(3), ballot(2), third)
    values.propose(ballot(3), third)
    values.accept(ballot(3), A)
    assert values.accept(ballot(3), B) == [second, third]


def test_of_several_values_that_were_told_the_newest_counts_that_may_come_before() -> None:
    second, late = FIRST.with_content(b"second"), FIRST.with_content(b"late")
    third = second.with_content(b"third")

    def may_follow(before: AgreedValue, after: AgreedValue) -> bool:
        return before.content != b"late"

    for fits, built_on in ((may_follow, second), (follows, late)):
        values = ChosenValues(FIRST, fits)
        values.promise(ballot(3), ballot(1), second)
        values.promise(ballot(3), ballot(2), late)
        values.propose(ballot(3), third)
        values.accept(ballot(3), A)
        assert values.accept(ballot(3), B) == [built_on, third]


def test_two_chosen_values_of_one_change_are_a_fork() -> None:
    values = ChosenValues(FIRST)
    values.propose(ballot(1), FIRST.with_content(b"one"))
    values.propose(ballot(2), FIRST.with_content(b"another"))
    for one in (A, B):
        values.accept(ballot(1), one)
    values.accept(ballot(2), B)
    with pytest.raises(ForkError, match="is chosen, and so is"):
        values.accept(ballot(2), C)


def test_a_value_that_follows_from_nothing_is_a_fork() -> None:
    values = ChosenValues(FIRST)
    values.propose(ballot(1), FIRST.with_content(b"unseen").with_content(b"third"))
    values.accept(ballot(1), A)
    with pytest.raises(ForkError, match="doesn't follow"):
        values.accept(ballot(1), B)


def test_a_ballot_with_two_values_is_a_fork() -> None:
    values = ChosenValues(FIRST)
    values.propose(ballot(1), FIRST.with_content(b"one"))
    with pytest.raises(ForkError, match="two values are proposed"):
        values.propose(ballot(1), FIRST.with_content(b"another"))


def test_acceptors_change_by_way_of_a_joint_value_with_majorities_of_both() -> None:
    values, joint = ChosenValues(FIRST), FIRST.moved_to((B, C, D))
    values.propose(ballot(1), joint)
    for one in (C, D):
        assert values.accept(ballot(1), one) == []
    assert values.accept(ballot(1), B) == [joint]
    values.propose(ballot(2), joint.completed())
    assert values.accept(ballot(2), D) == []
    assert values.accept(ballot(2), B) == [joint.completed()]


def test_the_first_value_may_need_a_quorum_of_its_own() -> None:
    values = ChosenValues()
    assert values.newest is None
    values.propose(ballot(1), FIRST)
    values.accept(ballot(1), A)
    assert values.accept(ballot(1), C) == [FIRST]
