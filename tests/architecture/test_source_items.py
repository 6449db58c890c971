"""docs/ownership.md has a row for each requirement of its source, and its tests are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/ownership.md").read_text()
ROWS = re.findall(r"^\| (H\d\d) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)


def test_each_requirement_has_one_row() -> None:
    assert [number for number, _, _ in ROWS] == [f"H{number:02}" for number in range(1, 41)]


def test_each_row_names_a_test_or_a_reason_or_says_that_it_is_missing() -> None:
    told = re.compile(r"`test_\w+`|^otherwise: |\*\*Missing\*\*|\]\(decisions/|see H\d\d")
    assert [number for number, _, what in ROWS if not told.search(what)] == []


def test_the_tests_that_rows_name_are_there() -> None:
    known = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = {name for _, _, what in ROWS for name in re.findall(r"`(test_\w+)`", what)}
    assert sorted(named - known) == []
