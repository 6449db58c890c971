"""Hunts many mutants, each in a process of its own, and sums up what came of it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

import attrs
from cattrs import structure

from octopi.errors import OctopiError
from sim.mutants.catalogue import MUTANTS
from sim.mutants.runner import Budget, Hunt

BLACK_SHARE_MIN: Final = 0.8
"""Of all mutants, what clients alone have to notice."""
RUNS_MEDIAN_MAX: Final = 50
"""Until a mutant is noticed."""
FAULTS_MEDIAN_MAX: Final = 2
"""In the smallest plan that shows it."""


def run(
    names: Sequence[str],
    *,
    jobs: int = 1,
    budget: Budget = Budget(),  # noqa: B008  # frozen
    first: int = 1,
    plan: str = "",
) -> Iterator[Hunt]:
    """Hunt the mutants of those *names*, *jobs* at a time, beginning with the plans of seed
    *first*, or with *plan*, a token, alone; yield what came of each as soon as it is known.

    Raises:
      HuntError: if a hunt ended without a result: the mutant doesn't fit the code any more.
      KeyError: if there is no mutant of that name.
    """
    options = [f"--first={first}", *([f"--plan={plan}"] if plan else [])]
    options += [f"--{key}={value:g}" for key, value in attrs.asdict(budget).items()]
    chosen = [MUTANTS[name].name for name in names]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            hunts = [pool.submit(_hunt, name, options) for name in chosen]
            for one in as_completed(hunts):
                yield one.result()
        finally:
            pool.shutdown(cancel_futures=True)


class HuntError(OctopiError):
    """A hunt ended without a result."""


def _hunt(name: str, options: list[str]) -> Hunt:
    command = [sys.executable, "-m", "sim.mutants.runner", name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise HuntError(f"mutant {name}: {done.stderr.strip()[-2000:]}")
    return structure(json.loads(done.stdout), Hunt)


def load(path: Path) -> list[Hunt]:
    """The hunts that `numbers` were written of to *path*; none if there is no such file.

    Raises:
      HuntError: if there is something else in the file.
    """
    if not path.exists():
        return []
    try:
        return structure(json.loads(path.read_text(encoding="utf-8"))["mutants"], list[Hunt])
    except Exception as error:  # cattrs raises groups of whatever its hooks raise
        raise HuntError(f"{path} is no result of a hunt for mutants: {error}") from error


def numbers(hunts: Sequence[Hunt]) -> dict[str, Any]:
    """What came of *hunts*, for programs."""
    result: dict[str, Any] = {"mutants": [attrs.asdict(one) for one in hunts]}
    if hunts:
        result["score"] = attrs.asdict(score(hunts))
    return result


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


HEADINGS: Final = (
    *("mutant", "noticed by", "runs", "CPU s", "by clients alone", "runs", "CPU s"),
    *("faults", "token"),
)
_WIDTHS: Final = (40, 20, 5, 6, 28, 5, 6, 6, 0)


def row(hunt: Hunt) -> tuple[str, ...]:
    """The cells of a table's line, under `HEADINGS`."""
    white, black = hunt.white, hunt.black
    cells = [hunt.name]
    for kill, otherwise in ((white, "SURVIVED"), (black, "-")):
        cells += [kill.rule, str(kill.runs), f"{kill.seconds:.1f}"] if kill else [otherwise, "", ""]
    return (*cells, str(white.faults_count), white.least) if white else (*cells, "", "")


def line(cells: Sequence[str]) -> str:
    """*cells* side by side."""
    return "  ".join(map(str.ljust, cells, _WIDTHS)).rstrip()


def table(hunts: Iterable[Hunt]) -> str:
    """All of it in Markdown, but for the tokens, with what is wrong with each mutant."""
    titles = [*HEADINGS[:-1], "what is wrong"]
    found = sorted(hunts, key=lambda one: list(MUTANTS).index(one.name))
    rows = [[f"`{one.name}`", *row(one)[1:-1], MUTANTS[one.name].bug] for one in found]
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
