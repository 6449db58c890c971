"""What the console's files may be: all there, and fit for a strict Content-Security-Policy."""

import re
from pathlib import Path

STATIC = Path(__file__).parents[2] / "octopi/console/static"


def test_the_client_is_there_with_all_that_it_imports() -> None:
    todo, seen = [STATIC / "octopi.js"], set[Path]()
    while todo:
        path = todo.pop()
        seen.add(path)
        todo += {path.parent / name for name in imports(path)} - seen
    assert len(seen) > 5
    assert {path.name for path in seen} >= {
        "cbor.js",
        "record.js",
        "follower.js",
        "publisher.js",
        "queue_session.js",
    }


def imports(path: Path) -> list[str]:
    text = path.read_text()
    at_once = re.findall(r'^(?:import|export) .*?from "\./(.+?)";$', text, re.MULTILINE)
    return at_once + re.findall(r'await import\("\./(.+?)"\)', text)


def test_no_file_needs_eval_or_a_script_or_style_within_a_page() -> None:
    scripts = [*STATIC.rglob("*.js")]
    assert scripts
    for path in scripts:
        assert not re.search(r"\bnew Function\b|\beval\(", path.read_text()), path
    for path in STATIC.rglob("*.html"):
        assert not re.search(r"<style|\sstyle=|<script>|\son[a-z]+=", path.read_text()), path


def test_what_the_console_says_to_do_is_in_the_page_on_operations() -> None:
    runbook = (STATIC / "console/runbook.js").read_text()
    operations = (STATIC.parents[2] / "docs/operations.md").read_text()
    commands = re.findall(r'"octopi-node ([a-z]+(?: [a-z]+)?)', runbook)
    assert len(commands) > 5
    for command in commands:
        assert f"octopi-node {command}" in operations, command
    sections = re.findall(r'section: "(.+)"', runbook)
    assert len(sections) > 2
    headings = re.findall(r"^#+ (.+)$", operations, re.MULTILINE)
    for section in sections:
        if section not in headings:
            assert set(section.split(", ")) <= set(headings), section
