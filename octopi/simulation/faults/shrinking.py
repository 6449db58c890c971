"""Makes something that fails smaller, as long as it fails in the same way.

The search makes plans smaller with this, and `octopi.testing` the faults of a test.  Both give
passes: each yields candidates that are simpler in one respect.  The first candidate of a pass that
fails in the same way takes the place of what was there, and the pass begins again; all passes are
repeated until none helps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from time import process_time
from typing import Final, Generic, TypeVar

import attrs

from octopi.simulation.faults.actions import Action

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

_NAMES: Final = re.compile(r"\d+(\.\d+)?|'[^']*'|\"[^\"]*\"")


@attrs.frozen
class Smallest(Generic[P, R]):
    """The result of making something smaller."""

    plan: P
    result: R
    """The result of running it."""
    runs: int
    """How many candidates were run."""
    seconds: float
    """How long that took (s of processor time)."""
    is_minimal: bool
    """Whether all candidates were tried; false: the time was over before."""


def smallest(
    plan: P,
    result: R,
    passes: Sequence[Callable[[P, R], Iterable[tuple[str, P]]]],
    run: Callable[[P], R | None],
    *,
    seconds_max: float,
    key: Callable[[P], Hashable],
    tell: Callable[[str, P], object] = lambda what, plan: None,
) -> Smallest[P, R]:
    """The smallest plan that is found within *seconds_max* of processor time.

    *result* is the result of *plan*.  The *passes* yield candidates for a plan and its result, each
    with a text that says what is simpler.  *run* returns the result of a candidate; None if it
    doesn't fail in the same way.  Plans with the same *key* are run once.  *tell* is called with
    every improvement.  Ctrl-C ends the search early.
    """
    began = process_time()
    tried, runs = {key(plan)}, 0

    def improve(candidates: Iterable[tuple[str, P]]) -> bool:
        nonlocal plan, result, runs
        for what, candidate in candidates:
            known = key(candidate)
            if known in tried:
                continue
            if process_time() - began > seconds_max:
                raise _OutOfTimeError
            tried.add(known)
            runs += 1
            found = run(candidate)
            if found is not None:
                plan, result = candidate, found
                tell(what, plan)
                return True
        return False

    is_minimal = False
    try:
        while not is_minimal:
            before = key(plan)
            for candidates in passes:
                while improve(candidates(plan, result)):
                    pass
            is_minimal = key(plan) == before
    except (_OutOfTimeError, KeyboardInterrupt):
        pass  # the smallest plan so far is the result
    return Smallest(plan, result, runs, process_time() - began, is_minimal)


class _OutOfTimeError(Exception):
    """There is no time left to try another candidate."""


def leaving_out(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """*items* without all, without half of them, without a quarter, and so on: delta debugging
    (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002)."""
    length = len(items)
    while length:
        for start in range(0, len(items), length):
            yield items[:start] + items[start + length :]
        length //= 2


def smaller_counts(count: int, least: int) -> list[int]:
    """Smaller counts to try, ascending."""
    tries = [least, count // 4, count // 2, count * 3 // 4, count - 1]
    return sorted({one for one in tries if least <= one < count})


def simpler_kinds(action: Action, order: Sequence[Action]) -> Iterator[Action]:
    """The actions of *order*, the simplest one first, that are simpler than *action*: all of them
    if its kind isn't there."""
    for simple in order:
        if type(simple) is type(action):
            return
        yield simple


def without_numbers(text: str) -> str:
    """*text* without numbers and quoted names, which differ from run to run although the failure is
    the same."""
    return _NAMES.sub("#", text)
