"""The exhaustive search: fails every node at every step and at every I/O, in each possible way.

First each scenario (`sim.search.exhaust_runs`) is run without further faults, to see which cells it
reaches.  Then each action of each cell is done at the first moment of the cheapest scenario, and,
unless one moment was asked for, at one in the middle of another scenario, if there is one.  If an
action can't be done, because it would destroy the last intact copy of committed records, other
moments are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from time import monotonic, process_time
from typing import Final, NamedTuple

import attrs

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.faults.injector import FAULT, SKIPPED
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.kernel.world import Event
from sim.run.plan import Plan, to_token
from sim.run.simulation import simulate
from sim.search.exhaust_cells import Cell, Spot, actions, cells, faults, impossible
from sim.search.exhaust_reach import Reach, reach
from sim.search.exhaust_runs import SCENARIOS
from sim.search.parallel_runs import SIMULATOR, TEXT_SHOWN, spread

MOMENTS: Final = 2
"""At how many moments each action of each cell is done, unless asked otherwise."""
TRIES_MAX: Final = 8
"""How many moments are tried, at most, for the second one.  For the first one all are tried."""


class FailedCell(NamedTuple):
    """A run that broke a rule."""

    cell: Cell
    action: str
    rule: str
    text: str
    token: str


class CellResult(NamedTuple):
    """The result of one action at one cell."""

    cell: Cell
    action: str
    executed: int
    """At how many moments the action was done."""
    skipped: tuple[str, ...]
    """Why it could not be done at others."""
    failures: tuple[FailedCell, ...]
    runs: int
    cpu_s: float


class Task(NamedTuple):
    """One action at one cell, and the moments that may be tried, the best ones first."""

    cell: Cell
    action: str
    spots: tuple[Spot, ...]
    moments: int = MOMENTS


# --- one task --------------------------------------------------------------------------------


def plan_of(cell: Cell, action: str, spot: Spot) -> Plan:
    """The plan of the scenario of *spot*, with *action* at *cell*."""
    plan = SCENARIOS[spot.scenario]
    return attrs.evolve(plan, faults=(*plan.faults, *faults(cell, action, spot)))


def perform(task: Task) -> CellResult:
    """Do the action at as many moments as wanted, or as possible."""
    began = process_time()
    executed, runs = 0, 0
    skipped: list[str] = []
    failures: list[FailedCell] = []
    for spot in task.spots:
        if executed == task.moments or (executed and runs >= TRIES_MAX):
            break
        runs += 1
        plan = plan_of(task.cell, task.action, spot)
        why, rule, text = _run(plan)
        if why:
            skipped.append(why)
        else:
            executed += 1
        if rule:
            failures.append(FailedCell(task.cell, task.action, rule, text, to_token(plan)))
    cpu_s = process_time() - began
    return CellResult(
        task.cell, task.action, executed, tuple(skipped), tuple(failures), runs, cpu_s
    )


def _run(plan: Plan) -> tuple[str, str, str]:
    """Run *plan*.  Return why its last fault was not injected, the broken rule, and the steps that
    were seen."""
    wanted = plan.faults[-1].action
    why = ["its place was never reached"]

    def observe(event: Event) -> None:
        if event.what in {FAULT, SKIPPED} and event.facts["action"] is wanted:
            why[0] = event.facts.get("why", "")

    def watch(_: SimulatedCluster) -> Callable[[Event], None]:
        return observe

    try:
        verdict = simulate(plan, [Oracle, watch], events_kept=0)
    except Exception as error:
        return why[0], SIMULATOR, f"{type(error).__name__}: {error}"[:TEXT_SHOWN]
    text = str(verdict.violation)[:TEXT_SHOWN] if verdict.violation else ""
    return why[0], verdict.rule, text


# --- all tasks -------------------------------------------------------------------------------


def tasks(
    reached: Sequence[Reach], chosen: Iterable[Cell], moments: int = MOMENTS
) -> Iterator[Task]:
    """The tasks for *chosen* cells, given which cells the scenarios reach."""
    by_cost = sorted(reached, key=lambda one: (one.event_count, one.scenario))
    for cell in chosen:
        spots = _ordered([one.spots[cell] for one in by_cost if cell in one.spots])
        for action in actions(cell) if spots else ():
            yield Task(cell, action, spots, moments)


def _ordered(by_scenario: list[tuple[Spot, ...]]) -> tuple[Spot, ...]:
    """The first moment of the first scenario, one in the middle of the next one, then others."""
    if not by_scenario:
        return ()
    first, *others = by_scenario
    rest = [*(spots[1:] + spots[:1] for spots in others), first[1:]]
    in_turn = chain.from_iterable(zip_longest(*rest))
    return (first[0], *(spot for spot in in_turn if spot is not None))


def look(scenario: str) -> Reach:
    """Which cells the scenario with that name reaches.

    Raises:
      ScenarioError: if it breaks a rule without further faults.
    """
    return reach(scenario, SCENARIOS[scenario])


class Exhaustion:
    """An exhaustive search: the actions that were done, could not be done, and broke a rule."""

    def __init__(self, jobs: int, moments: int = MOMENTS, part: tuple[int, int] = (1, 1)) -> None:
        """*part*: only every second, or third, or so on (the second number) of the actions, from
        that one on (the first number, from 1)."""
        self.failures: list[FailedCell] = []
        self.runs = 0
        self.cpu_s = 0.0
        self.began = monotonic()
        self.done: dict[tuple[Cell, str], CellResult] = {}
        """The results, by cell and action."""
        self._jobs = jobs
        self._moments = moments
        self._part = part
        self._tasks: list[Task] = []
        self.left_out: set[tuple[Cell, str]] = set()
        """What is in another part."""

    def look_around(self) -> int:
        """Run the scenarios without further faults; return how many tasks there will be.

        Raises:
          ScenarioError: if one of them breaks a rule.
        """
        reached = list(spread(look, SCENARIOS, self._jobs))
        self.runs += len(reached)
        everything = list(tasks(reached, cells(), self._moments))
        first, step = self._part
        self._tasks = everything[first - 1 :: step]
        chosen = {(one.cell, one.action) for one in self._tasks}
        self.left_out = {(one.cell, one.action) for one in everything} - chosen
        return len(self._tasks)

    def perform_all(self) -> Iterator[CellResult]:
        """Perform all tasks; yield the result of each as soon as it is known."""
        for done in spread(perform, self._tasks, self._jobs):
            self.done[done.cell, done.action] = done
            self.failures += done.failures
            self.runs += done.runs
            self.cpu_s += done.cpu_s
            yield done

    def gaps(self) -> list[str]:
        """Actions that were not done although `impossible` doesn't exclude them, and actions that
        were done although it does."""
        found = []
        for cell in cells():
            for action in actions(cell):
                done = self.done.get((cell, action))
                if impossible(cell, action):
                    if done and done.executed:
                        found.append(f"{cell}, {action}: was done, but is listed as impossible")
                elif (cell, action) not in self.left_out and (done is None or not done.executed):
                    why = "; ".join(dict.fromkeys(done.skipped)) if done else "never reached"
                    found.append(f"{cell}, {action}: {why}")
        return found
