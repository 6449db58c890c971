"""Checking options before anything is done with them."""

from __future__ import annotations

from octopi.errors import InvalidOptionError


def within(name: str, value: float, low: float, high: float) -> None:
    """Check that option *name* is from *low* to *high*.

    Raises:
      InvalidOptionError: if not.
    """
    if not low <= value <= high:
        raise InvalidOptionError(f"{name} is {value!r}; it must be from {low} to {high}")
