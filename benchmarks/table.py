"""The results as a table for a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from typing import Final

from benchmarks.comparisons import (
    OURS,
    busy_rounds,
    by_round,
    compared,
    main_figures,
    verdicts,
)
from benchmarks.goals import Figure
from benchmarks.pairing import Quartiles, quartiles
from benchmarks.results import Measurement, Participant, Run
from benchmarks.workloads import Workload

HEAD: Final = (
    f"{'':<36}{'median':>12}  {'quartiles':<23}{'CPU us/message':>15}{'faults/message':>16}"
    f"  {'Octopi ahead':<19} busy\n"
    f"{'':<36}{'':>12}  {'':<23}{'client servers':>15}{'client servers':>16}"
    f"  {'(quartiles)':<19} rounds"
)


def table(run: Run) -> str:
    """A section for each workload, with a line for each system and figure.

    Systems are compared round by round: a factor above 1 means that Octopi is faster or takes less
    time, processor time too.
    """
    lines = [HEAD]
    for workload in run.workloads:
        if run.participants_of(workload.name):
            lines.append(workload.name)
            lines += [f"  goal {one.goal.text}: {one.words}" for one in verdicts(run, workload)]
            for participant in run.participants_of(workload.name):
                lines += _lines(run, workload, participant)
    busy = sum(bool(one.busy) for one in run.measurements)
    if busy or run.busy_at_rest:
        lines.append(
            f"The machine was busy in {busy} of {len(run.measurements)} measurements: differences "
            "below 1.5x may mean nothing there; processor time is steadier."
        )
    return "\n".join(lines)


def _lines(run: Run, workload: Workload, participant: Participant) -> Iterator[str]:
    system, title = participant.system, f"  {participant.title}"
    measured = run.of(workload.name, system)
    for problem in _problems(run, workload.name, system):
        yield f"{title:<36}failed: {problem}"
    for number, figure in enumerate(main_figures(workload)):
        found = by_round(run, workload.name, system, figure)
        if not found:
            continue
        spread = quartiles(found.values())
        busy = len(busy_rounds(run, workload.name, system))
        costs = f"{'':31}"
        if number == 0:
            cpu, faults = (
                [middle(measured, f"{side}_{cost}") for side in ("client", "server")]
                for cost in ("cpu_us", "faults")
            )
            costs = f"{cpu[0]:>7.2f} {cpu[1]:>7.2f}{faults[0]:>8.3f} {faults[1]:>7.3f}"
        other = compared(run, workload.name, figure, system) if system != OURS else None
        yield (
            f"{title if number == 0 else '':<36}{amount(spread.median, figure):>12}  "
            f"{_range(spread, figure):<23}{costs}  {factor(other):<19} "
            f"{f'{busy} of {len(measured)}' if busy else ''}"
        ).rstrip()


def _problems(run: Run, workload: str, system: str) -> Iterable[str]:
    return (
        one.problem
        for one in run.measurements
        if (one.workload, one.system) == (workload, system) and one.problem
    )


def middle(measured: list[Measurement], name: str) -> float:
    """The median of a cost over the rounds."""
    costs: list[float] = [getattr(one, name) for one in measured]
    return statistics.median(costs)


def amount(value: float, figure: Figure) -> str:
    """A figure with its unit."""
    match figure:
        case "rate":
            return f"{value:,.0f}/s"
        case "cpu":
            return f"{value:,.2f} us"
        case _:
            return f"{value:,.0f} us {figure}"


def _range(spread: Quartiles, figure: Figure) -> str:
    return f"{spread.lower:,.0f} to {spread.upper:,.0f}" if spread.count > 1 else ""


def factor(ahead: Quartiles | None) -> str:
    """A factor with its quartiles."""
    if ahead is None:
        return ""
    quarters = f" ({ahead.lower:.2f}-{ahead.upper:.2f})" if ahead.count > 1 else ""
    return f"{ahead.median:.2f}x{quarters}"
