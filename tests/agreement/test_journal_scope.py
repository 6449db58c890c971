"""All runs of a few terms of three registers keep the rules, and planted mistakes break one.

The numbers of states are the sizes of the searches; a change of the code that makes one smaller
should be understood.
"""

from __future__ import annotations

import pytest

from octopi.agreement.journal.replica import JournalReplica
from octopi.agreement.journal.stored import StoredState
from octopi.agreement.journal.voters import most_of
from octopi.wire.registers import RegisterId
from tests.agreement import journal_scope
from tests.agreement.journal_scope import Bounds, Found, JournalSearch


def test_three_registers_decide_one_history_in_all_runs_of_two_elections() -> None:
    assert JournalSearch(Bounds(campaigns=2, proposals=1)).run() == Found("", 3_645, [])


def test_a_journal_begins_once_in_all_runs_in_which_a_disk_is_lost() -> None:
    bounds = Bounds(campaigns=2, proposals=0, wipes=1)
    assert JournalSearch(bounds, is_founded=False).run() == Found("", 5_741, [])


def test_a_vote_that_is_not_stored_makes_two_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_scope, "stored_vote", lambda replica: None)
    found = JournalSearch(Bounds(campaigns=2, proposals=0, restarts=1)).run()
    assert found.fault == "two are active in term 2"
    assert len(found.steps) == 3


def test_a_journal_that_a_majority_begins_is_begun_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: JournalReplica, votes: set[RegisterId]) -> bool:
        voters = self.history.voters if self.is_founded else self._founding
        return bool(voters) and most_of(votes, voters)

    monkeypatch.setattr(JournalReplica, "_is_enough", hasty)
    found = JournalSearch(Bounds(campaigns=2, proposals=0, wipes=1), is_founded=False).run()
    assert found.fault == "two are active in term 1"
    assert len(found.steps) == 3


def test_a_register_that_keeps_its_name_without_its_disk_votes_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        journal_scope,
        "new_disk",
        lambda replica: journal_scope.started(replica.identity, StoredState()),
    )
    found = JournalSearch(Bounds(campaigns=2, proposals=0, wipes=1)).run()
    assert found.fault == "two are active in term 2"
    assert len(found.steps) == 3
