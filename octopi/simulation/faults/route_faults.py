"""Faults of the routes between a host and others: cut, slow and reset."""

from __future__ import annotations

from collections import Counter

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.faults.actions import Cut, Slow
from octopi.simulation.network.route import Mishap


class RouteFaults:
    """Injects these faults into the network of *cluster*; each ends by itself after its time."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.is_over = False
        """Whether the end of a fault resets no connections any more, because all was healed."""
        self._world = cluster.world
        self._network = cluster.network
        self._slowed: Counter[tuple[str, str]] = Counter()
        self._usual: dict[tuple[str, str], tuple[float, float, float]] = {}
        """The latency, bandwidth and loss of routes before they were slowed."""

    def cut(self, host: str, peers: list[str], action: Cut) -> None:
        """Lose or hold the packets between *host* and *peers*."""
        block = self._network.hold if action.holds else self._network.cut
        undos = [block(*way) for way in _ways(action.way, host, peers)]

        def end() -> None:
            if action.resets and not self.is_over:
                self.reset(host, peers)
            for undo in undos:
                undo()

        self._world.after(action.seconds, end)

    def spoil(
        self, host: str, peers: list[str], mishap: Mishap, way: str, after_bytes: int
    ) -> None:
        """Have the connections between *host* and *peers* suffer *mishap*."""
        for source, target in _ways(way, host, peers):
            self._network.spoil(source, target, mishap, after_bytes)

    def reset(self, host: str, peers: list[str]) -> None:
        """Reset every connection between *host* and *peers*."""
        for other in peers:
            self._network.reset(host, other)

    def reset_link(self, host: str, peers: list[str], link: str) -> None:
        """Reset one connection of *host*, drawn from those with *peers* that are for *link*."""
        ends = [end for other in peers for end in self._network.links(host, other, f"/v1/{link}")]
        if ends:
            self._network.reset_link(self._world.random("link", host).choice(ends))

    def slow(self, host: str, peers: list[str], action: Slow) -> None:
        """Slow the routes between *host* and *peers*."""
        ways = _ways("both", host, peers)
        for way in ways:
            self._slowed[way] += 1
            route = self._network.route(*way)
            self._usual.setdefault(way, (route.latency_s, route.bytes_per_s, route.loss_chance))
            route.latency_s, route.bytes_per_s = action.latency_s, action.bytes_per_s
            route.loss_chance = action.loss_chance

        def end() -> None:
            for way in ways:
                self._slowed[way] -= 1
                if not self._slowed[way]:
                    route = self._network.route(*way)
                    route.latency_s, route.bytes_per_s, route.loss_chance = self._usual[way]

        self._world.after(action.seconds, end)


def _ways(way: str, host: str, peers: list[str]) -> list[tuple[str, str]]:
    ways = [(host, other) for other in peers if way in {"both", "out"}]
    return ways + [(other, host) for other in peers if way in {"both", "in"}]
