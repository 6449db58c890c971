"""Prints how soon the planted bugs are found, and what is left after shrinking::

python -m tests.testing.programs [NAME]...
"""

from __future__ import annotations

import re
import sys
from time import process_time

import octopi.testing
from octopi.testing import Cluster
from tests.testing.programs import BUGS
from tests.testing.programs.planted import Planted

SEEDS_MAX = 200


def by_chance(bug: Planted) -> str:
    """Run seeds until one fails, and shrink that."""

    async def test(cluster: Cluster) -> None:
        await bug.scene(cluster, False)

    began = process_time()
    for seed in range(1, SEEDS_MAX + 1):
        try:
            octopi.testing.run(test, seed=seed, shrink_s=0)
        except AssertionError:
            break
    else:
        return f"no seed of {SEEDS_MAX}"
    found_s = process_time() - began
    began = process_time()
    try:
        octopi.testing.run(test, seed=seed)
    except AssertionError as error:
        shrunk_s = process_time() - began
        notes = "\n".join(error.__notes__)
        count = re.search(r"(\d+) of (\d+) faults", notes)
        left = f"{count[1]} of {count[2]}" if count else notes
        return f"seed {seed}, {found_s:.1f} s | {left}, {shrunk_s:.1f} s"
    return "the failure doesn't repeat"


def by_points(bug: Planted) -> str:
    """Try all crash points."""

    @octopi.testing.crash_points(*bug.hosts, faults=bug.faults)
    async def test(cluster: Cluster) -> None:
        await bug.scene(cluster, False)

    began = process_time()
    try:
        test()
    except AssertionError as error:
        found = next(note for note in error.__notes__ if "points;" in note)
        return f"{found.split(';')[0]}, {process_time() - began:.1f} s"
    return f"not found, {process_time() - began:.1f} s"


def main(names: list[str]) -> None:
    """Measure the bugs with these *names*; none: all."""
    for bug in BUGS:
        if not names or bug.name in names:
            sys.stdout.write(f"| {bug.name} | {by_chance(bug)} | {by_points(bug)} |\n")
            sys.stdout.flush()


main(sys.argv[1:])
