"""Known mistakes, planted one by one: the rules of random walks of registers notice each of them.

The search through all runs of a few terms has further ones (`tests.agreement.test_journal_scope`):
those that need a rare order of steps.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from octopi.agreement.journal.effects import JournalEffect, SendNow, SendWhenDurable
from octopi.agreement.journal.replica import JournalReplica
from octopi.wire.registers import EntriesSent, VoteRequest
from tests.agreement.registers import Register, Registers, walk

Plant = Callable[[pytest.MonkeyPatch], None]

WALKS = 300
STEPS = 600


def any_journal_is_new_enough(patch: pytest.MonkeyPatch) -> None:
    asked = JournalReplica._asked

    def trusting(self: JournalReplica, request: VoteRequest, now: float) -> list[JournalEffect]:
        if request.end:
            end = max(request.end, self.history.end)
            term = max(request.end_term, self.history.end_term)
            request = attrs.evolve(request, end=end, end_term=term)
        return asked(self, request, now)

    patch.setattr(JournalReplica, "_asked", trusting)


def a_register_votes_twice(patch: pytest.MonkeyPatch) -> None:
    asked = JournalReplica._asked

    def forgetful(self: JournalReplica, request: VoteRequest, now: float) -> list[JournalEffect]:
        if not request.is_trial:
            self.vote = None
        return asked(self, request, now)

    patch.setattr(JournalReplica, "_asked", forgetful)


def what_is_not_durable_is_told(patch: pytest.MonkeyPatch) -> None:
    perform = Registers._perform

    def hasty(self: Registers, register: Register, effects: list[JournalEffect]) -> None:
        at_once: list[JournalEffect] = [
            SendNow(one.address, one.message) if isinstance(one, SendWhenDurable) else one
            for one in effects
        ]
        perform(self, register, at_once)

    patch.setattr(Registers, "_perform", hasty)


def an_active_register_decides_before_it_knows_what_was_decided(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JournalReplica, "may_decide", property(lambda self: self.is_active))


def voters_change_again_before_the_first_change_is_committed(patch: pytest.MonkeyPatch) -> None:
    mend = JournalReplica._mend

    def hasty(self: JournalReplica, now: float) -> list[JournalEffect]:
        committed, self.committed = self.committed, self.history.end
        try:
            return mend(self, now)
        finally:
            self.committed = committed

    patch.setattr(JournalReplica, "_mend", hasty)


def entries_are_stored_behind_others(patch: pytest.MonkeyPatch) -> None:
    take = JournalReplica._take

    def trusting(self: JournalReplica, sent: EntriesSent) -> list[JournalEffect]:
        if self.history.snapshot.end <= sent.start <= self.history.end:
            sent = attrs.evolve(sent, term_before=self.history.term_before(sent.start))
        return take(self, sent)

    patch.setattr(JournalReplica, "_take", trusting)


@pytest.mark.parametrize(
    "plant",
    [
        any_journal_is_new_enough,
        a_register_votes_twice,
        what_is_not_durable_is_told,
        an_active_register_decides_before_it_knows_what_was_decided,
        voters_change_again_before_the_first_change_is_committed,
        entries_are_stored_behind_others,
    ],
    ids=lambda plant: plant.__name__,
)
def test_walks_notice_that(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        walk_all()


def walk_all() -> None:
    """Walk until a rule is broken."""
    for seed in range(WALKS):
        walk(seed, STEPS)
