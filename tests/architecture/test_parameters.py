"""A parameter that a docstring names between asterisks is a parameter of that function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("octopi", "sim", "harness", "tests", "benchmarks")
NAMED = re.compile(r"(?<![\w*`])\*([a-z_][a-z_0-9]*)\*(?!\w)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def unknown(tree: ast.AST, outer: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Functions in *tree*, each with a name in its docstring that is no parameter.

    The parameters of a function count in the functions inside it, too, and those with which an
    object is made count in the methods of its class; *outer* has these names.  The parameters of a
    function's overloads are the function's.
    """
    functions = [one for one in ast.iter_child_nodes(tree) if isinstance(one, Function)]
    for node in ast.iter_child_nodes(tree):
        known = outer
        if isinstance(node, Function):
            known |= {
                name for one in functions if one.name == node.name for name in parameters(one)
            }
            docstring = ast.get_docstring(node) or ""
            yield from ((node.name, name) for name in NAMED.findall(docstring) if name not in known)
        elif isinstance(node, ast.ClassDef):
            known |= made_with(node)
        yield from unknown(node, known)


def parameters(node: Function) -> set[str]:
    """The names of its parameters."""
    return {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}


def made_with(node: ast.ClassDef) -> set[str]:
    """The parameters of the class's ``__init__``, and its attributes that have a type."""
    names: set[str] = set()
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            names.add(one.target.id)
        if isinstance(one, Function) and one.name == "__init__":
            names |= parameters(one)
    return names


def test_a_name_that_is_no_parameter_is_found() -> None:
    source = 'def outer(a):\n    def inner(b, *c, d=0):\n        """*a*, *b*, *c*, *d* and *e*."""'
    assert list(unknown(ast.parse(source))) == [("inner", "e")]


def test_docstrings_name_the_parameters_of_their_functions() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {function}: *{name}*"
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        for function, name in unknown(ast.parse(path.read_text()))
    ]
    assert found == []
