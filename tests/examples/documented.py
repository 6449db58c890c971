"""The programs of the documents and the examples, as files that type checkers can read."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

from tests.examples.tools import EXAMPLES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/testing").glob("*.md")),
]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# (\w+)\.py\n")
"""The first line of a program that others import."""
IMPORT = re.compile(r"^(?:import|from) octopi\b", re.MULTILINE)
OF_SPARK = "from octopi.spark"
OF_SEARCH = "from sim."
"""What comes with the source only."""


def programs_of(document: Path) -> dict[str, str]:
    """The programs in *document* that use Octopi as it is installed, by module.  Those that name
    their file have its name.  If several have the same, an earlier one gets another, and so it has
    in those that import it."""
    found: dict[str, str] = {}
    for number, program in enumerate(BLOCK.findall(document.read_text()), 1):
        if not IMPORT.search(program) or OF_SEARCH in program:
            continue
        named = FILE_NAME.match(program)
        name = f"{document.stem}_{number}" if named is None else named[1]
        if name in found:
            earlier = f"{name}_before_{number}"
            imported = re.compile(rf"^from {name} import", re.MULTILINE)
            found = {one: imported.sub(f"from {earlier} import", found[one]) for one in found}
            found[earlier] = found.pop(name)
        found[name] = program
    return found


def all_programs() -> dict[str, str]:
    """All programs, by module."""
    found: dict[str, str] = {}
    for document in DOCUMENTS:
        for name, program in programs_of(document).items():
            assert name not in found, f"two documents have a program {name}.py"
            found[name] = program
    for file in EXAMPLES.glob("*.py"):
        found[file.stem] = file.read_text()
    for file in EXAMPLES.glob("*.ipynb"):
        found[file.stem] = as_program(file)
    return found


def as_program(notebook: Path) -> str:
    """The code of *notebook* in a function, because only notebooks may await outside of one."""
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return "async def notebook() -> None:\n" + textwrap.indent("\n\n".join(code), "    ") + "\n"
