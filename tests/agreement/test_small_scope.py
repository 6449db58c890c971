"""All runs of a few ballots keep the rules, and each planted mistake breaks one.

The numbers of states are the sizes of the searches; a change of the code that makes one smaller
should be understood.
"""

from __future__ import annotations

import pytest

from octopi.agreement import proposals
from octopi.agreement.proposals import Change, Proposal
from octopi.wire.agreement import AgreedValue, is_majority
from tests.agreement.small_scope import A, B, C, D, Found, Search

FOUR = (A, B, C, D)


def test_one_group_chooses_one_history_in_all_runs_of_three_ballots() -> None:
    assert Search(3).run() == Found("", 11_251, [])


def test_moving_acceptors_choose_one_history_in_all_runs_of_two_ballots() -> None:
    assert Search(2, FOUR, moves=True).run() == Found("", 6_200, [])


def test_moving_acceptors_choose_one_history_in_runs_of_three_ballots() -> None:
    """Among them are all in which a move is completed."""
    assert Search(3, FOUR, moves=True, together=True).run() == Found("", 51_397, [])


def test_a_refusal_that_is_believed_too_early_comes_true() -> None:
    found = Search(4, together=True, confirms=False).run()
    assert found.fault == "q was believed to be refused and is chosen"
    assert len(found.steps) == 8


def test_a_proposal_without_promises_forks_the_history() -> None:
    assert "two histories" in Search(3, prepares=False).run().fault


def test_a_promise_that_is_not_stored_forks_the_history() -> None:
    assert "two histories" in Search(2, lasting=False).run().fault


def test_an_acceptor_without_its_disk_forks_the_history() -> None:
    assert "two histories" in Search(2, forgets=True).run().fault


def test_a_ballot_that_is_used_twice_forks_the_history() -> None:
    assert "two histories" in Search(3, reuses=True).run().fault


def test_acceptors_that_change_by_one_majority_fork_the_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The joint value asks only for the new acceptors."""
    monkeypatch.setattr(
        "tests.agreement.small_scope.is_chosen",
        lambda value, accepted: is_majority(accepted, value.acceptors),
    )
    found = Search(3, FOUR, moves=True, together=True).run()
    assert found.fault == "two values with the count 1 are chosen"
    assert len(found.steps) == 6


def test_a_move_that_is_completed_before_its_joint_value_is_chosen_forks_the_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known_as_chosen = proposals.proposal

    def hasty(read: AgreedValue, known: AgreedValue, change: Change) -> Proposal:
        return known_as_chosen(read, read, change)

    monkeypatch.setattr(proposals, "proposal", hasty)
    assert "two histories" in Search(3, FOUR, moves=True, together=True).run().fault
