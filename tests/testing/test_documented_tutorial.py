"""Whoever follows the document about testing sees what it says: the bug is found, the same
seed shows it again, the fix mends it, and every other program in it works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs/testing.md"
TUTORIAL = DOCUMENT.parent / "testing/lost-update.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(TUTORIAL.read_text())
REFERENCE = BLOCK.findall(DOCUMENT.read_text())
FILE = re.compile(r"# (\w+\.py)\n")
COMMAND = re.compile(r"\$ ((?:\w+=\S+ )*)pytest (\S+)\n")
SEED = re.compile(r"(?<=OCTOPI_TEST_SEED=)\d+")
OUTCOME = re.compile(r"^(\d+ (?:passed|failed))\b.* in ", re.MULTILINE)


class Reader:
    """Does in *directory* what the document says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.unread: set[str] = set()
        """Tests that were written down and not run."""
        self.seed = ""
        """The one that failed last."""

    def write(self, text: str) -> None:
        found = FILE.match(text)
        assert found is not None, f"a program without the name of its file: {text[:80]}"
        (self.directory / found[1]).write_text(text)
        if found[1].startswith("test_"):
            self.unread.add(found[1])

    def type(self, text: str) -> None:
        """Give a command, and compare what it says with what the document says."""
        found = COMMAND.match(text)
        assert found is not None, f"no command to run: {text[:80]}"
        variables = dict(one.split("=", 1) for one in found[1].split())
        if "OCTOPI_TEST_SEED" in variables:
            assert self.seed, "no seed failed so far"
            variables["OCTOPI_TEST_SEED"] = self.seed
        self.unread.discard(found[2].partition("::")[0])
        output = self.pytest(found[2], **variables)
        expected = OUTCOME.search(text)
        assert expected is not None
        assert OUTCOME.findall(output) == [expected[1]], output
        seeds = SEED.findall(output)
        assert bool(seeds) == ("again:" in text)
        self.seed = seeds[0] if seeds else self.seed
        if "OCTOPI_TEST_PAGES" in variables:
            page = re.search(r"what happened: (\S+)", output)
            assert page is not None, output
            assert "account: kill" in (self.directory / page[1]).read_text()

    def pytest(self, *arguments: str, **variables: str) -> str:
        ours = ("PYTEST", "OCTOPI", "COVERAGE")
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(ours)
        }
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            cwd=self.directory,
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout


EXAMPLES = DOCUMENT.parent / "examples"
PROGRAMS = [text for kind, text in BLOCKS if kind == "python"]
COMMANDS = [text for kind, text in BLOCKS if kind == "console"]


def test_the_programs_of_the_tutorial_find_replay_and_fix_the_bug() -> None:
    outcomes = [found[1] for text in COMMANDS if (found := OUTCOME.search(text))]
    assert outcomes == ["1 passed", "1 failed", "1 failed", "1 passed", "1 passed"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tutorial_prints_the_output_that_it_shows(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for kind, text in BLOCKS:
        if kind == "python":
            reader.write(text)
        else:
            reader.type(text)
    assert not reader.unread


@pytest.mark.slow
def test_all_other_programs_of_the_document_work(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for kind, text in REFERENCE:
        if kind == "python":
            reader.write(text)
    output = reader.pytest()
    assert len(reader.unread) >= 4
    assert re.search(r"^\d+ passed in ", output, re.MULTILINE), output


@pytest.mark.slow
def test_the_examples_beside_the_document_work(tmp_path: Path) -> None:
    (expected,) = [text for _, text in REFERENCE if text.startswith("$ pytest docs/examples")]
    for file in EXAMPLES.glob("test_*.py"):
        assert f"examples/{file.name}" in DOCUMENT.read_text()
        (tmp_path / file.name).write_text(file.read_text())
    output = Reader(tmp_path).pytest()
    assert OUTCOME.findall(output) == OUTCOME.findall(expected), output


@pytest.mark.slow
def test_the_test_for_the_bug_fails_without_the_fix(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.write(next(one for one in PROGRAMS if one.startswith("# account.py")))
    regression = next(one for one in PROGRAMS if one.startswith("# test_regression.py"))
    regression = regression.replace("keep_account(client)", "keep_account(client, notes)")
    reader.write(
        regression.replace("import octopi.testing\n", "import octopi.testing\nnotes = {}\n")
    )
    output = reader.pytest("test_regression.py")
    assert "assert 20 == 30" in output, output
