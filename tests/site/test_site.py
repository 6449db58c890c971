"""The site has every page, and its references have everything that they are about."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

import octopi
from harness.site.__main__ import fetched_from_elsewhere
from harness.site.commands import commands_page
from harness.site.messages import messages_page, statuses_page
from harness.site.modules import node_pages_page
from harness.site.source import ROOT, pages, references, write_source
from octopi.admin import site
from octopi.cli.main import cli
from octopi.errors import Status
from octopi.wire import messages


def entries(navigation: object) -> Iterator[str]:
    """The pages in a part of the navigation."""
    match navigation:
        case str():
            yield navigation
        case list():
            for one in navigation:
                yield from entries(one)
        case dict():
            yield from entries(list(navigation.values()))


def test_the_navigation_has_every_page_once() -> None:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    listed = sorted(entries(settings["project"]["nav"]))
    decisions = ROOT / "docs/decisions"
    there = [str(one.relative_to(ROOT)) for one in pages() if one.parent != decisions]
    assert listed == sorted([*there, *references(), "docs/decisions/index.md"])


def test_folders_that_are_linked_get_a_page_and_other_files_are_copied(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    write_source(folder)
    assert "](docs/decisions/index.md)" in (folder / "README.md").read_text()
    index = (folder / "docs/decisions/index.md").read_text()
    assert "- [1. Byte offsets as message ids](0001-byte-offsets-as-message-ids.md)" in index
    assert (folder / "octopi/limits.py").exists()
    block = (ROOT / "docs/contributing.md").read_text().count("```")
    assert (folder / "docs/contributing.md").read_text().count("```") == block


def test_the_reference_of_commands_has_each_command_with_its_help() -> None:
    page = commands_page()
    headings = set(re.findall(r"^#+ octopi-node (.+)$", page, re.MULTILINE))
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.hidden or name in headings
    assert {"topics create", "subscriptions reset"} <= headings
    assert "Usage: octopi-node topics create [OPTIONS]" in page


def test_the_reference_of_messages_has_each_message_with_its_fields() -> None:
    page = messages_page()
    assert set(re.findall(r"^### (\w+)$", page, re.MULTILINE)) >= set(messages.MESSAGES)
    produce = page.partition("\n### produce\n")[2].partition("\n### ")[0]
    assert "| `records` | bytes, at most 16,777,216 bytes |" in produce
    links = set(re.findall(r"\]\(#(\w+)\)", page))
    assert links
    assert links <= {one.lower() for one in re.findall(r"^### (\w+)$", page, re.MULTILINE)}


def test_the_references_of_statuses_and_of_pages_are_complete() -> None:
    for status in Status:
        assert f"| {status.value} | `{status.name.lower()}` |" in statuses_page()
    for name in site.PAGES:
        assert f"| `/api/v1/{name}` | " in node_pages_page()


def test_a_page_that_fetches_a_script_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="https://a.example">a</a><script src="b.js">')
    assert fetched_from_elsewhere(tmp_path) == []
    (tmp_path / "b.html").write_text('<script async src="https://a.example/b.js"></script>')
    assert fetched_from_elsewhere(tmp_path) == [
        'b.html: <script async src="https://a.example/b.js">'
    ]


def test_public_modules_have_pages() -> None:
    assert octopi.__all__
    assert {
        "reference/octopi.md",
        "reference/octopi.aio.md",
        "reference/octopi.blocking.md",
        "reference/octopi.testing.md",
    } <= set(references())
