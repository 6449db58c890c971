"""Hunts many mutants, each in a process of its own, and summarises the results."""

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
"""The share of the mutants that a client can notice which the black-box search has to notice."""
RUNS_MEDIAN_MAX: Final = 50
"""How many runs a mutant may take until it is noticed, in the median."""
FAULTS_MEDIAN_MAX: Final = 2
"""How many faults the smallest plan may have that shows a mutant, in the median."""


def run(
    names: Sequence[str],
    *,
    jobs: int = 1,
    budget: Budget = Budget(),  # noqa: B008  # frozen
    first: int = 1,
    plan: str = "",
) -> Iterator[Hunt]:
    """Hunt the mutants of those *names*, *jobs* at a time, beginning with the plans of seed
    *first*, or with *plan*, a token, alone; yield the result of each as soon as it is known.

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
    return attrs.evolve(structure(json.loads(done.stdout), Hunt), code=_commit())


def _commit() -> str:
    """The commit of the checkout that is searched; empty outside of one."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def is_finished(hunt: Hunt) -> bool:
    """Whether both searches noticed the mutant, or one did and no client can notice it."""
    return hunt.white is not None and bool(hunt.black or MUTANTS[hunt.name].unseen)


def load(path: Path) -> list[Hunt]:
    """The hunts whose `numbers` were written to *path*; none if there is no such file.

    Raises:
      HuntError: if the file has something else.
    """
    if not path.exists():
        return []
    try:
        return structure(json.loads(path.read_text(encoding="utf-8"))["mutants"], list[Hunt])
    except Exception as error:  # cattrs raises groups of whatever its hooks raise
        raise HuntError(f"{path} has no results of a hunt for mutants: {error}") from error


def numbers(hunts: Sequence[Hunt]) -> dict[str, Any]:
    """The results of *hunts* as data, for programs."""
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
    """How many were noticed by the white-box search."""
    visible: int
    """How many a client can notice."""
    black: int
    """How many were noticed by the black-box search."""
    runs_median: float
    """How many runs the white-box search takes; infinite if it doesn't notice most mutants."""
    faults_median: float
    """How many faults the smallest plans have."""
    seconds_max: float
    """How much processor time the white-box search takes, at most."""

    @property
    def is_met(self) -> bool:
        """Whether the score meets the goals above."""
        return (
            self.white == self.count
            and self.black >= BLACK_SHARE_MIN * self.visible
            and self.runs_median <= RUNS_MEDIAN_MAX
            and self.faults_median <= FAULTS_MEDIAN_MAX
        )

    def __str__(self) -> str:
        return (
            f"{self.count} mutants; {self.white} noticed ({self.white / self.count:.0%}), "
            f"{self.black} by clients alone ({self.black / self.count:.0%}, "
            f"{self.black / max(self.visible, 1):.0%} of the {self.visible} that a client can "
            f"notice); median {self.runs_median:g} runs, {self.faults_median:g} faults; at most "
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
        visible=sum(not MUTANTS[one.name].unseen for one in found),
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
    """The cells of one row of the table, in the order of `HEADINGS`."""
    white, black = hunt.white, hunt.black
    cells = [hunt.name]
    for kill, otherwise in ((white, "SURVIVED"), (black, "-")):
        cells += [kill.rule, str(kill.runs), f"{kill.seconds:.1f}"] if kill else [otherwise, "", ""]
    return (*cells, str(white.faults_count), white.least) if white else (*cells, "", "")


def line(cells: Sequence[str]) -> str:
    """*cells* as one line of text."""
    return "  ".join(map(str.ljust, cells, _WIDTHS)).rstrip()


def table(hunts: Iterable[Hunt]) -> str:
    """All results in Markdown, without the tokens, with the bug of each mutant."""
    titles = [*HEADINGS[:-1], "what is wrong"]
    found = sorted(hunts, key=lambda one: list(MUTANTS).index(one.name))
    rows = [[f"`{one.name}`", *row(one)[1:-1], MUTANTS[one.name].bug] for one in found]
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
