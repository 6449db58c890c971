"""Commands print through `octopi.cli.output` alone, where texts of strangers are made harmless.

Nothing is imported: calls are read from the syntax trees.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRINTER = "octopi/cli/output.py"

ALLOWED = {
    "octopi/cli/consuming.py": {"os.write"},  # messages; message_format makes them harmless
    "octopi/cli/commands/salvage.py": {"sys.stdout"},  # likewise
    "octopi/cli/invocation.py": {"sys.stdout"},  # flushed at the end
    "octopi/cli/rendering.py": {"sys.stdout"},  # asked whether it is a terminal
    "octopi/cli/node_log.py": {"sys.stderr"},  # every line of its formatters is printable
    "sim/search/progress_bar.py": {"sys.stdout"},  # likewise asked
    "sim/search/determinism_worker.py": {"print"},  # a process of its own, read by a program
    "sim/mutants/baseline.py": {"print"},  # likewise
    "sim/mutants/runner.py": {"print"},  # likewise
}
WRITERS = {
    "print",
    "click.echo",
    "click.secho",
    "click.echo_via_pager",
    "click.confirm",
    "click.prompt",
    "os.write",
    "sys.stdout",
    "sys.stderr",
    "traceback.print_exc",
    "traceback.print_exception",
    "rich.print",
    "rich.console",
    "warnings.warn",
}


def modules() -> list[Path]:
    folders = [ROOT / "octopi" / "cli", ROOT / "sim"]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def writers(tree: ast.AST) -> Iterator[str]:
    """The ways to a terminal that a module mentions."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                yield "print"
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                yield f"{module}.{name}"
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{one.name}" for one in names)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_command_prints_past_the_module_that_escapes_control_characters(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    if name != PRINTER:
        found = set(writers(ast.parse(path.read_text()))) & WRITERS
        assert found <= ALLOWED.get(name, set())


def test_each_allowed_exception_is_needed() -> None:
    for name, allowed in ALLOWED.items():
        assert allowed <= set(writers(ast.parse((ROOT / name).read_text()))), name
