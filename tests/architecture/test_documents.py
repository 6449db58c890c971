"""The documents keep their form: a glossary to look words up in, decisions one by one."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_table_of_layers_has_every_package_and_module() -> None:
    [table] = re.findall(
        r"^\| package .*\n\|---.*\n((?:\|.*\n)+)",
        (DOCS / "architecture.md").read_text(),
        re.MULTILINE,
    )
    cells = [line.split("|")[1] for line in table.splitlines()]
    listed = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    there = [
        path.stem
        for path in (ROOT / "octopi").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    assert sorted(listed) == sorted(name for name in there if name != "__init__")


def test_packages_that_are_not_built_yet_are_listed_and_do_not_exist() -> None:
    """The last section of the page on layers names what the layer contract has in parentheses,
    which may be nothing."""
    text = (DOCS / "architecture.md").read_text()
    missing = text.partition("## What has a place but is not built yet")[2]
    named = re.findall(r"\(`(\w+)`\)", missing)
    contract = (ROOT / "pyproject.toml").read_text().partition("[tool.importlinter]")[2]
    layers = contract.partition("layers = [")[2].partition("]")[0]
    assert layers
    assert sorted(named) == sorted(re.findall(r"\((\w+)\)", layers))
    assert [name for name in named if (ROOT / "octopi" / name).exists()] == []


def test_terms_are_in_alphabetical_order_and_none_stands_twice() -> None:
    terms = re.findall(r"^\*\*(.+)\*\*\n: \S", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert len(terms) > 50
    assert terms == sorted(set(terms))


def test_each_test_that_a_document_names_exists() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"(?:\bdef |^)(test_\w+)(?:\(| =)", tests, re.MULTILINE)) | {
        path.stem for path in (ROOT / "tests").rglob("test_*.py")
    }
    named = {
        name: page.name
        for page in [ROOT / "README.md", *DOCS.rglob("*.md")]
        for name in re.findall(r"`(test_\w+)`", page.read_text())
    }
    assert len(named) > 300
    assert {name: page for name, page in named.items() if name not in there} == {}


def test_every_term_has_a_meaning() -> None:
    entries = (DOCS / "glossary.md").read_text().split("\n\n")[2:]
    assert [entry for entry in entries if not re.match(r"\*\*[^*]+\*\*\n: \S", entry)] == []


def test_decisions_are_numbered_without_gap_and_say_what_was_given_up() -> None:
    paths = sorted((DOCS / "decisions").glob("*.md"))
    assert [int(path.name[:4]) for path in paths] == list(range(1, len(paths) + 1))
    for path in paths:
        text = path.read_text()
        assert text.startswith(f"# {int(path.name[:4])}. ")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [
            "Context",
            "Choice",
            "What was given up",
            "Status",
        ]
