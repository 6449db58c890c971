"""Where partitions are: asked once for all who need it, and again for who found it wrong."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import MockClock

from octopi.clients.leader_lookup import LeaderLookup, leader_address, reader_addresses
from octopi.errors import (
    ConnectionLostError,
    NotReadyError,
    OctopiError,
    RefusedError,
    Status,
    UnreachableError,
)
from octopi.identifiers import BrokerId, Epoch, Offset, PartitionId
from octopi.limits import QUESTION_INTERVAL_S
from octopi.wire.messages import GenerationInfo, PartitionInfo, TopicInfo, TopicOptions
from tests.kit.world import VirtualClock


def described(*readers: str, leader: str = "ws://leader:1") -> TopicInfo:
    place = PartitionInfo(
        PartitionId(0),
        Epoch(1),
        BrokerId(1) if leader else None,
        leader,
        [BrokerId(1)],
        [BrokerId(1)],
        list(readers),
    )
    return TopicInfo("orders", "0123456789abcdef", [place], TopicOptions())


class Register:
    def __init__(self) -> None:
        self.asked = 0
        self.is_away = False

    async def describe(self, name: str, create: bool) -> TopicInfo:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        if self.is_away:
            raise UnreachableError("away")
        return described()


async def ask(lookup: LeaderLookup, wrong: TopicInfo | None, found: list[TopicInfo]) -> None:
    found.append(await lookup.topic("orders", other_than=wrong))


async def test_tasks_that_find_the_same_answer_wrong_ask_once() -> None:
    register = Register()
    lookup = LeaderLookup(VirtualClock(), register.describe)
    wrong: TopicInfo | None = None
    for count in (1, 2):
        found: list[TopicInfo] = []
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask, lookup, wrong, found)
        assert register.asked == count
        assert all(one is found[0] for one in found)
        wrong = found[0]


async def test_a_topic_with_several_generations_is_refused_however_it_became_known() -> None:
    grown = attrs.evolve(
        described(),
        generations=[
            GenerationInfo(1, [PartitionId(3)], [Offset(7)]),
            GenerationInfo(2, [PartitionId(0)], []),
        ],
    )

    async def describe(name: str, create: bool) -> TopicInfo:
        return grown

    asked = LeaderLookup(VirtualClock(), describe)
    told = LeaderLookup(VirtualClock(), Register().describe)
    told.remember(grown)  # as from a list of topics
    for lookup in (asked, told):
        with pytest.raises(RefusedError, match="can't keep the order") as caught:
            await lookup.topic("orders")
        assert caught.value.status is Status.UNSUPPORTED_VERSION
        assert not caught.value.retryable


async def test_a_failed_question_leaves_no_answer_behind() -> None:
    register = Register()
    lookup = LeaderLookup(VirtualClock(), register.describe)
    known = await lookup.topic("orders")
    register.is_away = True
    with pytest.raises(UnreachableError):
        await lookup.topic("orders", other_than=known)
    register.is_away = False
    assert await lookup.topic("orders") is not known
    lookup.forget("orders")
    lookup.forget("never heard of")
    await lookup.topic("orders")
    assert register.asked == 4


async def test_a_client_that_doubts_its_broker_asks_once_for_all_topics_and_not_again_at_once(
    autojump_clock: MockClock,
) -> None:
    register = Register()
    lookup = LeaderLookup(VirtualClock(), register.describe)
    for count in (1, 2):
        async with trio.open_nursery() as nursery:
            for topic in ("orders", "payments", "events"):
                nursery.start_soon(lookup.place, topic, 0)
        assert (await lookup.place("orders", 0)).leader == 1
        assert register.asked == count
        await trio.sleep(2 * QUESTION_INTERVAL_S)


async def test_failures_to_ask_are_shared_as_well(autojump_clock: MockClock) -> None:
    register = Register()
    register.is_away = True
    lookup = LeaderLookup(VirtualClock(), register.describe)
    failures: list[OctopiError] = []

    async def doubt(topic: str) -> None:
        try:
            await lookup.place(topic, 0)
        except (UnreachableError, ConnectionLostError) as error:
            failures.append(error)

    for count in (1, 2):
        async with trio.open_nursery() as nursery:
            for topic in ("orders", "payments", "events"):
                nursery.start_soon(doubt, topic)
        assert register.asked == count
        assert len(failures) == 3 * count
        await trio.sleep(QUESTION_INTERVAL_S)
    register.is_away = False
    assert (await lookup.place("orders", 0)).leader == 1


async def test_checking_a_leader_does_not_replace_the_known_answer_about_its_topic(
    autojump_clock: MockClock,
) -> None:
    register = Register()
    lookup = LeaderLookup(VirtualClock(), register.describe)
    known = await lookup.topic("orders")
    await lookup.place("orders", 0)
    assert await lookup.topic("orders") is known
    assert await lookup.topic("orders", other_than=known) is not known
    assert register.asked == 3


async def test_the_brokers_of_a_partition_stay_known_while_it_has_no_leader() -> None:
    """They are asked when the register can't be."""
    lookup = LeaderLookup(VirtualClock(), Register().describe)
    assert lookup.brokers("orders", 0) == []
    lookup.remember(described("ws://a:1", leader="ws://b:1"))
    assert lookup.brokers("orders", 0) == ["ws://a:1", "ws://b:1"]
    lookup.remember(described(leader=""))
    assert lookup.brokers("orders", 0) == ["ws://a:1", "ws://b:1"]
    lookup.remember(described(leader="ws://c:1"))
    assert lookup.brokers("orders", 0) == ["ws://c:1"]


async def test_a_partition_that_a_topic_does_not_have_is_refused() -> None:
    lookup = LeaderLookup(VirtualClock(), Register().describe)
    with pytest.raises(RefusedError, match="no partition 9"):
        await lookup.place("orders", 9)


def test_readers_try_followers_first_and_the_leader_last() -> None:
    info = described("ws://b:1", "ws://c:1")
    assert leader_address(info, 0) == "ws://leader:1"
    assert reader_addresses(info, 0) == ["ws://b:1", "ws://c:1", "ws://leader:1"]
    assert reader_addresses(described("ws://leader:1"), 0) == ["ws://leader:1"]


def test_a_missing_leader_is_a_passing_error_and_a_missing_partition_a_lasting_one() -> None:
    info = described(leader="")
    with pytest.raises(NotReadyError):
        leader_address(info, 0)
    with pytest.raises(NotReadyError):
        reader_addresses(info, 0)
    with pytest.raises(RefusedError, match="no partition 9; it has 0"):
        leader_address(info, 9)
