"""How far the slowest subscription is, as a replica reads it in its log ``~subscriptions``."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from octopi.identifiers import Offset, SubscriptionId, SubscriptionName, TopicId
from octopi.subscriptions.entries import MarkEntry, UnreadableEntryError, mark_key, to_map
from octopi.subscriptions.known_marks import KnownMarks, SlowestMark

ORDERS, CLICKS = TopicId("1" * 16), TopicId("2" * 16)
DAY_MS = 86_400_000


def key(number: int, topic: TopicId = ORDERS) -> str:
    return mark_key(SubscriptionId(f"{number:016x}"), topic)


def value(mark: int, name: str = "billing", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return to_map(MarkEntry(SubscriptionName(name), "orders", Offset(mark), **more))


class Log:
    """A log in which each entry takes ten bytes."""

    def __init__(self) -> None:
        self.known = KnownMarks(Offset(0))
        self.end = 0

    def append(self, at: str, what: dict[str, Any] | None) -> None:
        self.end += 10
        self.known.read(at, what, Offset(self.end))

    def commit(self, *, but: int = 0) -> None:
        """All but so many of the newest entries are committed."""
        self.known.commit(Offset(self.end - 10 * but))

    def slowest(self, topic: TopicId = ORDERS, now_ms: int = 0) -> int | None:
        found = self.known.slowest(topic, now_ms)
        return None if found is None else found.offset


def test_the_least_mark_of_a_log_is_known_with_its_subscription() -> None:
    log = Log()
    log.append(key(1), value(700, "fast"))
    log.append(key(2), value(300, "slow"))
    log.append(key(3, CLICKS), value(5, "other"))
    log.commit()
    assert log.known.slowest(ORDERS, 0) == SlowestMark(Offset(300), "slow")
    assert log.slowest(CLICKS) == 5
    assert log.slowest(TopicId("3" * 16)) is None


def test_a_newer_mark_counts_when_it_is_committed() -> None:
    log = Log()
    log.append(key(1), value(100))
    log.append(key(1), value(200))
    log.commit(but=1)
    assert log.slowest() == 100
    log.commit()
    assert log.slowest() == 200


def test_a_mark_that_goes_back_counts_before_it_is_committed() -> None:
    log = Log()
    log.append(key(1), value(200))
    log.commit()
    log.append(key(1), value(50))
    assert log.slowest() == 50
    log.append(key(1), value(150))
    log.commit(but=1)
    assert log.slowest() == 50
    log.commit()
    assert log.slowest() == 150


def test_a_new_subscription_counts_before_it_is_committed() -> None:
    log = Log()
    log.append(key(1), value(0))
    assert log.slowest() == 0


def test_a_deleted_subscription_holds_nothing_once_that_is_committed() -> None:
    log = Log()
    log.append(key(1), value(10))
    log.append(key(2), value(90))
    log.append(key(1), None)
    log.commit(but=1)
    assert log.slowest() == 10
    log.commit()
    assert log.slowest() == 90
    log.append(key(2), None)
    log.append(key(2), value(95))
    log.append(key(2), None)
    log.commit()
    assert log.slowest() is None
    log.append(key(2), None)
    log.commit()
    assert log.slowest() is None


def test_a_subscription_that_nobody_used_for_as_long_as_it_lives_holds_nothing() -> None:
    log = Log()
    log.append(key(1), value(10, changed_ms=1000, expires_ms=500))
    log.append(key(2), value(20, changed_ms=1000))
    log.append(key(3), value(30, changed_ms=1000, expires_ms=None))
    log.commit()
    assert log.slowest(now_ms=1499) == 10
    assert log.slowest(now_ms=1500) == 20
    assert log.slowest(now_ms=1000 + 7 * DAY_MS) == 30


def test_entries_of_other_kinds_say_nothing_of_marks() -> None:
    log = Log()
    log.append("x/begin", {})
    log.append(f"s/{1:016x}", {"topic": "orders"})
    log.commit()
    assert log.slowest() is None
    assert log.known.end == 20


@pytest.mark.parametrize(
    "damaged", [{}, {"mark": 1}, {"mark": 1, "name": "b", "changed_ms": "x", "expires_ms": 1}]
)
def test_a_mark_that_cannot_be_read_is_an_error(damaged: dict[str, Any]) -> None:
    with pytest.raises(UnreadableEntryError, match="k/0"):
        Log().append(key(1), damaged)


_STEPS = st.lists(
    st.tuples(st.integers(1, 3), st.none() | st.integers(0, 50)) | st.just("commit"), max_size=30
)


@given(_STEPS, st.integers(0, 5))
def test_every_mark_that_may_count_is_known(steps: list[Any], behind: int) -> None:
    """Of each key counts the newest committed entry, and all behind it."""
    log, entries, committed = Log(), list[tuple[int, int | None]](), 0
    for step in steps:
        if step == "commit":
            committed = max(committed, len(entries) - behind)
            log.known.commit(Offset(10 * committed))
        else:
            number, mark = step
            log.append(key(number), None if mark is None else value(mark))
            entries.append(step)
    expected: list[int] = []
    for number in {one for one, _ in entries}:
        ours = [(at, mark) for at, (one, mark) in enumerate(entries) if one == number]
        before = [at for at, _ in ours if at < committed]
        newest = max(before, default=-1)
        expected += [mark for at, mark in ours if at >= newest and mark is not None]
    assert log.slowest() == min(expected, default=None)
