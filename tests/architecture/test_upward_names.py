"""The import contract sees import statements; a module's name in a string is seen here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ABOVE = {
    "octopi": ("sim", "harness", "benchmarks", "tests"),
    "sim": ("harness", "benchmarks", "tests"),
    "harness": ("benchmarks", "tests"),
    "benchmarks": ("tests",),
}
"""For each package those that it must not import."""

IMPORTERS = {"import_module", "find_spec", "__import__", "run_module"}


def imports(source: str) -> Iterator[tuple[str, str]]:
    """Each import of *source*: the module, and how it is written."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                yield from ((alias.name, f"import {alias.name}") for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield module, f"from {module}"
            case ast.Call(func=function, args=[ast.Constant(value=str(module)), *_]):
                name = function.id if isinstance(function, ast.Name) else ""
                name = function.attr if isinstance(function, ast.Attribute) else name
                if name in IMPORTERS:
                    yield module, f"{name}({module!r})"


def upward(package: str, source: str) -> list[str]:
    """How *source*, of *package*, imports what stands above it."""
    return [text for name, text in imports(source) if name.partition(".")[0] in ABOVE[package]]


def test_nothing_imports_what_stands_above_it() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for package in ABOVE
        for path in (ROOT / package).rglob("*.py")
        for text in upward(package, path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import sim.run.plan",
        "from sim import plan",
        "from importlib import import_module\nimport_module('sim.run.plan')",
        "import importlib.util\nimportlib.util.find_spec('sim')",
        "__import__('harness.processes')",
    ],
)
def test_every_way_of_importing_is_found(source: str) -> None:
    assert len(upward("octopi", source)) == 1
