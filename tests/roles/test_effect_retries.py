"""Which effects a replica retries, and in which order, once its disk takes writes again."""

from __future__ import annotations

from octopi.identifiers import Offset, TopicId
from octopi.replication.effects import (
    FollowLeader,
    OnLog,
    PublishHighwater,
    ReplicaState,
    StoreState,
    SyncLogs,
    Truncate,
)
from octopi.roles.broker.effect_retries import EffectRetries

ONE, OTHER = TopicId("one"), TopicId("other")
STATE = ReplicaState(promised=3)


def test_retries_come_in_the_order_logs_then_state_then_what_readers_see() -> None:
    retries = EffectRetries()
    shown = OnLog(ONE, PublishHighwater(Offset(5)))
    for effect in (shown, StoreState(ReplicaState()), SyncLogs(), OnLog(ONE, Truncate(Offset(5)))):
        retries.add(effect)
    assert retries.in_order(STATE) == [
        OnLog(ONE, Truncate(Offset(5))),
        SyncLogs(),
        StoreState(STATE),
        shown,
    ]


def test_only_the_newest_effect_of_a_kind_is_retried_for_each_log() -> None:
    retries = EffectRetries()
    assert retries.add(OnLog(ONE, Truncate(Offset(9))))
    assert retries.add(OnLog(OTHER, Truncate(Offset(7))))
    assert not retries.add(OnLog(ONE, Truncate(Offset(4))))
    assert retries.in_order(STATE) == [
        OnLog(OTHER, Truncate(Offset(7))),
        OnLog(ONE, Truncate(Offset(4))),
    ]


def test_a_new_session_begins_after_retries_if_a_part_of_the_old_one_was_left_out() -> None:
    retries = EffectRetries()
    retries.add(SyncLogs())
    retries.add_following(StoreState(STATE))
    retries.add_following(FollowLeader(2))
    assert retries.in_order(STATE) == [SyncLogs(), StoreState(STATE)]
    assert not retries.done(SyncLogs())
    assert retries.done(StoreState(STATE))
    assert not retries.done(SyncLogs())  # the new session was asked for


def test_no_new_session_begins_after_retries_if_nothing_was_left_out() -> None:
    retries = EffectRetries()
    retries.add(SyncLogs())
    assert not retries.done(SyncLogs())
    assert retries.in_order(STATE) == []
