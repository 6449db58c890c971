"""Draws the members of a run's durable subscription, and the operator's chores for it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from sim.run.plan import Chore

SHARE: Final = 0.35
"""The share of plans that have a subscription."""


def members(randomness: Callable[[str], Random]) -> dict[str, Any]:
    """Draw the options of a workload with members, or no options for one without a subscription.
    *randomness* returns a source for each option."""
    if randomness("members").random() >= SHARE:
        return {}
    count = randomness("member count").choice((1, 2, 2, 3))
    modes = ("exclusive", "failover", "failover", "shared", "key_shared", "key_shared")
    return {
        "members": count,
        "member_mode": randomness("member mode").choice(modes),
        **queue(randomness("queue")),
        "static_members": randomness("static members").choice((0, 0, 1, count)),
        "member_pause_s": randomness("member pause").choice((0.0, 0.01, 0.05)),
        "member_stay_count": randomness("member stay").choice((0, 5, 20)),
    }


def queue(randomness: Random) -> dict[str, Any]:
    """Options of a queue; they are small, so that messages reach them."""
    return {
        "queue_attempts": randomness.choice((1, 2, 2, 3, None)),
        "queue_window": randomness.choice((1, 3, 10, 10, 100)),
        "queue_ack_timeout_s": randomness.choice((1.0, 1.0, 2.0)),
        "queue_prefetch": randomness.choice((1, 3, 10)),
    }


def group_chores(randomness: Callable[[str], Random]) -> tuple[Chore, ...]:
    """Draw the operator's chores for the subscription of a run that has one."""
    return randomness("group chores").choice(
        ((), (), (), ("reset",), ("reset",), ("reset", "reset"), ("delete",), ("reset", "delete"))
    )
