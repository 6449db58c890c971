"""Many runs, one after the other or spread over processes; the result of each is a few values.

A worker process imports the simulator once, and gets seeds instead of plans where possible.  The
events of a run are not sent to another process.  Which worker runs which plan is not determined,
but the result of a run is.
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
"""The rule that is broken when the simulator fails within a run."""

TEXT_SHOWN: Final = 300
_WAITING_COUNT: Final = 3
"""How many tasks are handed to each process in advance, so that none is idle."""


class Outcome(NamedTuple):
    """The result of a run; small, because it is sent between processes."""

    name: str
    """The name of the run."""
    rule: str
    """The broken rule; empty: none."""
    text: str
    """The text of the violation, its first `TEXT_SHOWN` characters."""
    token: str
    """The token that repeats the run, if a rule was broken."""
    digest: str
    cpu_s: float
    seconds: float
    """How long the run took (virtual time)."""
    marks: tuple[str, ...]
    """The marks of `sim.run.coverage_marks` that were hit."""
    struck: tuple[str, ...]
    """The kinds of the faults that were injected; ``skipped`` for those that could not be."""


def run_plan(name: str, plan: Plan) -> Outcome:
    """Run *plan*, observed by the oracle; *name*: the name of the run."""
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
      PlanError: if it has no valid token.
    """
    token, _, what = line.partition(" ")
    return run_plan(what.strip() or token, from_token(token))


def replay_line(token: str) -> str:
    """The command that repeats a run, to be pasted into a shell."""
    return f"octopi-node sim replay '{token}'"


def spread(work: Callable[[T], R], tasks: Iterable[T], jobs: int) -> Iterator[R]:
    """The results of *work* for each of *tasks*, in the order in which they are done.

    *work* is a function of a module, or a partial of one.  With one job everything happens in
    this process.  If the caller leaves early, as on Ctrl-C, it waits for the tasks under way.
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
    """Ignore Ctrl-C in a worker: it reaches every process of a terminal, and the first process
    handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
