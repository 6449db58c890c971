"""Builds the site: ``python -m harness.site`` (``make docs``)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from harness.site.source import ROOT, write_source

_FETCHED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?https?://[^>]*>""")


def fetched_from_elsewhere(site: Path) -> list[str]:
    """What pages below *site* fetch from other servers as soon as they are opened."""
    return [
        f"{page.relative_to(site)}: {tag}"
        for page in sorted(site.rglob("*.html"))
        for tag in _FETCHED.findall(page.read_text(encoding="utf-8"))
    ]


def main() -> int:
    """Write the pages, and have zensical make HTML of them; a broken link is an error."""
    write_source(ROOT / "dist/site-source")
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--strict", "--clean"], cwd=ROOT, check=False)
    foreign = fetched_from_elsewhere(ROOT / "dist/site")
    if foreign:
        sys.stderr.write("the site needs a network:\n" + "\n".join(foreign) + "\n")
        return 1
    if built.returncode == 0:
        sys.stdout.write(
            "the site is in dist/site; to read and search it: "
            "python3 -m http.server --bind 127.0.0.1 --directory dist/site 8000\n"
        )
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
