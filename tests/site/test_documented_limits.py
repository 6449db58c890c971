"""The numbers in docs/limits.md are those of octopi/limits.py."""

from __future__ import annotations

import re

import pytest

from harness.site.source import ROOT
from octopi import limits

ROWS = re.findall(
    r"^\| ([^|]+) \| ([^|]+) \| `(\w+)` \|",
    (ROOT / "docs/limits.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def written(name: str) -> str:
    """How the page writes a limit: bytes in MiB if they are whole ones."""
    value = getattr(limits, name)
    if "_BYTES" in name and value % limits.MIB == 0:
        return f"{value // limits.MIB:,} MiB"
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}"


def test_the_page_has_limits() -> None:
    assert len(ROWS) > 15
    assert len({name for _, _, name in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("what", "number", "name"), ROWS, ids=[name for _, _, name in ROWS])
def test_a_limit_is_the_one_of_the_code(what: str, number: str, name: str) -> None:
    assert number == written(name)
    assert ("bytes" in what) == ("_BYTES" in name)
    assert ("seconds" in what) == name.endswith("_S")
