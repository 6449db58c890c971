"""The right to lead counts from when a pulse was sent, and needs a quorum; who is silent is
suspected later than that."""

from __future__ import annotations

from math import inf

from octopi.agreement.heard import HeardBrokers
from octopi.agreement.lease import Lease
from octopi.agreement.values import first_value
from octopi.identifiers import BrokerId, DirectoryId, Incarnation
from octopi.limits import FENCE_S, SUSPECT_S
from octopi.wire.agreement import AcceptorId

A, B, C, D, E = (AcceptorId(BrokerId(one), DirectoryId("d")) for one in range(1, 6))
VALUE = first_value([A, B, C], b"")
LEADER = BrokerId(1)
LIFE = Incarnation(3)


def lease(**sent_at: float) -> Lease:
    made = Lease()
    for name, at in sent_at.items():
        made.granted({"a": A, "b": B, "c": C, "d": D, "e": E}[name], at)
    return made


def test_without_a_majority_there_is_no_right() -> None:
    assert lease().until(VALUE) == -inf
    assert lease(a=10.0).until(VALUE) == -inf
    assert lease(a=10.0, d=10.0, e=10.0).until(VALUE) == -inf


def test_the_right_counts_from_the_newest_pulse_that_a_majority_has_answered() -> None:
    assert lease(a=10.0, b=9.0, c=8.0).until(VALUE) == 9.0 + FENCE_S
    assert lease(a=10.0, c=8.0).until(VALUE) == 8.0 + FENCE_S


def test_an_answer_that_comes_late_takes_nothing_away() -> None:
    made = lease(a=10.0, b=9.0)
    made.granted(B, 5.0)
    assert made.until(VALUE) == 9.0 + FENCE_S


def test_while_the_acceptors_change_both_groups_have_to_grant_it() -> None:
    joint = VALUE.moved_to([C, D, E])
    assert lease(a=10.0, b=10.0, c=10.0).until(joint) == -inf
    assert lease(a=10.0, b=10.0, d=9.0, e=9.5).until(joint) == 9.0 + FENCE_S


def heard(at: float) -> HeardBrokers:
    made = HeardBrokers(0.0)
    made.hear(LEADER, LIFE, at)
    return made


def test_a_broker_is_suspected_when_it_was_silent_for_long_enough() -> None:
    brokers = heard(5.0)
    assert not brokers.is_suspected(LEADER, LIFE, 5.0 + SUSPECT_S - 0.01)
    assert brokers.is_suspected(LEADER, LIFE, 5.0 + SUSPECT_S)
    assert brokers.live(5.0) == {LEADER}
    assert brokers.live(5.0 + SUSPECT_S) == frozenset()


def test_a_pulse_ends_the_suspicion() -> None:
    brokers = heard(5.0)
    brokers.hear(LEADER, LIFE, 9.0)
    assert not brokers.is_suspected(LEADER, LIFE, 9.5)


def test_a_process_that_was_followed_by_another_one_is_dead() -> None:
    brokers = heard(5.0)
    brokers.hear(LEADER, Incarnation(LIFE + 1), 5.1)
    assert brokers.is_suspected(LEADER, LIFE, 5.1)
    assert not brokers.is_suspected(LEADER, Incarnation(LIFE + 1), 5.1)
    brokers.hear(LEADER, LIFE, 5.2)  # late
    assert brokers.is_suspected(LEADER, LIFE, 5.2)


def test_a_process_that_has_ended_is_suspected_at_once_until_it_is_heard() -> None:
    brokers = heard(5.0)
    brokers.hear_end(LEADER)
    brokers.hear_end(BrokerId(9))  # nobody knew it
    assert brokers.is_suspected(LEADER, LIFE, 5.0)
    assert brokers.live(5.0) == frozenset()
    brokers.hear(LEADER, LIFE, 5.1)
    assert not brokers.is_suspected(LEADER, LIFE, 5.1)


def test_a_broker_that_was_just_restarted_suspects_nobody() -> None:
    brokers = HeardBrokers(100.0)
    assert not brokers.is_suspected(LEADER, LIFE, 100.0 + SUSPECT_S - 0.01)
    assert brokers.is_suspected(LEADER, LIFE, 100.0 + SUSPECT_S)
    brokers.hear(LEADER, LIFE, 100.0)
    later = Incarnation(LIFE + 1)  # registered since, and never heard
    assert not brokers.is_suspected(LEADER, later, 100.5)
