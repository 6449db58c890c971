"""The package's public names and its version are declared once, everything agrees, and what is
exported is enough to annotate a program that uses it."""

from __future__ import annotations

import ast
import inspect
import json
import re
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import octopi
from octopi.clients.subscribing.administration import Creation

ROOT = Path(__file__).parents[2]
PUBLIC = {name: getattr(octopi, name) for name in octopi.__all__}
NAMED: dict[str, object] = {**PUBLIC, "Creation": Creation}
"""What annotations name, also where it is imported for type checkers only."""
CLASSES = [one for one in PUBLIC.values() if inspect.isclass(one)]


def named_in(hint: object) -> Iterator[str]:
    """The names of this library's types in a type hint."""
    if isinstance(hint, typing.TypeVar):
        return  # what the program makes of it
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
            yield name, typing.get_type_hints(function, localns=NAMED).get("return")


def imported_for_types() -> dict[str, str]:
    """The names that `octopi/__init__.py` imports, if only for type checkers, and from where."""
    tree = ast.parse((ROOT / "octopi/__init__.py").read_text())
    return {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("octopi.")
        for alias in node.names
        if node.module is not None
    }


def test_type_checkers_see_the_modules_of_the_table() -> None:
    assert imported_for_types() == {**octopi._MODULES, "__version__": "octopi.version"}


def test_all_lists_the_names_of_the_table_and_the_version() -> None:
    assert octopi.__all__ == sorted([*octopi._MODULES, "__version__"])


def test_each_public_name_is_what_its_module_defines() -> None:
    for name, module in octopi._MODULES.items():
        assert getattr(octopi, name) is getattr(import_module(module), name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(octopi, "NoSuchName")


def test_the_javascript_client_has_the_version_of_the_package() -> None:
    static = ROOT / "octopi/console/static"
    assert json.loads((static / "package.json").read_text())["version"] == octopi.__version__
    [agent] = re.findall(r'AGENT = "octopi-js/(.+)"', (static / "client/connection.js").read_text())
    assert agent == octopi.__version__


def test_the_build_reads_the_version_from_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert '[tool.hatch.version]\npath = "octopi/version.py"\n' in text
    assert not re.search(r'^version = "', text, re.MULTILINE)


def test_every_type_that_is_returned_is_exported() -> None:
    missing = {
        f"{one.__name__}.{member}: {name}"
        for one in CLASSES
        for member, hint in shown_by(one)
        for name in named_in(hint)
        if name not in PUBLIC
    }
    assert missing == set()
