"""Draws the members of a run's durable subscription, and what an operator does with that."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from sim.run.plan import Chore

SHARE: Final = 0.35
"""Of all plans, which have a subscription."""


def members(randomness: Callable[[str], Random]) -> dict[str, Any]:
    """Options of the workload; none if there is no subscription.  *randomness*: a source for each
    option."""
    if randomness("members").random() >= SHARE:
        return {}
    count = randomness("member count").choice((1, 2, 2, 3))
    return {
        "members": count,
        "member_mode": randomness("member mode").choice(("exclusive", "failover", "failover")),
        "static_members": randomness("static members").choice((0, 0, 1, count)),
        "member_pause_s": randomness("member pause").choice((0.0, 0.01, 0.05)),
        "member_stay_count": randomness("member stay").choice((0, 5, 20)),
    }


def group_chores(randomness: Callable[[str], Random]) -> tuple[Chore, ...]:
    """What an operator does with the subscription, where there is one."""
    return randomness("group chores").choice(
        ((), (), (), ("reset",), ("reset",), ("reset", "reset"), ("delete",), ("reset", "delete"))
    )
