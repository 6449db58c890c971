"""The test plan names tests that there are, and all of them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_plan_names_each_integration_test_and_no_other() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/test-plan.md").read_text()))
    paths = (ROOT / "tests/integration").glob("test_*.py")
    there = {name for path in paths for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert named == there
