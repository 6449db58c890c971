"""Finds the properties that a source states (`octopi.properties`), also those that no run comes by.

A property is found if its function is called by its own name, also behind a dot, and the name of
the property is a plain text.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Final, TypeAlias, get_args

import attrs

from octopi.properties import Kind
from octopi.testing.errors import MisuseError

Place: TypeAlias = str | ModuleType | type | Callable[..., object]
"""The name of a property, or a module, class or function whose properties are meant."""

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@attrs.frozen
class StatedProperty:
    """A property that is stated in a source."""

    kind: Kind
    name: str


def properties_of(place: ModuleType | type | Callable[..., object]) -> tuple[StatedProperty, ...]:
    """The properties that the source of *place* states, in their order.

    Raises:
      MisuseError: if it has no source.
    """
    try:
        text = inspect.getsource(inspect.unwrap(place) if callable(place) else place)
    except (OSError, TypeError):
        raise MisuseError(
            f"reaches has {place!r}: name a property, or give a module, class or function whose "
            "source can be read"
        ) from None
    return tuple(_stated(ast.parse(textwrap.dedent(text))))


@cache
def properties_of_file(path: str) -> tuple[StatedProperty, ...]:
    """The properties that the source file *path* states; none if it can't be read."""
    try:
        return tuple(_stated(ast.parse("".join(linecache.getlines(path)))))
    except SyntaxError:
        return ()


def _stated(tree: ast.AST) -> Iterator[StatedProperty]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        called = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        names = [one.value for one in node.keywords if one.arg == "name"] or node.args[-1:]
        for kind in _KINDS:
            if called == kind and names and isinstance(names[0], ast.Constant):
                name = names[0].value
                if isinstance(name, str):
                    yield StatedProperty(kind, name)
