"""Which installed distributions belong to the executables: those that Octopi needs at run time.

A development environment has many others, and libraries import some of them if they are there.
They are left out, so an executable is the same in whatever environment it is built.
"""

from __future__ import annotations

import importlib.metadata
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS: Final = ("crypto",)
"""The extras of Octopi that the executables have."""


def needed(name: str = "octopi-node", extras: tuple[str, ...] = EXTRAS) -> set[str]:
    """The normalized names of what the distribution *name* needs at run time, itself included."""
    found: set[str] = set()
    waiting = [(canonicalize_name(name), frozenset(extras))]
    seen = set(waiting)
    while waiting:
        one, chosen = waiting.pop()
        found.add(one)
        for line in importlib.metadata.requires(one) or []:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in ("", *chosen)):
                continue
            following = (canonicalize_name(requirement.name), frozenset(requirement.extras))
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return found


def modules_left_out() -> list[str]:
    """The top-level modules of all installed distributions that aren't needed."""
    kept = needed()
    return sorted(
        module
        for module, names in importlib.metadata.packages_distributions().items()
        if not any(canonicalize_name(name) in kept for name in names)
    )
