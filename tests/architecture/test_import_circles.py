"""Modules import each other in no circle, not even for the sake of types.

An import behind ``if TYPE_CHECKING`` counts: it hides from the interpreter that two modules can't
be understood one without the other.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module, modules: Collection[str]) -> Iterator[str]:
    """Which of *modules* one imports anywhere.  ``from a import b`` means ``a.b``, if that is a
    module, and else ``a``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                inner = f"{node.module}.{one.name}"
                if inner in modules:
                    yield inner
                elif node.module in modules:
                    yield node.module


def imports_of(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Which of the modules each imports, given their texts."""
    return {
        name: set(imported(ast.parse(text), sources.keys())) - {name}
        for name, text in sources.items()
    }


def circles(imports: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The groups of modules of which each reaches every other one."""
    reached = {name: _reached(name, imports) for name in imports}
    return {
        group
        for name in imports
        if len(group := frozenset(one for one in reached[name] if name in reached[one])) > 1
    }


def _reached(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    seen, waiting = set[str](), [start]
    while waiting:
        for one in imports[waiting.pop()]:
            if one not in seen:
                seen.add(one)
                waiting.append(one)
    return seen


@pytest.mark.parametrize("guard", ["", "if TYPE_CHECKING:\n    "])
def test_a_circle_is_found_also_if_its_imports_are_for_types_only(guard: str) -> None:
    sources = {
        "house": "",
        "house.hall": "from house.stairs import up",
        "house.stairs": f"{guard}from house import loft",
        "house.loft": "import house.hall",
        "house.garden": "import house.hall",
    }
    found = circles(imports_of(sources))
    assert found == {frozenset({"house.hall", "house.stairs", "house.loft"})}


def test_modules_import_each_other_in_no_circle() -> None:
    paths = [path for package in ("octopi", "sim") for path in (ROOT / package).rglob("*.py")]
    found = circles(imports_of({module_name(path): path.read_text() for path in paths}))
    assert found == set(), "break the circle by a port"
