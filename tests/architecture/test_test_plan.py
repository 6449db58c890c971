"""The test plan names tests that there are, and all of them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLAN = (ROOT / "docs/test-plan.md").read_text()
SURVIVAL = "## What survives what\n"
SHOWN_ELSEWHERE = (SURVIVAL, "## Limits\n", "## Threats\n")
"""Sections that name tests of other folders; see test_limits.py for the last two."""


def defined_in(*folders: str) -> set[str]:
    """The names of the tests in folders of ``tests``."""
    paths = [path for folder in folders for path in (ROOT / "tests" / folder).glob("test_*.py")]
    return {name for path in paths for name in re.findall(r"def (test_\w+)", path.read_text())}


def named(text: str) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", text))


def survival(text: str) -> dict[str, str]:
    """The rows of the table of what survives what: the first cell, and the others."""
    section = text.partition(SURVIVAL)[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|(.*)\|$", section, re.MULTILINE)[1:]
    return {what: rest for what, rest in rows if set(what) != {"-"}}


def test_the_plan_names_each_integration_test_and_no_other() -> None:
    plan = PLAN
    for title in SHOWN_ELSEWHERE:
        before, _, rest = plan.partition(title)
        plan = before + "## " + rest.partition("\n## ")[2]
    assert named(plan) == defined_in("integration")


def test_each_line_of_the_table_of_survived_failures_names_its_tests() -> None:
    promised, shown = survival((ROOT / "README.md").read_text()), survival(PLAN)
    assert len(promised) >= 8
    assert list(shown) == list(promised)
    there = defined_in("survival", "integration", "failures", "chaos", "cli", "simulation")
    for what, tests in shown.items():
        assert named(tests), f"no test shows: {what}"
        assert named(tests) <= there, what


def test_each_test_of_survival_is_named_in_the_table_of_survived_failures() -> None:
    assert defined_in("survival") <= {
        name for tests in survival(PLAN).values() for name in named(tests)
    }
