"""Random walks through a group: what durable subscriptions promise holds at each step."""

from __future__ import annotations

import pytest

from octopi.model import SubscriptionMode
from tests.subscriptions.group_world import GroupWorld


def world_of(seed: int) -> GroupWorld:
    mode = SubscriptionMode.EXCLUSIVE if seed % 8 == 5 else SubscriptionMode.FAILOVER
    size = 1 + seed // 2 % 2
    return GroupWorld(seed, members=1 + size, logs=size, is_calm=seed % 4 == 3, mode=mode)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_no_random_walk_through_a_group_breaks_a_promise(first: int) -> None:
    for seed in range(first, first + 20):
        world = world_of(seed)
        try:
            world.walk(500)
        except AssertionError as error:
            tail = "\n".join(world.trace[-60:])
            pytest.fail(f"seed {seed}: {error}\n{tail}")
