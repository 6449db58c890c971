"""The Markdown that the site is made of, in the folders in which the repository has it.

So links between pages stay as they are.  A file that is linked but is no page is copied; a folder
that is linked gets a page that lists what is in it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from harness.site.commands import commands_page
from harness.site.messages import messages_page, statuses_page
from harness.site.modules import module_pages, node_pages_page

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[#)])")
_CODE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """The pages that the repository has."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def references() -> dict[str, str]:
    """The pages that are written from the code: path and text of each."""
    return {
        "reference/commands.md": commands_page(),
        "reference/messages.md": messages_page(),
        "reference/statuses.md": statuses_page(),
        "reference/node-pages.md": node_pages_page(),
        **module_pages(),
    }


def write_source(folder: Path) -> None:
    """Write all pages, and what they link to, into *folder*, whose old content is removed."""
    if folder.exists():
        shutil.rmtree(folder)
    linked: set[Path] = set()
    for page in pages():
        copy = folder / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(_adapted(page, linked), encoding="utf-8")
    for path in sorted(linked):
        _copy(path, folder / path.relative_to(ROOT))
    for name, text in references().items():
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


def _adapted(page: Path, linked: set[Path]) -> str:
    """The text of *page* for the site; files and folders that it links to are added to *linked*."""

    def target(match: re.Match[str]) -> str:
        path = match[1]
        there = (page.parent / path).resolve()
        if "://" in path or there.suffix == ".md" or not there.is_relative_to(ROOT):
            return match[0]
        linked.add(there)
        return f"{path.rstrip('/')}/index.md" if there.is_dir() else match[0]

    parts = _CODE.split(page.read_text(encoding="utf-8"))
    parts[::2] = [_LINK.sub(target, prose) for prose in parts[::2]]
    return "".join(parts)


def _copy(path: Path, copy: Path) -> None:
    """Copy a file, or write the page of a folder with all of its files."""
    if path.is_file():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        return
    copy.mkdir(parents=True, exist_ok=True)
    lines = [f"# {path.relative_to(ROOT)}", ""]
    for one in sorted(path.iterdir()):
        if one.is_file() and one.suffix != ".pyc":
            title = one.name
            if one.suffix == ".md":
                title = one.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            else:
                shutil.copyfile(one, copy / one.name)
            lines.append(f"- [{title}]({one.name})")
    (copy / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
