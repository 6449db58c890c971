"""Octopi's client for blocking programs, on the servers of `benchmarks.systems.octopi`."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.client import Gate
from benchmarks.systems import octopi

TITLE: Final = "Octopi, blocking client"
KINDS: Final = frozenset({"request"})
SERVED_BY: Final = "octopi"
missing = octopi.missing


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    return octopi.run(f"{role}_blocking", access, parameters)
