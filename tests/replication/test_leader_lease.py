"""No leader begins while another one has the right, however clocks, messages and processes go; and
each rule that is left out is missed."""

from __future__ import annotations

from math import inf
from random import Random
from typing import Any

import attrs
import pytest

from octopi.identifiers import BrokerId, Epoch
from octopi.limits import FENCE_S, SUSPECT_S
from octopi.replication import leader_lease
from octopi.replication.leader_lease import FollowerGrant, LeaderLease

ONE, TWO = BrokerId(1), BrokerId(2)
OLD, NEW = Epoch(4), Epoch(5)
SLOW, FAST = 0.93, 1.07
"""Rates of clocks that differ by less than 14 percent."""
WALKS = 1_500
STEPS = 60


# --- the rules, one by one ---------------------------------------------------------------------


def test_the_right_is_as_old_as_the_oldest_grant_of_all_followers() -> None:
    lease = LeaderLease()
    assert lease.until([ONE, TWO]) == -inf
    lease.granted(ONE, 10.0)
    assert lease.until([ONE, TWO]) == -inf
    lease.granted(TWO, 9.0)
    assert lease.until([ONE, TWO]) == 9.0 + FENCE_S
    lease.granted(TWO, 8.0)  # it comes late
    assert lease.until([ONE, TWO]) == 9.0 + FENCE_S
    assert lease.until([ONE]) == 10.0 + FENCE_S


def test_a_leader_that_is_alone_needs_no_grant() -> None:
    assert LeaderLease().until([]) == inf


def test_a_leader_that_has_given_up_never_has_the_right_again() -> None:
    lease = LeaderLease()
    lease.granted(ONE, 10.0)
    lease.give_up()
    lease.granted(ONE, 11.0)
    assert lease.until([ONE]) == lease.until([]) == -inf


def test_a_follower_promises_nothing_while_it_holds_a_grant_or_has_just_started() -> None:
    grant = FollowerGrant(OLD, 10.0)
    assert not grant.may_promise(NEW, 10.0 + SUSPECT_S - 0.01)
    assert grant.may_promise(OLD, 10.0)
    assert grant.grant(OLD, 10.5)
    assert not grant.may_promise(NEW, 10.5 + SUSPECT_S - 0.01)
    assert grant.may_promise(NEW, 10.5 + SUSPECT_S)


def test_a_follower_that_has_promised_grants_nothing_to_the_leader_before() -> None:
    grant = FollowerGrant(OLD, 10.0)
    grant.promise(NEW, 10.0 + SUSPECT_S)
    assert not grant.grant(OLD, 12.0)
    assert grant.grant(NEW, 12.0)
    grant.free(OLD)  # too late: it is another leader's by now
    assert not grant.may_promise(Epoch(NEW + 1), 12.0)


def test_a_follower_is_free_at_once_when_the_leader_has_given_up_or_is_gone() -> None:
    grant = FollowerGrant(OLD, 10.0)
    grant.free(OLD)
    assert grant.may_promise(NEW, 10.0)


# --- all together ------------------------------------------------------------------------------


class TwoLeadersError(Exception):
    """A leader has begun while another one has the right."""


class WithAnyFollower(LeaderLease):
    def until(self, grantors: Any) -> float:  # noqa: ANN401
        return max((super(WithAnyFollower, self).until([one]) for one in grantors), default=inf)


class Forgetting(FollowerGrant):
    def __init__(self, promised: Epoch, now: float) -> None:
        super().__init__(promised, now)
        self.held_until = -inf


class GrantingToAll(FollowerGrant):
    def grant(self, epoch: Epoch, now: float) -> bool:
        self.held_until = max(self.held_until, now + SUSPECT_S)
        return True


@attrs.define
class _Rules:
    lease: type[LeaderLease] = LeaderLease
    grant: type[FollowerGrant] = FollowerGrant
    counts_from_answer: bool = False
    lost_connection_frees: bool = False
    ticks: tuple[float, ...] = (0.02, 0.1, 0.3, 0.7)


class _Scene:
    """A leader, two followers that are in sync, and an election that any of them may win.

    Times are true; the leader's clock is slow, and those of the followers are fast.
    """

    def __init__(self, rules: _Rules, randomness: Random) -> None:
        self.rules, self.random = rules, randomness
        self.now = 100.0
        self.lease = rules.lease()
        self.is_up = True
        self.has_given_up = False
        self.grants = {one: FollowerGrant(OLD, 0.0) for one in (ONE, TWO)}
        self.renewals: list[tuple[BrokerId, float]] = []
        self.answers: list[tuple[BrokerId, float]] = []
        self.new_leader: BrokerId | None = None

    def run(self) -> None:
        acts = (
            self.tick, self.tick, self.tick, self.send, self.send, self.take, self.take,
            self.answered, self.answered, self.lose, self.restart, self.promise, self.promise,
            self.lead, self.cut, self.kill, self.give_up,
        )  # fmt: skip
        for _ in range(STEPS):
            self.random.choice(acts)()
            self.check()

    def leaders_clock(self) -> float:
        return self.now * SLOW

    def followers_clock(self) -> float:
        return self.now * FAST

    def check(self) -> None:
        right = self.lease.until([ONE, TWO]) > self.leaders_clock()
        if self.new_leader is not None and self.is_up and right:
            raise TwoLeadersError

    def tick(self) -> None:
        self.now += self.random.choice(self.rules.ticks)

    def send(self) -> None:
        if self.is_up and not self.has_given_up:
            self.renewals.append((self.random.choice((ONE, TWO)), self.leaders_clock()))

    def take(self) -> None:
        if self.renewals:
            who, sent_at = self.renewals.pop(self.random.randrange(len(self.renewals)))
            if self.grants[who].grant(OLD, self.followers_clock()):
                self.answers.append((who, sent_at))

    def answered(self) -> None:
        if self.answers:
            who, sent_at = self.answers.pop(self.random.randrange(len(self.answers)))
            at = self.leaders_clock() if self.rules.counts_from_answer else sent_at
            self.lease.granted(who, at)

    def lose(self) -> None:
        if self.renewals and self.random.random() < 0.3:
            self.renewals.pop()

    def restart(self) -> None:
        if self.random.random() < 0.3:
            who = self.random.choice((ONE, TWO))
            promised = self.grants[who].promised
            self.grants[who] = self.rules.grant(promised, self.followers_clock())

    def promise(self) -> None:
        who = self.random.choice((ONE, TWO))
        if self.grants[who].may_promise(NEW, self.followers_clock()):
            self.grants[who].promise(NEW, self.followers_clock())

    def lead(self) -> None:
        who = self.random.choice((ONE, TWO))
        if self.grants[who].promised == NEW and self.new_leader is None:
            self.new_leader = who

    def cut(self) -> None:
        if self.rules.lost_connection_frees and self.random.random() < 0.1:
            self.grants[self.random.choice((ONE, TWO))].free(OLD)

    def kill(self) -> None:
        if self.random.random() < 0.02:
            self.is_up = False
            for grant in self.grants.values():
                grant.free(OLD)

    def give_up(self) -> None:
        if self.is_up and self.random.random() < 0.02:
            self.has_given_up = True
            self.lease.give_up()
            for grant in self.grants.values():
                grant.free(OLD)


def scenes(rules: _Rules) -> tuple[int, int]:
    """How many scenes broke the rule, and in how many another leader began."""
    broken = begun = 0
    for seed in range(WALKS):
        scene = _Scene(rules, Random(seed))
        for who in (ONE, TWO):
            scene.grants[who] = rules.grant(OLD, scene.followers_clock())
        try:
            scene.run()
        except TwoLeadersError:
            broken += 1
        begun += scene.new_leader is not None
    return broken, begun


AT_THE_EDGE = _Rules(ticks=(0.02, 0.05, 0.9))
"""Time goes on by about as long as a grant is held."""


@pytest.mark.parametrize("rules", [_Rules(), AT_THE_EDGE], ids=["by chance", "at the edge"])
def test_no_leader_begins_while_another_one_has_the_right(rules: _Rules) -> None:
    broken, begun = scenes(rules)
    assert broken == 0
    assert begun > WALKS // 4, "the scenes show something"


@pytest.mark.parametrize(
    "rules",
    [
        _Rules(lease=WithAnyFollower),
        _Rules(grant=Forgetting),
        _Rules(grant=GrantingToAll),
        _Rules(counts_from_answer=True),
        _Rules(lost_connection_frees=True),
    ],
    ids=[
        "one follower is enough",
        "a restarted follower forgets",
        "a follower grants after it has promised",
        "the right counts from the answer",
        "the end of a connection frees",
    ],
)
def test_a_rule_that_is_left_out_lets_two_leaders_have_the_right(rules: _Rules) -> None:
    assert scenes(rules)[0] > 0


def test_without_a_margin_two_leaders_have_the_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_lease, "FENCE_S", SUSPECT_S)
    assert scenes(AT_THE_EDGE)[0] > 0
