"""When a log is due for a flush."""

from __future__ import annotations

from octopi.storage.flush_policy import FlushOptions, FlushPolicy


def policy(messages: int = 100, size_bytes: int = 1000, interval_s: float = 5.0) -> FlushPolicy:
    return FlushPolicy(FlushOptions(messages, size_bytes, interval_s))


def test_a_log_without_appends_is_never_due() -> None:
    assert policy().due_at is None
    assert not policy(messages=0, size_bytes=0, interval_s=0.0).is_due(1e9)


def test_the_oldest_append_waits_no_longer_than_the_interval() -> None:
    one = policy()
    one.appended(1, 10, now=7.0)
    one.appended(1, 10, now=11.0)
    assert one.due_at == 12.0
    assert not one.is_due(11.9)
    assert one.is_due(12.0)


def test_enough_appended_messages_make_a_flush_due_at_once() -> None:
    one = policy(messages=3)
    one.appended(2, 10, now=7.0)
    assert not one.is_due(7.0)
    one.appended(1, 10, now=8.0)
    assert one.is_due(8.0)


def test_enough_appended_bytes_make_a_flush_due_at_once() -> None:
    one = policy()
    one.appended(1, 999, now=7.0)
    assert not one.is_due(7.0)
    one.appended(1, 1, now=7.0)
    assert one.is_due(7.0)


def test_a_flush_after_zero_messages_means_after_every_append() -> None:
    one = policy(messages=0)
    one.appended(1, 1, now=7.0)
    assert one.is_due(7.0)


def test_records_appended_during_a_flush_belong_to_the_next_one() -> None:
    one = policy(messages=2)
    one.appended(2, 10, now=7.0)
    one.flushing()
    assert one.due_at is None
    one.appended(1, 10, now=8.0)
    assert one.due_at == 13.0
    one.appended(1, 10, now=9.0)
    assert one.is_due(9.0)
