"""Finds which cells a scenario reaches, and when, by running it once."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import Final, NamedTuple

from octopi.errors import OctopiError
from octopi.identifiers import PartitionId
from octopi.simulation.cluster import DATA_DIRECTORY, SimulatedCluster
from octopi.simulation.faults.injector import HEALED
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.kernel.world import Event
from sim.run.plan import Plan
from sim.run.simulation import simulate
from sim.search.exhaust_cells import ROLES, Cell, Spot

_LOGS: Final = f"{DATA_DIRECTORY}/logs/"
_KEPT: Final = (0.0, 0.5, 1.0, 0.25, 0.75)
"""Which of the moments at which a cell is reached are kept, as fractions of their number: the first
one, the middle one, the last one, and so on."""


class Reach(NamedTuple):
    """The cells that one scenario reaches."""

    scenario: str
    event_count: int
    """The number of events in a run, a measure of its cost."""
    spots: dict[Cell, tuple[Spot, ...]]
    """For each cell some moments: the first one, one in the middle, others."""


class ScenarioError(OctopiError):
    """A scenario breaks a rule without further faults."""


def reach(scenario: str, plan: Plan) -> Reach:
    """Run *plan*, and note which cells it reaches before everything is healed.

    Raises:
      ScenarioError: if it breaks a rule.
    """
    observers: list[_Observer] = []

    def observe(cluster: SimulatedCluster) -> _Observer:
        observers.append(_Observer(scenario, cluster))
        return observers[0]

    verdict = simulate(plan, [Oracle, observe], events_kept=0)
    if verdict.violation is not None:
        raise ScenarioError(f"scenario {scenario}: {verdict.violation}")
    found = {cell: _some(spots) for cell, spots in observers[0].spots.items()}
    return Reach(scenario, observers[0].event_count, found)


def _some(spots: list[Spot]) -> tuple[Spot, ...]:
    return tuple(dict.fromkeys(spots[round(part * (len(spots) - 1))] for part in _KEPT))


class _Observer:
    """Notes each step and each effect, until everything is healed."""

    def __init__(self, scenario: str, cluster: SimulatedCluster) -> None:
        self.spots: dict[Cell, list[Spot]] = defaultdict(list)
        self.event_count = 0
        self._scenario = scenario
        self._cluster = cluster
        self._is_over = False
        self._counts: Counter[tuple[str, str]] = Counter()
        self._calls: dict[tuple[str, str, str], int] = {}
        """The number of a call among the host's calls of that operation, by host, operation and
        path."""
        for node in cluster.nodes.values():
            node.host.effect_observers.append(partial(self._see_effect, node.kind))

    def __call__(self, event: Event) -> None:
        """Note *event* if it is a step."""
        self.event_count += 1
        self._is_over |= event.what == HEALED
        roles = ROLES.get(event.what)
        if roles is None or self._is_over:
            return
        role = roles[0]
        if len(roles) > 1:
            leads = self._cluster.leader(event.get("partition")) == event.host
            role = "leader" if leads else "follower"
        if role in {"producer", "consumer"} and event.host.partition("-")[0] != role:
            return  # the operator's, which does a little of both
        code = event.what.partition(" ")[0]
        self._counts[event.host, code] += 1
        count = self._counts[event.host, code]
        self.spots[Cell(code, role)].append(Spot(self._scenario, event.host, count, count))

    def _see_effect(
        self, kind: str, life: ProcessLife, operation: str, edge: str, path: str
    ) -> None:
        if self._is_over:
            return
        host = life.host.name
        place = f"{operation} {edge}"
        self._counts[host, place] += 1
        count = self._counts[host, place]
        if edge == "before":
            self._calls[host, operation, path] = count
        role = self._role(kind, host, path)
        spot = Spot(self._scenario, host, count, self._calls[host, operation, path])
        self.spots[Cell(place, role)].append(spot)
        if place == "append before":
            self.spots[Cell("append during", role)].append(spot)

    def _role(self, kind: str, host: str, path: str) -> str:
        if kind == "client":
            return host.partition("-")[0]
        if kind == "broker" and path.startswith(_LOGS):
            partition = path.removeprefix(_LOGS).partition("/")[0]
            leads = (
                partition.isdecimal() and self._cluster.leader(PartitionId(int(partition))) == host
            )
            return "leader" if leads else "follower"
        return kind
