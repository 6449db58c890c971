"""What a partition keeps of durable subscriptions comes back as it was, and nothing else does."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from octopi.identifiers import (
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TimestampMs,
    TopicId,
)
from octopi.model import SubscriptionMode, SubscriptionOptions
from octopi.position import Anchor
from octopi.subscriptions.entries import (
    AssignmentEntry,
    AssignmentPhase,
    LostSpan,
    MarkEntry,
    MemberEntry,
    StoredSubscriptions,
    UnreadableEntryError,
    assignment_key,
    definition_key,
    mark_key,
    member_key,
    to_map,
)
from tests.subscriptions.test_definitions import DEFINITION

SID, TOPIC_ID = DEFINITION.sid, TopicId("77aa00c277aa00c2")
OFFSETS = st.integers(0, 1 << 60).map(Offset)
SPANS = st.builds(LostSpan, OFFSETS, OFFSETS)
MARKS = st.builds(
    MarkEntry,
    name=st.just(SubscriptionName("billing")),
    topic=st.just("orders"),
    mark=OFFSETS,
    anchor=st.sampled_from(["", "7-1200.6-800"]).map(Anchor),
    claim=st.integers(0, 1 << 39).map(Claim),
    changed_ms=st.integers(0, 1 << 50).map(TimestampMs),
    mode=st.sampled_from(SubscriptionMode),
    expires_ms=st.none() | st.integers(60_000, 1 << 39),
    mark_interval_ms=st.integers(10, 60_000),
    lost=st.none() | SPANS,
    skipped=st.lists(SPANS, max_size=16),
)
ASSIGNMENTS = st.builds(
    AssignmentEntry,
    st.sampled_from(AssignmentPhase),
    st.sampled_from(["", "worker"]).map(MemberId),
    st.integers(0, 1 << 39).map(Claim),
    st.none() | OFFSETS,
)
MEMBERS = st.builds(MemberEntry, st.booleans(), *[st.text(max_size=20)] * 3)


@given(MARKS, ASSIGNMENTS, MEMBERS)
def test_entries_are_the_same_after_encoding_and_decoding(
    mark: MarkEntry, assignment: AssignmentEntry, member: MemberEntry
) -> None:
    found = StoredSubscriptions.read(
        {
            definition_key(SID): to_map(DEFINITION),
            mark_key(SID, TOPIC_ID): to_map(mark),
            assignment_key(SID, PartitionId(3)): to_map(assignment),
            member_key(SID, MemberId("worker")): to_map(member),
        }
    )
    assert found == StoredSubscriptions(
        {SID: DEFINITION},
        {SID: {MemberId("worker"): member}},
        {SID: {PartitionId(3): assignment}},
        {(SID, TOPIC_ID): mark},
    )


def test_fields_with_their_defaults_are_not_written() -> None:
    entry = MarkEntry(SubscriptionName("billing"), "orders", Offset(5))
    assert to_map(entry) == {"name": "billing", "topic": "orders", "mark": 5}
    assert to_map(MemberEntry()) == {}
    assert to_map(AssignmentEntry(claim=Claim(7))) == {"claim": 7}


def test_a_definition_is_kept_with_the_options_that_it_had_when_it_was_made() -> None:
    """So that other defaults of a later version change no subscription."""
    assert to_map(DEFINITION)["options"] == attrs.asdict(SubscriptionOptions())


MARK: dict[str, Any] = {"name": "billing", "topic": "orders", "mark": 5}


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (f"q/{SID}", {}, "no kind"),
        ("k", MARK, "another form"),
        (f"k/{SID}", MARK, "another form"),
        (f"k/{SID[1:]}/{TOPIC_ID}", MARK, "another form"),
        (f"k/{SID}/{TOPIC_ID}x", MARK, "hexadecimal"),
        (f"k/{SID}/{TOPIC_ID}", {"name": "billing", "topic": "orders"}, "mark"),
        (f"k/{SID}/{TOPIC_ID}", {**MARK, "colour": "red"}, "colour"),
        (f"k/{SID}/{TOPIC_ID}", {**MARK, "mark": "5"}, "another type"),
        (f"k/{SID}/{TOPIC_ID}", {**MARK, "mark": -1}, "mark"),
        (f"k/{SID}/{TOPIC_ID}", {**MARK, "claim": 1 << 60}, "claim"),
        (f"k/{SID}/{TOPIC_ID}", {**MARK, "mode": "any"}, "mode"),
        (f"k/{SID}/{TOPIC_ID}", {**MARK, "name": "a/b"}, "name"),
        (f"k/{SID}/{TOPIC_ID}", {**MARK, "mark_interval_ms": 1}, "mark_interval_ms"),
        (f"k/{SID}/{TOPIC_ID}", {**MARK, "lost": [1]}, "pair"),
        (f"k/{SID}/{TOPIC_ID}", {**MARK, "lost": [1, "x"]}, "type"),
        (f"k/{SID}/{TOPIC_ID}", {**MARK, "skipped": [[1, 2]] * 17}, "skipped"),
        (f"a/{SID}/x", {}, "another form"),
        (f"a/{SID}/007", {}, "another form"),
        (f"a/{SID}/3", {"phase": "away"}, "phase"),
        (f"m/{SID}/a b", {}, "no name"),
        (f"m/{SID}/worker", {"agent": "x" * 201}, "agent"),
        (f"s/{SID}", {}, "name"),
        (f"s/{SID}", {**to_map(DEFINITION), "state": "lost"}, "state"),
        (f"s/{SID}", {**to_map(DEFINITION), "options": {"expires_ms": 1}}, "expires_ms"),
    ],
)
def test_an_entry_that_no_broker_writes_is_refused_by_name(
    key: str, value: dict[str, Any], why: str
) -> None:
    with pytest.raises(UnreadableEntryError, match="octopi-node") as caught:
        StoredSubscriptions.read({key: value})
    assert why in caught.value.why
    assert caught.value.key == key


def test_an_entry_with_an_invalid_subscription_id_is_refused() -> None:
    with pytest.raises(UnreadableEntryError):
        StoredSubscriptions.read({definition_key(SubscriptionId("")): to_map(DEFINITION)})
