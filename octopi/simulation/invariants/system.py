"""How a system brings rules of its own: in one module, named in one table.

The rules about replicated logs are the oracle's (`octopi.simulation.invariants.oracle`); they share
what they know.  Another system keeps what it knows to itself: it is a `SystemInvariants`, listed in
`octopi.simulation.invariants.systems`, and the oracle makes one for each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.kernel.world import Event
from octopi.simulation.step_handlers import StepHandlers


class BreakRule(Protocol):
    """Says that a rule is broken; the first in a run counts."""

    def __call__(self, rule: str, text: str, event: Event, *others: Event) -> None:
        """*text* says what was seen, *event* is when, and *others* led to it."""


class SystemInvariants:
    """The rules of one system, in one run.  A subclass takes steps in its constructor:
    ``self.handlers.on(self._check, steps.N1Counted)``."""

    promises: ClassVar[Mapping[str, str]] = {}
    """Rule -> what holds where it isn't broken, as reports show it."""

    def __init__(self, cluster: SimulatedCluster, break_rule: BreakRule) -> None:
        self.cluster = cluster
        self.break_rule = break_rule
        self.handlers = StepHandlers()

    def at_rest(self, event: Event) -> None:
        """Everything is healed and nothing moves: look at what has to hold then."""
