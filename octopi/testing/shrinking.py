"""Makes a test that failed with random faults smaller: fewer faults, at plainer moments.

The faults that struck are planned at the moments when they struck, in place of the random ones.
Then the test is run again and again, each time with something left out or made plainer, and what
fails in the same way is kept (`octopi.simulation.faults.shrinking`).

**The same way** is the same kind of exception with the same first line, without the numbers and
quoted names in it; for a condition of `Cluster.always`, the same condition; for an exception
without a text, the same line of the test.

The time box reads the real clock, so a slow machine may end with more faults than a fast one.  What
is printed always reproduces the failure, because it was run.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import inf
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from octopi.simulation.faults.shrinking import (
    Smallest,
    leaving_out,
    simpler_kinds,
    smaller_counts,
    smallest,
    without_numbers,
)
from octopi.simulation.kernel.world import Violation
from octopi.simulation.report.recording import Cause, Causes
from octopi.testing.errors import NotStruckError, alone
from octopi.testing.failure_page import FAULTS_MAX
from octopi.testing.planned_faults import PLAIN_FAULTS, PlannedFault
from octopi.testing.random_faults import FaultPlan, StruckFault

_SIMPLEST: Final = tuple(PLAIN_FAULTS.values())
_LENGTHS: Final = ("seconds", "restart_s")
_ROUND_S: Final = (1.0, 0.1)
_NAMED: Final = frozenset({"always", "unreachable"})
"""Rules of the test: their texts begin with the name of the property."""
_VAGUE: Final = frozenset({"complaint"})
"""Rules that only say that something went wrong: the text counts, too."""
_EARLY_COUNT: Final = 2
_LISTS: Final = re.compile(r"\w*#(?:, \w*#)+")
_SIGNATURE_LENGTH: Final = 100


@attrs.frozen
class FailedRun:
    """How a run failed."""

    error: BaseException
    struck: tuple[StruckFault, ...]


Attempt: TypeAlias = Callable[[FaultPlan], FailedRun | None]
"""Runs the test with a plan; None: it passed."""


def signature(error: BaseException) -> str:
    """The same for failures that are the same."""
    error = alone(error)
    kind = type(error).__name__
    if isinstance(error, Violation) and error.rule not in _VAGUE:
        text = str(error).partition(", at ")[0] if error.rule in _NAMED else error.rule
        return f"{kind}: {text}"
    text = str(error).partition("\n")[0].strip()
    if not text:
        last = traceback.extract_tb(error.__traceback__)[-1:]
        text = "".join(f"{Path(one.filename).name}: {one.line}" for one in last)
        return f"{kind} in {text}"
    text = _LISTS.sub("#", without_numbers(text))
    return f"{kind}: {text[:_SIGNATURE_LENGTH]}"


def shrink(
    seed: int, failure: FailedRun, attempt: Attempt, seconds_max: float, seed_count: int = 1
) -> Smallest[FaultPlan, FailedRun] | None:
    """The smallest plan that fails as *failure* does with random faults; None: the faults that
    struck, planned for their moments, don't fail in that way with any of *seed_count* seeds."""
    wanted = signature(failure.error)

    def same(plan: FaultPlan) -> FailedRun | None:
        found = attempt(plan)
        return found if found is not None and signature(found.error) == wanted else None

    faults = tuple((one.block, one.fault) for one in failure.struck)
    for one, heals in product(range(seed, seed + seed_count), (False, True)):
        plan = FaultPlan(one, heals=heals, faults=faults)
        first = same(plan)
        if first is not None:
            return smallest(
                plan, first, _PASSES, same, seconds_max=seconds_max, key=lambda one: one
            )
    return None


def tried_without(
    found: Smallest[FaultPlan, FailedRun], attempt: Attempt
) -> tuple[Smallest[FaultPlan, FailedRun], tuple[str, ...]]:
    """What the run of *found* does without each of its faults, in words: it is run for that.

    A fault without which it fails in the same way is left out of the plan that is returned; there
    are some only if the time was over before.  No words if there are more than `FAULTS_MAX`.
    """
    if len(found.plan.faults) > FAULTS_MAX:
        return found, ()
    outcomes: list[str] = []
    while len(outcomes) < len(found.plan.faults):
        faults = found.plan.faults
        number = len(outcomes)
        fewer = attrs.evolve(found.plan, faults=faults[:number] + faults[number + 1 :])
        failed = attempt(fewer)
        if failed is not None and signature(failed.error) == signature(found.result.error):
            found, outcomes = attrs.evolve(found, plan=fewer, result=failed), []
        else:
            outcomes.append(_outcome(failed))
    return found, tuple(outcomes)


def _outcome(failed: FailedRun | None) -> str:
    if failed is None:
        return "passes"
    error = alone(failed.error)
    if isinstance(error, NotStruckError):
        return "passes, and another fault finds nothing to strike"
    return f"fails in another way: {signature(error)}"


def lines_of(plan: FaultPlan) -> list[str]:
    """The lines of a test that take the place of its blocks of random faults."""
    lines: list[str] = []
    blocks = sorted({block for block, _ in plan.faults})
    for block in blocks:
        if blocks != [0]:
            lines.append(f"# in the place of block {block + 1} of random faults")
        lines += [fault.code() for fault in plan.of_block(block)]
    if plan.heals:
        lines.append("cluster.heal()  # behind what was in the block")
    return lines


def causes_of(
    found: Smallest[FaultPlan, FailedRun], struck_count: int, outcomes: Sequence[str]
) -> Causes:
    """The faults that matter.  *outcomes*: those of `tried_without`."""
    plan = found.plan
    lines = lines_of(plan)
    if not lines:
        said = f"none of the {struck_count} faults matters: the test fails without them, too"
        return Causes(said, (), ())
    count = len(plan.faults)
    some = f"{count} of {struck_count} faults {'matters' if count == 1 else 'matter'}"
    options = options_of(plan)
    with_options = f", with simulated({options})" if options else ""
    more = "" if found.is_minimal else " (the time for that was over: shrink_s)"
    said = f"{some}{more}; this, in the place of `with cluster.random_faults(...):`{with_options}:"
    without = outcomes or [""] * count
    faults = (Cause(one.code(), out) for (_, one), out in zip(plan.faults, without, strict=True))
    return Causes(said, tuple(lines), tuple(faults))


def told_lines(causes: Causes) -> list[str]:
    """What is said about *causes* at the end of a failure."""
    lines = [causes.said, *(f"    {line}" for line in causes.lines)]
    for number, one in enumerate(causes.faults, 1):
        if one.without:
            which = "this fault" if len(causes.faults) == 1 else f"fault {number}"
            lines.append(f"the same run without {which} {one.without}")
    return lines


def options_of(plan: FaultPlan) -> str:
    """The options of the test that the plan needs, as arguments."""
    options = [] if plan.seed == 1 else [f"seed={plan.seed}"]
    options += [] if plan.brokers is None else [f"brokers={plan.brokers}"]
    return ", ".join(options)


# --- candidates ------------------------------------------------------------------------------

_Candidates: TypeAlias = Iterator[tuple[str, FaultPlan]]


def _fewer_faults(plan: FaultPlan, _: FailedRun) -> _Candidates:
    for faults in leaving_out(plan.faults):
        yield "fewer faults", attrs.evolve(plan, faults=faults)


def _plainer_run(plan: FaultPlan, _: FailedRun) -> _Candidates:
    if plan.heals:
        yield "not healed at the end", attrs.evolve(plan, heals=False)
    if plan.seed != 1:
        yield "seed 1", attrs.evolve(plan, seed=1)


def _fewer_brokers(plan: FaultPlan, _: FailedRun) -> _Candidates:
    if plan.brokers is None:
        yield "one broker", attrs.evolve(plan, brokers=1)


def _plainer_actions(plan: FaultPlan, _: FailedRun) -> _Candidates:
    for number, (_block, fault) in enumerate(plan.faults):
        for simple in simpler_kinds(fault.action, _SIMPLEST):
            yield "a plainer fault", _with(plan, number, attrs.evolve(fault, action=simple))


def _rounder_lengths(plan: FaultPlan, _: FailedRun) -> _Candidates:
    for number, (_block, fault) in enumerate(plan.faults):
        for name in _LENGTHS:
            value = getattr(fault.action, name, None)
            if value is None or value == inf:
                continue
            for length in _ROUND_S:
                if value == length:
                    break
                changed: Any = attrs.evolve
                action = changed(fault.action, **{name: length})
                yield "a rounder time", _with(plan, number, attrs.evolve(fault, action=action))


def _steps_instead(plan: FaultPlan, failure: FailedRun) -> _Candidates:
    for number, (_block, fault) in enumerate(plan.faults):
        if fault.step:
            continue
        for struck in failure.struck:
            if struck.fault is fault:
                for step, occurrence in struck.near:
                    at = PlannedFault(fault.action, fault.host, step, occurrence)
                    yield "at a step", _with(plan, number, at)


def _earlier_moments(plan: FaultPlan, failure: FailedRun) -> _Candidates:
    for number, (_block, fault) in enumerate(plan.faults):
        if fault.step:
            for occurrence in smaller_counts(fault.occurrence, 1):
                changed = attrs.evolve(fault, occurrence=occurrence)
                yield "an earlier step", _with(plan, number, changed)
            near = [
                one for struck in failure.struck if struck.fault is fault for one in struck.near
            ]
            for step, count in near:
                for occurrence in range(1, min(fault.occurrence, count + 1, _EARLY_COUNT + 1)):
                    changed = attrs.evolve(fault, step=step, occurrence=occurrence)
                    yield "another step, earlier", _with(plan, number, changed)
        else:
            for digits in (0, 1, 2):
                rounded = round(fault.after_s, digits)
                if rounded == fault.after_s:
                    break
                yield "a rounder moment", _with(plan, number, attrs.evolve(fault, after_s=rounded))


def _with(plan: FaultPlan, number: int, fault: PlannedFault) -> FaultPlan:
    block = plan.faults[number][0]
    faults = (*plan.faults[:number], (block, fault), *plan.faults[number + 1 :])
    return attrs.evolve(plan, faults=faults)


_PASSES: Final = (
    _fewer_faults,
    _steps_instead,
    _plainer_run,
    _plainer_actions,
    _rounder_lengths,
    _earlier_moments,
    _fewer_brokers,
)
"""The passes, in the order in which they are tried: time may end before the last ones."""
