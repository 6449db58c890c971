"""Properties of a program, stated in its own code: tests check them, production does nothing.

::

    from octopi.properties import always, reachable, sometimes, unreachable

    always(balance >= 0, "no account is overdrawn")
    sometimes(len(batch) > 1, "orders are sent in batches")

A test with `octopi.testing` fails as soon as `always` or `unreachable` is broken, and at its end if
`sometimes` was asked and never held.  Without such a test each of these is a call that compares one
variable with None; this module imports nothing of Octopi.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["always", "sometimes", "reachable", "unreachable"]

Check: TypeAlias = Callable[[Kind, bool, str], object]
"""Called with each property that is come by, whether it holds, and its name."""

_check: Check | None = None


def always(holds: object, name: str) -> None:
    """State that *holds* is true whenever the program comes here."""
    if _check is not None:
        _check("always", bool(holds), name)


def sometimes(holds: object, name: str) -> None:
    """State that *holds* is true at least once among all the times that the program comes here: a
    test in which it never is doesn't test what it is meant to."""
    if _check is not None:
        _check("sometimes", bool(holds), name)


def reachable(name: str) -> None:
    """State that the program comes here at least once."""
    if _check is not None:
        _check("reachable", True, name)


def unreachable(name: str) -> None:
    """State that the program never comes here."""
    if _check is not None:
        _check("unreachable", False, name)


@contextmanager
def checked_by(check: Check) -> Iterator[None]:
    """Within the block, have *check* called with each property.  For test frameworks."""
    global _check
    before, _check = _check, check
    try:
        yield
    finally:
        _check = before
