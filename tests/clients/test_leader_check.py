"""What the register's word means for whoever waits for a broker."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from octopi.clients.leader_check import LeaderCheck, LeaderVerdict, judge_leader, judge_reader
from octopi.clients.leader_lookup import LeaderLookup
from octopi.clients.suspicion import RequestSuspicion
from octopi.errors import (
    ConnectionLostError,
    NotReadyError,
    OctopiError,
    UnknownTopicError,
    UnreachableError,
)
from octopi.identifiers import BrokerId, Epoch, PartitionId
from octopi.limits import LEADER_SILENCE_S
from octopi.wire.messages import PartitionInfo, TopicInfo, TopicOptions
from tests.kit.world import VirtualClock

A, B, C = "ws://a:1", "ws://b:1", "ws://c:1"


def place(leader: str, *readers: str, epoch: int = 5, replicas: int = 3) -> PartitionInfo:
    number = BrokerId(1) if leader else None
    return PartitionInfo(
        PartitionId(0),
        Epoch(epoch),
        number,
        leader,
        list(map(BrokerId, range(replicas))),
        [BrokerId(1)],
        list(readers),
    )


def test_a_client_leaves_a_leader_for_another_one_or_for_a_later_epoch_of_the_same() -> None:
    assert judge_leader(A, 5, place(A)) is LeaderVerdict.STAY
    assert judge_leader(A, 5, place(B, epoch=6)) is LeaderVerdict.LEAVE
    assert judge_leader(A, 5, place(A, epoch=6)) is LeaderVerdict.LEAVE
    assert judge_leader(A, 5, place("", B, C)) is LeaderVerdict.NO_LEADER


def test_a_consumer_leaves_a_broker_if_the_register_names_only_others() -> None:
    assert judge_reader(A, place(B, C, A)) is LeaderVerdict.STAY
    assert judge_reader(A, place(A)) is LeaderVerdict.STAY
    assert judge_reader(A, place(B, B, C)) is LeaderVerdict.LEAVE
    assert judge_reader(A, place("", B, C)) is LeaderVerdict.LEAVE
    assert judge_reader(A, place("")) is LeaderVerdict.NO_LEADER


def test_a_client_waits_for_the_only_replica_even_without_a_leader() -> None:
    assert judge_leader(A, 5, place("", replicas=1)) is LeaderVerdict.STAY
    assert judge_reader(A, place("", replicas=1)) is LeaderVerdict.STAY


class Register:
    """Says what it is told to say, or raises it; the last word for ever."""

    def __init__(self, *words: PartitionInfo | OctopiError) -> None:
        self.words = list(words)
        self.asked_at: list[float] = []
        self.brokers = LeaderCheck(LeaderLookup(VirtualClock(), self.describe))

    async def describe(self, name: str, create: bool) -> TopicInfo:
        await trio.lowlevel.checkpoint()
        assert not create, "doubts create no topic"
        self.asked_at.append(trio.current_time())
        word = self.words.pop(0) if len(self.words) > 1 else self.words[0]
        if isinstance(word, OctopiError):
            raise word
        return TopicInfo(name, "0123456789abcdef", [word], TopicOptions())

    async def wait(self, seconds: float) -> float:
        """Wait for A; how long, if that is left."""
        began = trio.current_time()
        try:
            async with self.brokers.unless_replaced(
                "t", 0, lambda p: judge_leader(A, 5, p), RequestSuspicion(VirtualClock())
            ):
                await trio.sleep(seconds)
        except ConnectionLostError:
            return trio.current_time() - began
        return seconds


async def test_a_wait_for_a_leader_ends_when_the_register_names_another(
    autojump_clock: MockClock,
) -> None:
    register = Register(place(A), place(A), place(B, epoch=6))
    assert LEADER_SILENCE_S < await register.wait(15) < 1
    assert len(register.asked_at) == 3


async def test_a_short_wait_asks_the_register_nothing(autojump_clock: MockClock) -> None:
    register = Register(place(B, epoch=6))
    assert await register.wait(0.9 * LEADER_SILENCE_S) == 0.9 * LEADER_SILENCE_S
    assert register.asked_at == []


async def test_an_exception_leaves_the_waiting_block_unchanged(autojump_clock: MockClock) -> None:
    register = Register(place(A))

    async def fail() -> None:
        async with register.brokers.unless_replaced(
            "t", 0, lambda p: judge_leader(A, 5, p), RequestSuspicion(VirtualClock())
        ):
            await trio.sleep(3)
            raise NotReadyError("by itself")

    with pytest.raises(NotReadyError, match="by itself"):
        await fail()
    with trio.move_on_after(3) as outside:
        await register.wait(15)
    assert outside.cancelled_caught


async def test_the_register_is_asked_often_when_a_leader_is_first_missing(
    autojump_clock: MockClock,
) -> None:
    register = Register(place(A), place(A), place(A), place(""), place(""), place(B, epoch=6))
    await register.wait(15)
    in_charge, nobody, soon, last = (at - LEADER_SILENCE_S for at in register.asked_at[2:])
    assert soon - nobody < nobody - in_charge
    assert last - nobody < 0.4


@pytest.mark.parametrize("error", [UnreachableError("away"), NotReadyError("just started")])
async def test_a_client_stays_with_its_leader_if_the_register_can_not_answer(
    error: OctopiError, autojump_clock: MockClock
) -> None:
    register = Register(error)
    assert await register.wait(15) == 15
    assert len(register.asked_at) < 12


async def test_a_client_does_not_wait_for_a_deleted_topic(autojump_clock: MockClock) -> None:
    assert await Register(UnknownTopicError("no such topic")).wait(15) < 0.5
