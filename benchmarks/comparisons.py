"""What the results of a run say: medians, paired ratios, and which goals were met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from benchmarks.goals import BEST, Figure, Goal, is_less_better, parse
from benchmarks.pairing import Quartiles, paired_ratios, quartiles
from benchmarks.results import Run
from benchmarks.workloads import Workload

OURS: Final = "octopi"
PEERS: Final = ("kafka", "rabbitmq", "redis", "nats")
"""Logs that other people use; `BEST` is one of them.  NATS without a log, bare sockets and the
peers' own tools are measured for what they show, and aren't peers."""


@attrs.frozen
class Comparison:
    """One row of the page: how far one system is ahead of another, and the goal for that."""

    figure: Figure
    label: str
    factors: Mapping[int, float]
    """By round; never empty."""
    verdict: Verdict | None
    busy: frozenset[int]
    """The rounds in which the machine was busy on one side at least."""


@attrs.frozen
class Verdict:
    """Whether a goal was met."""

    goal: Goal
    factors: Mapping[int, float]
    """By which factor the system was ahead, by round; empty: no round has both sides."""

    @property
    def ahead(self) -> Quartiles | None:
        """The quartiles of the factors."""
        return quartiles(self.factors.values()) if self.factors else None

    @property
    def is_met(self) -> bool | None:
        """None: it wasn't measured."""
        return None if self.ahead is None else self.ahead.median >= self.goal.ahead

    @property
    def words(self) -> str:
        """For people: the verdict and the measured ratio, in the goal's own terms."""
        if self.ahead is None:
            return "not measured"
        ratio = self.ahead.median if self.goal.figure == "rate" else 1 / self.ahead.median
        return f"{'met' if self.is_met else 'missed'}: {ratio:.2f}x"


def main_figures(workload: Workload) -> tuple[Figure, ...]:
    """The figures that the workload is about."""
    return ("p50", "p99") if workload.kind in {"request", "latency"} else ("rate",)


def by_round(run: Run, workload: str, system: str, figure: Figure) -> dict[int, float]:
    """The figures of a system, by round."""
    return {
        one.round: found
        for one in run.of(workload, system)
        if (found := one.figure(figure)) is not None
    }


def ahead(
    ours: Mapping[int, float], theirs: Mapping[int, float], figure: Figure
) -> dict[int, float]:
    """By which factor *ours* is ahead of *theirs*, by round.  Above 1, it is faster or takes less
    time."""
    if is_less_better(figure):
        return paired_ratios(theirs, ours)
    return paired_ratios(ours, theirs)


def compared(run: Run, workload: str, figure: Figure, other: str) -> Quartiles | None:
    """By which factor Octopi is ahead of *other*; None: no round has both."""
    factors = ahead(
        by_round(run, workload, OURS, figure), by_round(run, workload, other, figure), figure
    )
    return quartiles(factors.values()) if factors else None


def verdicts(run: Run, workload: Workload) -> list[Verdict]:
    """Which of the workload's goals were met."""
    return [_verdict(run, workload.name, parse(text)) for text in workload.goals]


def _verdict(run: Run, workload: str, goal: Goal) -> Verdict:
    ours = by_round(run, workload, goal.system, goal.figure)
    if goal.workload:
        theirs = by_round(run, goal.workload, goal.system, goal.figure)
    elif goal.other == BEST:
        theirs = _best(run, workload, goal.figure)
    else:
        theirs = by_round(run, workload, goal.other, goal.figure)
    factors = ahead(ours, theirs, goal.figure)
    return Verdict(goal, factors)


def _best(run: Run, workload: str, figure: Figure) -> dict[int, float]:
    """The best figure of a peer, by round."""
    best: dict[int, float] = {}
    choose = min if is_less_better(figure) else max
    for peer in PEERS:
        for number, found in by_round(run, workload, peer, figure).items():
            best[number] = choose(best.get(number, found), found)
    return best


def busy_rounds(run: Run, workload: str, *systems: str) -> frozenset[int]:
    """The rounds in which the machine was busy while one of *systems* had its turn."""
    return frozenset(
        one.round for system in systems for one in run.of(workload, system) if one.busy
    )


def comparisons(run: Run, workload: Workload) -> list[Comparison]:
    """Octopi beside each other system, and what else the goals compare."""
    titles = {one.system: one.title for one in run.participants_of(workload.name)}
    rest = verdicts(run, workload)
    found = []
    for figure in main_figures(workload):
        ours = by_round(run, workload.name, OURS, figure)
        for system, title in titles.items():
            factors = ahead(ours, by_round(run, workload.name, system, figure), figure)
            if system != OURS and factors:
                wanted = (OURS, figure, system)
                of_pair = [
                    one
                    for one in rest
                    if (one.goal.system, one.goal.figure, one.goal.other) == wanted
                ]
                rest = [one for one in rest if one not in of_pair]
                verdict = of_pair[0] if of_pair else None
                busy = busy_rounds(run, workload.name, OURS, system)
                found.append(Comparison(figure, f"beside {title}", factors, verdict, busy))
    return found + [
        Comparison(
            one.goal.figure,
            _goal_label(one.goal, titles),
            one.factors,
            one,
            busy_rounds(run, workload.name, one.goal.system, *_others(one.goal)),
        )
        for one in rest
        if one.factors
    ]


def _others(goal: Goal) -> tuple[str, ...]:
    return PEERS if goal.other == BEST else (goal.other,)


def _goal_label(goal: Goal, titles: Mapping[str, str]) -> str:
    other = titles.get(goal.other, goal.other)
    if goal.other == BEST:
        other = "the best peer of each round"
    elif goal.workload:
        other = f"the workload \u201c{goal.workload}\u201d"
    ours = "" if goal.system == OURS else f"{titles.get(goal.system, goal.system)}: "
    return f"{ours}beside {other}"
