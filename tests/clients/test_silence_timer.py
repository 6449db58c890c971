"""When to ask about somebody who says nothing."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given, strategies as st

from octopi.clients.suspicion import SilenceTimer
from octopi.limits import QUESTION_INTERVAL_S, SILENCE_GROWTH

FIRST_S = 0.4


class Peer:
    """Somebody who said something at *spoke_at*; None: nothing is expected of it."""

    def __init__(self, spoke_at: float | None = 100.0) -> None:
        self.spoke_at = spoke_at
        self.silence = SilenceTimer(FIRST_S, lambda: self.spoke_at)

    def ask(self) -> float:
        """The next time to ask, after which it was asked."""
        due_at = self.silence.due_at()
        self.silence.asked(due_at)
        return due_at


def test_questions_about_a_silent_broker_become_rarer() -> None:
    peer = Peer()
    asked = [peer.ask() - 100 for _ in range(12)]
    assert math.isclose(asked[0], FIRST_S)
    for before, after in pairwise(asked):
        assert math.isclose(after, before * SILENCE_GROWTH, rel_tol=1e-6)
    assert asked[11] > 15


def test_a_message_of_the_broker_makes_the_timer_begin_anew() -> None:
    peer = Peer()
    for _ in range(5):
        peer.ask()
    peer.spoke_at = 103.0
    assert peer.silence.due_at() == 103.0 + FIRST_S


def test_a_message_during_a_question_counts_more_than_the_answer_that_nobody_leads() -> None:
    peer = Peer()
    now = peer.ask()
    peer.spoke_at = now + 5  # the next word is owed then
    peer.silence.no_leader(now)
    assert peer.ask() == now + 5 + FIRST_S
    assert peer.ask() > now + 5 + FIRST_S


def test_no_question_is_due_about_a_broker_that_owes_nothing() -> None:
    peer = Peer(None)
    assert peer.silence.due_at() == math.inf
    peer.silence.no_leader(100.0)
    assert peer.silence.due_at() == math.inf
    peer.spoke_at = 101.0
    assert peer.silence.due_at() == 101.0 + FIRST_S


def test_while_nobody_leads_questions_are_soon_at_first_and_then_rarer() -> None:
    peer = Peer()
    for _ in range(4):
        now = peer.ask()
    waits = []
    for _ in range(3):
        peer.silence.no_leader(now)
        waits.append(peer.silence.due_at() - now)
        now = peer.ask()
    expected = [QUESTION_INTERVAL_S * factor for factor in (1, 2, 4)]
    assert all(math.isclose(*pair, rel_tol=1e-6) for pair in zip(waits, expected, strict=True))


@given(late=st.lists(st.floats(0, 30), min_size=1), nobody=st.booleans())
def test_the_next_question_is_always_later_than_the_last(late: list[float], nobody: bool) -> None:
    peer = Peer()
    for seconds in late:
        now = peer.silence.due_at() + seconds
        peer.silence.asked(now)
        if nobody:
            peer.silence.no_leader(now)
        assert peer.silence.due_at() >= now + QUESTION_INTERVAL_S / 2
