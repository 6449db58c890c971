"""What the fields of messages and of stored records may hold.

The bounds stand in the annotations of the classes (``Annotated[int, Within(0, 9)]``).  The codec
of the wire reads them once, at import (`octopi.wire.codec`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import attrs

_C = TypeVar("_C", bound=type)


@attrs.frozen
class AtMost:
    """Upper bound of a field: bytes of a text (as UTF-8) or byte string, entries of a list."""

    size: int


@attrs.frozen
class Within:
    """Bounds of an integer field, both allowed."""

    low: int
    high: int


@attrs.frozen
class Grammar:
    """Said of a text field: which texts it may hold."""

    fault: Callable[[str], str]
    """Says what is wrong with a text; empty: nothing."""


@attrs.frozen
class MayBeNegative:
    """Said of an integer field.  All others count, number or measure something."""


@attrs.frozen
class MayBeMissing:
    """Said of a field that is not written while it has its default; a message without it has
    the default.  Such fields stand behind the others.  It is how a message gets a new field:
    peers that don't know it never see it, unless they are sent a value."""


JUDGED: Final[set[type]] = set()
"""Parts of messages whose method `fault` has to find nothing wrong."""


def judged(cls: _C) -> _C:
    """Have the codec ask each *cls* what is wrong with it as a whole."""
    JUDGED.add(cls)
    return cls
