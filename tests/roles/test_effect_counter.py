"""What a broker counts of durable subscriptions as it performs what their machine wants."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from octopi.errors import Status
from octopi.identifiers import Claim, Offset, PartitionId, SubscriptionId, SubscriptionName, TopicId
from octopi.metrics.highwater_times import SAMPLES_COUNT_MAX, HighwaterTimes
from octopi.metrics.labelled_counter import LabelledCounter
from octopi.metrics.subscription_counts import SubscriptionCounts
from octopi.model import SubscriptionMode
from octopi.roles.broker.subscriptions.effect_counter import EffectCounter
from octopi.subscriptions import effects as e
from octopi.subscriptions.entries import (
    AssignmentEntry,
    AssignmentPhase,
    LostSpan,
    MarkEntry,
    mark_key,
    to_map,
)
from octopi.subscriptions.partition_subscriptions import SubscriptionIdentity

TOPIC_ID = TopicId("b" * 16)
BILLING = ("orders", "billing", "3")


def sid_of(name: str) -> SubscriptionId:
    return SubscriptionId(f"{len(name):016x}")


def entry(name: str, lost: tuple[int, int] | None = None, claim: int = 1) -> MarkEntry:
    span = None if lost is None else LostSpan(Offset(lost[0]), Offset(lost[1]))
    return MarkEntry(SubscriptionName(name), "orders", Offset(7), claim=Claim(claim), lost=span)


class Leadership:
    """One of partition 3, and what it counts."""

    def __init__(self, counts: SubscriptionCounts | None = None) -> None:
        self.counts = counts or SubscriptionCounts(2)
        self.counter = EffectCounter(self.counts, PartitionId(3))

    def commit(self, key: str, value: dict[str, Any] | None) -> None:
        state = e.AppendState(key, value)
        names = {sid_of(one): one for one in ("billing", "audit", "mail")}
        self.counter.committed(
            state,
            lambda sid: SubscriptionIdentity("orders", TOPIC_ID, SubscriptionName(names[sid])),
        )

    def mark(self, name: str = "billing", lost: tuple[int, int] | None = None) -> None:
        self.commit(mark_key(sid_of(name), TOPIC_ID), to_map(entry(name, lost)))

    def give(self, name: str, phase: AssignmentPhase = AssignmentPhase.ASSIGNED) -> None:
        self.commit(f"a/{sid_of(name)}/9", to_map(AssignmentEntry(phase)))

    @property
    def lost_bytes(self) -> int:
        return dict(self.counts.lost_bytes.series())[BILLING]


def test_marks_of_members_are_counted_when_they_are_committed() -> None:
    led = Leadership()
    opened = to_map(entry("billing", claim=0))
    led.commit(mark_key(sid_of("billing"), TOPIC_ID), opened)
    assert dict(led.counts.marks_stored.series()) == {BILLING: 1}
    assert dict(led.counts.redelivered.series()) == {}  # it is no queue
    led.mark()
    assert dict(led.counts.marks_stored.series()) == {BILLING: 2}
    assert dict(led.counts.fenced.series()) == {BILLING: 0}


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(10, 30), (10, 30)], 20),
        ([(10, 30), (10, 50)], 40),
        ([(10, 30), None, (40, 45)], 25),
        ([(10, 30), (50, 60)], 30),
    ],
)
def test_lost_bytes_are_counted_once(spans: list[tuple[int, int] | None], expected: int) -> None:
    led = Leadership()
    for span in spans:
        led.mark(lost=span)
    assert led.lost_bytes == expected


def test_a_new_leader_does_not_count_lost_bytes_again() -> None:
    led = Leadership()
    led.counter.loaded({(sid_of("billing"), TOPIC_ID): entry("billing", (10, 30))})
    led.mark(lost=(10, 30))
    assert led.lost_bytes == 0
    led.mark(lost=(10, 35))
    assert led.lost_bytes == 5


def test_members_that_a_newer_claim_ends_are_counted() -> None:
    led = Leadership()
    for effect in (
        e.TellRefused(1, Status.MEMBER_FENCED, "another member has this log"),
        e.TellDetached(1, Status.MEMBER_FENCED, "another member has this log"),
        e.TellDetached(1, Status.UNKNOWN_SUBSCRIPTION, "it was deleted"),
        e.TellDone(1),
    ):
        led.counter.told(effect, "orders", "billing")
    led.counter.told(e.TellRefused(1, Status.MEMBER_FENCED, ""), "orders", None)
    assert dict(led.counts.fenced.series()) == {BILLING: 2}


def test_messages_of_a_queue_that_are_dealt_again_are_counted() -> None:
    led = Leadership()
    queue = attrs.evolve(entry("billing", claim=0), mode=SubscriptionMode.SHARED)
    led.commit(mark_key(sid_of("billing"), TOPIC_ID), to_map(queue))
    assert dict(led.counts.redelivered.series()) == {BILLING: 0}
    dealt = [e.Dealt(Offset(number), 1, attempt) for number, attempt in enumerate((1, 2, 1, 5))]
    effect = e.DealMessages(1, sid_of("billing"), TOPIC_ID, tuple(dealt))
    led.counter.told(effect, "orders", "billing")
    led.counter.told(effect, "orders", None)
    assert dict(led.counts.redelivered.series()) == {BILLING: 2}


def test_logs_that_members_are_given_are_counted() -> None:
    led = Leadership()
    led.give("billing")
    led.give("billing", AssignmentPhase.FREE)
    led.give("billing")
    assert dict(led.counts.rebalances.series()) == {("orders", "billing"): 2}


def test_series_end_with_their_subscription_and_with_the_leadership() -> None:
    counts = SubscriptionCounts(2)
    led, other = Leadership(counts), Leadership(counts)
    other.give("mail")
    led.mark()
    led.mark("audit")
    led.commit(mark_key(sid_of("audit"), TOPIC_ID), None)
    assert [labels for labels, _ in counts.marks_stored.series()] == [BILLING]
    led.counter.ended()
    assert dict(counts.marks_stored.series()) == {}
    assert dict(counts.fenced.series()) == {}
    assert dict(counts.rebalances.series()) == {("orders", "mail"): 1}


def test_a_subscription_without_a_series_is_counted_under_others_and_only_once() -> None:
    counter = LabelledCounter(series_max=1)
    assert counter.add(("a",))
    assert not counter.add(("b",), 5)
    assert counter.add(("a",), 2)
    assert (dict(counter.series()), counter.others) == ({("a",): 3}, 5)
    counter.forget(("a",))
    assert counter.add(("b",))
    assert (dict(counter.series()), counter.others) == ({("b",): 1}, 5)


def test_an_offset_is_as_old_as_the_highwater_mark_is_known_to_be_behind_it() -> None:
    times: HighwaterTimes[str] = HighwaterTimes()
    assert times.age_s("log", 0, 100.0) == 0
    for highwater, now in ((10, 100.0), (20, 110.0), (20, 115.0), (30, 120.0)):
        times.note("log", highwater, now)
    assert [times.age_s("log", one, 125.0) for one in (0, 9, 10, 19, 20, 29, 30)] == [
        25.0, 25.0, 15.0, 15.0, 5.0, 5.0, 0.0
    ]  # fmt: skip
    times.note("log", 15, 130.0)  # the log was cut
    assert times.age_s("log", 14, 131.0) == 1.0
    times.keep({"other"})
    assert times.age_s("log", 14, 131.0) == 0


def test_samples_of_a_log_are_bounded_in_number_and_age() -> None:
    times: HighwaterTimes[str] = HighwaterTimes()
    count = 50 * SAMPLES_COUNT_MAX
    for number in range(1, count + 1):
        times.note("log", number, float(number))
    ages = [times.age_s("log", offset, float(count)) for offset in range(count + 1)]
    assert ages[0] == count - 1  # the first one is kept
    assert all(age <= max(0, count - 1 - offset) for offset, age in enumerate(ages))
    assert ages == sorted(ages, reverse=True)
    assert len(set(ages)) <= SAMPLES_COUNT_MAX + 1
