"""Checks of options, made before the options have any effect."""

from __future__ import annotations

from typing import Final

from octopi.errors import InvalidOptionError

_INTEGER_MAX: Final = 2**63 - 1
"""The greatest integer of the wire."""


def within(name: str, value: float, low: float, high: float) -> None:
    """Check that the *value* of option *name* is from *low* to *high*.

    Raises:
      InvalidOptionError: if not.
    """
    if not low <= value <= high:
        raise InvalidOptionError(f"{name} is {value!r}; it must be from {low} to {high}")


def not_negative(**numbers: int | None) -> None:
    """Check that no option is negative, or too large for the wire; None: not given.

    Raises:
      InvalidOptionError: if one is.
    """
    for name, value in numbers.items():
        if value is not None:
            within(name, value, 0, _INTEGER_MAX)


def one_of(name: str, value: str, *allowed: str) -> None:
    """Check that the *value* of option *name* is one of *allowed*.

    Raises:
      InvalidOptionError: if not.
    """
    if value not in allowed:
        raise InvalidOptionError(
            f"{name} is {value!r}; it must be {', '.join(allowed[:-1])} or {allowed[-1]}"
        )
