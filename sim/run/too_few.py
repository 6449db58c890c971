"""Notices acknowledgements while fewer brokers run than have to be in sync.

Whoever knows which brokers run can tell that: a message that was sent when all but one were down,
and is acknowledged while they are, can't be on two.  Nor can a broker have it that has run since
then, but not for long enough to follow a leader.
"""

from __future__ import annotations

from math import inf
from typing import Final

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.history.events import Acknowledged
from octopi.simulation.kernel.host import KILL, LOSE_POWER
from octopi.simulation.kernel.world import Event

KINDS: Final = frozenset({"boot", "exit", KILL, LOSE_POWER})


_MESSAGES_COUNT: Final = 15
"""A broker that has just started gets no record before it has exchanged this many messages: it
connects to the register, joins, connects to the leader, and follows."""


class RunningBrokers:
    """When the brokers of *cluster* have run.  *latency_s*: how long each message takes, at
    least."""

    def __init__(self, cluster: SimulatedCluster, latency_s: float) -> None:
        self._cluster = cluster
        self._idle_s = _MESSAGES_COUNT * latency_s
        self._lives: dict[str, list[tuple[float, float]]] = {}
        """When each life of a broker began and ended; infinite: it hasn't ended."""
        cluster.world.observe(self._see, KINDS)

    def _see(self, event: Event) -> None:
        if self._cluster.nodes[event.host].kind != "broker":
            return
        lives = self._lives.setdefault(event.host, [])
        if event.what == "boot":
            lives.append((event.at, inf))
        elif lives:
            lives[-1] = lives[-1][0], event.at

    def count_since(self, at: float) -> int:
        """How many brokers may have got a record since *at*: they ran then, or have run for long
        enough since."""
        now = self._cluster.world.now
        return sum(
            any(
                end >= at and (began <= at or min(end, now) - began >= self._idle_s)
                for began, end in lives
            )
            for lives in self._lives.values()
        )

    def complaint(self, sent_at: float, receipt: Acknowledged, needed: int = 0) -> str:
        """Why a message that was sent at that time can't have the *receipt* yet; empty if it can.
        *needed*: how many brokers it takes; 0: as many as the topic with the fewest asks for."""
        needed = needed or min(
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
