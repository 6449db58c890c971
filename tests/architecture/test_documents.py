"""The documents keep their form: a glossary to look words up in, decisions one by one."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_terms_are_in_alphabetical_order_and_there_once() -> None:
    terms = re.findall(r"^\*\*(.+)\*\*\n: \S", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert len(terms) > 50
    assert terms == sorted(set(terms))


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
