"""How far readers get by what a broker knows of a topic's generations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from octopi.errors import RefusedError, Status
from octopi.generation_record import Generation
from octopi.identifiers import Offset, PartitionId, SubscriptionName
from octopi.model import SubscriptionOptions, TopicOptions, TopicRecord
from octopi.roles.broker.reading_bounds import ReadBound, ReadingBounds, stale_reader
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.roles.broker.subscriptions.topic_partitions import check_partitions
from octopi.wire.messages import CreateSubscription, Replicate
from tests.replication.test_partition_replica import RECORD, TOPIC, replica

ONE = TopicRecord("orders", "0" * 16, [0, 1], TopicOptions())
TWO = TopicRecord(
    "orders",
    "0" * 16,
    [0, 1, 2, 3],
    TopicOptions(),
    generations=[
        Generation(1, [0, 1], "in_force", [10, 20]),
        Generation(2, [0, 1, 2, 3], "in_force"),
    ],
)
CANCELLED = TopicRecord(
    "orders",
    "0" * 16,
    [0, 4],
    TopicOptions(),
    generations=[
        Generation(1, [0, 1], "in_force", [10, 20]),
        Generation(2, [0, 1, 2, 3], "cancelled"),
        Generation(3, [0, 4], "in_force"),
    ],
)
FOUR = TopicRecord(
    "orders",
    "0" * 16,
    [4, 1, 2, 3],
    TopicOptions(),
    generations=[
        Generation(1, [0, 1], "in_force", [10, 20]),
        Generation(2, [0, 1, 2, 3], "in_force", [30, 40, 50, 60]),
        Generation(3, [0, 1], "cancelled"),
        Generation(4, [4, 1, 2, 3], "in_force"),
    ],
)


@pytest.mark.parametrize(
    ("topic", "partition", "generation", "end"),
    [
        (ONE, 0, 0, None),
        (TWO, 0, 0, 10),
        (TWO, 1, 1, 20),
        (TWO, 0, 2, None),
        (TWO, 2, 1, None),
        (FOUR, 0, 1, 10),
        (FOUR, 0, 2, 30),
        (FOUR, 0, 4, None),
        (FOUR, 2, 1, 50),
        (FOUR, 2, 3, None),
        (FOUR, 4, 1, None),
    ],
)
def test_a_reader_gets_the_messages_of_the_newest_generation_that_it_knows(
    topic: TopicRecord, partition: int, generation: int, end: int | None
) -> None:
    bound = ReadingBounds(topic, PartitionId(partition)).of(generation)
    assert bound == (None if end is None else ReadBound(Offset(end), is_sealed=True))


def test_a_replica_that_was_not_told_of_a_generation_shows_none_of_its_messages() -> None:
    bounds = ReadingBounds(ONE, PartitionId(0))
    bounds.received(Offset(5), 0, 0)
    assert bounds.of(0) is None
    bounds.received(Offset(12), 2, 0)
    bounds.received(Offset(15), 2, 0)
    assert bounds.of(1) == ReadBound(Offset(12), is_sealed=False), "it may lie before the end"
    assert bounds.of(2) is None, "this reader knows more than the broker"
    bounds.known(TWO, PartitionId(0))
    assert bounds.of(1) == ReadBound(Offset(10), is_sealed=True)
    bounds.received(Offset(17), 2, 2)
    assert bounds.of(2) is None


def test_a_record_of_an_earlier_generation_shows_no_messages_of_a_later_one() -> None:
    bounds = ReadingBounds(ONE, PartitionId(1))
    bounds.received(Offset(45), 4, 0)
    bounds.known(TWO, PartitionId(1))
    assert bounds.of(2) == ReadBound(Offset(45), is_sealed=False)
    bounds.known(FOUR, PartitionId(1))
    assert bounds.of(2) == ReadBound(Offset(40), is_sealed=True)
    assert bounds.of(4) is None


def test_what_a_former_session_with_a_leader_says_of_generations_keeps_no_reader_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReplicaDriver, "submit", lambda driver, event: event())
    driver = ReplicaDriver.__new__(ReplicaDriver)
    driver.machine = replica(2)
    driver.machine.installed(RECORD, 0.0)
    driver.machine.stream_opened()
    told: list[tuple[int, int]] = []
    log = SimpleNamespace(received=lambda *what: told.append(what))
    driver.logs = {TOPIC: cast("Any", log)}
    message = Replicate(0, 3, 1, 1, TOPIC, 100, 3, b"", 0, generation=2)
    driver.replicate(attrs.evolve(message, epoch=2))
    driver.replicate(attrs.evolve(message, attempt=0))
    assert told == []
    driver.replicate(message)
    assert told == [(100, 2)]


def test_a_client_of_an_earlier_version_is_told_in_words_why_its_reading_ends() -> None:
    assert stale_reader(2, "orders").status is Status.STALE_ROUTE
    old = stale_reader(1, "orders")
    assert old.status is Status.UNSUPPORTED_VERSION
    assert "install the version of the nodes" in str(old)


@pytest.mark.parametrize(
    ("topic", "named", "fits"),
    [
        (ONE, [0, 1], True),
        (ONE, [0], False),
        (ONE, [0, 1, 9], False),
        (TWO, [0, 1], True),
        (TWO, [0, 1, 2, 3], True),
        (TWO, [0, 1, 3, 2], False),
        (FOUR, [0, 1, 2, 3, 4], True),
        (CANCELLED, [0, 1, 4], True),
    ],
)
def test_a_subscription_has_all_partitions_of_the_topic_or_those_of_earlier_lists(
    topic: TopicRecord, named: list[int], fits: bool
) -> None:
    message = CreateSubscription(
        1,
        "orders",
        PartitionId(0),
        "0" * 16,
        [PartitionId(one) for one in named],
        SubscriptionName("billing"),
        "failover",
        SubscriptionOptions(),
        "earliest",
        "attach",
    )
    if fits:
        check_partitions(message, topic)
        return
    with pytest.raises(RefusedError, match="has the partitions"):
        check_partitions(message, topic)


def test_a_queue_is_for_topics_that_never_got_other_partitions() -> None:
    message = CreateSubscription(
        1,
        "orders",
        PartitionId(0),
        "0" * 16,
        [PartitionId(0), PartitionId(1)],
        SubscriptionName("work"),
        "shared",
        SubscriptionOptions(),
        "earliest",
        "create",
    )
    check_partitions(message, ONE)
    with pytest.raises(RefusedError, match="use exclusive or failover"):
        check_partitions(message, TWO)
