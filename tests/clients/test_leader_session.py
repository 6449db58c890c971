"""What a session with a log's leader does between its attempts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.subscribing.leader_session import LeaderSession
from octopi.errors import ConnectionLostError, NotReadyError, OctopiError, UnknownSubscriptionError
from octopi.identifiers import PartitionId, TopicName
from tests.kit.world import VirtualClock

LOST = UnknownSubscriptionError("the log has no mark of this subscription")


class Restorer:
    """Restores marks, or says why it can't."""

    def __init__(self, error: OctopiError | None = None) -> None:
        self.error = error
        self.restored: list[int] = []

    async def __call__(self, partition: PartitionId) -> None:
        if self.error is not None:
            raise self.error
        self.restored.append(partition)


def session(restorer: Restorer | None = None) -> LeaderSession:
    randomness = SimpleNamespace(random=lambda: 1.0)
    environment = SimpleNamespace(clock=VirtualClock(), randomness=randomness)
    cluster = SimpleNamespace(environment=environment, lookup=cast("Any", None))
    restore: Any = restorer
    return LeaderSession(
        cast("ClusterHandle", cluster), TopicName("orders"), PartitionId(1), restore
    )


async def test_a_mark_that_a_log_has_lost_is_restored_before_the_next_attempt(
    autojump_clock: MockClock,
) -> None:
    restorer = Restorer()
    await session(restorer).before_again(LOST)
    assert restorer.restored == [1]


async def test_a_deleted_subscription_is_not_asked_for_again(autojump_clock: MockClock) -> None:
    deleted = UnknownSubscriptionError("it was deleted")
    with pytest.raises(UnknownSubscriptionError, match="deleted"):
        await session(Restorer(deleted)).before_again(LOST)


async def test_a_mark_that_can_not_be_restored_yet_is_left_to_the_next_attempt(
    autojump_clock: MockClock,
) -> None:
    before = trio.current_time()
    await session(Restorer(NotReadyError("in a moment"))).before_again(LOST)
    assert trio.current_time() > before


async def test_a_session_that_had_no_leader_for_long_is_given_up(autojump_clock: MockClock) -> None:
    one, broken = session(), ConnectionLostError("broken")
    assert one.why_given_up(broken, 5.0) is None
    await trio.sleep(5.0)
    assert one.why_given_up(broken, None) is None
    error = one.why_given_up(broken, 5.0)
    assert isinstance(error, ConnectionLostError)
    assert str(error) == "orders/1: no leader for 5 s; last: broken"
