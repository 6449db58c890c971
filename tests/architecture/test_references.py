"""Names that docstrings, comments and documents mention in backquotes are names that there are.

Nothing is imported: what a module defines is read from its syntax tree.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / name for name in ("octopi", "sim", "harness", "tests")]
DOTTED = re.compile(r"`+((?:octopi|sim|tests|benchmarks)(?:\.\w+)+)(?:\(\))?`+")
FILE = re.compile(r"`+((?:octopi|sim|tests|benchmarks|docs)/[\w/.-]+)`+")
LOCAL = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.\w+)*)`(?!`)")
"""A name in single backquotes: in docstrings that is code of this project."""
NO_NAMES = {
    *("octopi.js", "octopi.min.js", "octopi.mjs", "octopi.toml", "octopi.d.ts"),
    "octopi.v1.cbor",
}
"""Files, and the subprotocol."""
NO_ATTRIBUTES = {"Trigger.AvailableNow"}
"""Of a library in another language."""
ATTRIBUTE = re.compile(r"`+([A-Z]\w*[a-z]\w*)\.(\w+)(?:\([^`]*\))?`+")
"""An attribute of a class, which is named as Python's classes are."""
_BARE = {"Protocol", "ABC", "Enum", "IntEnum", "Exception"}
"""Bases that bring no attributes of this project."""


def python_files() -> list[Path]:
    return sorted(path for folder in SOURCES for path in folder.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def prose(path: Path) -> list[tuple[int, str]]:
    """The docstrings (also those of attributes) and comments of a module, each with its line."""
    return list(_prose(path))


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def module_file(parts: list[str]) -> Path | None:
    """The file of a module of that name, if there is one."""
    path = ROOT.joinpath(*parts)
    for candidate in (path / "__init__.py", path.with_suffix(".py")):
        if candidate.exists():
            return candidate
    return None


def members(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """What the statements of a module or class define, by name; also behind ``if``."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found[node.name] = node
            case ast.Assign(targets=targets):
                for target in targets:
                    found |= {one.id: node for one in ast.walk(target) if isinstance(one, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = node
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {(one.asname or one.name).partition(".")[0]: node for one in names}
            case ast.If() | ast.Try():
                found |= members(node.body) | members(node.orelse)
            case _:
                pass
    return found


def of_instances(cls: ast.ClassDef) -> set[str]:
    """The attributes that the methods of a class give to ``self``."""
    return {
        node.attr
        for node in ast.walk(cls)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id == "self"
    }


def resolves(name: str) -> bool:
    """Whether ``octopi.x.y`` is a module, or something that a module or class defines."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = module_file(parts[:count])
        if path is not None:
            return defines(path, parts[count:])
    return False


def defines(path: Path, rest: list[str]) -> bool:
    """Whether the module at *path* has ``x.y``."""
    body = tree_of(path).body
    while rest:
        name, *rest = rest
        match members(body).get(name):
            case ast.ClassDef() as node if rest[:1] and rest[0] in of_instances(node):
                return len(rest) == 1
            case ast.ClassDef() as node:
                if rest and rest[0] not in members(node.body) and inherits(node):
                    return True  # what a base of another module has isn't looked up
                body = node.body
            case ast.Import() | ast.ImportFrom():
                return True  # of another module
            case None:
                is_package = path.name == "__init__.py"
                return name in promised(path) or (
                    is_package and module_file([*package(path), name]) is not None
                )
            case _:
                return not rest
    return True


def inherits(node: ast.ClassDef) -> bool:
    """Whether attributes of *node* may come from a class of this project."""
    return any(isinstance(base, ast.Name) and base.id not in _BARE for base in node.bases)


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """The classes of each name in all modules."""
    found: dict[str, list[ast.ClassDef]] = {}
    for path in python_files():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def has_attribute(name: str, attribute: str) -> bool:
    """Whether a class of that name, or a base of one, has *attribute*; what a base of a library
    has isn't looked up."""
    known = classes().get(name)
    if known is None:
        return name in names_in_code()
    for node in known:
        if attribute in members(node.body) or attribute in of_instances(node):
            return True
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        if any(has_attribute(base, attribute) for base in bases if base not in _BARE):
            return True
    return False


def package(path: Path) -> list[str]:
    return list(path.parent.relative_to(ROOT).parts)


def promised(path: Path) -> set[str]:
    """Names that a package promises in ``__all__`` and loads when they are asked for."""
    node = members(tree_of(path).body).get("__all__")
    return {
        one.value
        for one in ast.walk(node or ast.Pass())
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }


@cache
def names_in_code() -> frozenset[str]:
    """Every name that code uses, and every word of a string in it that is no docstring."""
    found = {path.stem for path in ROOT.glob("*.py")}
    for path in python_files():
        found.update(part for part in path.relative_to(ROOT).with_suffix("").parts)
        docstrings = {line for line, _ in prose(path)}
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.NAME:
                found.add(token.string)
            elif token.type == tokenize.STRING and token.start[0] not in docstrings:
                found.update(re.findall(r"\w+", token.string))
    return frozenset(found)


def test_the_checker_tells_existing_names_from_others() -> None:
    assert resolves("octopi.environment.Disk.page_cache_id")
    assert resolves("octopi.connect")
    assert resolves("octopi.roles.broker")
    assert not resolves("octopi.environment.Disk.page_cash_id")
    assert not resolves("octopi.operating_system.environment")
    assert not resolves("octopi.clients.consumers")
    assert has_attribute("LogLeader", "joining_end")
    assert has_attribute("LocalLog", "check_anchor")  # of its base
    assert not has_attribute("LocalLog", "check_anchors")


def test_every_full_name_in_docstrings_and_comments_exists() -> None:
    mentioned = {
        (name, f"{path.relative_to(ROOT)}:{line}")
        for path in python_files()
        if path != Path(__file__)
        for line, text in prose(path)
        for name in DOTTED.findall(text)
        if name not in NO_NAMES
    }
    assert len(mentioned) > 50
    assert sorted(one for one in mentioned if not resolves(one[0])) == []


def test_every_full_name_in_the_documents_exists() -> None:
    mentioned = {
        (name, str(path.relative_to(ROOT)))
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        for name in DOTTED.findall(path.read_text())
        if name not in NO_NAMES
    }
    assert mentioned
    assert sorted(one for one in mentioned if not resolves(one[0])) == []


def test_every_file_that_is_mentioned_exists() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = [(path, text) for path in python_files() for _, text in prose(path)]
    texts += [(path, path.read_text()) for path in pages]
    mentioned = {
        (name, str(path.relative_to(ROOT))) for path, text in texts for name in FILE.findall(text)
    }
    assert len(mentioned) > 5
    assert sorted(one for one in mentioned if not (ROOT / one[0]).exists()) == []


def test_every_name_below_a_package_in_the_documents_exists() -> None:
    """`replication.replica.Replica` is short for the same name below `octopi`."""
    packages = "|".join(path.parent.name for path in (ROOT / "octopi").glob("*/__init__.py"))
    short = re.compile(rf"`((?:{packages})(?:\.\w+)+)`")
    mentioned = {
        (name, str(path.relative_to(ROOT)))
        for path in sorted((ROOT / "docs").glob("*.md"))
        for name in short.findall(path.read_text())
        if not name.endswith((".py", ".js", ".md"))
    }
    assert mentioned
    assert sorted(one for one in mentioned if not resolves(f"octopi.{one[0]}")) == []


def test_every_attribute_in_docstrings_and_documents_is_one_that_the_class_has() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = [
        (f"{path.relative_to(ROOT)}:{line}", text)
        for path in python_files()
        if path != Path(__file__)
        for line, text in prose(path)
    ]
    texts += [(str(path.relative_to(ROOT)), path.read_text()) for path in pages]
    mentioned = {
        (place, name, attribute)
        for place, text in texts
        for name, attribute in ATTRIBUTE.findall(text)
        if f"{name}.{attribute}" not in NO_ATTRIBUTES
    }
    assert len(mentioned) > 100
    assert sorted(one for one in mentioned if not has_attribute(*one[1:])) == []


def test_every_short_name_in_docstrings_is_used_by_some_code() -> None:
    """The weaker half: a docstring that mentions `Decision` needs a `Decision` somewhere."""
    unknown = sorted(
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in python_files()
        if path != Path(__file__)
        for line, text in prose(path)
        for name in LOCAL.findall(text)
        if not set(name.split(".")) <= names_in_code()
    )
    assert unknown == []
