"""The base class of steps, and its decorators.  A step is a frozen object with a text, a code and
typed fields.

A step is declared once, in the module of its system::

    @step("P2a leader appends the batch")
    class P2Appending(PlacedBatchStep):
        pass

The text begins with the code.  Plans of simulated runs, the tables of `sim exhaust` and the
documents refer to the code.  The digest of a run depends on the text, and on the values of the
fields in the order of their declaration.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

import attrs

Declared = TypeVar("Declared", bound="Step")


class Step:
    """A moment in a protocol that a node or client has reached; see
    `octopi.environment.TraceEvent`."""

    __slots__ = ()

    text: ClassVar[str] = ""
    code: ClassVar[str] = ""
    """The first word of the text: a letter for the system, a number, and a letter for the edge."""
    names: ClassVar[tuple[str, ...]] = ()
    """The names of the fields, in order."""

    def values(self) -> tuple[Any, ...]:
        """The values of the fields, in order."""
        return ()

    @property
    def facts(self) -> dict[str, Any]:
        """The fields by name, for code that displays any step."""
        return {name: getattr(self, name) for name in self.names}


@dataclass_transform(frozen_default=True)
def part(cls: type[Declared]) -> type[Declared]:
    """Declare a base class with fields that several steps share."""
    made = attrs.frozen(cls)
    made.names = tuple(field.name for field in attrs.fields(cast(type[attrs.AttrsInstance], made)))
    made.values = _values_of(made.names)  # type: ignore[method-assign, assignment]
    return made


@dataclass_transform(frozen_default=True)
def step(text: str) -> Callable[[type[Declared]], type[Declared]]:
    """Declare a step with *text*, which begins with the code."""

    def declare(cls: type[Declared]) -> type[Declared]:
        made = part(cls)
        made.text = text
        made.code = text.partition(" ")[0]
        return made

    return declare


def _values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda one: ()
    of = attrgetter(*names)
    if len(names) == 1:
        return lambda one: (of(one),)
    return lambda one: of(one)
