"""Links between the Markdown pages lead to files and headings that there are, on a code host as in
the site, and blocks of code are well-formed."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

from harness.site.source import ROOT, pages

_CODE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")
PAGES = pages()
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def code_host_anchor(heading: str) -> str:
    """What code hosts make of a heading: each space becomes a hyphen."""
    return re.sub(r"[^\w\s-]", "", _plain(heading)).strip().lower().replace(" ", "-")


def site_anchor(heading: str) -> str:
    """What the site makes of a heading: spaces and hyphens in a row become one hyphen."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", _plain(heading)).strip().lower())


def _plain(heading: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")


@cache
def prose(page: Path) -> str:
    return _CODE.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page that are the same on a code host and in the site."""
    headings = re.findall(r"^#+ (.+?)\s*$", prose(page), re.MULTILINE)
    return {code_host_anchor(one) for one in headings} & {site_anchor(one) for one in headings}


def broken_links(page: Path, text: str) -> list[str]:
    """The links in the *text* of *page* that lead nowhere."""
    found = []
    for path, anchor in _LINK.findall(text):
        if "://" in path or path.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        is_page = target.suffix == ".md"
        if not target.exists() or (anchor and is_page and anchor not in anchors(target)):
            found.append(f"{path}#{anchor}" if anchor else path)
    return found


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken_links(page, prose(page)) == []


def test_a_link_to_a_missing_file_or_heading_is_noticed() -> None:
    readme = ROOT / "README.md"
    text = "[a](docs/nothing.md) [b](docs/clients.md#nothing) [c](docs/clients.md#errors) [d](#e)"
    assert broken_links(readme, text) == ["docs/nothing.md", "docs/clients.md#nothing", "#e"]


def test_a_heading_with_different_anchors_in_both_places_has_none() -> None:
    assert code_host_anchor("Reads & writes") == "reads--writes"
    assert site_anchor("Reads & writes") == "reads-writes"
    assert code_host_anchor("What `status` says") == site_anchor("What `status` says")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_blocks_of_code_of_a_page_are_well_formed(page: Path) -> None:
    for number, (language, text) in enumerate(_CODE.findall(page.read_text(encoding="utf-8")), 1):
        match language:
            case "python":
                compile(text, f"{page.name}, block {number}", "exec", dont_inherit=True)
            case "json":
                json.loads(text)
            case "toml":
                tomllib.loads(text)
            case "sh":
                read = subprocess.run(
                    ["bash", "-n"], input=text, capture_output=True, text=True, check=False
                )
                assert read.returncode == 0, f"{page.name}, block {number}: {read.stderr}"
