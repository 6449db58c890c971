"""The number of messages of a topic, from what its brokers answer."""

from __future__ import annotations

from typing import cast

import attrs
import pytest

from octopi import BrokerCount, BrokerInfo, Client, LogCount, OctopiError, RefusedError, TopicInfo
from octopi.admin.message_counts import TopicCounts, count_messages
from octopi.errors import ConnectionLostError, Status
from octopi.identifiers import Offset, PartitionId
from octopi.wire import messages as m
from tests.admin.test_cluster_snapshot import broker, place


def counted(at_broker: int, partition: int, highwater: int, count: int | None) -> BrokerCount:
    log = LogCount("orders", "id", PartitionId(partition), Offset(0), Offset(highwater), count)
    return BrokerCount(at_broker, f"ws://{at_broker}", log)


def orders(*partitions: int) -> TopicInfo:
    places = [attrs.evolve(place(1, [1]), partition=PartitionId(one)) for one in partitions]
    return TopicInfo("orders", "id", places, m.TopicOptions())


class Cluster:
    """A client of brokers that answer with their counts, or an error."""

    def __init__(self, answers: dict[int, list[BrokerCount] | OctopiError]) -> None:
        self._answers = answers
        self.admin = self

    async def count_messages(
        self, topic: str | None, *, brokers: list[BrokerInfo]
    ) -> list[BrokerCount]:
        answer = self._answers[brokers[0].broker]
        if isinstance(answer, OctopiError):
            raise answer
        return answer


async def ask(answers: dict[int, list[BrokerCount] | OctopiError]) -> list[BrokerCount]:
    return await count_messages(
        cast(Client, Cluster(answers)), [broker(one) for one in answers], "orders"
    )


def test_the_replica_that_knows_most_to_be_committed_counts() -> None:
    counts = TopicCounts([counted(1, 0, 100, 3), counted(2, 0, 200, 5), counted(1, 1, 50, 7)])
    assert counts.of_topic(orders(0, 1)) == 5 + 7


def test_a_topic_with_a_log_that_is_not_counted_has_no_number() -> None:
    counts = TopicCounts([counted(1, 0, 100, 3), counted(1, 1, 100, None)])
    assert counts.of_topic(orders(0)) == 3
    assert counts.of_topic(orders(0, 1)) is None
    assert counts.of_topic(orders(0, 2)) is None


@pytest.mark.parametrize(
    "error",
    [ConnectionLostError("lost"), RefusedError("older", Status.UNSUPPORTED_VERSION)],
    ids=["away", "of-an-earlier-version"],
)
async def test_brokers_that_can_not_count_are_left_out(error: OctopiError) -> None:
    answered = [counted(2, 0, 100, 3)]
    assert await ask({1: error, 2: answered}) == answered


async def test_a_refusal_is_passed_on() -> None:
    with pytest.raises(ExceptionGroup):
        await ask({1: RefusedError("no", Status.FORBIDDEN)})
