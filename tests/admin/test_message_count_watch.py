"""The messages of a few topics are counted, by those of their leaders that answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import attrs
import pytest
import trio

from octopi.admin.message_count_watch import TOPICS_COUNTED_MAX, MessageCountWatch
from octopi.clients.routing import RequestRouter
from octopi.errors import ConnectionLostError
from octopi.identifiers import BrokerId, Offset, PartitionId
from octopi.limits import LOOK_INTERVAL_S
from octopi.operating_system import SystemClock
from octopi.wire import messages as m
from tests.admin.test_bounded_pages import snapshot
from tests.admin.test_cluster_snapshot import broker, place


class Brokers:
    """Brokers that have three messages in each log; those in *away* don't answer."""

    def __init__(self, *away: int) -> None:
        self._away = away
        self.asked: list[tuple[str, str]] = []

    async def ask_broker(
        self, _what: str, address: str, question: Callable[[int], Any], _expected: type
    ) -> m.MessageCounts:
        asked = question(1)
        assert isinstance(asked, m.CountMessages)
        self.asked.append((address, asked.topic))
        if any(address == broker(one).address for one in self._away):
            raise ConnectionLostError("it is away")
        log = m.LogCount(asked.topic, asked.topic, PartitionId(0), Offset(0), Offset(9), 3)
        return m.MessageCounts(1, [log], False)


def topic(name: str, leader: int) -> m.TopicInfo:
    info = attrs.evolve(place(leader, [leader]), partition=PartitionId(0))
    return m.TopicInfo(name, name, [info], m.TopicOptions())


def watched(brokers: Brokers) -> MessageCountWatch:
    return MessageCountWatch(SystemClock(), lambda: cast(RequestRouter, brokers))


def seen(*silent: int) -> Any:  # noqa: ANN401
    look = snapshot().look
    cluster = attrs.evolve(look.cluster, brokers=[broker(1), broker(2)])
    return attrs.evolve(look, cluster=cluster, silent={BrokerId(one): "silent" for one in silent})


async def test_the_leader_of_each_topic_is_asked_once_while_the_answer_is_fresh(
    autojump_clock: trio.testing.MockClock,
) -> None:
    brokers = Brokers()
    watch = watched(brokers)
    topics = [topic("orders", 1), topic("payments", 2)]
    for _ in range(2):
        counts = await watch.of_topics(seen(), topics)
        assert [counts.of_topic(one) for one in topics] == [3, 3]
    addresses = [broker(one).address for one in (1, 2)]
    assert sorted(brokers.asked) == sorted(zip(addresses, ("orders", "payments"), strict=True))
    await trio.sleep(LOOK_INTERVAL_S)
    await watch.of_topics(seen(), topics)
    assert len(brokers.asked) == 4


@pytest.mark.parametrize(("away", "silent"), [([2], []), ([], [2])])
async def test_what_a_leader_does_not_tell_is_not_known(away: list[int], silent: list[int]) -> None:
    brokers = Brokers(*away)
    topics = [topic("orders", 1), topic("payments", 2)]
    counts = await watched(brokers).of_topics(seen(*silent), topics)
    assert [counts.of_topic(one) for one in topics] == [3, None]
    assert len(brokers.asked) == 1 + len(away), "nobody waits for one that is known to be silent"


async def test_only_the_first_topics_are_counted() -> None:
    brokers = Brokers()
    topics = [topic(f"t{number}", 1) for number in range(TOPICS_COUNTED_MAX + 1)]
    counts = await watched(brokers).of_topics(seen(), topics)
    assert [counts.of_topic(one) for one in topics] == [3] * TOPICS_COUNTED_MAX + [None]
