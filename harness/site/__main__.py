"""Builds the site: ``python -m harness.site`` (``make docs``)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.site.source import ROOT, write_source


def main() -> int:
    """Write the pages, and have zensical make HTML of them; a broken link is an error."""
    write_source(ROOT / "dist/site-source")
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--strict", "--clean"], cwd=ROOT, check=False)
    if built.returncode == 0:
        sys.stdout.write(
            "the site is in dist/site; to read and search it: "
            "python3 -m http.server --bind 127.0.0.1 --directory dist/site 8000\n"
        )
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
