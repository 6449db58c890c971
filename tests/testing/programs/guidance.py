"""Prints in how many runs a guided search finds the planted bugs, beside independent seeds::

    python -m tests.testing.programs.guidance [NAME]... [--searches N] [--ways seeds both]

Each cell has the median of the searches, and the smallest and the largest number of runs.  The
first run counts as 1; a search that has found nothing after `RUNS_MAX` runs counts as one more.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from statistics import median
from time import process_time

import octopi.testing
from octopi.testing import Cluster
from octopi.testing.guided import Guidance, Search
from octopi.testing.property_log import PropertyLog
from octopi.testing.setup import Setup
from tests.testing.programs import BUGS, nested_recovery
from tests.testing.programs.planted import Planted

RUNS_MAX = 60
APART = 1000
"""How far the first seeds of two searches are apart."""


def by_seeds(bug: Planted, seed: int) -> int:
    """The number of independent seeds until one fails."""

    async def test(cluster: Cluster) -> None:
        await bug.scene(cluster, False)

    for number in range(RUNS_MAX):
        try:
            octopi.testing.run(test, seed=seed + number, shrink_s=0)
        except AssertionError:
            return number + 1
    return RUNS_MAX + 1


def guided_by(guidance: Guidance) -> Callable[[Planted, int], int]:
    """How many runs a search with *guidance* takes."""

    def runs(bug: Planted, seed: int) -> int:
        async def test(cluster: Cluster) -> None:
            await bug.scene(cluster, False)

        search = Search(test, Setup(shrink_s=0), seed, PropertyLog(), guidance)
        for number in range(RUNS_MAX):
            error = search.run_next()
            if error is not None:
                assert isinstance(error, AssertionError), error
                return number + 1
        return RUNS_MAX + 1

    return runs


WAYS: dict[str, Callable[[Planted, int], int]] = {
    "seeds": by_seeds,
    "moments": guided_by(Guidance(beginnings=False)),
    "beginnings": guided_by(Guidance(moments=False)),
    "both": guided_by(Guidance()),
}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS)
    parser.add_argument("--searches", type=int, default=5)
    options = parser.parse_args()
    sys.stdout.write(f"| bug | {' | '.join(options.ways)} |\n|{'---|' * (len(options.ways) + 1)}\n")
    for bug in (*BUGS, nested_recovery.BUG):
        if options.names and bug.name not in options.names:
            continue
        cells = [bug.name]
        for way in (WAYS[name] for name in options.ways):
            began = process_time()
            with redirect_stdout(StringIO()):
                runs = [way(bug, 1 + APART * one) for one in range(options.searches)]
            each_s = (process_time() - began) / sum(runs)
            cells.append(f"{median(runs):g} ({min(runs)} to {max(runs)}), {each_s:.2f} s each")
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
