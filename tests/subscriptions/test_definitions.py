"""What a durable subscription may be called and how it may be kept."""

from __future__ import annotations

import attrs
import pytest

from octopi.identifiers import (
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TimestampMs,
    consumer_name_fault,
)
from octopi.model import (
    SubscriptionDefinition,
    SubscriptionMode,
    SubscriptionOptions,
    SubscriptionStart,
    SubscriptionState,
)
from octopi.wire.codec import fault_in

DEFINITION = SubscriptionDefinition(
    sid=SubscriptionId("5f0c2a1b5f0c2a1b"),
    name=SubscriptionName("billing"),
    topic="orders",
    topic_id="77aa00c277aa00c2",
    partitions=[PartitionId(3), PartitionId(5)],
    mode=SubscriptionMode.FAILOVER,
    options=SubscriptionOptions(),
    start=SubscriptionStart.EARLIEST,
    state=SubscriptionState.READY,
    created_ms=TimestampMs(1),
    used_ms=TimestampMs(2),
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session_timeout_ms", 999),
        ("session_timeout_ms", 300_001),
        ("release_timeout_ms", -1),
        ("release_timeout_ms", 300_001),
        ("expires_ms", 59_999),
        ("mark_interval_ms", 9),
        ("mark_interval_ms", 60_001),
        ("attempts", 0),
        ("attempts", 101),
        ("ack_timeout_ms", 999),
        ("ack_timeout_ms", 43_200_001),
        ("window", 0),
        ("window", 10_001),
    ],
)
def test_an_option_out_of_its_bounds_is_refused_by_name(name: str, value: int) -> None:
    options = attrs.evolve(SubscriptionOptions(), **{name: value})
    assert options.fault().startswith(f"{name} must be from ")


def test_a_subscription_may_be_defined_to_never_expire() -> None:
    assert SubscriptionOptions().fault() == ""
    assert SubscriptionOptions(expires_ms=None).fault() == ""


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ä", "a b", "~a", "a" * 201])
def test_names_of_subscriptions_and_members_have_the_rules_of_topic_names(name: str) -> None:
    assert consumer_name_fault(name)


def test_a_definition_is_checked_against_the_bounds_of_messages() -> None:
    assert fault_in(DEFINITION) == ""
    assert "mode" in fault_in(attrs.evolve(DEFINITION, mode="any"))
    assert "there are" in fault_in(attrs.evolve(DEFINITION, start="yesterday"))


@pytest.mark.parametrize(("name", "value"), [("attempts", None), ("ack_timeout_ms", 1_000)])
def test_options_of_queues_are_refused_for_other_modes(name: str, value: int | None) -> None:
    options = SubscriptionOptions(**{name: value})  # type: ignore[arg-type]
    assert options.fault(SubscriptionMode.SHARED) == options.fault() == ""
    fault = options.fault(SubscriptionMode.FAILOVER)
    assert fault == f"{name} is for the modes shared and key_shared, not for failover"
