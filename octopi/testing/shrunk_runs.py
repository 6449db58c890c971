"""Runs a test that has failed again and again, with fewer and plainer faults
(`octopi.testing.shrinking`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from octopi.simulation.kernel.world import World
from octopi.testing.errors import alone, is_verdict
from octopi.testing.random_faults import FaultPlan, FaultsOfRun
from octopi.testing.replaying import RunOfTest
from octopi.testing.shrinking import (
    FailedRun,
    causes_of,
    shrink,
    told_lines,
    tried_without,
)


def shrunk(
    here: RunOfTest,
    problem: BaseException,
    again: Callable[[RunOfTest, int | None], object],
    seconds_max: float,
    seed_count: int = 1,
) -> BaseException:
    """The error of the smallest run that fails as *here* did, with the lines of its faults.

    *seed_count*: with how many seeds the faults are tried without chance, from that of *here* on.
    """

    def run_plan(plan: FaultPlan, *, is_tried: bool) -> tuple[RunOfTest, BaseException | None]:
        run = RunOfTest(
            World(plan.seed), here.name, FaultsOfRun(plan), is_tried=is_tried, seed=here.seed
        )
        try:
            again(run, plan.brokers)
        except BaseException as error:
            if not is_verdict(alone(error)):
                raise
            return run, error
        return run, None

    def tried(plan: FaultPlan) -> FailedRun | None:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            run, error = run_plan(plan, is_tried=True)
        return None if error is None else FailedRun(error, tuple(run.faults.struck))

    failure = FailedRun(problem, tuple(here.faults.struck))
    found = shrink(here.world.seed, failure, tried, seconds_max, seed_count)
    if found is None:
        error = here.told(problem)
        error.add_note("not made smaller: without chance the same faults don't fail in this way")
        return error
    found, outcomes = tried_without(found, tried)
    run, error_now = run_plan(found.plan, is_tried=False)
    assert error_now is not None, "a run repeats exactly"
    error = alone(error_now)
    causes = causes_of(found, len(failure.struck), outcomes)
    for line in told_lines(causes):
        error.add_note(line)
    return run.told(error, causes, [fault for _, fault in found.plan.faults])
