"""Runs plans against one mutant until runs notice it: a process of its own for each mutant.

Two searches share the runs.  The white-box one has everything: the oracle, nodes' own
assertions and complaints, the checker of what clients saw.  The black-box one has only what
clients saw, and that everything comes to rest in the end.  A run counts only if its plan finds
nothing in the code as it is (`sim.mutants.control`), and what is found first is reduced to the
faults and the little else that it takes (`sim.shrink`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import attrs

from sim.mutants.catalogue import MUTANTS
from sim.mutants.control import Control
from sim.mutants.mutant import plant

if TYPE_CHECKING:
    from octopi.simulation.world import Violation
    from sim.plan import Plan


@attrs.frozen
class Kill:
    """A mutant was noticed."""

    rule: str
    """What it broke."""
    text: str
    token: str
    """The plan that shows it."""
    runs: int
    """How many runs that took, the last one included."""
    seconds: float
    """Of the process's processor time."""
    least: str = ""
    """The smallest plan that shows it, as a token; empty: it was not looked for."""
    faults_count: int = -1
    """In that."""


@attrs.frozen
class Hunt:
    """What came of looking for one mutant."""

    name: str
    white: Kill | None
    black: Kill | None
    runs: int
    seconds: float
    """Of processor time."""
    unsound: tuple[str, ...] = ()
    """Plans, as tokens, that find something in the code as it is."""


@attrs.frozen
class Budget:
    """How long to look, in seconds of processor time."""

    white_s: float = 60.0
    black_s: float = 60.0
    """For the black-box search, the white-box one's included."""
    shrink_s: float = 20.0
    """By the clock on the wall."""


def hunt(
    name: str, plans: Iterable[Plan], is_sound: Callable[[Plan], bool], budget: Budget
) -> Hunt:
    """Run *plans* in this process, where the mutant is planted, until it is found both ways, or
    the budget is spent."""
    from sim.plan import to_token

    began, runs, unsound = time.process_time(), 0, []
    white: Kill | None = None
    black: Kill | None = None
    for plan in plans:
        spent_s = time.process_time() - began
        wants_white = white is None and spent_s < budget.white_s
        wants_black = black is None and spent_s < budget.black_s
        if not (wants_white or wants_black):
            break
        runs += 1
        inside, outside = look(plan, watch=wants_white)
        is_news = (wants_white and inside) or (wants_black and outside)
        if not is_news:
            continue
        spent_s = time.process_time() - began
        token = to_token(plan)
        if not is_sound(plan):
            unsound.append(token)
            continue
        if wants_black and outside:
            black = Kill(outside.rule, str(outside)[:500], token, runs, spent_s)
        if wants_white and inside:
            white = Kill(inside.rule, str(inside)[:500], token, runs, spent_s)
            least = shrunk(plan, is_sound, budget.shrink_s)
            white = attrs.evolve(white, least=to_token(least), faults_count=len(least.faults))
            began += time.process_time() - began - spent_s
    return Hunt(name, white, black, runs, time.process_time() - began, tuple(unsound))


def look(plan: Plan, *, watch: bool = True) -> tuple[Violation | None, Violation | None]:
    """What is noticed in a run by who sees everything, with an oracle if it is to *watch*, and
    by who sees clients only."""
    from octopi.simulation.oracle import Oracle
    from sim.simulation import simulate

    found: list[Violation] = []  # the run goes on, for others to notice, too
    observers = [lambda cluster: Oracle(cluster, found.append)] if watch else []
    verdict = simulate(plan, observers, events_kept=10)
    return found[0] if found else verdict.violation, verdict.outside


def shrunk(plan: Plan, is_sound: Callable[[Plan], bool], seconds_max: float) -> Plan:
    """The smallest plan that is found within *seconds_max* and fails here as *plan* does."""
    from sim.shrink import NothingFailsError, shrink

    try:
        least = shrink(plan, seconds_max).plan
    except NothingFailsError:  # only the run as a whole shows it, beyond the oracle's first word
        return plan
    return least if is_sound(least) else plan


def plans(first: int = 1) -> Iterator[Plan]:
    """What is searched, from that seed on: stories and swarm by turns."""
    from sim import directed, swarm

    for seed in itertools.count(first):
        yield directed.draw(seed)
        if seed % 3 == 0:
            yield swarm.draw(seed, "message")


def _plan_of(token: str) -> Plan:
    from sim.plan import from_token

    return from_token(token)


def main() -> int:
    """Hunt one mutant; the result is one line of JSON on standard output."""
    parser = argparse.ArgumentParser(prog="python -m sim.mutants.hunt", description=__doc__)
    parser.add_argument("name", choices=sorted(MUTANTS), metavar="NAME")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--runs", type=int, default=100_000, help="plans at most")
    parser.add_argument("--plan", metavar="TOKEN", help="only this plan")
    for option in attrs.fields(Budget):
        parser.add_argument(f"--{option.name}", type=float, default=option.default)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    budget = Budget(arguments.white_s, arguments.black_s, arguments.shrink_s)
    with Control() as control:
        plant(MUTANTS[arguments.name])
        searched: Iterator[Plan] = itertools.islice(plans(arguments.first), arguments.runs)
        if arguments.plan:
            searched = iter([_plan_of(arguments.plan)])
        found = hunt(arguments.name, searched, control.is_sound, budget)
    print(json.dumps(attrs.asdict(found)))
    return 0 if found.white else 1


if __name__ == "__main__":
    sys.exit(main())
