"""Hunts many mutants, each in a process of its own, and sums up what came of it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final

import attrs
from cattrs import structure

from sim.mutants.catalogue import MUTANTS
from sim.mutants.hunt import Budget, Hunt

BLACK_SHARE_MIN: Final = 0.8
"""Of all mutants, what clients alone have to notice."""
RUNS_MEDIAN_MAX: Final = 50
"""Until a mutant is noticed."""
FAULTS_MEDIAN_MAX: Final = 2
"""In the smallest plan that shows it."""


def run(
    names: Sequence[str] = (),
    *,
    jobs: int = 1,
    budget: Budget = Budget(),  # noqa: B008  # frozen
    first: int = 1,
) -> Iterator[Hunt]:
    """Hunt the mutants of those *names* (none: all), *jobs* at a time, beginning with the plans
    of seed *first*; yield what came of each as soon as it is known.

    Raises:
      HuntError: if a hunt ended without a result: the mutant doesn't fit the code any more.
      KeyError: if there is no mutant of that name.
    """
    chosen = [MUTANTS[name].name for name in names or MUTANTS]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            hunts = [pool.submit(_hunt, name, budget, first) for name in chosen]
            for one in as_completed(hunts):
                yield one.result()
        finally:
            pool.shutdown(cancel_futures=True)


class HuntError(Exception):
    """A hunt ended without a result."""


def _hunt(name: str, budget: Budget, first: int) -> Hunt:
    command = [sys.executable, "-m", "sim.mutants.hunt", name, f"--first={first}"]
    command += [f"--{key}={value:g}" for key, value in attrs.asdict(budget).items()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise HuntError(f"mutant {name}: {done.stderr.strip()[-2000:]}")
    return structure(json.loads(done.stdout), Hunt)


# --- results for people ----------------------------------------------------------------


@attrs.frozen
class Score:
    """How well a search does against mutants."""

    count: int
    white: int
    """Noticed by who sees everything."""
    black: int
    """Noticed by clients alone."""
    runs_median: float
    """Until who sees everything notices; infinite if most aren't noticed."""
    faults_median: float
    """In the smallest plans."""
    seconds_max: float
    """Of processor time, until who sees everything notices."""

    @property
    def is_met(self) -> bool:
        """Whether it is what it has to be."""
        return (
            self.white == self.count
            and self.black >= BLACK_SHARE_MIN * self.count
            and self.runs_median <= RUNS_MEDIAN_MAX
            and self.faults_median <= FAULTS_MEDIAN_MAX
        )

    def __str__(self) -> str:
        return (
            f"{self.count} mutants; {self.white} noticed ({self.white / self.count:.0%}), "
            f"{self.black} by clients alone ({self.black / self.count:.0%}); median "
            f"{self.runs_median:g} runs, {self.faults_median:g} faults; at most "
            f"{self.seconds_max:.1f} s"
        )


def score(hunts: Iterable[Hunt]) -> Score:
    """The score of *hunts*, of which there must be at least one."""
    found = list(hunts)
    kills = [one.white for one in found if one.white is not None]
    runs = [float(one.runs) for one in kills] + [float("inf")] * (len(found) - len(kills))
    return Score(
        count=len(found),
        white=len(kills),
        black=sum(one.black is not None for one in found),
        runs_median=statistics.median(runs),
        faults_median=statistics.median([one.faults_count for one in kills] or [0]),
        seconds_max=max((one.seconds for one in kills), default=0.0),
    )


HEADINGS: Final = ("mutant", "noticed by", "runs", "CPU s", "by clients alone", "runs", "faults")


def row(hunt: Hunt) -> tuple[str, ...]:
    """The cells of a table's line, under `HEADINGS`."""
    white, black = hunt.white, hunt.black
    cells = [hunt.name]
    cells += (
        [white.rule, str(white.runs), f"{white.seconds:.1f}"] if white else ["SURVIVED", "", ""]
    )
    cells += [black.rule, str(black.runs)] if black else ["-", ""]
    cells.append(str(white.faults_count) if white else "")
    return tuple(cells)
