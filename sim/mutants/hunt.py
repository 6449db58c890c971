"""Runs plans against one mutant until a run notices it: a process of its own for each mutant.

Two searches go side by side over the same seeds.  The white-box one has everything: the
oracle, nodes' own assertions and complaints, the checker of what clients saw.  The black-box
one has only what clients saw, and that all comes to rest in the end.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from sim.mutants.catalogue import MUTANTS
from sim.mutants.mutant import plant

if TYPE_CHECKING:
    from sim.plan import Plan
    from sim.simulation import Verdict


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
    """Of this process's processor time."""


@attrs.frozen
class Hunt:
    """What came of looking for one mutant."""

    name: str
    white: Kill | None
    black: Kill | None
    runs: int
    seconds: float


def hunt(name: str, plans: Iterable[Plan], seconds_max: float, *, black_too: bool = True) -> Hunt:
    """Plant the mutant and run *plans* until it is found both ways, or for *seconds_max* of
    processor time.

    Raises:
      StaleMutantError: if the mutant doesn't fit the code any more.
    """
    from octopi.simulation.oracle import Oracle
    from sim.plan import to_token
    from sim.simulation import simulate

    began, runs = time.process_time(), 0
    white: Kill | None = None
    black: Kill | None = None
    for plan in plans:
        spent = time.process_time() - began
        if spent > seconds_max or (white and (black or not black_too)):
            break
        runs += 1
        if white is None:
            verdict = simulate(plan, [Oracle], events_kept=10)
            if verdict.violation is not None:
                white = _kill(verdict, to_token(plan), runs, time.process_time() - began)
        if black is None and black_too:
            verdict = simulate(plan, events_kept=10)
            if is_seen_from_outside(verdict):
                black = _kill(verdict, to_token(plan), runs, time.process_time() - began)
    return Hunt(name, white, black, runs, time.process_time() - began)


def is_seen_from_outside(verdict: Verdict) -> bool:
    """Whether clients alone show that something is wrong."""
    return verdict.rule.startswith("history") or verdict.rule == "liveness"


def _kill(verdict: Verdict, token: str, runs: int, seconds: float) -> Kill:
    return Kill(verdict.rule, str(verdict.violation)[:500], token, runs, seconds)


def main() -> int:
    """Hunt one mutant; the result is one line of JSON on standard output."""
    parser = argparse.ArgumentParser(prog="python -m sim.mutants.hunt", description=__doc__)
    parser.add_argument("name", choices=sorted(MUTANTS), metavar="NAME")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--runs", type=int, default=1000, help="plans at most")
    parser.add_argument("--seconds", type=float, default=60.0, help="of processor time at most")
    parser.add_argument("--white-only", action="store_true", help="leave the black-box search out")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    plant(MUTANTS[arguments.name])
    from sim.swarm import draw

    seeds = range(arguments.first, arguments.first + arguments.runs)
    found = hunt(
        arguments.name,
        (draw(seed, "message") for seed in seeds),
        arguments.seconds,
        black_too=not arguments.white_only,
    )
    print(json.dumps(attrs.asdict(found)))
    return 0 if found.white else 1


if __name__ == "__main__":
    sys.exit(main())
