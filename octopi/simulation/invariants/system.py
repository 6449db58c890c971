"""The interface for systems with rules of their own: each has one module, listed in one table.

The rules about replicated logs belong to the oracle (`octopi.simulation.invariants.oracle`) and
share their state.  Another system has its own state: it is a `SystemInvariants`, listed in
`octopi.simulation.invariants.systems`, and the oracle makes one for each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.kernel.world import Event
from octopi.simulation.step_handlers import StepHandlers


class BreakRule(Protocol):
    """Reports that a rule is broken; only the first report in a run counts."""

    def __call__(self, rule: str, text: str, event: Event, *others: Event) -> None:
        """*text* describes what was observed, *event* is the moment, and *others* led to it."""


class SystemInvariants:
    """The rules of one system, in one run.  A subclass registers its handlers in its constructor:
    ``self.handlers.on(self._check, steps.N1Counted)``."""

    promises: ClassVar[Mapping[str, str]] = {}
    """Rule -> what holds if it isn't broken, as reports show it."""

    def __init__(self, cluster: SimulatedCluster, break_rule: BreakRule) -> None:
        self.cluster = cluster
        self.break_rule = break_rule
        self.handlers = StepHandlers()

    def at_rest(self, event: Event) -> None:
        """Check what must hold when everything is healed and the cluster is at rest."""
