"""What `octopi` exports can be imported, and is enough to annotate a program that uses it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import octopi

PUBLIC = {name: getattr(octopi, name) for name in octopi.__all__}
CLASSES = [one for one in PUBLIC.values() if inspect.isclass(one)]


def named_in(hint: object) -> Iterator[str]:
    """The names of this library's types in a type hint."""
    if getattr(hint, "__module__", "").startswith("octopi."):
        yield hint.__name__  # type: ignore[attr-defined]
    for part in typing.get_args(hint):
        yield from named_in(part)


def shown_by(one: type) -> Iterator[tuple[str, Any]]:
    """What a program gets of an object of this class: fields, and what methods return."""
    for name, hint in typing.get_type_hints(one).items():
        if not name.startswith("_"):
            yield name, hint
    for name, member in inspect.getmembers(one):
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, typing.get_type_hints(function).get("return")


def test_every_exported_name_exists() -> None:
    assert len(PUBLIC) == len(octopi.__all__)


def test_every_type_that_is_returned_is_exported() -> None:
    missing = {
        f"{one.__name__}.{member}: {name}"
        for one in CLASSES
        for member, hint in shown_by(one)
        for name in named_in(hint)
        if name not in PUBLIC
    }
    assert missing == set()
