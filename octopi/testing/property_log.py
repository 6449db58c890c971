"""Checks the properties that programs and tests state (`octopi.properties`), over many seeds."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs

from octopi.properties import Kind
from octopi.simulation.kernel.world import Violation, World


@attrs.define
class _Counts:
    asked: int = 0
    held: int = 0


class PropertyLog:
    """What was stated in some runs of one test."""

    def __init__(self, reaches: Iterable[str] = ()) -> None:
        self._counts: dict[tuple[Kind, str], _Counts] = {}
        for name in reaches:
            self._counts["reachable", name] = _Counts()

    def check(self, world: World, kind: Kind, holds: bool, name: str) -> None:
        """Note one property in the run of *world*; a broken one fails the run."""
        counts = self._counts.setdefault((kind, name), _Counts())
        counts.asked += 1
        counts.held += holds
        if not holds and kind in {"always", "unreachable"}:
            words = "is broken" if kind == "always" else "was reached"
            world.fail(Violation(kind, f"{name} {words}, at {world.now:.6f} s"))

    def missing(self, seeds: Collection[int]) -> Violation | None:
        """The violation if something never happened in runs with *seeds*."""
        never = [
            f"{kind}: {name}"
            for (kind, name), counts in self._counts.items()
            if kind in {"sometimes", "reachable"} and not counts.held
        ]
        if not never:
            return None
        first, last = min(seeds), max(seeds)
        which = f"the seed {first}" if first == last else f"the seeds {first} to {last}"
        lines = "".join(f"\n  {one}" for one in never)
        return Violation(
            "sometimes",
            f"this never happened with {which}:{lines}\nrun more seeds, or have the test do what "
            "leads there",
        )

    def report(self, run_count: int) -> str:
        """All properties, a line each, with how often they were asked and held; empty: none."""
        if not self._counts:
            return ""
        width = max(len(name) for _, name in self._counts)
        lines = [f"properties in {run_count} runs:"]
        for (kind, name), counts in sorted(self._counts.items()):
            often = "never" if not counts.held else f"{counts.held} of {counts.asked} times"
            if kind == "unreachable":
                often = f"{counts.asked} times"
            lines.append(f"{kind:11}  {name:{width}}  {often}")
        return "\n".join(lines)
