"""A member joins again after its coordinator has forgotten something; the test plays the
coordinator."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.subscribing import membership
from octopi.clients.subscribing.group_session import GroupSession
from octopi.clients.subscribing.membership import Membership, MembershipOptions
from octopi.errors import ClosedError, NotReadyError, OctopiError
from octopi.identifiers import (
    MemberId,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TopicName,
)
from octopi.wire import messages as m
from tests.kit.world import VirtualClock

TOPIC, NAME = TopicName("orders"), SubscriptionName("billing")
SID = SubscriptionId("0" * 16)


class Coordinator:
    """In place of a `LeaderSession`: each attempt to join takes the next of the *answers*."""

    answers: list[OctopiError | None]
    done: list[str]

    def __init__(self, *arguments: object) -> None:
        self.open_since = None

    async def run(self, question: object, take: Callable[[Any], None], farewell: object) -> None:
        await trio.lowlevel.checkpoint()
        self.done.append("join")
        take_nothing = self.answers.pop(0)
        if take_nothing is not None:
            raise take_nothing
        take(m.Assignment(1, MemberId("w1"), [], [], 10_000))
        raise NotReadyError("another leader is being chosen")

    async def before_again(self, error: OctopiError) -> None:
        await trio.lowlevel.checkpoint()


class Administration:
    """Notes that creations are to be finished."""

    def __init__(self, router: object) -> None:
        pass

    async def finish_creation(self, topic: str, name: str, sid: str) -> None:
        assert (topic, name, sid) == (TOPIC, NAME, SID)
        Coordinator.done.append("finish the creation")
        raise NotReadyError("not yet")


async def joined(
    monkeypatch: pytest.MonkeyPatch, answers: list[OctopiError | None]
) -> tuple[OctopiError | None, list[str]]:
    """Why a member ended that was answered so, and what it did."""
    monkeypatch.setattr(membership, "LeaderSession", Coordinator)
    monkeypatch.setattr(membership, "SubscriptionAdministration", Administration)
    Coordinator.answers, Coordinator.done = answers, []
    environment = SimpleNamespace(clock=VirtualClock())
    cluster = SimpleNamespace(environment=environment, request_timeout_s=10.0, router=None)
    options = MembershipOptions(TOPIC, PartitionId(0), SID, NAME, False, 10.0)
    member = Membership(cast(ClusterHandle, cluster), options, GroupSession(), lambda effects: None)
    why = await member.run()
    return why, Coordinator.done


async def test_a_member_finishes_a_creation_whose_end_the_coordinator_has_lost(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    unready = NotReadyError("not every log has its mark")
    why, done = await joined(monkeypatch, [None, unready, ClosedError("enough")])
    assert isinstance(why, ClosedError)
    assert done == ["join", "finish the creation", "join", "finish the creation", "join"]


async def test_a_program_that_is_no_member_yet_finishes_no_creation_of_others(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    unready = NotReadyError("not every log has its mark")
    why, done = await joined(monkeypatch, [unready, unready, ClosedError("enough")])
    assert isinstance(why, ClosedError)
    assert done == ["join"] * 3
