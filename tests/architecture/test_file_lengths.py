"""A module has one responsibility, so it is short; those that may be longer are listed here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]

LINES_MAX: Final = 500

LONGER: Final = {
    "octopi/errors.py": "one table of statuses and one tree of errors, which readers compare",
    "octopi/limits.py": "one table of all bounds, with the relations between them at its end",
}
"""Files that may be longer, each with the reason why it is not divided."""


def test_only_listed_files_are_long() -> None:
    long = {
        str(path.relative_to(ROOT))
        for package in ("octopi", "sim")
        for path in (ROOT / package).rglob("*.py")
        if len(path.read_text().splitlines()) > LINES_MAX
    }
    assert long == LONGER.keys(), "give a second responsibility a module of its own"
