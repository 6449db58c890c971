"""A class name has one meaning: no two classes of the product and its simulator share one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def classes() -> dict[str, list[str]]:
    """For each class name the places that define it."""
    found = defaultdict(list)
    for package in ("octopi", "sim"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_each_class_name_has_one_meaning() -> None:
    shared = {name: places for name, places in classes().items() if len(places) > 1}
    assert shared == {}, "choose another name"
