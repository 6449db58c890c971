"""The documented tills: the checker finds the lost update, and accepts those that are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import octopi.testing

DOCUMENT = Path(__file__).parents[3] / "docs/testing.md"
SECTION = DOCUMENT.read_text().partition("## Checkers for histories\n")[2].partition("\n## ")[0]
[PROGRAM] = re.findall(r"^```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
[PRINTED] = re.findall(r"^```text\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)


@pytest.fixture
def names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(compile(PROGRAM, "test_stock.py", "exec"), found)
    return found


def test_a_lost_update_is_told_as_the_document_prints_it(
    names: dict[str, Callable[[], None]], capsys: pytest.CaptureFixture[str]
) -> None:
    names["test_other_tills_sell_a_hat_twice"]()
    # Times, and who is quicker, change with each change of the protocol.
    printed, shown = (re.sub(r"\d+", "#", one) for one in (capsys.readouterr().out, PRINTED))
    assert [line.split() for line in printed.splitlines()] == [
        line.split() for line in shown.splitlines()
    ]


def test_the_tills_that_append_on_a_condition_are_accepted(
    names: dict[str, Callable[[], None]],
) -> None:
    names["test_careful_tills_count_each_hat"]()


def test_each_checker_and_option_that_the_document_names_exists() -> None:
    calls = re.findall(r"`(\w+Checker)\((.*?)\)`", SECTION)
    assert len(calls) == 6
    for name, options in calls:
        fields = {one.name for one in getattr(octopi.testing, name).__attrs_attrs__}
        assert set(re.findall(r"(\w+)=", options)) == fields - {"steps_max"}
