"""Followers catch up as fast as producers hardly notice, and do catch up."""

from __future__ import annotations

import attrs
from hypothesis import given, settings, strategies as st

from octopi.limits import CATCH_UP_GAIN
from octopi.replication.catch_up_pace import CatchUpPace, CatchUpProgress

MB = 1e6
STEP_S = 0.005


@attrs.define
class Machine:
    """What producers and followers that catch up share, as a fluid; has its own time."""

    alone: float
    """What producers manage by themselves (bytes/s)."""
    loss: float
    """The share of that which they lose while followers are sent something."""
    quickest: float
    """What followers take (bytes/s)."""
    lacking: float = 0.0
    now: float = 50.0
    produced: float = 0.0
    sent: float = 0.0
    on_their_way: float = 0.0
    runs_s: float = 0.0

    def seen(self) -> CatchUpProgress:
        return CatchUpProgress(
            self.now,
            round(self.produced),
            round(self.sent),
            round(self.lacking),
            round(self.on_their_way),
        )

    def step(self, pace: CatchUpPace) -> None:
        pace.look(self.seen())
        self.now += STEP_S
        taken = min(self.quickest * STEP_S, self.on_their_way + self.lacking)
        runs = pace.may_send or self.on_their_way > 0
        produced = self.alone * (1 - self.loss * runs) * STEP_S
        if pace.may_send:
            window = min(self.lacking, self.quickest * 0.03)
            sent = min(self.lacking, max(0.0, taken + window - self.on_their_way))
            self.sent += sent
            self.lacking -= sent
            self.on_their_way += sent
            self.runs_s += STEP_S
        self.on_their_way = max(0.0, self.on_their_way - taken)
        self.produced += produced
        self.lacking += produced

    def go_on(self, pace: CatchUpPace, seconds: float) -> float:
        """Let some time pass; returns what producers lost of their rate in it."""
        produced, until = self.produced, self.now + seconds
        while self.now < until:
            self.step(pace)
        return 1 - (self.produced - produced) / (self.alone * seconds) if self.alone else 0.0

    def catch_up(self, pace: CatchUpPace) -> float:
        """Let time pass until hardly anything is lacking; returns how much."""
        began, missed = self.now, self.lacking
        while self.lacking > self.alone * 0.2:
            # As 1.25 bytes are sent for one that is produced; and a second to begin with.
            assert self.produced < 4.2 * missed + self.alone
            self.step(pace)
        return self.now - began


def test_producers_lose_as_much_speed_as_is_allowed_and_not_more() -> None:
    machine = Machine(alone=20 * MB, loss=0.5, quickest=150 * MB, lacking=10_000 * MB)
    pace = CatchUpPace(0.2, machine.seen())
    machine.go_on(pace, 3)
    assert 0.15 < machine.go_on(pace, 20) <= 0.21


def test_a_follower_hardly_ever_rests_if_producers_lose_nothing() -> None:
    machine = Machine(alone=20 * MB, loss=0, quickest=100 * MB, lacking=10_000 * MB)
    pace = CatchUpPace(0.2, machine.seen())
    machine.go_on(pace, 20)
    assert machine.sent > 0.85 * 20 * machine.quickest


def test_a_follower_rests_only_once_if_nobody_produces() -> None:
    machine = Machine(alone=0, loss=0, quickest=100 * MB, lacking=10_000 * MB)
    pace = CatchUpPace(0.2, machine.seen())
    machine.go_on(pace, 20)
    assert 0.1 <= 20 - machine.runs_s < 0.2


def test_producers_that_start_during_catching_up_lose_no_more_than_allowed() -> None:
    machine = Machine(alone=0, loss=0.5, quickest=150 * MB, lacking=10_000 * MB)
    pace = CatchUpPace(0.2, machine.seen())
    machine.go_on(pace, 20)
    machine.alone = 20 * MB
    machine.go_on(pace, 3)
    assert 0.15 < machine.go_on(pace, 20) <= 0.21


def test_producers_that_paused_lose_no_more_than_allowed() -> None:
    machine = Machine(alone=20 * MB, loss=0.5, quickest=150 * MB, lacking=10_000 * MB)
    pace = CatchUpPace(0.2, machine.seen())
    machine.go_on(pace, 10)
    machine.alone = 0
    machine.go_on(pace, 10)
    machine.alone = 20 * MB
    machine.go_on(pace, 5)
    assert 0.15 < machine.go_on(pace, 20) <= 0.21


def test_occasional_messages_do_not_count_as_a_cost_of_catching_up() -> None:
    machine = Machine(alone=0, loss=0, quickest=100 * MB, lacking=10_000 * MB)
    pace = CatchUpPace(0.2, machine.seen())
    while machine.now < 70:
        machine.go_on(pace, 0.5)
        # By chance they come in rests only.
        machine.produced += 0 if pace.may_send else 1000
    assert machine.sent > 0.85 * 20 * machine.quickest


def test_a_follower_catches_up_even_if_producers_could_use_all_the_bandwidth() -> None:
    machine = Machine(alone=40 * MB, loss=0.9, quickest=60 * MB, lacking=800 * MB)
    pace = CatchUpPace(0.0, machine.seen())
    machine.catch_up(pace)
    assert machine.produced > 3 * 800 * MB  # and not sooner than it has to be


def test_a_change_of_the_cost_of_catching_up_is_learned() -> None:
    machine = Machine(alone=20 * MB, loss=0, quickest=150 * MB, lacking=100_000 * MB)
    pace = CatchUpPace(0.2, machine.seen())
    machine.go_on(pace, 20)
    assert pace.loss < 0.05
    machine.loss = 0.6
    machine.go_on(pace, 5)
    assert 0.15 < machine.go_on(pace, 20) <= 0.22
    machine.loss = 0
    machine.go_on(pace, 5)
    before = machine.sent
    machine.go_on(pace, 20)
    assert machine.sent - before > 0.85 * 20 * machine.quickest


def test_a_follower_that_hung_need_not_make_up_for_that_time() -> None:
    machine = Machine(alone=20 * MB, loss=0.5, quickest=150 * MB, lacking=10_000 * MB)
    pace = CatchUpPace(0.2, machine.seen())
    machine.go_on(pace, 3)
    machine.quickest = 0
    machine.go_on(pace, 240)
    machine.quickest = 150 * MB
    machine.go_on(pace, 5)
    assert machine.go_on(pace, 20) <= 0.22


def test_a_rest_begins_when_the_sent_bytes_are_acknowledged() -> None:
    def seen(now: float, *, sent: int, lacking: int, on_their_way: int) -> CatchUpProgress:
        return CatchUpProgress(now, round(now * 1000), sent, lacking, on_their_way)

    pace = CatchUpPace(0.2, seen(0, sent=0, lacking=1000, on_their_way=0))
    pace.look(seen(pace.look_at, sent=0, lacking=1000, on_their_way=0))
    pace.look(seen(pace.look_at, sent=0, lacking=1000, on_their_way=0))
    assert pace.may_send
    ended_at = pace.look_at
    pace.look(seen(ended_at, sent=500, lacking=500, on_their_way=300))
    assert not pace.may_send
    pace.look(seen(ended_at + 0.2, sent=500, lacking=500, on_their_way=1))
    assert pace.look_at < ended_at + 0.22  # the rest hasn't begun
    pace.look(seen(pace.look_at, sent=500, lacking=500, on_their_way=0))
    assert pace.look_at > ended_at + 0.3


def test_followers_that_come_and_go_do_not_change_the_measured_progress() -> None:
    machine = Machine(alone=40 * MB, loss=0.9, quickest=60 * MB, lacking=1_000 * MB)
    pace = CatchUpPace(0.0, machine.seen())
    machine.go_on(pace, 10)
    runs_s = machine.runs_s
    machine.go_on(pace, 10)
    usual_s = machine.runs_s - runs_s
    for difference in (5_000 * MB, -5_000 * MB) * 3:
        machine.lacking += difference
        pace.lacking_changed(round(difference))
        runs_s = machine.runs_s
        machine.go_on(pace, 10)
        assert abs(machine.runs_s - runs_s - usual_s) < 0.2 * usual_s


@settings(max_examples=40, deadline=None)
@given(
    alone=st.floats(1 * MB, 100 * MB),
    loss=st.floats(0, 0.95),
    headroom=st.floats(1.5, 10),
    slowdown_max=st.floats(0, 1),
    away_s=st.floats(1, 10),
)
def test_catching_up_always_ends_and_slows_producers_no_more_than_that_needs(
    alone: float, loss: float, headroom: float, slowdown_max: float, away_s: float
) -> None:
    machine = Machine(alone, loss, quickest=alone * headroom, lacking=alone * away_s)
    pace = CatchUpPace(slowdown_max, machine.seen())
    took_s = machine.catch_up(pace)
    lost = 1 - machine.produced / (alone * took_s)
    # What it sends beyond what it has to, it sends within what producers may lose.
    has_to_s = machine.produced / (1 - CATCH_UP_GAIN) / machine.quickest
    unknowing_s = 1.0  # to begin with
    assert lost <= max(slowdown_max, loss * has_to_s / took_s) + loss * unknowing_s / took_s + 0.1
