"""Notices acknowledgements while fewer brokers run than have to be in sync.

Whoever knows which brokers run can tell that: a message that was sent when all but one were down,
and is acknowledged while they are, can't be on two.
"""

from __future__ import annotations

from math import inf
from typing import Final

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.history.events import Acknowledged
from octopi.simulation.kernel.host import KILL, LOSE_POWER
from octopi.simulation.kernel.world import Event

KINDS: Final = frozenset({"boot", "exit", KILL, LOSE_POWER})


class RunningBrokers:
    """Since when only how many brokers of *cluster* have run."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._ran_last: dict[str, float] = {}
        """When each broker that doesn't run ended."""
        cluster.world.observe(self._see, KINDS)

    def _see(self, event: Event) -> None:
        if self._cluster.nodes[event.host].kind == "broker":
            self._ran_last[event.host] = inf if event.what == "boot" else event.at

    def count_since(self, at: float) -> int:
        """How many brokers have run at some time since *at*."""
        return sum(self._ran_last.get(one.name, -inf) >= at for one in self._cluster.brokers)

    def complaint(self, sent_at: float, receipt: Acknowledged) -> str:
        """Why a message that was sent at that time can't have the *receipt* yet; empty if it
        can."""
        needed = min(
            (
                options.min_insync
                for of_topic in self._cluster.decided.options.values()
                for options in of_topic.values()
            ),
            default=0,
        )
        count = self.count_since(sent_at)
        if count >= needed:
            return ""
        return (
            f"{receipt.value!r} was sent to {receipt.log} at {sent_at:.6f} s and acknowledged at "
            f"{receipt.at:.6f} s; meanwhile {count} brokers ran, and {needed} have to be in sync"
        )
