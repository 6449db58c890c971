"""Many runs: one after the other or spread over processes, each boiled down to a few values.

A worker process imports the simulator once, and gets plans' seeds rather than plans where it
can.  Nothing that a run recorded crosses a process boundary.  Which worker runs what is chance;
what comes of a run is not.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from time import process_time
from typing import Final, NamedTuple, TypeVar

from octopi.simulation.invariants.oracle import Oracle
from sim.run.plan import Plan, from_token, to_token
from sim.run.simulation import Verdict, simulate

T = TypeVar("T")
R = TypeVar("R")

SIMULATOR: Final = "simulator"
"""The rule that is broken when a run could not be brought to its end."""

TEXT_SHOWN: Final = 300
_WAITING_COUNT: Final = 3
"""Tasks for each process that are handed out in advance, so that none has nothing to do."""


class Outcome(NamedTuple):
    """What came of a run; small, because it travels between processes."""

    name: str
    """What the run is called."""
    rule: str
    """The broken rule; empty: all is well."""
    text: str
    """What was seen, the first `TEXT_SHOWN` characters."""
    token: str
    """What repeats the run, if a rule was broken."""
    digest: str
    cpu_s: float
    seconds: float
    """Of virtual time."""
    marks: tuple[str, ...]
    """Of `sim.run.coverage_marks`."""
    struck: tuple[str, ...]
    """The kinds of the faults that struck, ``skipped`` for those that couldn't."""


def run_plan(name: str, plan: Plan) -> Outcome:
    """Run *plan*, watched by the oracle; *name* is what the run is called."""
    began = process_time()
    try:
        verdict = simulate(plan, [Oracle], events_kept=0)
    except Exception as error:
        text = "".join(traceback.format_exception(error))[-TEXT_SHOWN:]
        cpu_s = process_time() - began
        return Outcome(name, SIMULATOR, text, to_token(plan), "", cpu_s, 0.0, (), ())
    return _outcome(name, verdict, process_time() - began)


def _outcome(name: str, verdict: Verdict, cpu_s: float) -> Outcome:
    violation = verdict.violation
    return Outcome(
        name,
        verdict.rule,
        str(violation).removeprefix(f"{verdict.rule}: ")[:TEXT_SHOWN] if violation else "",
        to_token(verdict.plan) if violation else "",
        verdict.digest,
        cpu_s,
        verdict.seconds,
        tuple(verdict.marks),
        tuple(kind.removeprefix("fault ") for kind in verdict.counts if kind.startswith("fault ")),
    )


def run_line(line: str) -> Outcome:
    """Run the plan of a line of ``seeds.txt``: a token, and what it found.

    Raises:
      PlanError: if it is no token.
    """
    token, _, what = line.partition(" ")
    return run_plan(what.strip() or token, from_token(token))


def replay_line(token: str) -> str:
    """What repeats a run, to be pasted into a shell."""
    return f"octopi-node sim replay '{token}'"


def spread(work: Callable[[T], R], tasks: Iterable[T], jobs: int) -> Iterator[R]:
    """What *work* makes of each of *tasks*, in the order in which it gets done.

    *work* is a function of a module, or a partial of one.  With one job everything happens in
    this process.  Left early, as on Ctrl-C, it waits for the tasks that are being done.
    """
    if jobs == 1:
        yield from map(work, tasks)
        return
    context = multiprocessing.get_context("spawn")
    coming = iter(tasks)
    waiting: set[Future[R]] = set()
    with ProcessPoolExecutor(jobs, context, initializer=_leave_interrupts_alone) as pool:
        try:
            while True:
                room = jobs * _WAITING_COUNT - len(waiting)
                waiting |= {pool.submit(work, one) for one in islice(coming, room)}
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for one in done:
                    yield one.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _leave_interrupts_alone() -> None:
    """Ctrl-C reaches every process of a terminal; the first one decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
