"""Runs a plan once more to write its page and its ShiViz log, or to print its timeline."""

from __future__ import annotations

from pathlib import Path

from octopi.simulation.history.checker import check
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.report.html import write_page
from octopi.simulation.report.recorder import Recorder
from octopi.simulation.report.recording import Broken, Recording
from sim.generate.swarm import describe
from sim.run.plan import Plan, to_token
from sim.run.simulation import Verdict, simulate
from sim.search.parallel_runs import replay_line


def record(plan: Plan, name: str) -> tuple[Verdict, Recording]:
    """Run *plan*, whose run is called *name*; return its verdict with all events."""
    recorder = Recorder()
    verdict = simulate(plan, [Oracle, recorder.watch])
    recording = recorder.recording(
        f"{name} breaks {verdict.rule}" if verdict.rule else f"{name}: all is well",
        broken=_broken(verdict),
        command=replay_line(to_token(plan)),
        options=tuple(one for one in describe(plan).splitlines() if " = " in one),
        faults=tuple(map(str, plan.faults)),
        digest=verdict.digest,
    )
    return verdict, recording


def _broken(verdict: Verdict) -> Broken | None:
    if verdict.violation is None:
        return None
    for fault in check(verdict.history) if verdict.rule.startswith("history ") else ():
        return Broken.of_history(fault, verdict.history)
    return Broken.of_violation(verdict.violation, verdict.details)


def write(recording: Recording, path: Path) -> None:
    """Write the page of *recording* to *path*; make its directory if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(recording, path)
