"""Where partitions are: asked once for all who need it, and again for who found it wrong."""

from __future__ import annotations

import pytest
import trio

from octopi.clients.leader_lookup import LeaderLookup, leader_address, reader_addresses
from octopi.errors import NotReadyError, RefusedError, UnreachableError
from octopi.wire.messages import PartitionInfo, TopicInfo, TopicOptions


def described(*readers: str, leader: str = "ws://leader:1") -> TopicInfo:
    place = PartitionInfo(0, 1, 1 if leader else None, leader, [1], [1], list(readers))
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


async def test_many_who_find_the_same_wrong_ask_once() -> None:
    register = Register()
    lookup = LeaderLookup(register.describe)
    wrong: TopicInfo | None = None
    for count in (1, 2):
        found: list[TopicInfo] = []
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask, lookup, wrong, found)
        assert register.asked == count
        assert all(one is found[0] for one in found)
        wrong = found[0]


async def test_a_failed_question_leaves_nothing_known() -> None:
    register = Register()
    lookup = LeaderLookup(register.describe)
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


def test_addresses_are_readers_first_and_the_leader_last() -> None:
    info = described("ws://b:1", "ws://c:1")
    assert leader_address(info, 0) == "ws://leader:1"
    assert reader_addresses(info, 0) == ["ws://b:1", "ws://c:1", "ws://leader:1"]
    assert reader_addresses(described("ws://leader:1"), 0) == ["ws://leader:1"]


def test_nobody_there_may_pass_and_no_such_partition_may_not() -> None:
    info = described(leader="")
    with pytest.raises(NotReadyError):
        leader_address(info, 0)
    with pytest.raises(NotReadyError):
        reader_addresses(info, 0)
    with pytest.raises(RefusedError, match="no partition 9; it has 0"):
        leader_address(info, 9)
