"""A broker of a ring that is about to stop has others lead its partitions."""

from __future__ import annotations

from octopi.coordination.election import ElectionGoal
from octopi.environment import Clock
from octopi.limits import ELECTION_WAIT_S, HAND_OVER_ALL_S, HAND_OVERS_MAX
from octopi.roles.broker.ring.lead_moves import led_with_others
from octopi.roles.broker.ring.partitions import RingPartitions


async def hand_over_all(clock: Clock, partitions: RingPartitions) -> None:
    """Have others lead what this broker leads, where another replica is in sync and there.  Returns
    when they do, and after `HAND_OVER_ALL_S` in any case."""
    goal = ElectionGoal(leaving=frozenset({partitions.me.broker}))
    with clock.timeout(HAND_OVER_ALL_S):
        while led := list(led_with_others(partitions)):
            decided = partitions.decided
            for machine in led[:HAND_OVERS_MAX]:
                partitions.hold(machine, goal)
            with clock.timeout(ELECTION_WAIT_S):
                await decided.wait()
