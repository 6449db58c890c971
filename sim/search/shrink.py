"""Makes a failing plan smaller, with fewer and simpler faults and less load, as long as it breaks
the same rule.

First faults are left out, by delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating
Failure-Inducing Input", 2002).  Then the workload and the cluster are made smaller, the network and
the order of tasks less random, and the remaining faults simpler.  This is repeated until nothing
helps any more (`sim.search.shrink_candidates` has the candidates, and
`octopi.simulation.faults.shrinking` the loop).

A candidate is taken if it breaks the same rule in the same way: see `signature`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import process_time
from typing import Final

import attrs

from octopi.errors import OctopiError
from octopi.simulation.faults.shrinking import smallest, without_numbers
from octopi.simulation.invariants.oracle import Oracle
from sim.run.plan import Plan, to_token
from sim.run.simulation import ObserverMaker, Verdict, simulate
from sim.search.shrink_candidates import PASSES, Candidate, size

SHRINK_S: Final = 60.0
"""How long to try by default (seconds of processor time)."""

_VAGUE: Final = frozenset({"exception", "complaint"})
"""Rules that only say that something went wrong."""
_SIGNATURE_LENGTH: Final = 80


class NothingFailsError(OctopiError):
    """The plan that is to be made smaller breaks no rule."""


@attrs.frozen
class Shrunk:
    """The result of making a plan smaller."""

    plan: Plan
    verdict: Verdict
    runs: int
    seconds: float
    is_minimal: bool
    """Whether all candidates were tried; false: the time was over before."""


def signature(verdict: Verdict) -> str:
    """What has to stay the same: the rule, and for vague rules the text of the violation, without
    numbers and names."""
    if verdict.rule not in _VAGUE:
        return verdict.rule
    first, *more = str(verdict.violation).splitlines()
    error = [one for one in more if one and not one[0].isspace() and one[0] not in "|+"]
    text = error[-1] if error else first.partition(" ")[2]
    return f"{verdict.rule}: {without_numbers(text)[:_SIGNATURE_LENGTH]}"


def shrink(
    plan: Plan,
    seconds_max: float = SHRINK_S,
    tell: Callable[[str], object] = lambda line: None,
    observers: Sequence[ObserverMaker] = (Oracle,),
) -> Shrunk:
    """The smallest plan that is found within *seconds_max* of processor time and fails as *plan*
    does, according to *observers* and the clients' history; *tell* is called with every
    improvement.  Ctrl-C ends the search early.

    Raises:
      NothingFailsError: if *plan* doesn't fail.
    """
    return _Shrinking(plan, seconds_max, tell, observers).run()


class _Shrinking:
    def __init__(
        self,
        plan: Plan,
        seconds_max: float,
        tell: Callable[[str], object],
        observers: Sequence[ObserverMaker],
    ) -> None:
        self._tell = tell
        self._observers = observers
        self._began = process_time()
        self._seconds_max = seconds_max
        self._runs = 0
        self._plan = plan
        self._verdict = self._simulate(plan)
        self._wanted = signature(self._verdict)
        if not self._wanted:
            raise NothingFailsError("this run breaks no rule, so there is nothing to shrink")

    def run(self) -> Shrunk:
        """Shrink until nothing helps, or no time is left."""
        passes = [_of_plan(one) for one in PASSES]
        found = smallest(
            self._plan,
            self._verdict,
            passes,
            self._try,
            seconds_max=self._seconds_max - (process_time() - self._began),
            key=to_token,
            tell=lambda what, plan: self._tell(f"run {self._runs}: {what}; {size(plan)}"),
        )
        seconds = process_time() - self._began
        return Shrunk(found.plan, found.result, self._runs, seconds, found.is_minimal)

    def _try(self, plan: Plan) -> Verdict | None:
        verdict = self._simulate(plan)
        return verdict if signature(verdict) == self._wanted else None

    def _simulate(self, plan: Plan) -> Verdict:
        self._runs += 1
        return simulate(plan, self._observers, events_kept=0)


def _of_plan(
    candidates: Callable[[Plan], Iterable[Candidate]],
) -> Callable[[Plan, Verdict], Iterable[Candidate]]:
    return lambda plan, _: candidates(plan)
