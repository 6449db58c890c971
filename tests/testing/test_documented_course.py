"""Whoever follows the course sees what its pages say: each bug is found and shown again by its
line, the mended program passes, and the test that is kept fails without the mending."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.testing.test_documented_tutorial import FILE, Reader

FOLDER = Path(__file__).parents[2] / "docs/testing"
PAGES = ["double-charge", "zombie", "poison-message", "stale-cache", "split-brain"]
"""Beside the first one, which `test_documented_tutorial` follows."""
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BREAK = re.compile(r",?\s+(?=\))|\s+")
"""What a formatter may add to a long call."""
CALL = re.compile(r"^E +(cluster\.\w+\(.*?\))(?:  #.*)?$", re.MULTILINE)
BRIEFLY = {"OCTOPI_TEST_SHRINK_S": "0", "OCTOPI_TEST_SEEDS": "2"}


class Page:
    """A page: a program, a test of it, the program again, and the test that is kept."""

    def __init__(self, name: str) -> None:
        blocks = BLOCK.findall((FOLDER / f"{name}.md").read_text())
        programs = [text for kind, text in blocks if kind == "python"]
        self.wrong, self.test, self.right, self.kept = programs
        self.consoles = [text for kind, text in blocks if kind == "console"]

    def file(self, text: str) -> str:
        """The name of the file of a program."""
        found = FILE.match(text)
        assert found is not None
        return found[1]


def test_the_course_has_six_pages_and_each_leads_to_the_next() -> None:
    index = (FOLDER.parent / "testing.md").read_text()
    names = ["lost-update", *PAGES]
    for name, following in zip(names, [*names[1:], "beside-others"], strict=True):
        assert f"(testing/{name}.md)" in index
        assert f"({following}.md)" in (FOLDER / f"{name}.md").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_a_failure_and_two_passes(name: str) -> None:
    page = Page(name)
    assert page.file(page.wrong) == page.file(page.right)
    failure, *passes = page.consoles
    assert "E " in failure
    assert "cluster." in failure
    assert all(text.endswith("\n1 passed\n") for text in passes)
    (line,) = CALL.findall(failure)
    kept = BREAK.sub("", page.kept)
    assert BREAK.sub("", line) in kept, "the line that was printed is the one that is kept"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    page, reader = Page(name), Reader(tmp_path)
    test, kept = page.file(page.test), page.file(page.kept)
    for text in (page.wrong, page.test, page.kept):
        reader.write(text)
    output = reader.pytest(test, kept, OCTOPI_TEST_SHRINK_S="0")
    assert "2 failed" in output, output
    assert output.count("AssertionError\n") == 2, "both fail for the reason of the page"
    reader.write(page.right)
    output = reader.pytest(test, kept, **BRIEFLY)
    assert "2 passed" in output, output
