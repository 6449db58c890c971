"""Bounds of the fields of messages and of stored structures.

The bounds are in the annotations of the classes (``Annotated[int, Within(0, 9)]``).  The codec
of the wire reads them once, at import (`octopi.wire.codec`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import attrs

_C = TypeVar("_C", bound=type)


@attrs.frozen
class AtMost:
    """The greatest size of a field: the bytes of a text (as UTF-8) or byte string, or the entries
    of a list."""

    size: int


@attrs.frozen
class Exactly:
    """The size of a byte string that has always the same one (bytes)."""

    size: int


@attrs.frozen
class Within:
    """The least and the greatest value of an integer field."""

    low: int
    high: int


@attrs.frozen
class Grammar:
    """Restricts the texts of a text field."""

    fault: Callable[[str], str]
    """Returns why a text is not allowed; empty: it is."""


@attrs.frozen
class MayBeNegative:
    """Allows negative values in an integer field.  All other integer fields are 0 at least."""


@attrs.frozen
class MayBeMissing:
    """Makes a field optional.  It is not written while it has its default, and decoding a message
    without it gives the default.  Optional fields come behind all others in a class.  So a message
    can get a new field: peers that don't know it don't see it while it has its default."""


JUDGED: Final[set[type]] = set()
"""The messages, and parts of messages, that have a method `fault`, which checks them as a whole."""


def judged(cls: _C) -> _C:
    """Have the codec call `fault` of each *cls*, and refuse those for which it isn't empty."""
    JUDGED.add(cls)
    return cls
