"""Checks of options, made before the options have any effect."""

from __future__ import annotations

from enum import Enum
from typing import Final

from octopi.errors import InvalidOptionError
from octopi.limits import CONNECTION_NAME_BYTES_MAX
from octopi.printable import controls_fault


class Unchanged(Enum):
    """The type of `UNCHANGED`."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
"""In `octopi.clients.client.Client.alter_topic`: this option stays as it is."""

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


def check_connection_name(name: str) -> None:
    """Check what a program wants to call its connections.

    Raises:
      InvalidOptionError: if it is too long, or has a character that can't be shown.
    """
    if fault := controls_fault(name):
        raise InvalidOptionError(f"name is {name[:80]!r}: {fault}, and names are shown to people")
    if (length := len(name.encode())) > CONNECTION_NAME_BYTES_MAX:
        raise InvalidOptionError(
            f"name is {name[:40]!r}... and has {length} bytes; the name of a connection has at "
            f"most {CONNECTION_NAME_BYTES_MAX}"
        )
