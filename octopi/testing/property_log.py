"""Checks the properties that programs and tests state (`octopi.properties`), over many runs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from octopi.properties import Kind
from octopi.simulation.kernel.world import Violation, World
from octopi.testing.errors import MisuseError
from octopi.testing.property_sources import Place, properties_of, properties_of_file

_OF_SOME_RUN: Final = frozenset({"sometimes", "reachable"})
"""The kinds of properties that have to hold in some run."""


@attrs.define
class _Counts:
    asked: int = 0
    held: int = 0


class PropertyLog:
    """What was stated in some runs of one test.

    *reaches*: what has to happen in one of them.  *test*: the test itself; the report leaves out
    what other tests in its file state.
    """

    def __init__(
        self, reaches: Iterable[Place] = (), test: Callable[..., object] | None = None
    ) -> None:
        self.on_property: Callable[[Kind, bool, str], object] = lambda kind, holds, name: None
        """Called with each property that is come by."""
        self._counts: dict[tuple[Kind, str], _Counts] = {}
        self._files: set[str] = set()
        """Where the properties that were come by are stated."""
        code = getattr(inspect.unwrap(test), "__code__", None) if test is not None else None
        self._test_file = "" if code is None else code.co_filename
        self._named: set[str] = set()
        """The names of properties that have to be come by, of either kind."""
        for place in reaches:
            if isinstance(place, str):
                self._named.add(place)
                continue
            stated = [one for one in properties_of(place) if one.kind in _OF_SOME_RUN]
            if not stated:
                raise MisuseError(f"reaches has {place!r}, which states no sometimes or reachable")
            for one in stated:
                self._counts[one.kind, one.name] = _Counts()

    def check(self, world: World, kind: Kind, holds: bool, name: str) -> None:
        """Note one property in the run of *world*; a broken one fails the run."""
        counts = self._counts.setdefault((kind, name), _Counts())
        counts.asked += 1
        counts.held += holds
        self.on_property(kind, holds, name)
        self._files.add(sys._getframe(2).f_code.co_filename)
        if not holds and kind in {"always", "unreachable"}:
            words = "is broken" if kind == "always" else "was reached"
            world.fail(Violation(kind, f"{name} {words}, at {world.now:.6f} s"))

    def missing(self, which: str) -> Violation | None:
        """The violation if something never happened in *which* runs."""
        never = [
            f"{kind}: {name}"
            for (kind, name), counts in self._counts.items()
            if not counts.held and kind in _OF_SOME_RUN
        ]
        held = {name for (_, name), counts in self._counts.items() if counts.held}
        asked = {name for kind, name in self._counts if kind == "sometimes"}
        never += [f"reachable: {name}" for name in sorted(self._named - held - asked)]
        if not never:
            return None
        lines = "".join(f"\n  {one}" for one in never)
        return Violation(
            "sometimes",
            f"this never happened with {which}:{lines}\nrun more of them, or have the test do what "
            "leads there",
        )

    def report(self, run_count: int) -> str:
        """All properties, a line each, with how often they were asked and held; empty: none.

        It includes those that no run came by, of the files in which it came by another one.
        """
        counts = dict(self._counts)
        for path in self._files - {self._test_file}:
            for one in properties_of_file(path):
                counts.setdefault((one.kind, one.name), _Counts())
        if not counts:
            return ""
        width = max(len(name) for _, name in counts)
        runs = "1 run" if run_count == 1 else f"{run_count} runs"
        lines = [f"properties in {runs}:"]
        for kind, name in sorted(counts):
            lines.append(f"{kind:11}  {name:{width}}  {_often(kind, counts[kind, name])}")
        return "\n".join(lines)


def _often(kind: Kind, counts: _Counts) -> str:
    if not counts.asked:
        return "never" if kind == "unreachable" else "never: no run came by"
    if kind == "unreachable":
        return f"{counts.asked} times"
    return f"{counts.held} of {counts.asked} times" if counts.held else "never"
